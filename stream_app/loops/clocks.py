"""The clocks that close bins: the store's clock, and a virtual clock for replays."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from stream_app.ports import Clock, ClockDoubt, Store
from stream_app.shared_answer import SharedAnswer

# The store's clock may run faster than ours or be set forward: ask it again this often.
LONGEST_SLEEP_S = 1.0


def own_clock_us() -> int:
    """Return this machine's time in microseconds since 1970."""
    return time.time_ns() // 1_000


class LiveClock(Clock):
    """The store's clock, which all workers and the store's scripts use.

    This worker's clock can only object. If the two clocks disagree, it is unknown which is right. So a wrong
    clock on either side stops closing and never makes it earlier. An error that both clocks share, such as a
    slow drift, goes unnoticed.

    Guarantee: it never goes back, even if another store answers. Loops that ask at the same time share one
        question to the store, which is sent after each of them has asked.
    Args:
        largest_skew_us: the largest accepted difference between the two clocks; None for no comparison.
        own_us: this worker's clock.
        on_skew: called after each comparison with the seconds by which the store's clock is ahead, and
            whether that is too much.
    Raises (every method): OSError if the store does not answer; ClockDoubt, an OSError, if the clocks
        disagree or the answer took too long to compare them.
    """

    virtual = False

    def __init__(
        self,
        store: Store,
        largest_skew_us: int | None = None,
        own_us: Callable[[], int] = own_clock_us,
        on_skew: Callable[[float, bool], None] = lambda ahead_s, in_doubt: None,
    ) -> None:
        self._store = store
        self._largest_skew_us = largest_skew_us
        self._own_us = own_us
        self._on_skew = on_skew
        self._last_us = 0
        self._asked = SharedAnswer(self._ask)

    async def now_us(self) -> int:
        return await self._asked()

    async def sleep_until_us(self, instant_us: int) -> None:
        left_us = instant_us - await self.now_us()
        while left_us > 0:
            await asyncio.sleep(min(left_us / 1e6, LONGEST_SLEEP_S))
            left_us = instant_us - await self.now_us()

    async def _ask(self) -> int:
        if self._largest_skew_us is None:
            now_us = max(await self._store.now_us())
        else:
            now_us = await self._compared(self._largest_skew_us)
        self._last_us = max(self._last_us, now_us)
        return self._last_us

    async def _compared(self, largest_us: int) -> int:
        """Return the store's time, never earlier than the latest time it has noted. Raises: ClockDoubt."""
        asked_us = self._own_us()
        now_us, mark_us = await self._store.now_us(asked_us + largest_us)
        answered_us = self._own_us()
        # A noted time in the future was noted while both clocks were wrong, or by an older version.
        ahead_us = max(now_us, mark_us) - answered_us
        behind_us = asked_us - now_us
        skew_us = ahead_us if ahead_us > 0 else -max(behind_us, 0)
        slow = not 0 <= answered_us - asked_us <= largest_us
        in_doubt = slow or abs(skew_us) > largest_us
        self._on_skew(skew_us / 1e6, in_doubt)
        most = f"redis.largest_clock_skew: {largest_us / 1e6:g} s"
        if slow:
            raise ClockDoubt(
                f"clocks: redis took too long to compare them ({most}), nothing is closed meanwhile"
            )
        if in_doubt:
            noted = now_us <= mark_us and skew_us > 0
            what = "the latest time that redis noted" if noted else "the clock of redis"
            where = "ahead of" if skew_us > 0 else "behind"
            raise ClockDoubt(
                f"clocks: {what} is {abs(skew_us) / 1e6:.0f} s {where} this worker's ({most}); nothing is "
                "closed until they agree, set the wrong one"
            )
        return max(now_us, mark_us)


class ReplayClock(Clock):
    """A clock over a past range of time, at a multiple of real time or at full speed.

    At full speed the clock stops until a task sleeps on it, then it jumps by a stride. So many bins become
    due at once and are released in one step.

    Args:
        from_us, until_us: the range; the clock stops at ``until_us``, the closing instant of the last bin.
        speed: replayed seconds per real second; None for full speed.
        stride_us: length of a jump at full speed, a whole number of bins.
    Raises: ValueError for an empty range, or a speed or stride that is not positive.
    """

    virtual = True

    def __init__(self, from_us: int, until_us: int, speed: float | None, stride_us: int) -> None:
        if until_us <= from_us:
            raise ValueError("replay: its end is not after its start; check replay.from and replay.to")
        if speed is not None and not (math.isfinite(speed) and speed > 0):
            raise ValueError(f"replay: speed {speed} does not move; write a number above 0, or max")
        if stride_us < 1:
            raise ValueError(f"replay: a stride of {stride_us} us does not move; at least 1")
        self._from_us = from_us
        self._until_us = until_us
        self._speed = speed
        self._stride_us = stride_us
        self._reached_us = from_us
        self._reached_at_s = time.monotonic()

    def start_at(self, instant_us: int) -> None:
        """Continue from the instant that an earlier run had reached; the clock never goes back."""
        self._reached_us = min(max(self._reached_us, instant_us), self._until_us)
        self._reached_at_s = time.monotonic()

    def reached_us(self) -> int:
        """Return the instant that the replay has reached, without waiting."""
        if self._speed is None:
            return self._reached_us
        past_us = int((time.monotonic() - self._reached_at_s) * 1e6 * self._speed)
        return min(self._reached_us + past_us, self._until_us)

    async def now_us(self) -> int:
        return self.reached_us()

    async def sleep_until_us(self, instant_us: int) -> None:
        instant_us = min(instant_us, self._until_us)
        if self._speed is None and instant_us > self._reached_us:
            strides = -(-(instant_us - self._from_us) // self._stride_us)
            self._reached_us = min(self._from_us + strides * self._stride_us, self._until_us)
        left_us = instant_us - self.reached_us()
        await asyncio.sleep(max(left_us, 0) / 1e6 / (self._speed or 1))
        if self.reached_us() < instant_us:  # a timer may fire a little early
            await self.sleep_until_us(instant_us)
