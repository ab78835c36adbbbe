"""Clocks never go back, and a replay's clock moves only while a task sleeps."""

from __future__ import annotations

import asyncio
import time

import pytest

from stream_app.loops import clocks
from stream_app.loops.clocks import LiveClock, ReplayClock
from tests.models.memory import MemoryStore


def test_the_live_clock_is_the_store_s_and_never_goes_back() -> None:
    now = [1000]
    clock = LiveClock(MemoryStore(lambda: now[0]))

    async def ask() -> list[int]:
        times = []
        for now[0] in (1000, 1500, 1200, 1600):
            times.append(await clock.now_us())
        return times

    assert asyncio.run(ask()) == [1000, 1500, 1500, 1600]


def test_the_live_clock_sleeps_until_the_store_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "LONGEST_SLEEP_S", 0.01)
    start = time.monotonic()
    # The store's clock runs a hundred times faster than ours: one long sleep would be far too long.
    clock = LiveClock(MemoryStore(lambda: int((time.monotonic() - start) * 1e8)))

    async def sleep() -> int:
        await clock.sleep_until_us(2_000_000)
        return await clock.now_us()

    assert asyncio.run(sleep()) >= 2_000_000


def test_at_full_speed_time_jumps_in_strides() -> None:
    clock = ReplayClock(1000, 1950, speed=None, stride_us=300)

    async def sleep() -> list[int]:
        times = [await clock.now_us()]
        for instant_us in (1001, 1200, 1301, 1900, 10**6):
            await clock.sleep_until_us(instant_us)
            times.append(await clock.now_us())
        return times

    assert asyncio.run(sleep()) == [1000, 1300, 1300, 1600, 1900, 1950]


def test_a_replay_goes_on_where_it_was() -> None:
    clock = ReplayClock(1000, 1950, speed=None, stride_us=300)
    clock.start_at(1400)
    assert clock.reached_us() == 1400
    clock.start_at(1200)
    assert clock.reached_us() == 1400
    clock.start_at(9999)
    assert clock.reached_us() == 1950


def test_a_paced_replay_moves_by_itself_and_stops_at_its_end() -> None:
    clock = ReplayClock(0, 50_000_000, speed=1000.0, stride_us=1)

    async def sleep() -> tuple[int, int]:
        await clock.sleep_until_us(20_000_000)
        first = await clock.now_us()
        await clock.sleep_until_us(90_000_000)
        return first, await clock.now_us()

    first, last = asyncio.run(sleep())
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
