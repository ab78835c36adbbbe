"""Runs loops concurrently, until one of them fails, and sends one question for all tasks that ask it.

``asyncio.TaskGroup`` cancels the task that waits for it, and before Python 3.13 may leave that task marked as
cancelled, so that closing clients is interrupted. The functions here never cancel the waiting task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

from stream_app.ports import OperatorError

Loop = Coroutine[Any, Any, None]
T = TypeVar("T")


async def until_all_end(*loops: Loop) -> None:
    """Run loops until each of them has returned.

    Raises: the failure of a loop, an ``OperatorError`` before any other; the other loops have ended by then.
    """
    await _run(loops, enough=len(loops))


async def until_one_ends(*loops: Loop) -> None:
    """Run loops until one of them has returned, then end the others. Raises: as ``until_all_end``."""
    await _run(loops, enough=1)


async def each_to_its_end(*works: Coroutine[Any, Any, T]) -> list[T]:
    """Run coroutines concurrently until each has returned or failed; return their results.

    Raises: the failure of one of them, an ``OperatorError`` before any other.
    """
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    _raise_first([outcome for outcome in outcomes if isinstance(outcome, BaseException)])
    return cast("list[T]", outcomes)


async def in_thread_to_its_end(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread and return its result. A cancelled caller waits for its end."""
    running = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        raise


async def _run(loops: Collection[Loop], enough: int) -> None:
    tasks = [asyncio.create_task(loop) for loop in loops]
    ended: list[asyncio.Task[None]] = []  # tasks that ended by themselves, first to last
    over = asyncio.Event()

    def note(task: asyncio.Task[None]) -> None:
        ended.append(task)
        if len(ended) >= enough or _failure(task) is not None:
            over.set()

    for task in tasks:
        task.add_done_callback(note)
    try:
        if enough:
            await over.wait()
    finally:
        for task in tasks:
            task.remove_done_callback(note)
        asked = [task for task in tasks if task.cancel()]
        await asyncio.gather(*tasks, return_exceptions=True)
    first = [failure for failure in map(_failure, ended) if failure is not None]
    late = [failure for task in asked if not task.cancelled() and (failure := task.exception()) is not None]
    _raise_first([failure for failure in late if isinstance(failure, OperatorError)] + first)


def _raise_first(failures: Sequence[BaseException]) -> None:
    for failure in sorted(failures, key=lambda failure: not isinstance(failure, OperatorError)):
        raise failure


def _failure(ended: asyncio.Task[None]) -> BaseException | None:
    """Return why an ended loop failed, or None. A cancellation that nobody asked for is a failure."""
    if ended.cancelled():
        return RuntimeError("a loop was cancelled, and nobody had asked for it")
    return ended.exception()


class SharedAnswer(Generic[T]):
    """A question that is sent once for all tasks that wait for it.

    Guarantee: the question is sent after each of its callers has called, so no answer is older than a call.
        A caller that comes while a question is under way waits for the next question.

    Callers rely on this order. The clock is read after the log's end is known, so the records in a cut
    arrived by then. Partitions are listed after a bin has closed, so a partition created earlier delays its
    seal. A ledger is read after a row was visible, so it covers everything that the row may reveal. Answers
    about one stream, above all its state, are never shared.
    """

    def __init__(self, put: Callable[[], Awaitable[T]]) -> None:
        self._put = put
        self._next: asyncio.Task[T] | None = None  # the question that is not sent yet
        self._last: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """Return the answer. Raises: the question's error, in every caller that waits for it."""
        if self._next is None:
            self._next = asyncio.create_task(self._put_after(self._last))
            self._next.add_done_callback(ignore_failure)
        return await asyncio.shield(self._next)

    async def _put_after(self, before: asyncio.Task[T] | None) -> T:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._last, self._next = self._next, None
        return await self._put()


def ignore_failure(done: asyncio.Future[Any]) -> None:
    """Retrieve a failure that nobody waits for, so that asyncio does not log it."""
    if not done.cancelled():
        done.exception()
