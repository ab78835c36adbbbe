"""Closing bins: visible <= witnessed <= released at every moment, and each node is released once.

Deleted counts leave the log of the store while bins close, and before the run of a replay returns.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dphist.noise import SystemNoise
from stream_app import outage
from stream_app.core.kinds import pages as noise_pages
from stream_app.core.strategy import Strategy
from stream_app.loops.clocks import LiveClock, ReplayClock
from stream_app.loops.stream import Ports, Stream
from stream_app.sinks.witness_file import WitnessFile
from stream_app.sources.replay import ReplaySource
from stream_app.vault.key_files import KeyFiles
from stream_app.wiring.pipeline import Pipeline
from tests.models.memory import MemoryStore
from tests.patience import PATIENCE_S
from tests.stream_app.declared import BIN_US, FIRST_BIN, STREAM, design_of, strategy_of
from tests.stream_app.one_source import AT, write_events
from tests.world import Struck, World, deaths, first, lost_call, lost_reply, raising, slow
from tests.world.faults import Call, Fault
from tests.world.world import LetterList

NOISY = strategy_of(design_of((2, 3), Fraction(1, 2)))


@pytest.fixture
def world() -> Iterator[World]:
    """Yield a world with one noisy stream, and some events in each of its first bins."""
    with World(NOISY) as world:
        world.arrive(100, 101, 101)
        yield world


def test_nothing_is_visible_before_its_public_instant(world: World) -> None:
    world.start()
    world.until(103.05)
    assert len(world.stored()) == len(world.witnessed()) == 3
    assert world.bins() == [100, 101]
    world.until(103.15)
    assert world.bins() == [100, 101, 102]


def late_by(seconds: float) -> Fault:
    """Return a fault of a clock: whoever sleeps on it wakes late."""

    async def strike(call: Call) -> Any:
        await call()
        await asyncio.sleep(seconds)

    return strike


@pytest.mark.parametrize(("late_s", "missed"), [(0.0, 0), (0.2, 0), (0.3, 9), (0.9, 9)])
def test_a_missed_public_instant_waits_for_the_next(world: World, late_s: float, missed: int) -> None:
    """How late the loop comes to an instant depends on the events. Ten misses in a row are an overload."""
    world.start(wall=Struck(LiveClock(world.store), sleep_until_us=late_by(late_s)))
    world.until(101.1 + missed / 10 - 0.001)  # there is an instant every tenth of a bin
    assert world.rows() == []
    world.until(101.1 + missed / 10 + 0.1)
    assert world.bins()[:1] == [100]


def test_a_publisher_without_rows_that_wait_asks_for_no_time(world: World) -> None:
    """A thousand streams whose bins are a day long must not wake a thousand tasks a second."""
    wall = Struck(LiveClock(world.store))
    world.start(wall=wall)
    world.until(101.3)
    asked = len(wall.asked)
    assert asked > 0
    world.until(101.95)
    assert len(wall.asked) == asked


def test_a_visible_row_was_witnessed_before(world: World) -> None:
    """The disk of the witness is full, so bins are released but nobody sees them."""
    full = Struck(world.witness, append=raising(OSError(28, "No space left on device")))
    world.run_until(101, witness=full)
    assert len(world.stored()) == 1
    assert world.rows() == []
    world.run_until(101.5)
    assert world.bins() == [100]


@pytest.mark.parametrize("fault", [lost_call, lost_reply])
def test_a_release_whose_reply_is_lost_is_never_noised_twice(world: World, fault: Fault) -> None:
    store = Struck(world.store, release=first(fault))
    world.run_until(103, store=store)
    asked = [release.rows for _, release in store.calls("release")]
    # If the first attempt took effect, its rows stay. Otherwise only the second attempt was ever stored.
    rows = [row for some in (asked[1:] if fault is lost_call else asked) for row in some]
    assert [row for _, row in world.stored()] == rows
    assert [json.loads(row) for row in rows] == world.witnessed() == world.rows()


def test_two_closers_release_each_bin_once(world: World) -> None:
    """Each closer may release after the other has read the counts and before it releases."""
    for _ in range(2):
        world.start(store=Struck(world.store, release=slow(0.2)))
    world.until(104)
    assert [row["bin"] for row in world.witnessed()] == [100, 101, 102]
    assert [json.loads(row) for _, row in world.stored()] == world.witnessed()


def test_a_bin_waits_for_every_partition() -> None:
    with World(NOISY, partitions=["0", "1"]) as world:
        world.arrive(100, partition="1")
        world.start(owned={"0"})
        world.until(103)
        assert world.stored() == []
        world.start(owned={"1"})
        world.until(103.5)
        assert world.bins() == [100, 101, 102]


def test_a_running_closer_notices_a_store_that_was_set_back(world: World) -> None:
    world.start()
    world.until(100.5)
    backup = world.backup()
    world.until(102.35)
    world.restore(backup)
    world.until(104.35)
    assert world.epochs()[-1] == (1, 102, 3)
    assert [row["bin"] for row in world.witnessed()] == [100, 101, 102, 103]


class Replay:
    """A replay of a file. Its store and its witness remain when a worker ends."""

    def __init__(self, directory: Path, strategy: Strategy, times_us: list[int]) -> None:
        self.directory = directory
        self.strategy = strategy
        self.path = write_events(directory / "events.ndjson", times_us)
        self.store = MemoryStore()

    async def run(self, store: Any = None) -> None:
        """Run a worker to the replay's end."""
        store = store or self.store
        first_us, until_us = FIRST_BIN * BIN_US, self.strategy.declared.until_us
        assert until_us is not None
        clock = ReplayClock(first_us, until_us, None, 4 * BIN_US)
        source = ReplaySource(self.path, "ndjson", AT, self.directory / "order", clock.reached_us)
        witness = WitnessFile(self.directory / "witness")
        ports = Ports(
            store=store,
            source=source,
            clock=clock,
            wall=LiveClock(store),
            witnesses={STREAM: witness},
            dead_letters=LetterList(),
            noise={STREAM: SystemNoise()},
            keys=KeyFiles(self.directory / "noise_keys"),
        )
        stream = Stream(strategy=self.strategy, publish_every_us=1000)
        pipeline = Pipeline.over(ports, [stream], start="latest")
        try:
            [closer] = pipeline.closers
            state = await closer.reconcile()
            clock.start_at((state.released_bin + 1) * BIN_US)
            await pipeline.run()
        finally:
            witness.close()
            await source.close()

    async def counts(self) -> dict[int, int]:
        """Return the counts of the visible bins, read from the leaves. There is no noise."""
        rows = await self.store.reader().rows(STREAM, 0, 1000)
        return {message["bin"]: message["nodes"][0][2][0] for message in (json.loads(row) for _, row in rows)}


def some_times() -> list[int]:
    """Return unordered times in and around fourteen bins."""
    rng = np.random.default_rng(5)
    times: list[int] = rng.integers((FIRST_BIN - 2) * BIN_US, (FIRST_BIN + 16) * BIN_US, 300).tolist()
    return times


def expected_counts(times_us: list[int], bins: int) -> dict[int, int]:
    """Return the counts of the replayed range, by a recount of the times."""
    counts = Counter(time_us // BIN_US for time_us in times_us)
    return {bin: counts[bin] for bin in range(FIRST_BIN, FIRST_BIN + bins)}


async def test_a_replay_counts_its_range_and_ends(tmp_path: Path) -> None:
    times_us = some_times()
    replay = Replay(tmp_path, strategy_of(bins=14), times_us)
    await replay.run()
    assert await replay.counts() == expected_counts(times_us, 14)
    await replay.run()  # the replay is complete, so the second start has nothing to do
    assert await replay.counts() == expected_counts(times_us, 14)


async def test_a_replay_of_whole_epochs_opens_no_further_one(tmp_path: Path) -> None:
    replay = Replay(tmp_path, strategy_of(bins=12), some_times())
    await replay.run()
    assert [epoch.first_bin for epoch in replay.store.streams[STREAM].epochs] == [100, 106]


@pytest.mark.slow
async def test_a_replay_cancelled_at_any_call_goes_on(tmp_path: Path) -> None:
    """Cancel a worker at a call of the store, and let another worker finish."""
    times_us, number = some_times(), 0
    for death in deaths(step=8):
        number += 1
        directory = tmp_path / str(number)
        directory.mkdir()
        replay = Replay(directory, strategy_of(bins=7), times_us)
        worker = asyncio.create_task(replay.run(death.of(replay.store)))
        death.kill = worker.cancel
        await asyncio.gather(worker, return_exceptions=True)
        seen = await replay.store.rows(STREAM, 0, 100)
        await replay.run()
        assert await replay.counts() == expected_counts(times_us, 7)
        assert (await replay.store.rows(STREAM, 0, 100))[: len(seen)] == seen
    assert number > 6


BINS = 7
LAST_BIN = FIRST_BIN + BINS - 1


class Forgetful:
    """A store whose ``forget`` waits until the test lets it go, and fails as often as the test says."""

    def __init__(self, store: MemoryStore, failures: int = 0) -> None:
        self._store = store
        self.failures = failures
        self.may_end = asyncio.Event()
        self.asked_at: list[int] = []  # for each call: the last bin released by then
        self.done = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def released_bin(self) -> int:
        """Return the last released bin of the stream."""
        stream = self._store.streams.get(STREAM)
        return FIRST_BIN - 1 if stream is None else stream.released_bin

    async def forget(self) -> None:
        """Wait as the test says, then rewrite the log or fail."""
        self.asked_at.append(self.released_bin())
        await self.may_end.wait()
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the rewriting failed")
        self.done += 1


async def until_released(store: Forgetful, bin: int) -> None:
    """Wait until a bin is released."""
    async with asyncio.timeout(PATIENCE_S):
        while store.released_bin() < bin:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.fixture
def replay(tmp_path: Path) -> Replay:
    """Return a replay over one whole epoch and one bin of the next."""
    return Replay(tmp_path, strategy_of(bins=BINS), some_times())


async def test_closing_does_not_wait_until_counts_left_the_log(replay: Replay) -> None:
    store = Forgetful(replay.store)
    worker = asyncio.create_task(replay.run(store))
    await until_released(store, LAST_BIN)  # also over the end of an epoch
    assert store.asked_at == [FIRST_BIN - 1]
    store.may_end.set()
    await worker
    assert await replay.counts() == expected_counts(some_times(), BINS)


async def test_finished_replay_returns_only_after_its_counts_left_the_log(replay: Replay) -> None:
    async def run() -> Forgetful:
        store = Forgetful(replay.store)
        worker = asyncio.create_task(replay.run(store))
        await until_released(store, LAST_BIN)
        await asyncio.sleep(0.2)
        assert not worker.done()
        store.may_end.set()
        await worker
        return store

    store = await run()
    assert store.asked_at[-1] == LAST_BIN
    assert store.done == len(store.asked_at)


async def test_failed_rewriting_is_repeated_before_a_replay_returns(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "RETRY_S", 0.01)

    async def run() -> Forgetful:
        store = Forgetful(replay.store, failures=3)
        store.may_end.set()
        await replay.run(store)
        return store

    store = await run()
    assert store.failures == 0
    assert store.done >= 1
    assert store.asked_at[-1] == LAST_BIN


async def test_rewriting_that_ends_while_the_last_noise_is_discarded_is_not_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker knows that the replay has finished, but has not asked for the last rewriting yet."""
    monkeypatch.setattr(noise_pages, "BINS_PER_PAGE", 1)
    drawn_ahead = strategy_of(replace(design_of(), release="anticipating"), bins=2)
    replay = Replay(tmp_path, drawn_ahead, some_times())

    class Slow(Forgetful):
        async def discard_noise(self, *arguments: Any) -> None:
            """Let an earlier rewriting end while the noise pages of the last release are deleted."""
            if self.released_bin() == FIRST_BIN + 1:
                self.may_end.set()
                await asyncio.sleep(0.05)
            await self._store.discard_noise(*arguments)

    async def run() -> Slow:
        store = Slow(replay.store)
        async with asyncio.timeout(PATIENCE_S):
            await replay.run(store)
        return store

    store = await run()
    assert store.asked_at == [FIRST_BIN - 1, FIRST_BIN + 1]


async def test_a_position_ahead_of_the_clock_waits_for_it(tmp_path: Path) -> None:
    """An interrupted replay goes on after its released bins, even if more of its file was counted."""
    path = write_events(tmp_path / "events.ndjson", [1_000, 2_000, 3_000, 4_000])
    reached_us = 3_500
    source = ReplaySource(path, "ndjson", AT, tmp_path / "notes", lambda: reached_us)
    [counted] = await source.read({"0": 0}, 0.0)
    assert counted.columns["at"].tolist() == [1_000, 2_000, 3_000]
    reached_us = 1_500  # where its released bins end
    assert await source.read({"0": counted.end}, 0.0) == ()
    reached_us = 4_500
    [rest] = await source.read({"0": counted.end}, 0.0)
    assert rest.columns["at"].tolist() == [4_000]
    await source.close()
