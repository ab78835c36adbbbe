"""Where alerts stand, in memory: for tests that need no server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stream_app.core.alerts.states import KEPT_FOR_READERS, for_readers


class MemoryAlertStore:
    """``AlertStore`` in memory."""

    def __init__(self) -> None:
        self._states: dict[str, bytes] = {}
        self._decided: dict[str, int] = {}
        self._outbox: list[bytes] = []
        self._for_readers: dict[str, list[bytes]] = {}
        self._told: dict[str, str] = {}

    async def load(self) -> tuple[dict[str, bytes], dict[str, int]]:
        """Return the states by rule, and by stream the last release that was decided on."""
        return dict(self._states), dict(self._decided)

    async def commit(
        self,
        stream: str,
        before: int | None,
        seq: int,
        states: Mapping[str, bytes],
        transitions: Sequence[Mapping[str, Any]],
    ) -> bool:
        """Store what was decided up to ``seq``, or change nothing if ``before`` is not the last decision."""
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
        """Return transitions after a place, in order, each with its place."""
        first = int(after.partition("-")[0] or 0) if after else 0
        page = self._outbox[first : first + limit]
        return [(f"{place}-0", text) for place, text in enumerate(page, start=first + 1)]

    async def register(self, target: str) -> str:
        """Return the place up to which a target was notified; a new target starts at the present end."""
        return self._told.setdefault(target, f"{len(self._outbox)}-0")

    async def acknowledge(self, target: str, place: str) -> None:
        """Note that a target was notified of everything up to a place."""
        self._told[target] = place
