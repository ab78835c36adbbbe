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
        self._waiting: dict[asyncio.Future[None], Take] = {}

    async def awaited(self, timeout_s: float, take: Take) -> bool:
        """Wait for news that ``take`` cannot deliver; return False at the timeout.

        Args: take, delivers at once what its follower lacks; returns False if the follower must be woken.
        """
        if not take():
            return True
        changed = asyncio.get_running_loop().create_future()
        self._waiting[changed] = take
        try:
            async with asyncio.timeout(timeout_s):
                await changed
        except TimeoutError:
            return False
        finally:
            del self._waiting[changed]
        return True

    def tell(self) -> None:
        """Let all that wait take the news, or wake them."""
        if self._waiting:
            _tell(deque(self._waiting.items()))


def _tell(queue: deque[tuple[asyncio.Future[None], Take]]) -> None:
    loop = asyncio.get_running_loop()
    until_s, woken = loop.time() + _A_TURN_S, 0
    while queue and woken < _WOKEN_A_TURN and loop.time() < until_s:
        changed, take = queue.popleft()
        if not changed.done() and not take():
            changed.set_result(None)
            woken += 1
    if queue:
        loop.call_soon(_tell, queue)
