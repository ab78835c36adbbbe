"""Each stream's released values in memory, refreshed from the public half of the store.

Requests are answered from memory and never wait for the store. Only visible releases are read.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from operator import itemgetter

from dphist.arrays import Int64Array
from stream_app.api.announced import Announced
from stream_app.core.answers.answered import Missing
from stream_app.core.answers.labels import UNLABELLED, Labels
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.visible import width_of
from stream_app.core.promise import Statement
from stream_app.core.records import PublicState
from stream_app.core.segments.names import base_of, number_of
from stream_app.core.segments.visible_costs import KnownEpochs
from stream_app.ports import OperatorError
from stream_app.ports.reader import PublicReader

log = logging.getLogger(__name__)
Take = Callable[[], bool]
Stated = Callable[[str], Awaitable[Statement]]
RECENT_ROWS = 256  # of each stream, and the last ones shown together; followers further behind ask the store
_ROWS_A_READ = 2_000
_FEW_ROWS = 64
_A_TURN_S = 0.000_3  # requests are answered between two turns, so each waits this long at most
_WOKEN_A_TURN = 4  # a follower that is woken takes its time in the next turn, about a tenth of a millisecond


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


class StreamReplica:
    """One stream's view for answers, and its last rows for followers.

    Args: stated, returns a source's privacy statement. It is read before a release is shown, because the
        ledger already holds every measurement of visible releases; known, learns of the stream's epochs: no
        later one is shown, and none that the ledger loses is forgotten; labels, how the stream is shown.
    """

    def __init__(
        self,
        reader: PublicReader,
        stream: str,
        stated: Stated,
        known: KnownEpochs,
        labels: Labels = UNLABELLED,
    ) -> None:
        self.stream, self.labels = stream, labels  # as the store names it
        self.name, self.generation = base_of(stream), number_of(stream)  # as readers do
        self.view: StreamView | None = None
        self.asked_apart = asyncio.Lock()  # held by the one question that another process answers
        self.answers: dict[object, bytes] = {}  # rendered answers at the view's seq
        self.seq = 0  # of the last bin that followers may see
        self.closed = False
        self.continued_by: StreamReplica | None = None  # the next generation, once nothing more comes here
        self._reader, self._stated, self._known = reader, stated, known
        self._halted = Announced(False)
        self.recent: deque[tuple[int, bytes]] = deque()  # rows by number, for who follows again
        self.newest: tuple[tuple[int, bytes], ...] = ()  # the rows that were shown last, together
        self.news = News()

    @property
    def parts(self) -> tuple[StreamReplica, ...]:
        """The streams that answers about this one use: it alone (``Succession`` has several)."""
        return (self,)

    async def look(self) -> PublicState | None:
        """Return the public state. From now on the source's statement covers its epochs.

        Raises: the reader's exception if the store cannot be read.
        """
        try:
            state = await self._reader.public_state(self.stream)
        except OperatorError:
            self._known.unreadable(self.stream)
            raise
        self._known.learn(self.stream, state)
        return state

    async def refresh(self, looked: Awaitable[PublicState | None] | None = None) -> None:
        """Read newly visible releases; readers see all of them or none.

        Args: looked, the result of ``look``; None: look now.
        Raises: as ``look``.
        """
        state = await (self.look() if looked is None else looked)
        if state is None:
            self.view, self.seq = None, 0
            return
        if (halted := self._halted.shown(state.halted)) != self.labels.halted:
            self.say(replace(self.labels, halted=halted))
        if self.view is not None and self.view.shown == state:
            return
        view = self.view
        if view is None or not view.continues_to(state):
            view = StreamView(state.strategy, state.earlier)  # nobody reads it yet
            view.labels = self.labels
            self.recent.clear()
        wanted = view.missing(state)
        tables, rows = await asyncio.gather(
            asyncio.gather(
                *(self._reader.tile_rows(self.stream, *want, width_of(state, want)) for want in wanted)
            ),
            self._new_rows(state.visible_seq),
        )
        view.statement = await self._stated(view.strategy.source)
        self._show(view, state, zip(wanted, tables, strict=True), rows)

    async def read_news(self, seq: int) -> None:
        """Read the releases up to a visible seq: in one round trip, if nothing else has changed.

        Raises: as ``refresh``.
        """
        view = self.view
        if view is not None and self._last_seq <= view.visible_seq < seq <= self._last_seq + _ROWS_A_READ:
            state = replace(view.shown, visible_seq=seq)
            wanted = view.missing(state)
            # The ledger is read after the seq was seen visible, so the statement covers this release.
            news, statement = await asyncio.gather(
                self._reader.news(self.stream, state, self._last_seq, wanted),
                self._stated(view.strategy.source),
            )
            if news is not None and self.view is view:
                view.statement = statement
                self._show(view, state, zip(wanted, news.tables, strict=True), news.rows)
                return
        await self.refresh()

    def _show(
        self,
        view: StreamView,
        state: PublicState,
        blocks: Iterable[tuple[Missing, Int64Array]],
        rows: Sequence[tuple[int, bytes]],
    ) -> None:
        """Show a state, all at once, and pass its new rows to followers."""
        view.extend(state, blocks)
        self.view = view
        self.answers.clear()
        self.recent.extend(rows)
        for _ in range(len(self.recent) - max(RECENT_ROWS, len(rows))):
            self.recent.popleft()
        self.seq, self.newest = state.visible_seq, tuple(rows)
        self.news.tell()

    @property
    def _last_seq(self) -> int:
        """The seq of the last row in memory; 0 if there is none."""
        return self.recent[-1][0] if self.recent else 0

    def set_statement(self, statement: Statement) -> None:
        """Set the source's statement. If it changes, drop all cached answers: some repeat it."""
        if self.view is not None:
            before, self.view.statement = self.view.statement, statement
            if before != statement:
                self.answers.clear()

    @property
    def private(self) -> bool:
        """Whether the stream is known to be private."""
        return self.view is not None and self.view.private

    async def rows_after(self, seq: int) -> list[tuple[int, bytes]]:
        """Return the next visible rows after ``seq``, from memory if they are recent."""
        if seq >= self.seq:
            return []
        if self.recent and self.recent[0][0] <= seq + 1:
            skipped = bisect_right(self.recent, seq, key=itemgetter(0))
            new = len(self.recent) - skipped
            if new <= _FEW_ROWS:  # a deque is fast only at its ends, and followers mostly need the last row
                return list(islice(reversed(self.recent), new))[::-1]
            return list(islice(self.recent, skipped, skipped + _ROWS_A_READ))
        return await self._reader.rows(self.stream, seq, _ROWS_A_READ)

    def say(self, labels: Labels) -> None:
        """Set the stream's labels, and drop cached answers: they may hold the old labels."""
        self.labels = labels
        self.answers.clear()
        if self.view is not None:
            self.view.labels = self.labels

    def go_on_in(self, following: StreamReplica | None) -> None:
        """Set the generation in which the followers of this one go on; None: none yet."""
        if self.continued_by is not following:
            self.continued_by = following
            self.news.tell()

    def close(self) -> None:
        """End all followers."""
        self.closed = True
        self.news.tell()

    async def _new_rows(self, visible_seq: int) -> list[tuple[int, bytes]]:
        last = self._last_seq
        after = max(last, visible_seq - RECENT_ROWS)
        if after > last:
            self.recent.clear()
        rows: list[tuple[int, bytes]] = []
        while after < visible_seq:
            page = await self._reader.rows(self.stream, after, min(_ROWS_A_READ, visible_seq - after))
            if not page:
                break
            rows.extend(page)
            after = page[-1][0]
        return rows
