"""Writes dead letters beside counting: otherwise one refused record would delay the release of its bin.

The price: a crash loses the letters that are still waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from stream_app.core.incoming import Refusal
from stream_app.outage import Outage
from stream_app.ports import DeadLetters

MOST_WAITING_BYTES = 16 << 20  # of letters that wait for the disk, beside those of one more read
LETTER_BYTES = 300  # of memory, for each letter beside its record
STREAM_BYTES = 100  # of memory, for each stream of a group

log = logging.getLogger(__name__)


@dataclass
class _Group:
    """Refusals whose letters wait, and the streams that refused all of them."""

    refusals: Sequence[Refusal]
    streams: dict[str | None, None] = field(default_factory=dict)


class LettersBeside:
    """Writes the dead letters of one source in their order, by a task that runs while letters wait."""

    def __init__(self, dead_letters: DeadLetters) -> None:
        self._dead_letters = dead_letters
        self._waiting: dict[int, _Group] = {}  # by the identity of the refusals
        self._records = Counter[int]()  # how often a record waits, by its identity
        self._bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._writing: asyncio.Task[None] | None = None

    async def room(self) -> None:
        """Return once fewer than ``MOST_WAITING_BYTES`` are queued."""
        await self._has_room.wait()

    def put(self, refusals: Sequence[Refusal], stream: str | None = None) -> None:
        """Queue a letter of a stream for each refusal.

        Args: refusals, which must not change afterwards. A thousand streams that pass the same list, because
            they refuse the same records, wait as one group and take the memory of one.
        """
        group = self._waiting.get(id(refusals))
        if group is None:
            group = self._waiting[id(refusals)] = _Group(refusals)
            self._bytes += self._held(refusals)
        if stream not in group.streams:  # a slice that is applied again refuses the same records
            group.streams[stream] = None
            self._bytes += STREAM_BYTES
        if self._bytes >= MOST_WAITING_BYTES:
            self._has_room.clear()
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    def _held(self, refusals: Sequence[Refusal]) -> int:
        """Return the memory that these take beside those that wait, which may hold the same records."""
        size = LETTER_BYTES * len(refusals)
        for refusal in refusals:
            self._records[id(refusal.record)] += 1
            if self._records[id(refusal.record)] == 1:
                size += len(refusal.record)
        return size

    def _freed(self, refusals: Sequence[Refusal]) -> int:
        """Return the memory that these took alone."""
        size = LETTER_BYTES * len(refusals)
        for refusal in refusals:
            self._records[id(refusal.record)] -= 1
            if not self._records[id(refusal.record)]:
                del self._records[id(refusal.record)]
                size += len(refusal.record)
        return size

    async def written(self) -> None:
        """Return when no letter waits."""
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write(self) -> None:
        outage = Outage(log, "dead letters")
        while self._waiting:
            group = self._waiting.pop(next(iter(self._waiting)))
            try:
                write = partial(self._dead_letters.write, group.refusals, tuple(group.streams))
                await outage.outlast(write)
                outage.over()
            except Exception as failure:  # such as a thread that cannot start: counting goes on
                kind = type(failure).__name__  # its message may quote a record
                log.error("dead letters: %s; records are refused without a letter", kind)
            finally:
                self._bytes -= self._freed(group.refusals) + STREAM_BYTES * len(group.streams)
                if self._bytes < MOST_WAITING_BYTES:
                    self._has_room.set()
