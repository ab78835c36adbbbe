"""Alerts' states and transitions in Redis, under public keys because they follow from released values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stream_app.core.alerts.states import KEPT_FOR_READERS, for_readers
from stream_app.ports.alerts import AlertStore
from stream_app.state.connection import batch, connect, script, transaction
from stream_app.state.greeting import Expected
from stream_app.state.keys import (
    ALERT_DECIDED,
    ALERT_OUTBOX,
    ALERT_REFUSED,
    ALERT_STATES,
    ALERT_TOLD,
    transitions_key,
)
from stream_app.state.round_trips import Command

KEPT_TRANSITIONS = 10_000


class RedisAlertStore(AlertStore):
    """``AlertStore`` in Redis, for a user that may write the keys of alerts only.

    Raises (every method): OSError if Redis does not answer or refuses.
    """

    def __init__(self, url: str) -> None:
        self._redis = connect(url, expected=Expected(writes=True))
        self._former: dict[str, str] = {}  # by target: the name of its place in older versions
        self._refused: set[str] = set()  # fields of the refusals that readers see

    async def close(self) -> None:
        await self._redis.aclose()

    async def load(self) -> tuple[dict[str, bytes], dict[str, int]]:
        states, decided = await transaction(
            self._redis, [("HGETALL", ALERT_STATES), ("HGETALL", ALERT_DECIDED)]
        )
        return (
            {name.decode(): text for name, text in states.items()},
            {stream.decode(): int(seq) for stream, seq in decided.items()},
        )

    async def commit(
        self,
        stream: str,
        before: int | None,
        seq: int,
        states: Mapping[str, bytes],
        transitions: Sequence[Mapping[str, Any]],
    ) -> bool:
        shown = [for_readers(one) for one in transitions[-KEPT_FOR_READERS:]]
        texts = [json.dumps(one, separators=(",", ":")) for one in (*transitions, *shown)]
        pairs = [part for name, text in states.items() for part in (name, text)]
        reply = await script("decide_alerts")(
            self._redis,
            [ALERT_STATES, ALERT_DECIDED, ALERT_OUTBOX, transitions_key(stream)],
            [
                *(stream, "" if before is None else before, seq, KEPT_TRANSITIONS, KEPT_FOR_READERS),
                *(len(transitions), len(shown), *texts, *pairs),
            ],
        )
        return reply == b"done"

    async def transitions(self, after: str, limit: int) -> list[tuple[str, bytes]]:
        start = f"({after}" if after else "-"
        [entries] = await batch(self._redis, [("XRANGE", ALERT_OUTBOX, start, "+", "COUNT", limit)])
        return [(place.decode(), fields[b"transition"]) for place, fields in entries]

    async def begin(self, former: Mapping[str, str]) -> None:
        [stored, refused] = await batch(self._redis, [("HGETALL", ALERT_TOLD), ("HGETALL", ALERT_REFUSED)])
        places = {name.decode(): place for name, place in stored.items()}
        self._former = dict(former)
        self._refused = {field.decode() for field, refusal in refused.items() if refusal}
        gone = [field for field in self._refused if json.loads(field)[0] not in former]
        shared = {was for target, was in former.items() if target in places}
        # A target that is added beside others of its host is new: it would get all that they got.
        heirs = [target for target, was in former.items() if was in places and was not in shared]
        commands: list[Command] = [("HSET", ALERT_TOLD, target, places[former[target]]) for target in heirs]
        commands += [("HSET", ALERT_REFUSED, field, "") for field in gone]
        self._refused -= set(gone)
        if commands:
            await transaction(self._redis, commands)

    async def register(self, target: str) -> str:
        [place] = await batch(self._redis, [("HGET", ALERT_TOLD, target)])
        if place is not None:
            return str(place.decode())
        [last] = await batch(self._redis, [("XREVRANGE", ALERT_OUTBOX, "+", "-", "COUNT", 1)])
        end = last[0][0].decode() if last else "0-0"
        await self.acknowledge(target, end)
        return end

    async def acknowledge(self, target: str, place: str, rule: str = "", refusal: str = "") -> None:
        names = filter(None, (target, self._former.get(target)))  # older builds go on at the former place
        commands: list[Command] = [("HSET", ALERT_TOLD, *(part for name in names for part in (name, place)))]
        field = json.dumps([target, rule])
        if refusal or field in self._refused:
            commands.append(("HSET", ALERT_REFUSED, field, refusal))
        await transaction(self._redis, commands)
        (self._refused.add if refusal else self._refused.discard)(field)
