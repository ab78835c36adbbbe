"""Clocks never go back. While the clock of store or worker is wrong, nothing closes early.

Afterwards closing continues. The clock of a replay moves only while a task sleeps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from stream_app.loops import clocks
from stream_app.loops.clocks import LiveClock, ReplayClock
from stream_app.loops.lease import Lease
from stream_app.ports import ClockDoubt
from tests.models.memory import MemoryStore
from tests.stream_app.declared import BIN_US, FIRST_BIN, STREAM, strategy_of
from tests.world import World


async def test_the_live_clock_is_the_store_s_and_never_goes_back() -> None:
    now = [1000]
    clock = LiveClock(MemoryStore(lambda: now[0]))

    async def ask() -> list[int]:
        times = []
        for now[0] in (1000, 1500, 1200, 1600):
            times.append(await clock.now_us())
        return times

    assert await ask() == [1000, 1500, 1500, 1600]


async def test_the_live_clock_sleeps_until_the_store_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "LONGEST_SLEEP_S", 0.01)
    start = time.monotonic()
    # The store's clock runs a hundred times faster than ours: one long sleep would be far too long.
    clock = LiveClock(MemoryStore(lambda: int((time.monotonic() - start) * 1e8)))

    async def sleep() -> int:
        await clock.sleep_until_us(2_000_000)
        return await clock.now_us()

    assert await sleep() >= 2_000_000


class CountingStore(MemoryStore):
    """A store that counts how often it is asked for the time, and may not answer."""

    asked, answers = 0, True

    async def now_us(self, latest_us: int = 0) -> tuple[int, int]:
        self.asked += 1
        if not self.answers:
            raise ConnectionError("the store is down")
        return await super().now_us(latest_us)


async def sleepers(
    clock: LiveClock, instants_us: Sequence[int], order: list[int]
) -> list[asyncio.Task[None]]:
    """Start a task for each instant, one after the other; return them once all sleep."""

    async def sleep(instant_us: int) -> None:
        await clock.sleep_until_us(instant_us)
        order.append(instant_us)

    tasks = []
    for instant_us in instants_us:
        tasks.append(asyncio.create_task(sleep(instant_us)))
        await asyncio.sleep(0.001)  # they come at different moments, so their own timers would differ
    while clock._sleepers._number < len(tasks):  # noqa: ASYNC110  (nothing tells it)
        await asyncio.sleep(0.001)
    return tasks


async def test_one_question_wakes_all_tasks_whose_instant_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "LONGEST_SLEEP_S", 0.01)

    async def run() -> int:
        now, order = [0], list[int]()
        store = CountingStore(lambda: now[0])
        clock = LiveClock(store)
        instants_us = [1_000_000 + (place * 7) % 100 for place in range(100)]
        tasks = await sleepers(clock, instants_us, order)
        now[0], store.asked = 2_000_000, 0
        await asyncio.gather(*tasks)
        assert order == sorted(instants_us)
        return store.asked

    assert await run() <= 2  # a question may have been under way when the clock moved


async def test_a_clock_that_fails_wakes_all_sleepers_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "LONGEST_SLEEP_S", 0.01)

    now = [0]
    store = CountingStore(lambda: now[0])
    clock = LiveClock(store)
    tasks = await sleepers(clock, [10**6, 10**7], [])
    store.answers = False
    failures = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(failure) for failure in failures] == [ConnectionError] * 2
    store.answers = True
    [again] = await sleepers(clock, [10**6], [])
    now[0] = 10**6
    await again


async def test_a_later_sleeper_with_an_earlier_instant_wakes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    start, order = time.monotonic(), list[int]()
    clock = LiveClock(MemoryStore(lambda: int((time.monotonic() - start) * 1e6)))
    late, soon = await sleepers(clock, [10**12, 50_000], order)
    await soon
    assert order == [50_000]
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    assert clock._sleepers._timer is None  # nothing is left that would ask


async def test_at_full_speed_time_jumps_in_strides() -> None:
    clock = ReplayClock(1000, 1950, speed=None, stride_us=300)

    async def sleep() -> list[int]:
        times = [await clock.now_us()]
        for instant_us in (1001, 1200, 1301, 1900, 10**6):
            await clock.sleep_until_us(instant_us)
            times.append(await clock.now_us())
        return times

    assert await sleep() == [1000, 1300, 1300, 1600, 1900, 1950]


def test_a_replay_goes_on_where_it_was() -> None:
    clock = ReplayClock(1000, 1950, speed=None, stride_us=300)
    clock.start_at(1400)
    assert clock.reached_us() == 1400
    clock.start_at(1200)
    assert clock.reached_us() == 1400
    clock.start_at(9999)
    assert clock.reached_us() == 1950


async def test_a_paced_replay_moves_by_itself_and_stops_at_its_end() -> None:
    clock = ReplayClock(0, 50_000_000, speed=1000.0, stride_us=1)

    async def sleep() -> tuple[int, int]:
        await clock.sleep_until_us(20_000_000)
        first = await clock.now_us()
        await clock.sleep_until_us(90_000_000)
        return first, await clock.now_us()

    first, last = await sleep()
    assert 20_000_000 <= first <= 50_000_000
    assert last == 50_000_000


@pytest.mark.parametrize(
    ("from_us", "until_us", "speed", "stride_us"),
    [(5, 5, None, 1), (0, 5, 0.0, 1), (0, 5, float("nan"), 1), (0, 5, -2.0, 1), (0, 5, None, 0)],
)
def test_clocks_that_do_not_move_are_refused(
    from_us: int, until_us: int, speed: float | None, stride_us: int
) -> None:
    with pytest.raises(ValueError, match="replay: "):
        ReplayClock(from_us, until_us, speed, stride_us)


SECOND_US = 1_000_000
NOW_US = 2_000_000_000_000_000


class Clocks:
    """Two clocks. The test decides how far apart they are."""

    def __init__(self, now_us: int = NOW_US) -> None:
        self.own_us = now_us
        self.redis_ahead_us = 0
        self.told: list[tuple[float, bool]] = []
        self.store = MemoryStore(lambda: self.own_us + self.redis_ahead_us)

    def live(self) -> LiveClock:
        return LiveClock(self.store, 5 * SECOND_US, lambda: self.own_us, lambda *skew: self.told.append(skew))


@pytest.mark.parametrize(
    ("ahead_s", "said"),
    [
        (600, "the clock of redis is 600 s ahead of this worker's (redis.largest_clock_skew: 5 s)"),
        (-600, "the clock of redis is 600 s behind this worker's (redis.largest_clock_skew: 5 s)"),
    ],
)
async def test_clocks_that_disagree_are_refused_and_leave_nothing_behind(ahead_s: int, said: str) -> None:
    clocks = Clocks()
    clock = clocks.live()
    assert await clock.now_us() == NOW_US
    clocks.redis_ahead_us = ahead_s * SECOND_US
    for _ in range(15):
        clocks.own_us += SECOND_US
        with pytest.raises(ClockDoubt) as doubt:
            await clock.now_us()
        assert str(doubt.value).startswith(f"clocks: {said}; nothing is closed until they agree")
    assert clocks.told[-1] == (ahead_s, True)
    clocks.redis_ahead_us = 0
    # At once, and for a worker that starts only now: the wrong time was not noted.
    assert await clock.now_us() == await clocks.live().now_us() == clocks.own_us
    assert clocks.told[-1] == (0.0, False)


async def test_a_clock_that_only_looks_notes_nothing_and_refuses_the_same() -> None:
    clocks = Clocks()
    looking = LiveClock(clocks.store, 5 * SECOND_US, lambda: clocks.own_us, notes=False)
    for ahead_s in (0, 3, 600, -600):
        clocks.redis_ahead_us = ahead_s * SECOND_US
        if abs(ahead_s) > 5:
            with pytest.raises(ClockDoubt):
                await looking.now_us()
        else:
            assert await looking.now_us() == NOW_US + clocks.redis_ahead_us
        assert (await clocks.store.now_us())[1] == 0


async def test_a_clock_that_is_corrected_slowly_gives_few_different_lines() -> None:
    clocks, said = Clocks(), set[str]()
    for clocks.redis_ahead_us in range(3_600 * SECOND_US, 3_000 * SECOND_US, -SECOND_US):
        with pytest.raises(ClockDoubt) as doubt:
            await clocks.live().now_us()
        said.add(str(doubt.value))
    assert len(said) == 7


@pytest.mark.parametrize("ahead_us", [-4 * SECOND_US, 4 * SECOND_US])
async def test_the_store_s_clock_decides_within_the_bound(ahead_us: int) -> None:
    clocks = Clocks()
    clocks.redis_ahead_us = ahead_us
    assert await clocks.live().now_us() == NOW_US + ahead_us
    assert clocks.told == [(ahead_us / 1e6, False)]


async def test_clock_mark_in_the_future_is_refused_and_not_followed() -> None:
    clocks = Clocks()
    clocks.redis_ahead_us = 600 * SECOND_US
    await clocks.store.now_us(2**53)  # by a writer that did not compare clocks
    clocks.redis_ahead_us = 0
    said = set[str]()
    for _ in range(200):
        with pytest.raises(ClockDoubt) as doubt:
            await clocks.live().now_us()
        said.add(str(doubt.value))
        clocks.own_us += SECOND_US
    [line] = said  # the same words at each try: a log repeats them seldom
    assert line.startswith("clocks: redis has noted 2033-05-18T03:43:20Z, which this worker's clock has")
    assert line.endswith("delete the note (docs/runbook.md, PrivateCountsClocksDisagree)")
    clocks.own_us -= 200 * SECOND_US
    clocks.own_us += 596 * SECOND_US
    assert await clocks.live().now_us() == NOW_US + 600 * SECOND_US


async def test_an_answer_that_took_too_long_compares_nothing() -> None:
    clocks, times = Clocks(), iter([NOW_US, NOW_US + 6 * SECOND_US])
    clock = LiveClock(clocks.store, 5 * SECOND_US, lambda: next(times))
    with pytest.raises(ClockDoubt, match="redis took too long"):
        await clock.now_us()


@pytest.mark.parametrize("ahead_s", [600, -600])
@pytest.mark.parametrize("is_stores", [True, False], ids=["store", "worker"])
def test_nothing_closes_under_a_wrong_clock_and_all_that_is_due_closes_when_it_is_right(
    is_stores: bool, ahead_s: int
) -> None:
    """While the clocks disagree, the worker gives up its lease, and events go on arriving."""
    with World(strategy_of()) as world:
        wrong_us = 0
        clock = LiveClock(world.store, 5 * SECOND_US, lambda: world.start_us + world.loop.now_us + wrong_us)
        world.start(clock=clock, lease=Lease(world.store, STREAM, "a", 60))
        world.arrive(100)
        world.until(100.5)
        world.clock_ahead_us = ahead_s * SECOND_US * is_stores
        wrong_us = ahead_s * SECOND_US * (not is_stores)
        for bin in (100.5, 101, 102):
            world.arrive(bin)
            world.run(asyncio.sleep(BIN_US / SECOND_US))
        assert world.bins() == []
        assert [part.last_cut_bin for part in world.state().partitions.values()] == [FIRST_BIN - 1]
        other = Lease(world.store, STREAM, "b", 0.001)
        assert world.run(other.held()), "a worker whose clock is right may close"
        # A lease ends by the store's clock: one that was taken while it was ahead would last 600 s.
        world.run(other.give_up())
        world.clock_ahead_us = wrong_us = 0
        world.until(103.7)
        assert world.bins() == [100, 101, 102]
        world.until(105.2)
        assert world.bins() == [100, 101, 102, 103, 104]
        assert sum(world.counts().values()) == 4
