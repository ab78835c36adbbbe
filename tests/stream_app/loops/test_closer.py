"""Closing bins: visible <= witnessed <= released at every moment, and each node is released once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dphist.noise import SystemNoise
from stream_app.core.records import Release, Reply
from stream_app.core.strategy import Strategy
from stream_app.loops.clocks import LiveClock, ReplayClock
from stream_app.loops.stream import Ports, Stream
from stream_app.outage import Outage
from stream_app.sinks.witness_file import WitnessFile
from stream_app.sources.replay import ReplaySource
from stream_app.vault.key_files import KeyFiles
from stream_app.wiring.pipeline import Pipeline
from tests.models.memory import MemoryStore
from tests.patience import ended
from tests.stream_app.declared import BIN_US, FIRST_BIN, STREAM, design_of, strategy_of
from tests.stream_app.files import AT, write_events
from tests.stream_app.one_source import DeadLetterList, OneSource

NOISY = strategy_of(design_of((2, 3), Fraction(1, 2)))


@pytest.fixture
def one(tmp_path: Path) -> Iterator[OneSource]:
    """Yield a service with one noisy stream."""
    with closing(OneSource(tmp_path, NOISY)) as one:
        yield one


class Watched:
    """A store that counts calls, and may lose the replies of some calls."""

    def __init__(self, store: MemoryStore, lose: str = "", effect: bool = True) -> None:
        self._store, self._lose, self._effect = store, lose, effect
        self.releases: list[Release] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)

        async def call(*args: Any) -> Any:
            if name == "release":
                self.releases.append(args[1])
            if name == self._lose:
                self._lose = ""
                if self._effect:
                    await real(*args)
                raise ConnectionError("the reply was lost")
            return await real(*args)

        return call


async def count_events(one: OneSource, until_bin: int) -> None:
    """Count some events and cut every bin before ``until_bin``."""
    one.append(*(bin for bin in range(FIRST_BIN, until_bin) for _ in range(bin % 3)))
    one.clock.set_bin(until_bin)
    ingest = one.ingest()
    while await ingest.step():
        pass


def test_nothing_is_visible_before_its_public_instant(one: OneSource) -> None:
    async def close() -> None:
        closer = one.closer()
        await closer.reconcile()
        await count_events(one, 103)
        assert await closer.close_due() == (103, True)
        reader = one.store.reader()
        public = await reader.public_state(STREAM)
        assert public is not None
        assert public.visible_seq == 0
        assert len(await one.witness.rows(STREAM, 0)) == 3
        await closer.publisher.publish()
        assert [seq for seq, _ in await reader.rows(STREAM, 0, 10)] == [1, 2, 3]

    asyncio.run(close())


@pytest.mark.parametrize(
    ("late_us", "shown"),
    [([0, 0], 2), ([200_000, 0], 2), ([300_000, 0], 1), ([900_000] * 10, 1), ([900_000] * 9, 0)],
)
def test_a_missed_public_instant_waits_for_the_next(one: OneSource, late_us: list[int], shown: int) -> None:
    """How late the loop comes to an instant depends on the events. Ten misses in a row are an overload."""

    class BusyWall:
        def __init__(self) -> None:
            self.now = 0
            self.late = iter(late_us)

        async def now_us(self) -> int:
            return self.now

        async def sleep_until_us(self, instant_us: int) -> None:
            late = next(self.late, None)
            if late is None:
                raise asyncio.CancelledError
            self.now = instant_us + late

    async def publish() -> int:
        times: list[int] = []
        publisher = one.closer(wall=BusyWall()).publisher
        publisher._released_seq = 1  # a row waits

        async def note(instant_us: int | None = None) -> None:
            times.append(1)

        publisher.publish = note  # type: ignore[method-assign]
        with contextlib.suppress(asyncio.CancelledError):
            await publisher.run(Outage(logging.getLogger(__name__), "closer"), lambda: False)
        return len(times)

    assert asyncio.run(publish()) == shown


def test_a_publisher_without_rows_that_wait_asks_for_no_time(one: OneSource) -> None:
    """A thousand streams whose bins are a day long must not wake a thousand tasks a second."""

    class CountedWall:
        asked = 0

        async def now_us(self) -> int:
            self.asked += 1
            return 0

        async def sleep_until_us(self, instant_us: int) -> None:
            self.asked += 1

    async def idle() -> int:
        wall, outage = CountedWall(), Outage(logging.getLogger(__name__), "closer")
        running = asyncio.create_task(one.closer(wall=wall).publisher.run(outage, lambda: False))
        for _ in range(100):
            await asyncio.sleep(0)
        await ended(running)
        return wall.asked

    assert asyncio.run(idle()) == 0


def test_a_visible_row_was_witnessed_before(one: OneSource) -> None:
    """The disk of the witness is full, so bins are released but nobody sees them."""

    class Full:
        async def append(self, *_: Any) -> None:
            raise OSError(28, "No space left on device")

        def __getattr__(self, name: str) -> Any:
            return getattr(one.witness, name)

    async def close() -> None:
        closer = one.closer(witness=Full())
        await closer.reconcile()
        await count_events(one, 101)
        with pytest.raises(OSError, match="No space"):
            await closer.close_due()
        await closer.publisher.publish()
        assert len(await one.store.rows(STREAM, 0, 10)) == 1
        assert await one.store.reader().rows(STREAM, 0, 10) == []
        healed = one.closer()
        await healed.reconcile()
        await healed.publisher.publish()
        assert len(await one.store.reader().rows(STREAM, 0, 10)) == 1

    asyncio.run(close())


@pytest.mark.parametrize("effect", [False, True])
def test_a_release_whose_reply_is_lost_is_never_noised_twice(one: OneSource, effect: bool) -> None:
    async def close() -> None:
        store = Watched(one.store, "release", effect)
        closer = one.closer(store=store)
        await closer.reconcile()
        await count_events(one, 102)
        with pytest.raises(ConnectionError):
            await closer.close_due()
        assert await closer.close_due() == (102, True)
        stored = [row for _, row in await one.store.rows(STREAM, 0, 10)]
        # If the first attempt took effect, its rows stay. Otherwise only the second attempt was ever stored.
        assert stored == list(store.releases[0 if effect else 1].rows)
        assert len(store.releases) == (1 if effect else 2)
        assert [row.row for row in await one.witness.rows(STREAM, 0)] == stored

    asyncio.run(close())


def test_two_closers_release_each_bin_once(one: OneSource) -> None:
    """The other closer releases after ours has read the counts and before ours releases."""

    async def close() -> None:
        rival = one.closer()
        await rival.reconcile()

        class Rivalled(Watched):
            async def release(self, stream: str, release: Release) -> Reply:
                await rival.close_due()
                return await self._store.release(stream, release)

        closer = one.closer(store=Rivalled(one.store))
        await closer.reconcile()
        await count_events(one, 103)
        assert await closer.close_due() == (103, True)
        rows = await one.store.rows(STREAM, 0, 10)
        assert [row[:2] for row in await one.witness.rows(STREAM, 0)] == rows
        assert [json.loads(row)["bin"] for _, row in rows] == [100, 101, 102]

    asyncio.run(close())


def test_a_bin_waits_for_every_partition(one: OneSource) -> None:
    async def close() -> None:
        closer = one.closer()
        await closer.reconcile()
        one.append(100)
        one.clock.set_bin(102)
        assert await closer.close_due() == (100, False)
        await count_events(one, 102)
        assert await closer.close_due() == (102, True)

    asyncio.run(close())


def test_a_running_closer_notices_a_store_that_was_set_back(one: OneSource) -> None:
    async def close() -> None:
        closer = one.closer()
        await closer.reconcile()
        backup = one.store.copy()
        await count_events(one, 102)
        await closer.close_due()
        one.store.restore(backup)
        await count_events(one, 103)
        await closer.close_due()
        assert (await one.epochs())[-1] == (1, 102, 3)
        bins = [json.loads(row.row)["bin"] for row in await one.witness.rows(STREAM, 0)]
        assert bins == [100, 101, 102]

    asyncio.run(close())


@pytest.mark.slow
def test_bins_close_and_appear_by_themselves(one: OneSource) -> None:
    """The loops run as in the service: the clock moves, events arrive, rows become visible."""

    async def live() -> list[int]:
        closer = one.closer()
        await closer.reconcile()
        loops = [asyncio.create_task(closer.run()), asyncio.create_task(one.ingest().run())]
        for bin in (100, 101, 102):
            one.append(bin, bin)
            await asyncio.sleep(0.15)
            one.clock.set_bin(bin + 1)
        for _ in range(3_000):
            one.clock.now_us += BIN_US // 20  # publish instants are every tenth of a bin
            await asyncio.sleep(0.02)
            rows = await one.store.reader().rows(STREAM, 0, 3)
            if len(rows) == 3:
                break
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        return [json.loads(row)["bin"] for _, row in rows]

    assert asyncio.run(live()) == [100, 101, 102]


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
            dead_letters=DeadLetterList(),
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


def test_a_replay_counts_its_range_and_ends(tmp_path: Path) -> None:
    times_us = some_times()
    replay = Replay(tmp_path, strategy_of(bins=14), times_us)
    asyncio.run(replay.run())
    assert asyncio.run(replay.counts()) == expected_counts(times_us, 14)
    asyncio.run(replay.run())  # the replay is complete, so the second start has nothing to do
    assert asyncio.run(replay.counts()) == expected_counts(times_us, 14)


def test_a_replay_of_whole_epochs_opens_no_further_one(tmp_path: Path) -> None:
    replay = Replay(tmp_path, strategy_of(bins=12), some_times())
    asyncio.run(replay.run())
    assert [epoch.first_bin for epoch in replay.store._streams[STREAM].epochs] == [100, 106]


@pytest.mark.slow
@pytest.mark.parametrize("after_effect", [False, True])
def test_a_replay_cancelled_at_any_call_goes_on(tmp_path: Path, after_effect: bool) -> None:
    """For some n, cancel the worker at its n-th call of the store, then let another worker finish."""
    times_us, ended_alone = some_times(), False
    calls = 0
    while not ended_alone:
        calls += 13
        directory = tmp_path / str(calls)
        directory.mkdir()
        replay = Replay(directory, strategy_of(bins=7), times_us)

        async def cancelled(replay: Replay = replay, left: int = calls) -> bool:
            class Cancelling:
                def __getattr__(self, name: str) -> Any:
                    real = getattr(replay.store, name)

                    async def call(*args: Any) -> Any:
                        nonlocal left
                        left -= 1
                        if left == 0 and not after_effect:
                            worker.cancel()
                            await asyncio.sleep(0)
                        result = await real(*args)
                        if left == 0:
                            worker.cancel()
                            await asyncio.sleep(0)
                        return result

                    return call

            worker = asyncio.create_task(replay.run(Cancelling()))
            await asyncio.gather(worker, return_exceptions=True)
            return not worker.cancelled()

        ended_alone = asyncio.run(cancelled())
        seen = asyncio.run(replay.store.rows(STREAM, 0, 100))
        asyncio.run(replay.run())
        assert asyncio.run(replay.counts()) == expected_counts(times_us, 7)
        assert asyncio.run(replay.store.rows(STREAM, 0, 100))[: len(seen)] == seen
    assert calls > 30
