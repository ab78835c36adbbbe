"""Writes dead letters beside counting, so that no refused record delays the release of its bin.

A letter of a refused record waits in memory until it is written: a crash loses those that wait. The store
keeps the positions of records that were set aside and then refused, because they are dated too far ahead. It
keeps them until their letters are written, so a crash loses none of these.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from stream_app.core.incoming import Reason, Refusal
from stream_app.loops.loaded_streams import LoadedStreams
from stream_app.outage import Outage
from stream_app.ports import DeadLetters, Store
from stream_app.together import each_to_its_end

log = logging.getLogger(__name__)

MOST_WAITING_BYTES = 16 << 20  # of letters that wait for the disk; the letters of one read may exceed it
LETTER_BYTES = 300  # of memory, for each letter beside its record
STREAM_BYTES = 100  # of memory, for each stream of a group


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
        """Return the memory that these refusals add; those that wait may hold the same records."""
        size = LETTER_BYTES * len(refusals)
        for refusal in refusals:
            self._records[id(refusal.record)] += 1
            if self._records[id(refusal.record)] == 1:
                size += len(refusal.record)
        return size

    def _freed(self, refusals: Sequence[Refusal]) -> int:
        """Return the memory that these refusals free: records of others stay."""
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


MOST_LETTERS = 1_000  # of a stream and partition, in one round trip and in one write
MOST_PLACES = 64  # streams and partitions that are asked about in one round trip


class RefusedAhead:
    """Writes a dead letter for each known record that a cut refused."""

    def __init__(self, store: Store, dead_letters: DeadLetters, views: LoadedStreams) -> None:
        self._store = store
        self._dead_letters = dead_letters
        self._views = views
        self._expected: dict[tuple[str, str], None] = {}  # streams and partitions, the oldest first
        self._more = asyncio.Event()

    def expect(self, place: tuple[str, str]) -> None:
        """Request letters for a stream and partition in which a cut may have refused records."""
        self._expected[place] = None
        self._more.set()

    async def run(self) -> None:
        """Write letters as they are expected, until cancelled; cancelling is safe at any await."""
        outage = Outage(log, "dead letters")
        while True:
            await self._more.wait()
            await outage.outlast(self.write, self._views.doubt)
            outage.over()

    async def write(self) -> None:
        """Write the letters that are expected now. Raises: OSError; a further call repeats what it left."""
        while self._expected:
            places = list(islice(self._expected, MOST_PLACES))
            for place in places:
                del self._expected[place]  # a cut that is stored meanwhile expects letters anew
            try:
                await self._write(places)
            except BaseException:
                for place in places:
                    self.expect(place)
                raise
        self._more.clear()

    async def _write(self, places: Sequence[tuple[str, str]]) -> None:
        """Write letters of these streams and partitions: one write for all streams that refused alike."""
        store = self._store
        found = await each_to_its_end(*(store.refused_ahead(*place, MOST_LETTERS) for place in places))
        alike = dict[tuple[str, tuple[int, ...]], list[str]]()
        for (stream, partition), refused in zip(places, found, strict=True):
            if refused:
                alike.setdefault((partition, tuple(refused)), []).append(stream)
        for (partition, positions), streams in alike.items():
            letters = [Refusal(partition, position, Reason.FUTURE, b"") for position in positions]
            try:
                await self._dead_letters.write(letters, tuple(streams))
            except RuntimeError as failure:  # no thread could start: the store keeps the positions
                raise OSError(f"{type(failure).__name__} while dead letters were written") from None
            await each_to_its_end(*(store.forget_refused(stream, partition, positions) for stream in streams))
            if len(positions) == MOST_LETTERS:
                for stream in streams:  # there may be more
                    self.expect((stream, partition))
