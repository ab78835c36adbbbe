"""The states of alerts in memory, for tests without a server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stream_app.core.alerts.states import KEPT_FOR_READERS, for_readers
from stream_app.ports.alerts import AlertStore


class MemoryAlertStore(AlertStore):
    """``AlertStore`` in memory."""

    def __init__(self) -> None:
        self.states: dict[str, bytes] = {}
        self.decided: dict[str, int] = {}
        self.outbox: list[bytes] = []
        self.for_readers: dict[str, list[bytes]] = {}
        self.told: dict[str, str] = {}
        self.former: dict[str, str] = {}
        self.refused: dict[tuple[str, str], str] = {}

    async def load(self) -> tuple[dict[str, bytes], dict[str, int]]:
        return dict(self.states), dict(self.decided)

    async def commit(
        self,
        stream: str,
        before: int | None,
        seq: int,
        states: Mapping[str, bytes],
        transitions: Sequence[Mapping[str, Any]],
    ) -> bool:
        if self.decided.get(stream) != before:
            return False
        self.decided[stream] = seq
        self.states |= states
        self.outbox += [json.dumps(one).encode() for one in transitions]
        kept = self.for_readers.get(stream, []) + [
            json.dumps(for_readers(one)).encode() for one in transitions
        ]
        self.for_readers[stream] = kept[-KEPT_FOR_READERS:]
        return True

    def transitions_of(self, stream: str) -> list[bytes]:
        """Return the last transitions of a stream as readers see them, oldest first."""
        return list(self.for_readers.get(stream, ()))

    async def transitions(self, after: str, limit: int) -> list[tuple[str, bytes]]:
        first = int(after.partition("-")[0] or 0) if after else 0
        page = self.outbox[first : first + limit]
        return [(f"{place}-0", text) for place, text in enumerate(page, start=first + 1)]

    async def begin(self, former: Mapping[str, str]) -> None:
        self.former = dict(former)
        shared = {was for target, was in former.items() if target in self.told}
        for target, was in former.items():
            if was in self.told and was not in shared:
                self.told[target] = self.told[was]
        self.refused = {key: said for key, said in self.refused.items() if key[0] in former}

    def refusals(self) -> dict[str, list[str]]:
        """Return by rule how targets refused its last notification."""
        found: dict[str, list[str]] = {}
        for (_, rule), said in sorted(self.refused.items(), key=lambda item: item[1]):
            found.setdefault(rule, []).append(said)
        return found

    async def register(self, target: str) -> str:
        return self.told.setdefault(target, f"{len(self.outbox)}-0")

    async def acknowledge(self, target: str, place: str, rule: str = "", refusal: str = "") -> None:
        self.told[target] = place
        if former := self.former.get(target):
            self.told[former] = place
        if rule:
            self.refused.pop((target, rule), None)
        if refusal:
            self.refused[target, rule] = refusal
