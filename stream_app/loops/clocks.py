"""The clocks that close bins: the store's clock, and a virtual clock for replays."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from itertools import count

from stream_app.core.instants import format_instant
from stream_app.ports import Clock, ClockDoubt, Store
from stream_app.together import SharedAnswer

LARGEST_US = 2**53  # the latest time that a store can note exactly
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
        notes: whether the store may note the time; a command that only looks must not store anything.
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
        notes: bool = True,
    ) -> None:
        self._store = store
        self._largest_skew_us = largest_skew_us
        self._own_us = own_us
        self._on_skew = on_skew
        self._notes = notes
        self._last_us = 0
        self._asked = SharedAnswer(self._ask)
        self._sleepers = _Sleepers(self.now_us)

    async def now_us(self) -> int:
        return await self._asked()

    async def sleep_until_us(self, instant_us: int) -> None:
        now_us = await self.now_us()
        if now_us < instant_us:
            await self._sleepers.until(instant_us, now_us)

    async def _ask(self) -> int:
        largest_us, asked_us = self._largest_skew_us, self._own_us()
        latest_us = LARGEST_US if largest_us is None else asked_us + largest_us
        now_us, mark_us = await self._store.now_us(latest_us if self._notes else 0)
        if largest_us is not None:
            self._compare(now_us, mark_us, asked_us, largest_us)
        self._last_us = max(self._last_us, now_us, mark_us)
        return self._last_us

    def _compare(self, now_us: int, mark_us: int, asked_us: int, largest_us: int) -> None:
        """Raises: ClockDoubt, in the same words while the same clocks disagree: a log repeats them seldom."""
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
        if in_doubt and now_us <= mark_us and skew_us > 0:
            raise ClockDoubt(
                f"clocks: redis has noted {_instant(mark_us)}, which this worker's clock has not reached "
                f"({most}); nothing is closed before: if that time was wrong, delete the note "
                "(docs/runbook.md, PrivateCountsClocksDisagree)"
            )
        if in_doubt:
            where = "ahead of" if skew_us > 0 else "behind"
            raise ClockDoubt(
                f"clocks: the clock of redis is {_roughly(skew_us)} s {where} this worker's ({most}); "
                "nothing is closed until they agree, set the wrong one"
            )


def _roughly(skew_us: int) -> str:
    """Return seconds with two digits, so that a clock that is corrected slowly gives few different lines.

    >>> _roughly(-3_599_900_000), _roughly(6_400_000)
    ('3,600', '6')
    """
    return f"{float(f'{abs(skew_us) / 1e6:.1e}'):,.0f}"


def _instant(us: int) -> str:
    try:
        return format_instant(us // 1_000_000 * 1_000_000)
    except OverflowError:  # beyond the calendar
        return "a time after the year 9999"


class _Sleepers:
    """The tasks that wait for an instant of one clock. One question wakes all whose instant has come.

    If each of them asked for itself, a thousand streams would ask a thousand times a second, and wait.
    """

    def __init__(self, now_us: Callable[[], Awaitable[int]]) -> None:
        self._now_us = now_us
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []  # a heap, by instant
        self._order = count()
        self._number = 0  # how many wait; the heap also holds tasks that were cancelled
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None

    async def until(self, instant_us: int, now_us: int) -> None:
        """Return once the clock has reached an instant. Args: now_us, a reading that is before it.

        Raises: the clock's error, as soon as a question fails.
        """
        reached = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (instant_us, next(self._order), reached))
        self._number += 1
        try:
            self._set_timer(now_us)
            await reached
        finally:
            self._number -= 1
            if not self._number:
                self._stop()

    def _set_timer(self, now_us: int) -> None:
        """Ask again at the first instant, but soon enough to notice a clock that is set forward."""
        loop = asyncio.get_running_loop()
        first_us = self._waiting[0][0]
        at_s = loop.time() + min(max(first_us - now_us, 0) / 1e6, LONGEST_SLEEP_S)
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at_s, self._ask)

    def _ask(self) -> None:
        self._timer = None
        self._asking = asyncio.create_task(self._wake())

    async def _wake(self) -> None:
        """Wake the tasks whose instant has come; if the clock cannot be read, all of them get its error."""
        try:
            now_us = await self._now_us()
        except BaseException as failure:
            self._fail(failure)
            if not isinstance(failure, Exception):
                raise
            return
        while self._waiting and (self._waiting[0][0] <= now_us or self._waiting[0][2].done()):
            _, _, reached = heappop(self._waiting)
            if not reached.done():
                reached.set_result(None)
        if self._waiting:
            self._set_timer(now_us)

    def _fail(self, failure: BaseException) -> None:
        for _, _, reached in self._waiting:
            if isinstance(failure, asyncio.CancelledError):
                reached.cancel()
            elif not reached.done():
                reached.set_exception(failure)
        self._waiting.clear()

    def _stop(self) -> None:
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


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
