"""One question for all who ask it at the same time: streams that close together ask the same things."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedAnswer(Generic[T]):
    """A question that is put once for all who wait to put it.

    Guarantee: the question is put after each of its askers has asked, so nobody gets an answer from before.
        Who asks while it is under way waits for it to be put once more.

    Only an answer that is the same for all askers may be shared, and only because it is not older than their
    questions. Each asker has seen something first, and concludes from the order: the clock is read after
    the log's end is known, so what is in a cut arrived by then; partitions are listed after a bin has closed,
    so one that was born earlier holds its seal; a ledger is read after a row was visible, so it knows all
    that the row may reveal. What is a stream's own, its state above all, is never shared.
    """

    def __init__(self, put: Callable[[], Awaitable[T]]) -> None:
        self._put = put
        self._next: asyncio.Task[T] | None = None  # not put so far
        self._last: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """Return the answer. Raises: what putting the question raises, to each who waits for it."""
        if self._next is None:
            self._next = asyncio.create_task(self._put_after(self._last))
            self._next.add_done_callback(_looked_at)
        return await asyncio.shield(self._next)

    async def _put_after(self, before: asyncio.Task[T] | None) -> T:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._last, self._next = self._next, None
        return await self._put()


def _looked_at(put: asyncio.Task[T]) -> None:
    """Look at a failure of which nobody hears, since all who asked were cancelled."""
    if not put.cancelled():
        put.exception()
