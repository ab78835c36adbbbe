"""Share the event loop, threads and connections fairly among readers.

A reader is a key, a user of the proxy, or an address. Nothing here depends on questions or counts.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf

_AT_ONCE_S = 0.000_5
_AHEAD_S = 0.05
_LONGEST_REST_S = 0.05
_ALONE_AFTER_S = 1.0  # a reader is alone once no other has asked for so long
MOST_WAITING = 24  # long questions of one reader, beside the one that runs


class TooManyError(Exception):
    """A reader, or all readers together, reached a limit: one line with the limit and the remedy."""


class Turnstile:
    """Admits one request of each reader at a time. If requests use the loop much, the next ones wait.

    Guarantee: however many requests one reader sends, another reader waits for only one of them. Half of the
        loop's time stays free for other tasks: requests may use ``_AHEAD_S`` of it before they wait. Requests
        of a reader who is alone wait for nobody: between two of them all other tasks have their turn.
    Args: followed, returns whether anybody follows a stream.
    """

    def __init__(self, followed: Callable[[], bool]) -> None:
        self._followed = followed
        self._last: str | None = None  # who asked last
        self._others_s = -inf  # when another reader than the one before asked
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._passed: set[str] = set()
        self._since_s: float | None = None  # when the current requests were admitted
        self._ahead_s, self._counted_s = _AHEAD_S, -inf  # the time that requests may use, and since when

    async def passed(self, reader: str) -> None:
        """Wait for the reader's turn."""
        if self._last not in (None, reader):
            self._others_s = asyncio.get_running_loop().time()
        self._last = reader
        if reader in self._passed:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(reader, deque()).append(turn)
            await turn
            return
        self._passed.add(reader)
        self._next_later()

    def _next_later(self) -> None:
        if self._since_s is None:
            loop = asyncio.get_running_loop()
            self._since_s = loop.time()
            loop.call_soon(self._rest)

    def _rest(self) -> None:
        """Admit the next requests, after a pause if requests have used more than half of the loop's time."""
        assert self._since_s is not None
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        took_s = now_s - self._since_s
        alone = now_s - self._others_s >= _ALONE_AFTER_S and not self._followed()
        if took_s >= _AT_ONCE_S and not alone:
            gained_s = (now_s - self._counted_s) / 2
            self._ahead_s = min(_AHEAD_S, self._ahead_s + gained_s) - took_s
            self._counted_s = now_s
            if self._ahead_s < 0:
                loop.call_later(min(-2 * self._ahead_s, _LONGEST_REST_S), self._next)
                return
        self._next()

    def _next(self) -> None:
        self._since_s = None
        self._passed.clear()
        for reader, queue in list(self._waiting.items()):
            while queue:
                if not (turn := queue.popleft()).done():  # done: its request was cancelled
                    turn.set_result(None)
                    self._passed.add(reader)
                    break
            if not queue:
                del self._waiting[reader]
        if self._passed:
            self._next_later()


class LongTurns:
    """Limits concurrent long computations. Readers take turns, and each runs one at a time.

    Args: together, how many run at once, over all readers.
    """

    def __init__(self, together: int) -> None:
        self._together = together
        self._running: set[str] = set()  # the readers whose question runs
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def of(self, reader: str) -> AsyncIterator[None]:
        """Hold a turn during the block. Raises: TooManyError if too many of the reader's questions wait."""
        queue = self._waiting.setdefault(reader, deque())
        if len(queue) >= MOST_WAITING:
            raise TooManyError(
                f"{len(queue)} of your questions are waiting already, which is the limit; ask again later"
            )
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._end(reader)
            elif turn in queue:  # otherwise the turn was already taken off the queue
                queue.remove(turn)
            raise
        try:
            yield
        finally:
            self._end(reader)

    def _end(self, reader: str) -> None:
        self._running.remove(reader)
        self._grant()

    def _grant(self) -> None:
        """Give free places to the readers whose last turn is longest ago."""
        for reader in list(self._waiting):
            queue = self._waiting[reader]
            while queue and len(self._running) < self._together and reader not in self._running:
                turn = queue.popleft()
                if not turn.done():
                    self._running.add(reader)
                    self._waiting.move_to_end(reader)
                    turn.set_result(None)
            if not queue:
                del self._waiting[reader]


class Places:
    """Limits on things held at once, in total and per reader: connections, followers.

    Args: what, the things' name in errors; together and each, the limits; keys, the limits' settings.
    """

    def __init__(self, what: str, together: int, each: int, keys: tuple[str, str]) -> None:
        self._what, self._together, self._each, self._keys = what, together, each, keys
        self._held: Counter[str] = Counter()

    @property
    def held(self) -> int:
        """The number of places held."""
        return self._held.total()

    def take(self, reader: str | None) -> None:
        """Take a place. Args: reader, None to count only in the total. Raises: TooManyError."""
        if self.held >= self._together:
            raise TooManyError(
                f"{self._together} {self._what} are open, the limit ({self._keys[0]}); try again later"
            )
        if reader is not None and self._held[reader] >= self._each:
            raise TooManyError(
                f"{self._each} {self._what} of yours are open, the limit ({self._keys[1]}); close some"
            )
        self._held[reader or ""] += 1

    def give_back(self, reader: str | None) -> None:
        """Free a place."""
        self._held[reader or ""] -= 1
        if not self._held[reader or ""]:
            del self._held[reader or ""]
