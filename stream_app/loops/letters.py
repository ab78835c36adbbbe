"""Writes dead letters beside counting: otherwise one refused record would delay the release of its bin.

The price: a crash loses the letters that are still waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from stream_app.core.incoming import Refusal
from stream_app.outage import Outage
from stream_app.ports import DeadLetters

MOST_WAITING_BYTES = 16 << 20  # letters that may wait for the disk, and those of one more slice
LETTER_BYTES = 300  # of memory, for each letter beside its record

log = logging.getLogger(__name__)


class LettersBeside:
    """Writes the dead letters of one source in their order, by a task that runs while letters wait."""

    def __init__(self, dead_letters: DeadLetters) -> None:
        self._dead_letters = dead_letters
        # Streams that count alike share their refusals, so a thousand of them wait as one group.
        self._waiting: dict[int, tuple[Sequence[Refusal], dict[str | None, None]]] = {}
        self._bytes = 0
        self._changed = asyncio.Condition()
        self._writing: asyncio.Task[None] | None = None

    async def put(self, refusals: Sequence[Refusal], stream: str | None = None) -> None:
        """Queue letters for writing; wait only while ``MOST_WAITING_BYTES`` or more are queued."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._bytes < MOST_WAITING_BYTES)
        _, streams = self._waiting.setdefault(id(refusals), (refusals, {}))
        if stream not in streams:  # a slice that is applied again refuses the same records
            streams[stream] = None
            self._bytes += _size(refusals)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    async def written(self) -> None:
        """Return when no letter waits."""
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write(self) -> None:
        outage = Outage(log, "dead letters")
        while self._waiting:
            refusals, streams = self._waiting.pop(next(iter(self._waiting)))
            await outage.outlast(partial(self._dead_letters.write, refusals, tuple(streams)))
            outage.over()
            self._bytes -= _size(refusals) * len(streams)
            async with self._changed:
                self._changed.notify_all()


def _size(refusals: Sequence[Refusal]) -> int:
    return sum(LETTER_BYTES + len(refusal.record) for refusal in refusals)
