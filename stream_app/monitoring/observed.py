"""Wrappers that measure the store, sources and dead letters, without the loops knowing.

Each wrapper passes every call on unchanged, including calls that it does not measure.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import Any, Generic, TypeVar, cast

from stream_app.core.counting.bins import Closing
from stream_app.core.incoming import RecordBatch, Refusal
from stream_app.core.records import Reply, StreamState
from stream_app.core.segments.strategies import current
from stream_app.core.store_writes import Apply, Release
from stream_app.monitoring.metrics import Metrics
from stream_app.ports import DeadLetters, Source, Store

S = TypeVar("S", bound=Store)
Inner = TypeVar("Inner")
Call = Callable[..., Awaitable[Any]]

log = logging.getLogger(__name__)


def watch_store(store: S, metrics: Metrics, live: Collection[str]) -> S:
    """Wrap a store so that its calls are timed, and its releases counted.

    Args: live, the names of live streams: how late their bins are released is measured.
    """
    return cast("S", _WatchedStore(store, metrics, live))


def watch_source(
    source: Source, name: str, metrics: Metrics, has_read: Callable[[], None] = lambda: None
) -> Source:
    """Wrap a source so that its lag and its time per batch are measured under ``name``.

    Args: has_read, called after each reading, also one that brought no record.
    """
    return cast("Source", _WatchedSource(source, name, metrics, has_read))


def watch_dead_letters(
    letters: DeadLetters, name: str, streams: Sequence[str], metrics: Metrics
) -> DeadLetters:
    """Wrap dead letters so that they are counted, from 0, under the source's ``name`` and each stream."""
    return cast("DeadLetters", _WatchedDeadLetters(letters, name, streams, metrics))


class _Watched(Generic[Inner]):
    """Passes on every call that a subclass does not measure."""

    def __init__(self, inner: Inner) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _WatchedStore(_Watched[Store]):
    def __init__(self, inner: Store, metrics: Metrics, live: Collection[str]) -> None:
        super().__init__(inner)
        self._metrics, self._live = metrics, live
        self._closings: dict[str, Closing] = {}  # of each live stream, as of its last load
        self._apply = self._timed("apply", inner.apply)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(value):
            return value
        timed = self._timed(name, value)
        setattr(self, name, timed)  # looked up once
        return timed

    def _timed(self, name: str, call: Call) -> Call:
        @wraps(call)
        async def timed(*arguments: Any, **named: Any) -> Any:
            with self._metrics.call(name):
                reply = await call(*arguments, **named)
            if isinstance(reply, Reply):
                self._metrics.redis_replies.labels(name, reply).inc()
            return reply

        return timed

    async def load(self, stream: str) -> StreamState | None:
        with self._metrics.call("load"):
            state = await self._inner.load(stream)
        if state is not None and stream in self._live:
            try:
                time = current(state.strategy).declared.time
            except ValueError:  # of another version: the caller says so
                return state
            closing = self._closings[stream] = time.closing
            self._metrics.next_bin(stream, closing, None if state.stopped else state.released_bin + 1)
            self._metrics.stopped.labels(stream).set(state.is_spent)
        return state

    async def apply(self, stream: str, change: Apply) -> Reply:
        reply = cast("Reply", await self._apply(stream, change))
        self._note_applied(stream, change, reply)
        return reply

    async def apply_together(
        self, stream: str, strategy_hash: str, epoch: int, changes: Sequence[Apply]
    ) -> Sequence[Reply]:
        with self._metrics.call("apply"):
            replies = await self._inner.apply_together(stream, strategy_hash, epoch, changes)
        for change, reply in zip(changes, replies, strict=True):
            self._metrics.redis_replies.labels("apply", reply).inc()
            self._note_applied(stream, change, reply)
        return replies

    def _note_applied(self, stream: str, change: Apply, reply: Reply) -> None:
        if reply is Reply.DONE:
            self._metrics.apply_cells.observe(len(change.cells))
            self._metrics.late_share.applied(stream, change)
            self._metrics.refused_share.applied(stream, change)

    async def release(self, stream: str, release: Release) -> Reply:
        reply = cast("Reply", await self._timed("release", self._inner.release)(stream, release))
        if reply is Reply.DONE:
            closing = self._closings.get(stream)
            if closing is None:
                self._metrics.releases.labels(stream).inc()
            else:
                self._metrics.released(stream, closing, release.last_bin)
            # The number of bins is not logged: in a replay it depends on the density of events.
            log.info("released", extra={"stream": stream, "epoch": release.epoch})
        return reply


class _WatchedSource(_Watched[Source]):
    def __init__(self, inner: Source, name: str, metrics: Metrics, has_read: Callable[[], None]) -> None:
        super().__init__(inner)
        self._name, self._lag, self._has_read = name, metrics.lag, has_read
        self._batch_seconds = metrics.batch_seconds.labels(name)
        self._shown: set[str] = set()
        self._busy_since_s: float | None = None

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        if self._busy_since_s is not None:
            self._batch_seconds.observe(time.perf_counter() - self._busy_since_s)
            self._busy_since_s = None
        batches = await self._inner.read(positions, timeout_s)
        self._has_read()
        if batches:
            self._busy_since_s = time.perf_counter()
        self._show_lag(positions)
        return batches

    def _show_lag(self, positions: Mapping[str, int]) -> None:
        # Looked up by name: a wrapper passes it on, which isinstance of a protocol sees in Python 3.11 only.
        if (ends_of := getattr(self._inner, "ends", None)) is None:
            return
        ends: Mapping[str, int] = ends_of()
        for partition in self._shown - ends.keys():  # another worker reads it now
            self._lag.remove(self._name, partition)
        self._shown &= ends.keys()
        for partition, position in positions.items():
            if partition in ends:
                self._lag.labels(self._name, partition).set(max(0, ends[partition] - position))
                self._shown.add(partition)


class _WatchedDeadLetters(_Watched[DeadLetters]):
    def __init__(self, inner: DeadLetters, name: str, streams: Sequence[str], metrics: Metrics) -> None:
        super().__init__(inner)
        self._name, self._written = name, metrics.dead_letters
        # The rule compares with the day before; a series that begins with the first refusal has none.
        for stream in (*streams, ""):
            self._written.labels(name, stream)

    async def write(
        self, refusals: Sequence[Refusal], streams: tuple[str | None, ...] = (None,)
    ) -> Sequence[int]:
        written = await self._inner.write(refusals, streams)
        for stream, number in zip(streams, written, strict=True):
            self._written.labels(self._name, stream or "").inc(number)
        return written
