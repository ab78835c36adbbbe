"""Each stream's released values in memory, refreshed from the public half of the store.

Requests are answered from memory and never wait for the store. Only visible releases are read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import islice
from operator import itemgetter

from dphist.arrays import Int64Array
from stream_app.api.announced import Announced, Coming
from stream_app.api.generations import Generations
from stream_app.api.news import News
from stream_app.core.alerts.states import State, generation_of
from stream_app.core.answers.answered import Missing
from stream_app.core.answers.labels import NO_LABELS, UNLABELLED, AllLabels, Labels
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.visible import width_of
from stream_app.core.budget import Left, left
from stream_app.core.generations import base_of
from stream_app.core.ledger import statement
from stream_app.core.measured import KnownEpochs
from stream_app.core.promise import Statement
from stream_app.core.records import LedgerEntry, PublicState
from stream_app.outage import Outage
from stream_app.ports import OperatorError
from stream_app.ports.reader import PublicReader
from stream_app.shared_answer import SharedAnswer
from stream_app.source_ledger import ledgers_of_all_names
from stream_app.together import each_to_its_end

log = logging.getLogger(__name__)

Stated = Callable[[str], Awaitable[Statement]]

RECENT_ROWS = 256  # of each stream, and the last ones shown together; followers further behind ask the store
POLL_S = 0.2  # interval for reading everything, including alerts and new streams
NEWS_S = 0.01  # interval for checking known streams for new rows, in one round trip for all
LONGEST_POLL_S = 5.0
_ROWS_A_READ = 2_000
_FEW_ROWS = 64
_state = lru_cache(maxsize=1_024)(State.from_json)  # the states are read again and again


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
        self.stream, self.labels = stream, labels
        self.view: StreamView | None = None
        self.asked_apart = asyncio.Lock()  # held by the one question that another process answers
        self.answers: dict[object, bytes] = {}  # rendered answers at the view's seq
        self.seq = 0  # of the last bin that followers may see
        self.closed = False
        self.continued_by: StreamReplica | None = None  # the next generation, once nothing more comes here
        self._reader, self._stated, self._known = reader, stated, known
        self._announced = Announced()
        self._recent: deque[tuple[int, bytes]] = deque()
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

        Args: looked, what ``look`` returns; None: look now.
        Raises: as ``look``.
        """
        state = await (self.look() if looked is None else looked)
        if state is None:
            self.view, self.seq = None, 0
            return
        if (coming := self._announced.shown(state.announced)) != self.labels.coming:
            self.say(replace(self.labels, coming=coming))
        if self.view is not None and self.view.shown == state:
            return
        view = self.view
        if view is None or not view.continues_to(state):
            view = StreamView(state.strategy, state.earlier)  # nobody reads it yet
            view.labels = self.labels
            self._recent.clear()
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
        self._recent.extend(rows)
        for _ in range(len(self._recent) - max(RECENT_ROWS, len(rows))):
            self._recent.popleft()
        self.seq, self.newest = state.visible_seq, tuple(rows)
        self.news.tell()

    @property
    def _last_seq(self) -> int:
        """The seq of the last row in memory; 0 if there is none."""
        return self._recent[-1][0] if self._recent else 0

    def set_statement(self, statement: Statement) -> None:
        """Set the source's statement. If it changes, forget all answers: some state what it says."""
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
        if self._recent and self._recent[0][0] <= seq + 1:
            skipped = bisect_right(self._recent, seq, key=itemgetter(0))
            new = len(self._recent) - skipped
            if new <= _FEW_ROWS:  # a deque is fast only at its ends, and followers mostly need the last row
                return list(islice(reversed(self._recent), new))[::-1]
            return list(islice(self._recent, skipped, skipped + _ROWS_A_READ))
        return await self._reader.rows(self.stream, seq, _ROWS_A_READ)

    def say(self, labels: Labels) -> None:
        """Set the words that the stream is shown with, and forget the answers that hold others."""
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
            self._recent.clear()
        rows: list[tuple[int, bytes]] = []
        while after < visible_seq:
            page = await self._reader.rows(self.stream, after, min(_ROWS_A_READ, visible_seq - after))
            if not page:
                break
            rows.extend(page)
            after = page[-1][0]
        return rows


class Replicas:
    """The replicas of all streams of the store, refreshed by one task."""

    def __init__(self, reader: PublicReader, labels: AllLabels = NO_LABELS) -> None:
        self.by_name: dict[str, StreamReplica] = {}  # as the store names them
        self.streams = Generations(self.by_name)
        self.ledgers: dict[str, tuple[LedgerEntry, ...]] = {}  # by source
        self._statements: dict[str, Statement] = {}
        self._known = KnownEpochs()
        self._asked: dict[str, SharedAnswer[tuple[LedgerEntry, ...]]] = {}  # by source
        self._left_of: dict[str, tuple[tuple[LedgerEntry, ...], Left | None]] = {}  # by stream
        self.alerts: dict[str, State] = {}  # each rule's state, by rule
        self.refused: dict[str, list[str]] = {}  # how targets refused its last notification, by rule
        self.transitions: dict[str, tuple[bytes, ...]] = {}  # by stream: the last ones, oldest first
        self.closed = False
        self.looked = asyncio.Event()  # set once the store was read, or could not be
        self._reader, self._labels, self._coming = reader, labels, Coming(reader, self.by_name)
        self._fresh_at: float | None = None
        self.is_read = False  # whether the store was read once, all streams or all but unreadable ones

    @property
    def store_age_s(self) -> float | None:
        """Seconds since everything was last read from the store; None before the first time."""
        return None if self._fresh_at is None else time.monotonic() - self._fresh_at

    def expects(self, stream: str) -> bool:
        """Return whether a stream is configured, whether a worker has opened it or not."""
        return stream in self._labels.titles

    def preparing(self) -> list[tuple[str, str]]:
        """Return the names and titles of configured streams that no worker has opened yet, by name."""
        is_open = {base_of(name) for name, replica in self.by_name.items() if replica.view is not None}
        titles = sorted(self._labels.titles.items())
        return [(name, title or name) for name, title in titles if name not in is_open]

    async def refresh(self) -> None:
        """Read newly visible releases of every stream."""
        alerts, transitions = await self._read_alerts()  # first: no state is ahead of its releases
        names = await self._coming.streams()
        for name in names:
            if name not in self.by_name:
                labels = self._labels.of(name)
                self.by_name[name] = StreamReplica(self._reader, name, self.stated, self._known, labels)
        looks = {name: asyncio.create_task(self.by_name[name].look()) for name in names}
        await asyncio.gather(*looks.values(), return_exceptions=True)  # before any row is shown
        await each_to_its_end(*(self.by_name[name].refresh(looked) for name, looked in looks.items()))
        for gone in set(self.by_name) - set(names):
            self.by_name.pop(gone).close()
        self._known.forget_all_but(names)
        self.streams.join()
        sources = {one.view.strategy.source for one in self.by_name.values() if one.view}
        for source in sources:
            await self.stated(source)
        for replica in self.by_name.values():
            self._set_left(replica)
        for gone in set(self.ledgers) - sources:
            del self.ledgers[gone], self._statements[gone], self._asked[gone]
        self.alerts, self.transitions = alerts, self.transitions | transitions
        self._fresh_at = time.monotonic()
        self.is_read = True

    async def stated(self, source: str) -> Statement:
        """Return the current statement of a source, after updating all streams over the source.

        It covers the ledger up to the epochs that are visible, and all known epochs that the ledger has lost
        until the worker puts them back.
        """
        if source not in self._asked:
            self._asked[source] = SharedAnswer(partial(self._measured, source))
        ledger = await self._asked[source]()
        if ledger is not self.ledgers.get(source) and ledger != self.ledgers.get(source):
            self.ledgers[source], self._statements[source] = ledger, statement(source, ledger)
            for replica in self.by_name.values():
                if replica.view is not None and replica.view.strategy.source == source:
                    replica.set_statement(self._statements[source])
        return self._statements[source]

    async def _measured(self, source: str) -> tuple[LedgerEntry, ...]:
        return self._known.counted(source, await ledgers_of_all_names(self._coming, source))

    def _set_left(self, replica: StreamReplica) -> None:
        """Set what a stream's total still allows, whenever its ledger has changed."""
        view, total = replica.view, replica.labels.total
        if view is None or total is None:
            return
        ledger = self.ledgers.get(view.strategy.source, ())
        if self._left_of.get(replica.stream, (None, None))[0] is not ledger:
            self._left_of[replica.stream] = ledger, left(total, ledger, replica.stream)
            replica.answers.clear()
        view.left = self._left_of[replica.stream][1]

    async def _read_alerts(self) -> tuple[dict[str, State], dict[str, tuple[bytes, ...]]]:
        """Return the rules' states, and all transitions of streams with a changed state."""
        states, self.refused = await self._reader.alerts()
        alerts = {rule: _state(text) for rule, text in states.items()}
        changed = (state for rule, state in alerts.items() if state != self.alerts.get(rule))
        streams = {generation_of(state.last) for state in changed if state.last is not None}
        return alerts, {stream: tuple(await self._reader.transitions(stream)) for stream in streams}

    async def keep_fresh(self) -> None:
        """Refresh without end. If the store cannot be read, try again; answers continue from memory."""
        pause_s = POLL_S
        outage = Outage(log, "api")
        while True:
            try:
                await self.refresh()
            except Exception as failure:
                # Log the type only: a client's message may hold the store's address or password.
                kind = str(failure) if isinstance(failure, OperatorError) else type(failure).__name__
                known = "no stream is known yet" if self._fresh_at is None else "answers go on from memory"
                self.is_read |= isinstance(failure, OperatorError)  # Redis answered
                outage.failed(f"redis.api_url cannot be read ({kind}), {known}")
                self.looked.set()
                pause_s = min(2 * pause_s, LONGEST_POLL_S)
                await asyncio.sleep(pause_s)
            else:
                outage.over()
                self.looked.set()
                pause_s = POLL_S
                await self._follow_news()

    async def _follow_news(self) -> None:
        """Refresh the known streams that have new rows, until it is time to read everything."""
        until_s = time.monotonic() + POLL_S
        names = list(self.by_name)
        while time.monotonic() < until_s:
            await asyncio.sleep(NEWS_S)
            try:
                visible = await self._reader.visible_seqs(names)
                pairs = zip(names, visible, strict=True)
                news = [(self.by_name[name], seq) for name, seq in pairs if self.by_name[name].seq != seq]
                await each_to_its_end(*(replica.read_news(seq) for replica, seq in news))
            except Exception:
                return  # the next full refresh reports the error

    def close(self) -> None:
        """End all followers."""
        self.closed = True
        for replica in self.by_name.values():
            replica.close()
