"""A deterministic event loop: time jumps when every task waits, and the seed decides who runs first."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_MOST_TURNS = 20_000  # turns at one instant: more turns mean that a task never waits
_ROUNDING = 1e-3  # microseconds: a timer's float seconds may be this far off the whole microsecond


class Deadlock(AssertionError):
    """Every task waits without end, or no task ever waits."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """An asyncio loop without sockets, threads or a real clock.

    If several callbacks are ready, the loop draws their order. So code fails here if it works only because
    asyncio happens to run tasks in the order in which they were woken.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.now_us = 0
        self._turns = 0
        self._order = random.Random(f"order {seed}")
        self._selector = self
        self._clock_resolution = 1e-6
        self.errors: list[str] = []
        self.set_exception_handler(self._keep_error)

    def time(self) -> float:
        """Return virtual seconds since the start."""
        return self.now_us / 1e6

    def select(self, timeout: float | None) -> list[object]:
        """Return at once, in place of the selector: nothing happens outside the loop."""
        if timeout is None:
            raise Deadlock(f"all tasks wait for ever at {self.now_us} us")
        passed_us = max(0, math.ceil(timeout * 1e6 - _ROUNDING))
        self.now_us += passed_us
        self._turns = 0 if passed_us else self._turns + 1
        if self._turns > _MOST_TURNS:
            self._turns = 0
            raise Deadlock(f"a task runs for ever at {self.now_us} us")
        return []

    def _process_events(self, event_list: list[object]) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        if len(ready) > 1:
            # One by one: a thread of the API may add to them meanwhile, and nothing may be lost.
            shuffled = [ready.popleft() for _ in range(len(ready))]
            self._order.shuffle(shuffled)
            ready.extend(shuffled)

    def _write_to_self(self) -> None:
        """Do nothing: there is no selector to wake."""

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Call the function at once: there are no threads."""
        called: asyncio.Future[T] = self.create_future()
        try:
            called.set_result(func(*args))
        except Exception as failure:
            called.set_exception(failure)
        return called

    def _keep_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")


def simulate(seed: int, main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. The seed decides the order of tasks, and no task is left behind.

    Raises: what ``main`` raises; Deadlock; AssertionError for an error that a background task dropped.
    """
    loop = SimulatedLoop(seed)
    try:
        result = loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()
    if loop.errors:
        raise AssertionError(f"a task failed and nobody looked: {loop.errors}")
    return result
