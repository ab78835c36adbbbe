"""The loop that sends alert transitions to every target: in order, at least once, with an idempotency key."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence

from stream_app.core.alerts.states import State
from stream_app.ports.alerts import AlertStore, AlertTarget, NotDelivered, Refused
from stream_app.together import until_all_end

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.2
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 60.0
REMIND_EVERY_S = 60.0
_TRANSITIONS_A_READ = 100


async def deliver(store: AlertStore, targets: Sequence[AlertTarget]) -> None:
    """Send every transition to every target until cancelled; a target that is down does not delay others."""
    await until_all_end(*(loop(store, target) for target in targets for loop in (_send, _remind)))


async def _send(store: AlertStore, target: AlertTarget) -> None:
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            sent = await send_waiting(store, target)
        except (NotDelivered, OSError) as failure:
            log.warning("alerts to %s wait (%s); trying again in %g s", target.shown, failure, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            continue
        pause_s = FIRST_PAUSE_S
        if not sent:
            await asyncio.sleep(LOOK_EVERY_S)


async def send_waiting(store: AlertStore, target: AlertTarget) -> int:
    """Send a target the transitions that wait for it; return how many were sent.

    A crash between a target's answer and its acknowledgement sends one transition twice, with the same key.
    Raises: NotDelivered, OSError.
    """
    after = await store.register(target.identity)
    waiting = await store.transitions(after, _TRANSITIONS_A_READ)
    for place, text in waiting:
        transition, refusal = json.loads(text), ""
        try:
            was_sent = bool(await target.send(transition))
        except Refused as refused:
            # Repeating a refused alert would block all later ones for ever.
            log.error("alert refused by %s (%s); it is not repeated", target.shown, str(refused))
            was_sent, refusal = True, f"{target.name} ({refused})"
        await store.acknowledge(target.identity, place, transition["rule"] if was_sent else "", refusal)
    return len(waiting)


async def _remind(store: AlertStore, target: AlertTarget) -> None:
    """Send firing alerts again to targets that would otherwise assume the alerts' end."""
    while True:
        await asyncio.sleep(REMIND_EVERY_S)
        try:
            states, _ = await store.load()
            firing = [state for text in states.values() if (state := State.from_json(text)).phase == "firing"]
            await target.remind([state.last for state in firing if state.last is not None])
        except (NotDelivered, Refused, OSError) as failure:
            log.warning("alerts to %s are not repeated now (%s)", target.shown, failure)
