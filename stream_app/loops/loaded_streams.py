"""The loops' view of the streams of one source: positions and cuts, as last read from the store.

Reader and cutter share one view, and each adds its accepted writes. After any doubt the view is loaded again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from stream_app.core.counting.bins import BinRules, Closing
from stream_app.core.counting.bounding import CapWindows
from stream_app.core.counting.unlisted import Known
from stream_app.core.declaration import Declaration
from stream_app.core.records import PartitionState
from stream_app.core.store_writes import Apply, PartitionCuts
from stream_app.core.strategy import Strategy
from stream_app.core.user_keys import UserKeys
from stream_app.loops.configured import check_counted
from stream_app.ports import Store
from stream_app.ports.errors import about
from stream_app.together import each_to_its_end


@dataclass
class LoadedStream:
    """A stream as last read from the store. SECRET: positions and cuts."""

    name: str
    strategy: Strategy
    epoch: int
    rules: BinRules
    windows: CapWindows
    sealed_bin: int
    user_keys: UserKeys  # as the store notes them
    partitions: dict[str, PartitionState]
    is_spent: bool  # its total allows no epoch: its records are passed over
    is_over: bool  # it has ended, and the next segment counts all that is still to come
    # Partitions in which the next cut may refuse records that were set aside, or where refused records have
    # no dead letters yet. Every loaded view of the stream shares this set.
    aside: set[str]
    # Of keys that no list names, by window and name. A store that was set back gives keys other numbers, so
    # each loaded view begins without any, and loses them when the store is in doubt.
    numbers: dict[tuple[int, str], int] = field(default_factory=dict)
    # For each open bin and user, the least ranks of her new keys (``may_count``). Cleared when one of her
    # records may count in another bin.
    first_keys: Known = field(default_factory=dict)

    @property
    def declared(self) -> Declaration:
        """The declaration of the stream: its counts, and how they are made."""
        return self.strategy.declared

    @property
    def closing(self) -> Closing:
        """When its bins close."""
        return self.declared.time.closing


class SourceFailure(OSError):
    """The source did not answer. This says nothing about the store."""


@contextmanager
def asking_source() -> Iterator[None]:
    """Raise each OSError of the calls inside as a ``SourceFailure``."""
    try:
        yield
    except OSError as failure:
        raise SourceFailure(str(failure)) from failure


class LoadedStreams:
    """The streams of one source.

    Args:
        names: the names of the streams, which must be open.
        agree: returns when store and witness agree about a stream. It is awaited before a stream is loaded
            after a doubt: a store that was set back must not count records before its epoch ends.
    """

    def __init__(self, names: Sequence[str], agree: Callable[[str], Awaitable[object]] | None = None) -> None:
        self._names = list(names)
        self._agree = agree
        self._views: dict[str, LoadedStream] = {}
        self._aside: dict[str, set[str]] = {name: set() for name in names}
        self._completing = asyncio.Lock()
        self._cut = asyncio.Event()
        self.owned: Sequence[str] | None = None  # the partitions that this worker reads, once known
        self._waiting: dict[str, tuple[int, asyncio.Future[None]]] = {}  # closers, by stream: for which bin

    def add(self, name: str) -> None:
        """Count one more stream, which is open, from the next reading on."""
        self._aside[name] = set()
        self._names.append(name)

    @property
    def number(self) -> int:
        """How many streams count the source."""
        return len(self._names)

    def wake_reader(self) -> None:
        """Wake the reader: cuts were taken, and their bins wait until the reader has reached them."""
        self._cut.set()
        self._cut.clear()

    async def cuts_within(self, longest_s: float, awaited: Callable[[], bool] = lambda: True) -> None:
        """Return when cuts were taken and ``awaited`` holds, or after ``longest_s`` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await self._cut.wait()
                while not awaited():
                    await self._cut.wait()

    def reached_cuts(self) -> bool:
        """Return whether the reader has reached all known cuts of the segments that are not over."""
        views = [view for view in self._views.values() if not view.is_over]
        known = [view.partitions.get(name) for view in views for name in self.owned or ()]
        return not any(state.cuts for state in known if state is not None)

    def own(self, partitions: Sequence[str]) -> None:
        """Note which partitions this worker reads."""
        self.owned = partitions
        for name in list(self._waiting):
            self._wake_closer(name)

    def move(self, view: LoadedStream, changes: Iterable[Apply]) -> None:
        """Note accepted changes of partitions."""
        for change in changes:
            view.partitions[change.partition] = change.applied_to(view.partitions[change.partition])
        self._wake_closer(view.name)

    def cut(self, view: LoadedStream, taken: Sequence[PartitionCuts]) -> None:
        """Note cuts after they were stored."""
        for one in taken:
            view.partitions[one.partition] = view.partitions[one.partition].with_cuts(one.cuts)
        self._wake_closer(view.name)

    async def has_reached(self, name: str, bin: int, longest_s: float) -> bool:
        """Wait until this worker's partitions have reached a stream's cut of a bin; False: not in time.

        One closer waits for a stream at a time.
        """
        reached = asyncio.get_running_loop().create_future()
        self._waiting[name] = bin, reached
        try:
            self._wake_closer(name)
            async with asyncio.timeout(longest_s):
                await reached
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(name, None)
        return True

    def _wake_closer(self, name: str) -> None:
        """Wake the closer that waits for a stream, if the reader has reached its bin."""
        waiting, view = self._waiting.get(name), self._views.get(name)
        if waiting is None or view is None or self.owned is None:
            return
        bin, reached = waiting
        states = [view.partitions.get(partition) for partition in self.owned]
        if not reached.done() and all(state is not None and state.base_bin >= bin for state in states):
            reached.set_result(None)

    def forget(self) -> None:
        """Drop the view of all streams; ``complete`` loads it again. Any loop may call this at any await."""
        for view in self._views.values():
            view.numbers.clear()
            view.first_keys.clear()
        self._views.clear()

    def doubt(self, failure: OSError) -> None:
        """Drop the view after a failure, because the store may be a different one, or be set back.

        A failure of the source keeps the view. Otherwise one record that cannot be decoded now would make the
        cutter wait until store and witness agree again about every stream.
        """
        if not isinstance(failure, SourceFailure):
            self.forget()

    async def complete(self, store: Store) -> list[LoadedStream]:
        """Return all streams that count records; load the missing ones once store and witness agree.

        An ended segment that has handed over is left out: its call to the store for each reading would change
        nothing. After a doubt it is loaded again, for the store may have lost its end.
        """
        async with self._completing:
            views = {name: self._views.get(name) for name in self._names}
            # Of a stream without an epoch, a worker with a larger total may have gone on.
            wanted = [n for n, view in views.items() if view is None or view.is_spent or self._ends(view)]
            views |= zip(
                wanted, await each_to_its_end(*(self._loaded(n, store) for n in wanted)), strict=True
            )
            return [view for view in views.values() if view is not None and not view.is_over]

    def _ends(self, view: LoadedStream) -> bool:
        """Return whether this worker has counted a segment to its end, so that it may be over now."""
        until_bin = view.rules.until_bin
        if until_bin is None or not view.rules.late_to_next or view.is_over:
            return False
        read = [view.partitions.get(name) for name in self.owned or ()]
        return all(one is not None and one.base_bin + 1 >= until_bin for one in read)

    async def _loaded(self, name: str, store: Store) -> LoadedStream:
        if self._agree is not None and name not in self._views:
            with about(name):
                await self._agree(name)
        return await self.load(name, store)

    async def load(self, name: str, store: Store) -> LoadedStream:
        """Read a stream's state from the store. Raises: ConnectionError if the store has lost the stream."""
        with about(name):
            state = await store.load(name)
            if state is None:  # it was open: somebody has emptied the store
                raise ConnectionError(f"redis: stream {name} is no longer there")
            check_counted(name, state)
        strategy = Strategy.from_json(state.strategy)
        view = LoadedStream(
            name=name,
            strategy=strategy,
            epoch=state.epoch.epoch,
            rules=strategy.declared.rules(
                state.epoch, state.until_bin, late_to_next=state.late_from is not None
            ),
            windows=strategy.declared.cap_windows(state.epoch, strategy.time.horizon),
            sealed_bin=state.sealed_bin,
            user_keys=state.user_keys,
            partitions=dict(state.partitions),
            is_spent=state.is_spent,
            is_over=state.is_over and state.late_from is not None,
            aside=self._aside[name],
        )
        view.aside.update(view.partitions)
        self._views[name] = view
        self._wake_closer(name)
        return view
