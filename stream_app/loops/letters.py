"""Writes dead letters beside counting: otherwise one refused record would delay the release of its bin.

The price: a crash loses the letters that are still waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
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
        self._waiting: deque[tuple[Sequence[Refusal], str | None]] = deque()
        self._bytes = 0
        self._changed = asyncio.Condition()
        self._writing: asyncio.Task[None] | None = None

    async def put(self, refusals: Sequence[Refusal], stream: str | None = None) -> None:
        """Queue letters for writing; wait only while ``MOST_WAITING_BYTES`` or more are queued."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._bytes < MOST_WAITING_BYTES)
        self._waiting.append((refusals, stream))
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
            refusals, stream = self._waiting[0]
            await outage.outlast(partial(self._dead_letters.write, refusals, stream))
            outage.over()
            self._waiting.popleft()
            self._bytes -= _size(refusals)
            async with self._changed:
                self._changed.notify_all()


def _size(refusals: Sequence[Refusal]) -> int:
    return sum(LETTER_BYTES + len(refusal.record) for refusal in refusals)
