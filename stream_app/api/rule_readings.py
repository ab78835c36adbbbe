"""The values of alert rules at the last release: computed once after each release, in the second process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from stream_app.api.admission.apart import Apart, ProcessEndedError
from stream_app.api.replica import StreamReplica
from stream_app.api.replicas import Replicas
from stream_app.api.succession import Succession
from stream_app.core.alerts.conditions import known_condition
from stream_app.core.alerts.readings import Now, shown_now
from stream_app.core.answers.query import StreamView
from stream_app.core.segments.names import base_of

MOST_RULES = 200  # of a stream; the others are listed without what they read
WAIT_S = 0.25


class RuleReadings:
    """The readings of the rules over every stream, kept until the next release.

    The number of requests does not change the work: there is one computation for a stream and a release.
    """

    def __init__(self, replicas: Replicas, apart: Apart) -> None:
        self._replicas, self._apart = replicas, apart

    async def of(self, replica: StreamReplica) -> Mapping[str, Now]:
        """Return the present values of the rules over a stream, by rule.

        It is empty if a long question about the stream is under way: a list of rules must not wait for it.
        Rules read the newest generation only.
        """
        stream = base_of(replica.stream)
        names, texts = self._rules(stream)
        if not names or replica.view is None or self._replicas.streams.shown_as(stream) is not replica:
            return {}
        key, asked = ("readings", texts), Succession((replica,))
        if any(condition.against_past for text in texts if (condition := known_condition(text))):
            asked = Succession.of(replica, self._replicas.by_name, lambda name: base_of(name) == stream)
        if key not in replica.answers:
            try:
                async with AsyncExitStack() as held:
                    async with asyncio.timeout(WAIT_S):
                        for one in asked.parts:  # oldest first, as all questions
                            await held.enter_async_context(one.asked_apart)
                    await self._compute(asked, key)
            except (TimeoutError, ProcessEndedError):
                return {}
        found = replica.answers.get(key)
        shown = [] if found is None else [Now(*one) for one in json.loads(found)]
        return dict(zip(names, shown, strict=False))

    def _rules(self, stream: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        lasts = (state.last for _, state in sorted(self._replicas.alerts.items()))
        own = [last for last in lasts if last is not None and last["stream"] == stream][:MOST_RULES]
        return tuple(last["rule"] for last in own), tuple(last["condition"] for last in own)

    async def _compute(self, asked: Succession, key: tuple[str, tuple[str, ...]]) -> None:
        view, replica = asked.view, asked.own
        if view is None or key in replica.answers:
            return
        seq = view.visible_seq
        found = await self._apart.of_view(view, readings_now, key[1])
        if replica.view is view.own and view.own.visible_seq == seq:
            replica.answers[key] = found


def readings_now(view: StreamView, texts: Sequence[str]) -> bytes:
    """Return the values of conditions at a view's release, as JSON: the fields of ``Now`` for each.

    A condition that this version cannot parse reads nothing.
    """
    parsed = [known_condition(text) for text in texts]
    shown = iter(shown_now([one for one in parsed if one is not None], view))
    return json.dumps([Now() if one is None else next(shown) for one in parsed]).encode()
