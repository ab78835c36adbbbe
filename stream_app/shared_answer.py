"""Sends one question for all tasks that ask it at the same time, as streams do that close together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


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
            self._next.add_done_callback(_retrieve_failure)
        return await asyncio.shield(self._next)

    async def _put_after(self, before: asyncio.Task[T] | None) -> T:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._last, self._next = self._next, None
        return await self._put()


def _retrieve_failure(put: asyncio.Task[T]) -> None:
    """Retrieve a failure that no caller receives, because all of them were cancelled."""
    if not put.cancelled():
        put.exception()
