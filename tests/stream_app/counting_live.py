"""A worker's reader and cutter over a live log in virtual time. Store and dead letters may be slow."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from stream_app.core.arrival import ArrivalChange
from stream_app.core.incoming import Refusal
from stream_app.core.records import GENESIS, Apply, EpochRecord, PartitionCuts, Reply
from stream_app.loops.clocks import LiveClock
from stream_app.loops.stream import Ports
from stream_app.wiring.pipeline import Counting
from tests.models.memory import MemoryStore
from tests.simulator.log import Entry, Kind, Log, LogSource
from tests.simulator.memory_sinks import MemoryDeadLetters, MemoryKeys
from tests.stream_app.declared import BIN_US, FIRST_BIN, STREAM, design_of, strategy_of

BIN_S = BIN_US / 1e6
START_US = FIRST_BIN * BIN_US


class Live:
    """A worker's reader and cutter in virtual time, which starts with the first bin.

    Args: log; streams, their names; agree, awaited before a stream is loaded.
    """

    def __init__(
        self, log: Log, streams: Sequence[str] = (STREAM,), agree: Callable[[str], Any] | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        self.store = Store(lambda: START_US + round(loop.time() * 1e6))
        self.source = LogSource(log, self.store.now, random.Random(1), largest_batch=100, exact_cuts=False)
        self.letters = SlowLetters()
        self.streams = streams
        self.agree = agree

    async def run(self, bins: float) -> None:
        """Open the streams, and count until ``bins`` bins are over."""
        for stream in self.streams:
            strategy = strategy_of(design_of((6, 6)), stream=stream, field="time")
            epoch = EpochRecord(0, FIRST_BIN, strategy.design.horizon, 1, strategy.hash)
            await self.store.open_epoch(stream, strategy.to_json(), epoch, GENESIS)
            for partition in self.source.log.partitions:
                await self.store.start_partition(stream, strategy.hash, partition, 0)
        clock = LiveClock(self.store)
        ports = Ports(
            store=self.store,
            source=self.source,
            clock=clock,
            wall=clock,
            witnesses={},
            dead_letters=self.letters,
            noise={},
            keys=MemoryKeys(),
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(bins * BIN_S):
                await Counting.over(ports, self.streams, agree=self.agree).run()


class SlowLetters(MemoryDeadLetters):
    """Dead letters on a disk that takes ``takes_s`` seconds for each write."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_s = 0.0
        self.failures: list[Exception] = []

    async def write(
        self, refusals: Sequence[Refusal], streams: tuple[str | None, ...] = (None,)
    ) -> Sequence[int]:
        """Keep the refusals after that time."""
        await asyncio.sleep(self.takes_s)
        if self.failures:
            raise self.failures.pop()
        return await super().write(refusals, streams)


class Store(MemoryStore):
    """A store that notes how late it was asked for each cut, by (stream, partition, bin), in seconds.

    ``slow`` says how many seconds the store takes for the cuts of a stream and partition. ``most`` is the
    largest number of such slow calls at the same time.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__(now)
        self.now = now
        self.late_s: dict[tuple[str, str, int], float] = {}
        self.slow: dict[tuple[str, str], float] = {}
        self.fails: dict[tuple[str, str], list[OSError]] = {}
        self.applied_s: dict[tuple[str, int], float] = {}  # by (partition, new position)
        self.most = 0
        self._busy = 0

    async def apply(self, stream: str, change: Apply) -> Reply:
        """Apply the change, and note the time."""
        reply = await super().apply(stream, change)
        if reply is Reply.DONE:
            self.applied_s[change.partition, change.new] = (self.now() - START_US) / 1e6
        return reply

    async def take_cuts(self, stream: str, *call: Any) -> Reply:
        """Take the cuts, after a while if ``slow`` says so."""
        _, partition, last_cut_bin, cuts, *_ = call
        self._asked_for(stream, PartitionCuts(partition, last_cut_bin, cuts))
        if (stream, partition) in self.slow:
            self._busy += 1
            self.most = max(self.most, self._busy)
            await asyncio.sleep(self.slow[stream, partition])
            self._busy -= 1
        return await super().take_cuts(stream, *call)

    async def take_cuts_together(
        self, stream: str, strategy_hash: str, taken: Sequence[PartitionCuts], change: ArrivalChange | None
    ) -> list[Reply]:
        """Take the cuts, but not the slow ones, as if records that were set aside might count there."""
        for one in taken:
            self._asked_for(stream, one)
        quick = [one for one in taken if (stream, one.partition) not in self.slow]
        replies = iter(await super().take_cuts_together(stream, strategy_hash, quick, change))
        return [next(replies) if one in quick else Reply.SET_ASIDE for one in taken]

    def _asked_for(self, stream: str, one: PartitionCuts) -> None:
        if failures := self.fails.get((stream, one.partition)):
            raise failures.pop()
        for bin in range(one.expected_last_cut_bin + 1, one.cuts[-1].bin + 1):
            late_s = (self.now() - (bin + 1) * BIN_US) / 1e6
            self.late_s.setdefault((stream, one.partition, bin), late_s)

    def late_of(self, partition: str, stream: str = STREAM) -> list[float]:
        """Return how late the store was asked for the cuts of a partition, in order, in milliseconds."""
        bins = sorted(bin for name, part, bin in self.late_s if (name, part) == (stream, partition))
        return [round(self.late_s[stream, partition, bin] * 1e3) for bin in bins]


def event(arrival: float, own: float) -> Entry:
    """Return an event by its arrival and its own time, both in bins since the start."""
    return Entry(Kind.EVENT, START_US + int(arrival * BIN_US), START_US + int(own * BIN_US))


def broken(arrival: float) -> Entry:
    """Return a record that cannot be decoded, by its arrival in bins since the start."""
    return Entry(Kind.UNDECODABLE, START_US + int(arrival * BIN_US))


def log_of(**partitions: Sequence[Entry]) -> Log:
    """Return a log of partitions named p0, p1 and so on."""
    return Log(
        {name: tuple(found) for name, found in partitions.items()}, dict.fromkeys(partitions, START_US)
    )
