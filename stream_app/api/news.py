"""Tells the followers of a stream that it has news, a few in each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

_A_TURN_S = 0.000_3  # requests are answered between two turns, so each waits this long at most
_WOKEN_A_TURN = 4  # a follower that is woken takes its time in the next turn, about a tenth of a millisecond

Take = Callable[[], bool]


class News:
    """The followers that wait for the news of one stream.

    Guarantee: hundreds of followers delay a request by a few turns, and not by their total time.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[bool], Take] = {}

    async def awaited(self, timeout_s: float, take: Take) -> bool:
        """Wait for news that ``take`` cannot deliver; return False at the timeout.

        Args: take, delivers at once the releases that its follower lacks; returns False if the follower must
            be woken.
        """
        if not take():
            return True
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[bool] = loop.create_future()
        self._waiting[woken] = take
        expiry = loop.call_later(timeout_s, _wake, woken, False)
        try:
            return await woken
        finally:
            expiry.cancel()
            del self._waiting[woken]

    def tell(self) -> None:
        """Let all that wait take the news, or wake them."""
        if self._waiting:
            _tell(deque(self._waiting.items()))


def _tell(queue: deque[tuple[asyncio.Future[bool], Take]]) -> None:
    loop = asyncio.get_running_loop()
    until_s, woken = loop.time() + _A_TURN_S, 0
    while queue and woken < _WOKEN_A_TURN and loop.time() < until_s:
        follower, take = queue.popleft()
        if not follower.done() and not take():
            _wake(follower, True)
            woken += 1
    if queue:
        loop.call_soon(_tell, queue)


def _wake(follower: asyncio.Future[bool], has_news: bool) -> None:
    if not follower.done():
        follower.set_result(has_news)
