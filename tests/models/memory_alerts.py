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
        self._states: dict[str, bytes] = {}
        self._decided: dict[str, int] = {}
        self._outbox: list[bytes] = []
        self._for_readers: dict[str, list[bytes]] = {}
        self._told: dict[str, str] = {}
        self._former: dict[str, str] = {}
        self._refused: dict[tuple[str, str], str] = {}

    async def load(self) -> tuple[dict[str, bytes], dict[str, int]]:
        return dict(self._states), dict(self._decided)

    async def commit(
        self,
        stream: str,
        before: int | None,
        seq: int,
        states: Mapping[str, bytes],
        transitions: Sequence[Mapping[str, Any]],
    ) -> bool:
        if self._decided.get(stream) != before:
            return False
        self._decided[stream] = seq
        self._states |= states
        self._outbox += [json.dumps(one).encode() for one in transitions]
        kept = self._for_readers.get(stream, []) + [
            json.dumps(for_readers(one)).encode() for one in transitions
        ]
        self._for_readers[stream] = kept[-KEPT_FOR_READERS:]
        return True

    def transitions_of(self, stream: str) -> list[bytes]:
        """Return the last transitions of a stream as readers see them, oldest first."""
        return list(self._for_readers.get(stream, ()))

    async def transitions(self, after: str, limit: int) -> list[tuple[str, bytes]]:
        first = int(after.partition("-")[0] or 0) if after else 0
        page = self._outbox[first : first + limit]
        return [(f"{place}-0", text) for place, text in enumerate(page, start=first + 1)]

    async def begin(self, former: Mapping[str, str]) -> None:
        self._former = dict(former)
        shared = {was for target, was in former.items() if target in self._told}
        for target, was in former.items():
            if was in self._told and was not in shared:
                self._told[target] = self._told[was]
        self._refused = {key: said for key, said in self._refused.items() if key[0] in former}

    def refusals(self) -> dict[str, list[str]]:
        """Return by rule how targets refused its last notification."""
        found: dict[str, list[str]] = {}
        for (_, rule), said in sorted(self._refused.items(), key=lambda item: item[1]):
            found.setdefault(rule, []).append(said)
        return found

    async def register(self, target: str) -> str:
        return self._told.setdefault(target, f"{len(self._outbox)}-0")

    async def acknowledge(self, target: str, place: str, rule: str = "", refusal: str = "") -> None:
        self._told[target] = place
        if former := self._former.get(target):
            self._told[former] = place
        if rule:
            self._refused.pop((target, rule), None)
        if refusal:
            self._refused[target, rule] = refusal
