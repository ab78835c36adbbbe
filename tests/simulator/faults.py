"""Faults at every await: each call of a worker to a port passes through this module and may fail."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Fault(StrEnum):
    """What goes wrong with one call."""

    NONE = "none"
    DELAYED = "delayed"  # it arrives late, its reply later still
    LOST_CALL = "lost call"  # it never arrives; the caller gets an error
    LOST_REPLY = "lost reply"  # it takes effect; the caller gets an error
    REPEATED = "repeated"  # it takes effect twice; the caller gets the second answer (a client's retry)
    ZOMBIE = "zombie"  # it takes effect, and once more much later
    CRASH_BEFORE = "crash before"  # the worker dies, the call never arrives
    CRASH_AFTER = "crash after"  # the worker dies, the call has taken effect


POLLS = {"now_us", "read", "partitions", "load", "head"}
POLL_SHARE = 0.2
CUT_OFF_S = 0.2  # longer than the time that any loop waits between two calls


class SimulatedOutage(ConnectionError):
    """The error that a caller gets when a call or its reply is lost."""


@dataclass
class Weather:
    """How often calls go wrong, and with which faults. At a rate of 0 no call goes wrong."""

    rng: random.Random
    rate: float
    longest_delay_s: float
    faults: tuple[Fault, ...] = tuple(fault for fault in Fault if fault is not Fault.NONE)
    struck: frozenset[str] = frozenset()  # the calls that may go wrong; empty: all
    cut_off_until_s: float = 0.0  # by the loop's time

    def cut_off(self) -> None:
        """Lose all replies for a while."""
        self.cut_off_until_s = asyncio.get_running_loop().time() + CUT_OFF_S

    def draw(self, method: str) -> Fault:
        """Draw the fault of the next call, or none. Frequent polls go wrong less often."""
        if self.cut_off_until_s and asyncio.get_running_loop().time() < self.cut_off_until_s:
            return Fault.LOST_REPLY
        if self.struck and method not in self.struck:
            return Fault.NONE
        rate = self.rate * POLL_SHARE if method in POLLS and not self.struck else self.rate
        if not self.faults or self.rng.random() >= rate:
            return Fault.NONE
        return self.rng.choice(self.faults)

    async def wait(self) -> None:
        """Wait for a random time."""
        await asyncio.sleep(self.rng.random() * self.longest_delay_s)


@dataclass
class Stalls:
    """How often a process pauses just before or just after a call. Time passes, but nothing fails.

    Between two calls a worker cannot see the time or the outside. So these pauses stand for pauses between
    any two lines: a stopped process, a machine that swaps, a long garbage collection.
    """

    rng: random.Random
    rate: float
    longest_s: float
    struck: frozenset[str] = frozenset()  # the calls around which the process may pause; empty: all

    def draw(self, method: str) -> float:
        """Draw how many seconds the process pauses here; mostly 0."""
        if self.struck and method not in self.struck:
            return 0.0
        if not self.rate or self.rng.random() >= self.rate:
            return 0.0
        return self.longest_s * self.rng.random() ** 3


@dataclass
class Life:
    """A worker process that can be ended at once, as by kill -9."""

    name: str
    task: asyncio.Task[None] | None = None
    alive: bool = True
    still_until_s: float = 0.0  # by the loop's time

    def stand_still(self, seconds: float) -> None:
        """Pause all tasks of the process until the stall is over."""
        self.still_until_s = max(self.still_until_s, asyncio.get_running_loop().time() + seconds)

    async def going(self) -> None:
        """Wait until the process is not paused."""
        loop = asyncio.get_running_loop()
        while (left_s := self.still_until_s - loop.time()) > 0:  # noqa: ASYNC110  (it may stand still again)
            await asyncio.sleep(left_s + 1e-6)  # a timer may fire a microsecond early

    def kill(self) -> None:
        """End every task. From now on no call of this process reaches a port."""
        self.alive = False
        self.end()

    def end(self) -> None:
        """Ask the worker to end in its normal way."""
        if self.task is not None:
            self.task.cancel()


Effect = Callable[[str, str, tuple[Any, ...], Any], Awaitable[None]]


class FaultyPort:
    """Wraps a port (store, source, witness, dead letters), so that faults and stalls hit its calls.

    Args: after, called with (port, method, arguments, reply) after each effect, in the same instant; trace,
        called with one readable line for each fault; zombies, where repeated late calls are kept until they
        arrive.
    """

    def __init__(
        self,
        port: str,
        inner: Any,
        life: Life,
        weather: Weather,
        stalls: Stalls,
        *,
        after: Effect,
        trace: Callable[[str], None],
        zombies: set[asyncio.Task[None]],
    ) -> None:
        self._port = port
        self._inner = inner
        self._life = life
        self._weather = weather
        self._stalls = stalls
        self._after = after
        self._trace = trace
        self._zombies = zombies

    def __getattr__(self, method: str) -> Any:
        target = getattr(self._inner, method)
        if not asyncio.iscoroutinefunction(target):
            return target

        async def call(*args: Any) -> Any:
            return await self._call(method, target, args)

        setattr(self, method, call)  # the next access finds the call without ``__getattr__``
        return call

    async def _call(self, method: str, target: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        await self._stall("before", method)
        reply = await self._weathered(method, target, args)
        await self._stall("after", method)
        return reply

    async def _stall(self, when: str, method: str) -> None:
        """Pause the process now and then, and wait until the pause is over."""
        self._must_live()
        if stall_s := self._stalls.draw(method):
            self._trace(f"{self._life.name}: stalled {when} {self._port}.{method} for {stall_s:.3f} s")
            self._life.stand_still(stall_s)
        if self._life.still_until_s:
            await self._life.going()
            self._must_live()

    async def _weathered(
        self, method: str, target: Callable[..., Awaitable[Any]], args: tuple[Any, ...]
    ) -> Any:
        fault = self._weather.draw(method)
        if fault is Fault.NONE:
            await asyncio.sleep(0)
            self._must_live()
            return await self._effect(method, target, args)
        self._trace(f"{self._life.name}: {fault} {self._port}.{method}")
        return await self._struck(fault, method, target, args)

    async def _struck(
        self, fault: Fault, method: str, target: Callable[..., Awaitable[Any]], args: tuple[Any, ...]
    ) -> Any:
        if fault is Fault.LOST_CALL:
            await self._weather.wait()
            raise SimulatedOutage(f"{self._port}.{method}: the call was lost")
        if fault is Fault.CRASH_BEFORE:
            self._die()
        if fault in (Fault.DELAYED, Fault.REPEATED):
            await self._weather.wait()
            self._must_live()
        reply = await self._effect(method, target, args)
        if fault is Fault.CRASH_AFTER:
            self._die()
        if fault is Fault.LOST_REPLY:
            raise SimulatedOutage(f"{self._port}.{method}: the reply was lost")
        if fault is Fault.REPEATED:
            reply = await self._effect(method, target, args)
        if fault is Fault.ZOMBIE:
            again = asyncio.get_running_loop().create_task(
                self._come_again(method, target, copy.deepcopy(args))
            )
            self._zombies.add(again)
            again.add_done_callback(self._zombies.discard)
        if fault is Fault.DELAYED:
            await self._weather.wait()
            self._must_live()
        return reply

    async def _effect(self, method: str, target: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        reply = await target(*args)
        await self._after(self._port, method, args, reply)
        return reply

    async def _come_again(
        self, method: str, target: Callable[..., Awaitable[Any]], args: tuple[Any, ...]
    ) -> None:
        for _ in range(8):
            await self._weather.wait()
        self._trace(f"{self._life.name}: zombie {self._port}.{method} arrives")
        with suppress(LookupError):  # nobody hears that the store no longer has what was asked for
            await self._effect(method, target, args)

    def _must_live(self) -> None:
        if not self._life.alive:
            raise asyncio.CancelledError

    def _die(self) -> None:
        self._life.kill()
        raise asyncio.CancelledError
