"""Clocks never go back, and a replay's clock moves only while a task sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from stream_app.loops import clocks
from stream_app.loops.clocks import LiveClock, ReplayClock
from tests.models.memory import MemoryStore


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
