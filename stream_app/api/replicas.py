"""The replicas of all streams of the store, and the statements and alert rules that they share."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import lru_cache, partial

from stream_app.api.announced import Coming
from stream_app.api.generations import Generations
from stream_app.api.replica import StreamReplica
from stream_app.core.alerts.states import State, generation_of
from stream_app.core.answers.labels import NO_LABELS, AllLabels
from stream_app.core.budget import Left, left
from stream_app.core.ledger import statement
from stream_app.core.promise import Statement
from stream_app.core.records import LedgerEntry
from stream_app.core.segments.visible_costs import KnownEpochs
from stream_app.outage import Outage
from stream_app.ports import OperatorError
from stream_app.ports.reader import PublicReader
from stream_app.source_ledger import ledgers_of_all_names
from stream_app.together import SharedAnswer, each_to_its_end

log = logging.getLogger(__name__)

POLL_S = 0.2  # interval for reading everything, including alerts and new streams
NEWS_S = 0.01  # interval for checking known streams for new rows, in one round trip for all
LONGEST_POLL_S = 5.0
_state = lru_cache(maxsize=1_024)(State.from_json)  # the states are read again and again


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
        self.reader, self._labels, self._coming = reader, labels, Coming(reader, self.by_name)
        self.fresh_at: float | None = None
        self.is_read = False  # whether the store was read once, all streams or all but unreadable ones

    @property
    def store_age_s(self) -> float | None:
        """Seconds since everything was last read from the store; None before the first time."""
        return None if self.fresh_at is None else time.monotonic() - self.fresh_at

    def expects(self, stream: str) -> bool:
        """Return whether a stream is configured, whether a worker has opened it or not."""
        return stream in self._labels.by_stream

    def preparing(self) -> list[tuple[str, str]]:
        """Return the names and titles of configured streams that no worker has opened yet, by name."""
        is_open = {one.name for one in self.by_name.values() if one.view is not None}
        labels = sorted(self._labels.by_stream.items())
        return [(name, one.title or name) for name, one in labels if name not in is_open]

    async def refresh(self) -> None:
        """Read newly visible releases of every stream."""
        alerts, transitions = await self._read_alerts()  # first: no state is ahead of its releases
        names = await self._coming.streams()
        # A restored store may lack a configured stream until its worker starts: followers wait for it.
        names += [
            one.stream for one in self.by_name.values() if one.stream not in names and self.expects(one.name)
        ]
        for name in names:
            if name not in self.by_name:
                labels = self._labels.of(name)
                self.by_name[name] = StreamReplica(self.reader, name, self.stated, self._known, labels)
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
        self.fresh_at = time.monotonic()
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
        """Set the epochs that a stream's total still allows, whenever its ledger has changed."""
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
        states, self.refused = await self.reader.alerts()
        alerts = {rule: _state(text) for rule, text in states.items()}
        changed = (state for rule, state in alerts.items() if state != self.alerts.get(rule))
        streams = {generation_of(state.last) for state in changed if state.last is not None}
        return alerts, {stream: tuple(await self.reader.transitions(stream)) for stream in streams}

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
                known = "no stream is known yet" if self.fresh_at is None else "answers go on from memory"
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
                visible = await self.reader.visible_seqs(names)
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
