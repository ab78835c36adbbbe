"""The instants of cuts: no record may delay one, or other records would count in other bins."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from stream_app.core.records import GENESIS, Cut, EpochRecord, Reason, Refusal, Reply
from stream_app.loops.clocks import LiveClock
from stream_app.loops.cutting import Cutter
from stream_app.loops.ingest import Ingest
from stream_app.loops.loaded_streams import LoadedStreams
from stream_app.ports import OperatorError
from tests.models.memory import MemoryStore
from tests.simulator.log import Entry, Kind, Log, LogSource
from tests.simulator.loop import simulate
from tests.simulator.memory_sinks import MemoryDeadLetters
from tests.stream_app.declared import BIN_US, FIRST_BIN, STREAM, design_of, strategy_of

BIN_S = BIN_US / 1e6
START_US = FIRST_BIN * BIN_US


class Live:
    """A worker's reader and cutter in virtual time, which begins as the first bin does.

    Args: log; the names of its streams; agree, awaited before a stream is loaded after a doubt.
    """

    def __init__(
        self, log: Log, streams: Sequence[str] = (STREAM,), agree: Callable[[str], Any] | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        self.store = Store(lambda: START_US + round(loop.time() * 1e6))
        self.source = LogSource(log, self.store.now, random.Random(1), largest_batch=100, exact_cuts=False)
        self.letters = SlowLetters()
        self.streams = streams
        self.views = LoadedStreams(streams, agree)

    async def run(self, bins: float) -> None:
        """Open the streams, and count until so many bins are over."""
        for stream in self.streams:
            strategy = strategy_of(design_of((6, 6)), stream=stream, field="time")
            epoch = EpochRecord(0, FIRST_BIN, strategy.design.horizon, 1, strategy.hash)
            await self.store.open_epoch(stream, strategy.to_json(), epoch, GENESIS)
            for partition in self.source.log.partitions:
                await self.store.start_partition(stream, strategy.hash, partition, 0)
        clock = LiveClock(self.store)
        cutter = Cutter(self.source, self.store, clock, self.letters, self.views)
        ingest = Ingest(self.source, self.store, clock, self.letters, cutter, self.views)
        loops = [asyncio.create_task(loop.run()) for loop in (cutter, ingest)]
        done, _ = await asyncio.wait(loops, timeout=bins * BIN_S, return_when=asyncio.FIRST_COMPLETED)
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        for ended in done:
            ended.result()


class SlowLetters(MemoryDeadLetters):
    """Dead letters on a disk that takes some time over each write."""

    takes_s = 0.0

    async def write(self, refusals: Sequence[Refusal], stream: str | None = None) -> int:
        """Keep them after a while."""
        await asyncio.sleep(self.takes_s)
        return await super().write(refusals, stream)


class Store(MemoryStore):
    """A store that notes how late each cut was asked for, by (stream, partition, bin), in seconds.

    ``slow`` are the seconds that it takes over the cuts of a stream and partition, and ``most`` the largest
    number of them that it was asked for at the same time.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__(now)
        self.now = now
        self.late_s: dict[tuple[str, str, int], float] = {}
        self.slow: dict[tuple[str, str], float] = {}
        self.fails: dict[tuple[str, str], list[OSError]] = {}
        self.most = 0
        self._busy = 0

    async def take_cuts(
        self,
        stream: str,
        strategy_hash: str,
        partition: str,
        expected_last_cut_bin: int,
        cuts: Sequence[Cut],
        max_ahead_bins: int = 0,
    ) -> Reply:
        """Take them, after a while where this takes long."""
        failures = self.fails.get((stream, partition))
        if failures:
            raise failures.pop()
        for bin in range(expected_last_cut_bin + 1, cuts[-1].bin + 1):
            late_s = (self.now() - (bin + 1) * BIN_US) / 1e6
            self.late_s.setdefault((stream, partition, bin), late_s)
        if (stream, partition) in self.slow:
            self._busy += 1
            self.most = max(self.most, self._busy)
            await asyncio.sleep(self.slow[stream, partition])
            self._busy -= 1
        return await super().take_cuts(
            stream, strategy_hash, partition, expected_last_cut_bin, cuts, max_ahead_bins
        )

    def late_of(self, partition: str, stream: str = STREAM) -> list[float]:
        """Return how late the cuts of a partition were asked for, in order, in milliseconds."""
        bins = sorted(bin for name, part, bin in self.late_s if (name, part) == (stream, partition))
        return [round(self.late_s[stream, partition, bin] * 1e3) for bin in bins]


def event(arrival: float, own: float) -> Entry:
    """Return an event by its arrival and its own time, both in bins since the start."""
    return Entry(Kind.EVENT, START_US + int(arrival * BIN_US), START_US + int(own * BIN_US))


def log_of(**partitions: Sequence[Entry]) -> Log:
    """Return a log of partitions named p0, p1 and so on."""
    return Log(
        {name: tuple(found) for name, found in partitions.items()}, dict.fromkeys(partitions, START_US)
    )


def test_a_source_that_fails_delays_no_cut() -> None:
    """A record whose schema is not known yet makes each read fail; only the store may be in doubt then."""
    agreed: list[str] = []

    async def agree(stream: str) -> None:
        agreed.append(stream)
        await asyncio.sleep(0.9)

    async def run() -> list[float]:
        live = Live(log_of(p0=[event(0.5, 0.5)]), agree=agree)

        async def read(positions: Mapping[str, int], timeout_s: float) -> Any:
            await asyncio.sleep(0.1)
            raise ConnectionError("schema registry: no answer")

        live.source.read = read  # type: ignore[method-assign]
        await live.run(5.5)
        return live.store.late_of("p0")

    assert simulate(1, run()) == [0] * 5
    assert agreed == [STREAM]


def test_a_log_that_does_not_say_where_it_ends_is_no_doubt_about_the_store() -> None:
    agreed: list[str] = []

    async def agree(stream: str) -> None:
        agreed.append(stream)

    async def run() -> int:
        live = Live(log_of(p0=[event(0.5, 0.5)]), agree=agree)
        ends_of, failures = live.source.positions_at, [ConnectionError("kafka: no answer")] * 3

        async def positions_at(
            partitions: Sequence[str], instants_us: Sequence[int]
        ) -> Mapping[str, Sequence[int]]:
            if failures:
                raise failures.pop()
            return await ends_of(partitions, instants_us)

        live.source.positions_at = positions_at  # type: ignore[method-assign]
        await live.run(3.5)
        return len(live.store.late_of("p0"))

    assert simulate(1, run()) == 3
    assert agreed == [STREAM]


def test_a_store_that_fails_is_asked_anew_once_it_agrees_with_the_witness() -> None:
    agreed: list[str] = []

    async def agree(stream: str) -> None:
        agreed.append(stream)

    async def run() -> list[float]:
        live = Live(log_of(p0=[event(0.5, 0.5)]), agree=agree)
        live.store.fails[STREAM, "p0"] = [ConnectionError("the reply was lost")]
        await live.run(2.5)
        return live.store.late_of("p0")

    assert simulate(1, run()) == [500, 0]
    assert agreed == [STREAM] * 2


def test_letters_of_records_from_the_future_delay_no_cut() -> None:
    """A record that is refused must not put a late record of somebody else into another bin."""

    def counted(*more: Entry) -> tuple[dict[int, int], int]:
        async def run() -> tuple[dict[int, int], int]:
            live = Live(
                log_of(p0=sorted([event(0.5, 0.5), event(6.5, 1.5), *more], key=lambda e: e.arrival_us))
            )
            live.letters.takes_s = 1.7 * BIN_S
            await live.run(9)
            cells = live.store._streams[STREAM].cells
            return {bin: sum(cells[bin].values()) for bin in cells if cells[bin]}, len(live.letters.kept)

        return simulate(1, run())

    assert counted() == ({FIRST_BIN: 1, FIRST_BIN + 6: 1}, 0)
    assert counted(event(4.5, 900)) == ({FIRST_BIN: 1, FIRST_BIN + 6: 1}, 1)


def test_each_record_that_is_refused_while_letters_are_written_gets_its_letter() -> None:
    async def run() -> Live:
        future = [event(bin + 0.5, 900) for bin in range(6)]
        live = Live(log_of(p0=future, p1=future))
        live.letters.takes_s = 1.3 * BIN_S
        await live.run(14)
        return live

    live = simulate(1, run())
    assert live.letters.kept == {
        (STREAM, partition, position): Reason.FUTURE for partition in ("p0", "p1") for position in range(6)
    }
    assert all(live.store._streams[STREAM].partitions[name].refused_ahead == [] for name in ("p0", "p1"))


def test_a_cut_that_takes_long_to_store_delays_cuts_of_its_stream_and_partition_only() -> None:
    """Records that are set aside before a cut make it take longer to store."""
    streams = (STREAM, "second")

    async def run() -> Store:
        log = log_of(p0=[event(0.5, 0.5)], p1=[event(0.5, 0.5)])
        live = Live(log, streams)
        live.store.slow[STREAM, "p0"] = 2.25 * BIN_S
        await live.run(8.5)
        return live.store

    store = simulate(1, run())
    for place in ((STREAM, "p1"), ("second", "p0"), ("second", "p1")):
        assert store.late_of(place[1], place[0]) == [0] * 8
    # Its own cuts wait for one another; bins that closed meanwhile have one cut.
    assert store.late_of("p0") == [0, 12_500, 2_500, 15_000, 5_000, 17_500, 7_500]
    assert store.most == 1


def test_an_error_of_the_operator_s_ends_the_cutter() -> None:
    async def run() -> None:
        live = Live(log_of(p0=[event(0.5, 0.5)], p1=[event(0.5, 0.5)]))

        async def another(*cuts: object) -> Reply:
            return Reply.STRATEGY

        live.store.take_cuts = another  # type: ignore[method-assign, assignment]
        await live.run(8.5)

    with pytest.raises(OperatorError, match="another strategy"):
        simulate(1, run())
