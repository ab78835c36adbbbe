"""Events in: one loop a source, from its batches to exactly one atomic apply for every record.

    read -> take the cuts that are due -> dead letters -> bins -> apply

Cuts come before anything is applied, so a record's bin never depends on how fast this loop is; the store
refuses an apply that was binned against older cuts, and the slice is binned again. This loop keeps nothing
that the store does not know better: after any doubt it forgets what it knew and loads.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stream_app.core.bins import Assignment, BinRules, aggregate, assign, refusing, split
from stream_app.core.bounding import UserRecords, Windows
from stream_app.core.declaration import Declaration
from stream_app.core.records import (
    Apply,
    Int64Array,
    PartitionState,
    Reason,
    RecordBatch,
    Refusal,
    Reply,
)
from stream_app.core.strategy import Strategy
from stream_app.outage import Outage
from stream_app.ports import Clock, DeadLetters, OperatorError, Source, Store

READ_TIMEOUT_S = 0.1
RETRY_S = 0.5
Start = Literal["earliest", "latest"] | int  # an instant in microseconds since 1970

log = logging.getLogger(__name__)


@dataclass
class _Stream:
    """A stream as the store last told it. SECRET: positions and cuts."""

    name: str
    strategy: Strategy
    declaration: Declaration
    rules: BinRules
    windows: Windows
    sealed_bin: int
    partitions: dict[str, PartitionState]


@dataclass(frozen=True, slots=True)
class _Slice:
    """The part of a batch that a stream has not applied yet, with a bin for every record."""

    batch: RecordBatch
    first: int  # the index in the batch of its first record
    end: int  # the position after it: that of the batch, or of a record that waits for the next cut
    state: PartitionState
    assignment: Assignment
    cells: Int64Array  # of each settled record
    users: NDArray[Any] | None = None  # of each settled record, where the unit is the user


class Ingest:
    """Count the events of one source in the cells of its streams.

    Args:
        user_key: of the hashes of users, for streams that count so many events of each; 32 bytes.
        streams: names; what each counts, and how, is the strategy under which the store has it open. They
            must be open and agree with the witness (``Closer.open``) before this loop starts.
        start: where a stream that has never read a partition begins.
        agree: makes sure that store and witness agree about a stream; awaited after every doubt, before the
            stream is loaded, for a store that was set back must not be counted into before its epoch ends.
    Raises: OperatorError from ``run`` and ``step``; neither that nor a log line holds a count or a position.
    """

    def __init__(
        self,
        source: Source,
        store: Store,
        clock: Clock,
        dead_letters: DeadLetters,
        streams: Sequence[str],
        start: Start = "earliest",
        agree: Callable[[str], Awaitable[object]] | None = None,
        user_key: bytes = b"",
    ) -> None:
        self._source = source
        self._store = store
        self._clock = clock
        self._dead_letters = dead_letters
        self._names = tuple(streams)
        self._start = start
        self._agree = agree
        self._owned: Sequence[str] = ()
        self._user_key = user_key
        self._streams: dict[str, _Stream] = {}
        # By stream and partition: at its position is a record from the future, until this bin is cut.
        self._waiting: dict[tuple[str, str], int] = {}

    async def run(self) -> None:
        """Count until cancelled, which may happen at any await."""
        outage = Outage(log, "ingest")
        while True:
            try:
                await self.step()
                outage.over()
            except OSError as failure:
                outage.failed(failure)
                self._streams.clear()
                await asyncio.sleep(RETRY_S)

    async def step(self) -> int:
        """Read once and apply what was read; return the number of records.

        Raises: OSError where it is not known whether a call happened; calling again is always safe.
        """
        partitions = await self._source.owned()
        if partitions != self._owned:
            self._streams.clear()  # somebody else may have moved what is owned now
        for name in self._names:
            if name not in self._streams:
                if self._agree is not None:
                    await self._agree(name)
                await self._load(name)
            await self._start_partitions(name, partitions)
        self._owned = partitions
        timeout_s = await self._read_timeout_s(partitions)
        try:
            batches = await self._source.read(self._positions(partitions), timeout_s)
        except OSError:
            # What cannot be read must not hold the cuts back: a late one would move records of others.
            await self._take_all_due_cuts(partitions)
            raise
        await self._take_all_due_cuts(partitions)
        for batch in batches:
            letters = [refusal for refusal in batch.refused if refusal.reason != Reason.TOMBSTONE]
            if letters:
                await self._dead_letters.write(letters)
            for name in self._names:
                await self._apply_batch(name, batch)
        return sum(len(batch.positions) + len(batch.refused) for batch in batches)

    async def _take_all_due_cuts(self, partitions: Sequence[str]) -> None:
        for name in self._names:
            await self._take_due_cuts(name, partitions)

    async def _load(self, name: str) -> None:
        """Learn from the store where a stream stands."""
        state = await self._store.load(name)
        if state is None:
            raise OperatorError(f"stream {name}: it is not open; open it before its events are counted")
        strategy = Strategy.from_json(state.strategy)
        declaration = Declaration.of(strategy)
        self._streams[name] = _Stream(
            name=name,
            strategy=strategy,
            declaration=declaration,
            rules=declaration.rules(state.epoch),
            windows=declaration.windows(state.epoch, strategy.design.horizon),
            sealed_bin=state.sealed_bin,
            partitions=dict(state.partitions),
        )

    async def _start_partitions(self, name: str, partitions: Sequence[str]) -> None:
        """Begin the partitions that the stream has never read."""
        stream = self._streams[name]
        new = [partition for partition in partitions if partition not in stream.partitions]
        # A partition that appears later is read from its beginning, or its first events would be lost. So
        # whoever begins the stream begins all partitions, its own and those of others.
        start: Start = "earliest" if stream.partitions else self._start
        if new and not stream.partitions:
            new = list(await self._source.partitions())
        for partition in new:
            position = await self._start_position(stream, partition, start)
            reply = await self._store.start_partition(name, stream.strategy.hash, partition, position)
            _check_strategy(name, reply)
        if new:
            await self._load(name)

    async def _start_position(self, stream: _Stream, partition: str, start: Start) -> int:
        if start == "latest":
            return await self._watermark(stream, partition)
        return await self._source.first_position(partition, start if isinstance(start, int) else None)

    async def _watermark(self, stream: _Stream, partition: str) -> int:
        """Return where the partition's log ends now; in a replay, where the stream's first bin begins."""
        start_us = stream.declaration.binning.end_us(stream.sealed_bin)
        cuts = await self._source.cuts(partition, [(stream.sealed_bin, start_us)])
        return cuts[-1].position

    def _positions(self, partitions: Sequence[str]) -> dict[str, int]:
        """Return where to read each partition: where the stream that is furthest behind stands.

        A stream that waits at a record from the future wants nothing until the next cut.
        """
        wanted: dict[str, int] = {}
        for stream in self._streams.values():
            for partition in partitions:
                state = stream.partitions[partition]
                if self._waiting.get((stream.name, partition), state.last_cut_bin) <= state.last_cut_bin:
                    wanted[partition] = min(state.position, wanted.get(partition, state.position))
        return wanted

    async def _read_timeout_s(self, partitions: Sequence[str]) -> float:
        """Return how long to wait for records: never across a closing instant.

        A wait that an arriving record ends would let that record decide when the cut is taken, and so into
        which bin the records after it fall.
        """
        due_us = [
            stream.declaration.closing.instant_us(stream.partitions[partition].last_cut_bin + 1)
            for stream in self._streams.values()
            for partition in partitions
            if partition in stream.partitions
        ]
        if self._clock.virtual or not due_us:
            return READ_TIMEOUT_S  # a replay's cuts are at their instants whenever it asks
        left_s = (min(due_us) - await self._clock.now_us()) / 1e6
        return min(max(left_s, 0.0), READ_TIMEOUT_S)

    async def _take_due_cuts(self, name: str, partitions: Sequence[str]) -> None:
        """Store a cut for every bin whose closing instant has passed by now."""
        # Asked once: a clock that runs faster than this loop would find another bin due every time.
        now_us = await self._clock.now_us()
        for partition in partitions:
            while (state := self._streams[name].partitions.get(partition)) is not None:
                stream = self._streams[name]
                due = stream.declaration.closing.due(state.last_cut_bin, now_us)
                if not due:
                    break
                cuts = await self._source.cuts(partition, due)
                reply = await self._store.take_cuts(
                    name, stream.strategy.hash, partition, state.last_cut_bin, cuts
                )
                _check_strategy(name, reply)
                await self._load(name)

    async def _apply_batch(self, name: str, batch: RecordBatch) -> None:
        """Apply what this stream has not applied of a batch; bin it again when the store knows better."""
        while True:
            stream = self._streams[name]
            state = stream.partitions.get(batch.partition)
            if state is None or not batch.start <= state.position < batch.end:
                return  # somebody else is past it, or the store was set back: the next read starts there
            part = self._binned(stream, batch, state)
            if part.end == state.position:
                return
            if await self._apply_slice(stream, part):
                await self._count_refused(name, part)
                return
            await self._load(name)
            await self._take_due_cuts(name, [batch.partition])

    def _binned(self, stream: _Stream, batch: RecordBatch, state: PartitionState) -> _Slice:
        first = int(np.searchsorted(batch.positions, state.position))
        times_us = batch.columns[stream.declaration.time_field][first:]
        own = stream.declaration.binning.bin_of(times_us)
        assignment = assign(own, batch.positions[first:], state, stream.rules)
        end = batch.end
        if assignment.settled < len(own):
            end = int(batch.positions[first + assignment.settled])
            self._waiting[stream.name, batch.partition] = state.last_cut_bin + 1
        events = slice(first, first + assignment.settled)
        cells, refused = stream.declaration.cells.assign(batch.columns, events)
        users, per_user = None, stream.declaration.per_user
        if per_user is not None:
            users = batch.columns[per_user.field][events]
            refused |= {Reason.NO_USER: per_user.without_user(users)}
        return _Slice(batch, first, end, state, refusing(assignment, refused), cells, users)

    async def _apply_slice(self, stream: _Stream, part: _Slice) -> bool:
        """Apply a slice in order; say whether all of it is applied now."""
        refusals = list(_refusals(part, stream.rules))
        if refusals:
            await self._dead_letters.write(refusals, stream.name)
        for change in self._changes(stream, part):
            reply = await self._store.apply(stream.name, change)
            _check_strategy(stream.name, reply)
            if reply not in (Reply.DONE, Reply.ALREADY):
                return False
            state = stream.partitions[change.partition]
            stream.partitions[change.partition] = replace(state, position=change.new)
        return True

    def _changes(self, stream: _Stream, part: _Slice) -> Iterator[Apply]:
        """Yield the applies of a slice: each moves the position over the records that it counts."""
        kept, width = part.assignment.kept, stream.strategy.width
        bins = part.assignment.bins[kept]
        positions = part.batch.positions[part.first : part.first + len(kept)][kept]
        cells = part.cells[kept]
        last_cut_bin = part.state.last_cut_bin
        due_us = None if self._clock.virtual else stream.declaration.closing.instant_us(last_cut_bin + 1)
        expected = part.state.position
        keys, users = bins * width + cells, None
        named = self._named(stream, part, bins)
        if named is not None:
            keys = named.keys(keys)
        for run in split(keys):
            new = part.end if run.stop == len(bins) else int(positions[run.stop])
            if named is None:
                run_bins, run_cells, deltas = aggregate(bins[run], cells[run], width)
            else:
                _, firsts, deltas = np.unique(keys[run], return_index=True, return_counts=True)
                rows = firsts + run.start
                run_bins, run_cells, users = bins[rows], cells[rows], named.users(rows)
            yield Apply(
                strategy_hash=stream.strategy.hash,
                partition=part.batch.partition,
                expected=expected,
                new=new,
                last_cut_bin=last_cut_bin,
                due_us=due_us,
                bins=run_bins,
                cells=run_cells,
                deltas=deltas,
                users=users,
            )
            expected = new

    def _named(self, stream: _Stream, part: _Slice, bins: Int64Array) -> UserRecords | None:
        """Return whose the records are that have a bin, where only so many of a user count."""
        if part.users is None:
            return None
        users = part.users[part.assignment.kept]
        return UserRecords.of([str(user) for user in users.tolist()], stream.windows.of(bins), self._user_key)

    async def _count_refused(self, name: str, part: _Slice) -> None:
        """Tell the operator how many records were refused, and why. A crash may lose a count or repeat it."""
        counts: Counter[str] = Counter()
        for reason, mask in part.assignment.refused.items():
            counts[reason] += int(mask.sum())
        for refusal in part.batch.refused:
            counts[refusal.reason] += part.state.position <= refusal.position < part.end
        for counter, count in counts.items():
            await self._store.count_for_operator(name, counter, count)


def _refusals(part: _Slice, rules: BinRules) -> Iterator[Refusal]:
    """Yield a dead letter for each record that has no bin, unless late ones are to be dropped silently."""
    for reason, mask in part.assignment.refused.items():
        if reason is Reason.LATE and rules.late == "drop":
            continue
        for index in (np.flatnonzero(mask) + part.first).tolist():
            record = part.batch.records[index] if part.batch.records else b""
            yield Refusal(part.batch.partition, int(part.batch.positions[index]), reason, record)


def _check_strategy(name: str, reply: Reply) -> None:
    if reply is Reply.USER_KEY:
        raise OperatorError(
            f"stream {name}: the users of this epoch were counted under another key; put the key of user ids "
            "back, or start the stream under another name"
        )
    if reply is Reply.STRATEGY:
        raise OperatorError(f"stream {name}: another strategy was started under its name; stop this worker")
