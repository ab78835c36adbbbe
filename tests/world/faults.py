"""Faults for the ports of a world's workers: each strikes the calls of one method."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any

Call = Callable[[], Awaitable[Any]]  # the call that a fault strikes; awaiting it gives the port's reply
Fault = Callable[[Call], Awaitable[Any]]  # returns the reply that the worker gets, or raises


async def lost_call(call: Call) -> Any:
    """Let the call never arrive; the worker gets an error."""
    raise ConnectionError("the call was lost")


async def lost_reply(call: Call) -> Any:
    """Let the call take effect; the worker gets an error."""
    await call()
    raise ConnectionError("the reply was lost")


def slow(seconds: float) -> Fault:
    """Return the fault of a call that arrives after some seconds."""

    async def strike(call: Call) -> Any:
        await asyncio.sleep(seconds)
        return await call()

    return strike


def raising(failure: BaseException) -> Fault:
    """Return the fault of a call that fails without an effect."""

    async def strike(call: Call) -> Any:
        raise failure

    return strike


def meanwhile(act: Callable[[], object]) -> Fault:
    """Return a fault: something happens just before the call arrives."""

    async def strike(call: Call) -> Any:
        act()
        return await call()

    return strike


def first(fault: Fault, calls: int = 1) -> Fault:
    """Return a fault that strikes only the first calls."""
    left = count(calls, -1)

    async def strike(call: Call) -> Any:
        return await (fault(call) if next(left) > 0 else call())

    return strike


def every_second(fault: Fault) -> Fault:
    """Return a fault that strikes the first call and every second one after it."""
    calls = count()

    async def strike(call: Call) -> Any:
        return await (call() if next(calls) % 2 else fault(call))

    return strike


class Struck:
    """A port whose calls are struck by faults, by the name of the method.

    ``asked`` holds all calls so far, and ``at_s`` when each came, in seconds of the loop.

    >>> asyncio.run(Struck(asyncio.Event(), wait=lambda call: asyncio.sleep(0, "struck")).wait())
    'struck'
    """

    def __init__(self, port: Any, **faults: Fault) -> None:
        self.port, self.faults = port, faults
        self.asked: list[tuple[str, tuple[Any, ...]]] = []
        self.at_s: list[float] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.port, name)
        if not asyncio.iscoroutinefunction(real):
            return real

        async def call(*arguments: Any, **more: Any) -> Any:
            self.asked.append((name, arguments))
            self.at_s.append(asyncio.get_running_loop().time())
            fault = self.faults.get(name)
            return await (
                real(*arguments, **more) if fault is None else fault(lambda: real(*arguments, **more))
            )

        return call

    def calls(self, name: str) -> list[tuple[Any, ...]]:
        """Return the arguments of each call of a method."""
        return [arguments for asked, arguments in self.asked if asked == name]


# Calls of ports that change nothing.
LOOKS = {
    *("now_us", "load", "ledger", "sources", "rows", "witness_rows", "read_cells", "visible_seq"),
    *("noise_key", "read_noise", "refused_ahead", "oldest_epoch", "mark", "chains"),
    *("read", "owned", "partitions", "positions_at", "first_position", "kept_since_us"),
}


class Death:
    """Kills a worker at the n-th call that changes something, before or after the call takes effect."""

    def __init__(self, number: int, after_effect: bool) -> None:
        self.left, self.after_effect = number, after_effect
        self.kill: Callable[[], object] = lambda: None  # set by the worker

    @property
    def has_come(self) -> bool:
        """Whether the worker has died."""
        return self.left <= 0

    def of(self, port: Any) -> Any:
        """Return a port whose calls count."""
        return _Mortal(port, self)


class _Mortal:
    def __init__(self, port: Any, death: Death) -> None:
        self.port, self.death = port, death

    def __getattr__(self, name: str) -> Any:
        real, death = getattr(self.port, name), self.death
        if not asyncio.iscoroutinefunction(real):
            return real

        async def call(*arguments: Any, **more: Any) -> Any:
            if not death.has_come:
                if name in LOOKS:  # dying here is dying at the next call that changes something
                    return await real(*arguments, **more)
                death.left -= 1
                if not death.has_come:
                    return await real(*arguments, **more)
                if death.after_effect:
                    await real(*arguments, **more)
                death.kill()
            return await _cancelled()

        return call


async def _cancelled() -> None:
    """Raise: the worker's cancellation, which may need some turns to arrive in this task."""
    for _ in range(20):
        await asyncio.sleep(0)
    raise asyncio.CancelledError


def deaths(first_call: int = 1, step: int = 1) -> Iterator[Death]:
    """Yield deaths at later and later calls, before or after the call, until one no longer comes."""
    for number in count(first_call, step):
        for after_effect in (False, True):
            yield (death := Death(number, after_effect))
            if not death.has_come:
                return
