"""The clocks that close bins: the store's own, and a virtual one that replays the past."""

from __future__ import annotations

import asyncio
import math
import time

from stream_app.ports import Store

# The store's clock may run faster than ours or be set forward: ask it again this often.
LONGEST_SLEEP_S = 1.0


class LiveClock:
    """The store's clock: one for all workers, and the one that its scripts check."""

    virtual = False

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last_us = 0

    async def now_us(self) -> int:
        """Return microseconds since 1970; it never goes back, even if another store answers."""
        self._last_us = max(self._last_us, await self._store.now_us())
        return self._last_us

    async def sleep_until_us(self, instant_us: int) -> None:
        """Return when the clock has reached the instant."""
        left_us = instant_us - await self.now_us()
        while left_us > 0:
            await asyncio.sleep(min(left_us / 1e6, LONGEST_SLEEP_S))
            left_us = instant_us - await self.now_us()


class ReplayClock:
    """A clock over a past range: at a multiple of real time, or as fast as its sleepers allow.

    At full speed (``speed`` None) it stands still until somebody sleeps and then jumps, in strides, so that
    many bins become due at once and are released in one step.

    Args:
        from_us, until_us: the range; the clock stops at ``until_us``, the closing instant of the last bin.
        speed: seconds of the past in a real second; None for full speed.
        stride_us: the jump of full speed, a whole number of bins.
    Raises: ValueError for an empty range, a speed or stride that does not move.
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
        """Go on from an instant, where an earlier run had come to; never back."""
        self._reached_us = min(max(self._reached_us, instant_us), self._until_us)
        self._reached_at_s = time.monotonic()

    def reached_us(self) -> int:
        """Return where the replay is now, without waiting."""
        if self._speed is None:
            return self._reached_us
        past_us = int((time.monotonic() - self._reached_at_s) * 1e6 * self._speed)
        return min(self._reached_us + past_us, self._until_us)

    async def now_us(self) -> int:
        """Return microseconds since 1970 in the replayed past; it never goes back."""
        return self.reached_us()

    async def sleep_until_us(self, instant_us: int) -> None:
        """Return when the clock has reached the instant, or its end."""
        instant_us = min(instant_us, self._until_us)
        if self._speed is None and instant_us > self._reached_us:
            strides = -(-(instant_us - self._from_us) // self._stride_us)
            self._reached_us = min(self._from_us + strides * self._stride_us, self._until_us)
        left_us = instant_us - self.reached_us()
        await asyncio.sleep(max(left_us, 0) / 1e6 / (self._speed or 1))
        if self.reached_us() < instant_us:  # a timer may fire a little early
            await self.sleep_until_us(instant_us)
