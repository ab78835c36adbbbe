"""The share of each stream in one batch of records: bins, cells and the ``Apply`` calls.

A worker may count one log for a thousand streams. Streams that count alike, at the same position and with the
same cuts, share one slice. Other streams share the parts that are equal: the bins of a time line, and the
records that match a condition. Everything here depends on the records, their positions and the cuts only.
"""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from stream_app.core.coded import Coded, for_each, mapped, pairs
from stream_app.core.counting.bins import (
    LARGEST_APPLY_CELLS,
    Assignment,
    BinRules,
    assign,
    only,
    refusing,
    split,
)
from stream_app.core.counting.bounding import KeyedPlaces, UserHashes, UserRecords
from stream_app.core.counting.count_rows import ANY_BINS_AHEAD, CountRows, read_rows
from stream_app.core.counting.count_rows import FIELDS as ROW_FIELDS
from stream_app.core.counting.keys import normalised
from stream_app.core.counting.outcomes import Outcomes, outcomes
from stream_app.core.counting.read_values import users_in
from stream_app.core.counting.unlisted import key_names
from stream_app.core.counting.where import AllOf, Condition
from stream_app.core.declaration import Time
from stream_app.core.incoming import Reason, RecordBatch, Refusal
from stream_app.core.records import Cut, PartitionState
from stream_app.core.store_writes import ALL_WAIT, Ahead, Apply
from stream_app.loops.cell_rows import CellRows
from stream_app.loops.loaded_streams import LoadedStream
from stream_app.loops.numbering_keys import HiddenKeys, Unlisted, unknown_keys, user_key
from stream_app.ports import NoiseKeys

MOST_NAMED_AHEAD = 100  # records per slice, dated too far ahead, that get a dead letter if refused
_TURN_S = 0.005
MOST_CHANGES = 100  # in one call to the store, which serves nobody else meanwhile
T = TypeVar("T")


@dataclass(frozen=True)
class Slice:
    """The part of a batch that some streams have not applied yet, with the assignment of every record.

    Args:
        first: the index in the batch of the slice's first record.
        places: of each record, among the cells of its bin.
        changes: one ``Apply`` for each run of records, without the hash of a strategy.
        refusals: one for each record without a bin, except late records that are to be dropped silently.
    """

    batch: RecordBatch
    first: int
    state: PartitionState
    assignment: Assignment
    places: Int64Array
    outcomes: Outcomes
    left_out: Int64Array  # the positions of records that do not match the stream's condition
    users: Coded | None = None  # the name of each record's user, where the unit is the user
    changes: Sequence[Apply] = ()
    refusals: Sequence[Refusal] = ()
    rows: CountRows | None = None  # of an engine

    @cached_property
    def counted(self) -> NDArray[np.bool_]:
        """Which records count, or will be decided by the next cut."""
        return self.assignment.kept | self.assignment.ahead


class Slices:
    """The slices of one batch, each made once for all streams that need the same.

    Args: keys, of the hashes of users; virtual, whether time waits for the records (a replay); now_us, where
        the records are rows of an engine, which close bins.
    """

    def __init__(self, batch: RecordBatch, keys: NoiseKeys, virtual: bool, now_us: int = 0) -> None:
        self.batch = batch
        self._keys = keys
        self._now_us = now_us
        self._virtual = virtual
        self._made: dict[Hashable, Any] = {}

    def of(self, stream: LoadedStream, state: PartitionState) -> Slice:
        """Return the slice that a stream has not applied. Args: state, of the batch's partition.

        Raises: OperatorError if this worker does not have the key of users that the stream notes.
        """

        def made() -> Slice:
            part = self._once(("binned", _alike(stream, state)), lambda: self._binned(stream, state))
            refusals = self._refusals(part, stream.rules)
            return replace(part, changes=list(self._changes(stream, part)), refusals=refusals)

        return self._once(("slice", _alike(stream, state)), made)

    def lacks_keys(self, stream: LoadedStream) -> bool:
        """Return whether ``make_keys`` has to run before ``of``."""
        keys = stream.declared.keys
        return keys is not None and keys.normalise is not None and self._keys_name(stream) not in self._made

    async def make_keys(self, stream: LoadedStream) -> None:
        """Make the keys of the batch's values in turns: a rule may take 26 ms for one value."""
        keys, ends_s = stream.declared.keys, time.perf_counter() + _TURN_S
        assert keys is not None
        assert keys.normalise is not None
        for field in keys.columns:
            for _ in keys.normalise.each_made(self.batch.columns[field]):
                if time.perf_counter() > ends_s:
                    await asyncio.sleep(0)
                    ends_s = time.perf_counter() + _TURN_S
        self._made[self._keys_name(stream)] = True

    def _keys_name(self, stream: LoadedStream) -> Hashable:
        return "keys", stream.strategy.placing

    def unlisted(self, stream: LoadedStream, state: PartitionState) -> set[Unlisted]:
        """Return the keys that may count and have no known number; they are asked for before ``of``."""
        part = self._once(("binned", _alike(stream, state)), lambda: self._binned(stream, state))
        hidden, rows, ahead = self._hidden(stream, part), self._counted(stream, part), part.assignment.ahead
        return unknown_keys(stream, hidden, rows, ahead[part.counted], self.batch.partition, state)

    def begins_for(self, stream: LoadedStream) -> PartitionState | None:
        """Return a stream's state in the batch's partition, if its next record is in the batch.

        None: another worker is past the batch, or the store was set back: the partition is read again.
        """
        state = stream.partitions.get(self.batch.partition)
        return state if state is not None and self.batch.start <= state.position < self.batch.end else None

    def to_bin(self, stream: LoadedStream, seen: set[Hashable]) -> int:
        """Return how many records must be binned or packed for a stream. Args: seen, slices of others.

        Users' records are packed anew for each stream.
        """
        if (state := stream.partitions.get(self.batch.partition)) is None:
            return 0
        name = self.batch.partition, _alike(stream, state)
        is_new = name not in seen and ("slice", name[1]) not in self._made
        seen.add(name)
        return len(self.batch.positions) if is_new or stream.declared.capped is not None else 0

    def _once(self, name: Hashable, make: Callable[[], T]) -> T:
        if name not in self._made:
            self._made[name] = make()
        return cast("T", self._made[name])

    def _binned(self, stream: LoadedStream, state: PartitionState) -> Slice:
        batch, declared = self.batch, stream.declared
        first = int(np.searchsorted(batch.positions, state.position))
        events = slice(first, len(batch.positions))
        own = self._own_bins(declared.time)[first:]
        rows = self._engine_rows(stream, state, events)
        if rows is None:
            assignment = assign(own, batch.positions[first:], state, stream.rules)
        else:
            at_once = replace(stream.rules, max_ahead_bins=ANY_BINS_AHEAD)
            assignment = assign(own, batch.positions[first:], replace(state, cuts=rows.cuts), at_once)
        everywhere, without_cell = self._once(
            ("places", stream.strategy.placing),
            lambda: declared.cells.assign(batch.columns, slice(0, len(batch.positions))),
        )
        places = everywhere[first:]
        refused = {reason: mask[first:] for reason, mask in without_cell.items()}
        users = None
        if declared.capped is not None:
            users = self._users(declared.capped.field)[first:]
            refused |= {Reason.NO_USER: for_each(users, _are_nobody)}  # no cap could apply to them
        assignment = refusing(assignment, refused)
        if rows is not None:
            assignment = only(assignment, rows.deltas > 0)
            assignment = replace(assignment, refused={**assignment.refused, **rows.refused})
        left_out = batch.positions[:0]
        if (where := declared.where) is not None:
            matching = self._matching(where)[first:]
            assignment = only(assignment, matching)
            left_out = batch.positions[first:][~matching]
        if stream.is_spent:
            assignment = only(assignment, np.zeros(len(own), np.bool_))
        seen = outcomes(own, batch.positions[first:], assignment, declared.time.bin_us, batch.refused)
        return Slice(batch, first, state, assignment, places, seen, left_out, users, rows=rows)

    def _engine_rows(self, stream: LoadedStream, state: PartitionState, events: slice) -> CountRows | None:
        """Return the meaning of the records as rows of an engine; None: they are events."""
        batch, declared = self.batch, stream.declared
        if not declared.source.origins:
            return None
        times_us = batch.columns[declared.time.field][events].tolist()
        columns = {field: batch.columns[field][events].tolist() for field in ROW_FIELDS}
        rules = declared.row_rules(self._now_us)
        return read_rows(columns, times_us, batch.positions[events].tolist(), state, rules)

    def _own_bins(self, time: Time) -> Int64Array:
        times, binning = self.batch.columns[time.field], time.binning
        return self._once(("bins", time.field, binning), lambda: binning.bin_of(times))

    def _matching(self, where: Condition) -> NDArray[np.bool_]:
        """Return which records of the batch match; streams share the parts of their conditions, too."""

        def made() -> NDArray[np.bool_]:
            if isinstance(where, AllOf):
                return reduce(np.logical_and, map(self._matching, where.parts))
            return where.matches({field: self.batch.columns[field] for field in where.fields})

        return self._once(("where", where), made)

    def _users(self, field: str) -> Coded:
        return self._once(("users", field), lambda: mapped(self.batch.columns[field], users_in))

    def _hashes(self, stream: LoadedStream, window: int) -> UserHashes:
        """Return the hashes of the batch's users: the same for all streams with equal keys and windows."""
        capped, key = stream.declared.capped, user_key(stream, self._keys, window)
        assert capped is not None
        users = self._users(capped.field).values
        return self._once(("hashes", capped.field, window, key), lambda: UserHashes(users, window, key))

    def _refusals(self, part: Slice, rules: BinRules) -> Sequence[Refusal]:
        """Return the same list for all streams that refuse the same records for the same reasons."""
        indices = dict[Reason, Int64Array]()
        for reason, mask in part.assignment.refused.items():
            if reason is Reason.REPEATED:
                continue
            if reason is Reason.LATE:  # the bin of a late record is the first one that was open
                mask = mask & (not rules.late_is("drop"))
            indices[reason] = np.flatnonzero(mask) + part.first
        name = "refusals", *((reason, found.tobytes()) for reason, found in indices.items() if len(found))
        return self._once(name, lambda: list(_refusals(self.batch, indices)))

    def _counted(self, stream: LoadedStream, part: Slice) -> CellRows:
        """Return the counted records with their users; keys that no list names are in the cell of others."""

        def made() -> CellRows:
            bins, users = part.assignment.bins[part.counted], None
            if part.users is not None:
                hashes = partial(self._hashes, stream)
                users = UserRecords.of(part.users[part.counted], stream.windows.of(bins), hashes)
            deltas = None if part.rows is None else part.rows.deltas[part.counted]
            return CellRows(bins, part.places[part.counted], stream.declared.cells, users, deltas)

        return self._once(("counted", _alike(stream, part.state)), made)

    def _hidden(self, stream: LoadedStream, part: Slice) -> HiddenKeys:
        """Return the keys of the counted records that no list names: the same in each try of a slice."""

        name = "hidden", _alike(stream, part.state)
        return self._once(name, lambda: HiddenKeys.of(stream, *self._named(stream, part), self._keys))

    def _named(self, stream: LoadedStream, part: Slice) -> tuple[Int64Array, Coded]:
        """Return the rows of the counted records whose keys no list names, and each one's window and name.

        A record dated beyond the next window has no name: any number of windows would have keys otherwise.
        """
        keys = stream.declared.keys
        if keys is None or keys.discover is None:
            return np.empty(0, np.int64), Coded.of([])
        counted = self._counted(stream, part)
        rows = np.flatnonzero(counted.places // counted.cells.key_places == len(keys.labels))
        column = part.batch.columns[keys.field][part.first :][part.counted][rows]
        windows = stream.windows.of(counted.bins[rows])
        last = stream.windows.of(np.array([part.state.last_cut_bin + 1]))[0] + stream.windows.bins
        names = mapped(column, lambda values: key_names(normalised(keys.normalise, values)))
        named = (windows <= last) & ~for_each(names, _are_nobody)
        of_window, codes, places = pairs(windows[named], names[named])
        found = zip(of_window.tolist(), map(names.values.__getitem__, codes.tolist()), strict=True)
        return rows[named], Coded(list(found), places)

    def _rows(self, stream: LoadedStream, part: Slice) -> CellRows:
        """Return the counted records; keys that no list names have cells after all others."""
        counted, hidden = self._counted(stream, part), self._hidden(stream, part)
        cells, places, ids = counted.cells, counted.places.copy(), hidden.names.codes
        by_hash = counted.users is not None and stream.declared.finds_keys
        if len(hidden.rows):
            if not by_hash:
                ids = np.array([stream.numbers[name] for name in hidden.names.values])[ids]
            places[hidden.rows] += (ids + 1) * cells.key_places  # before, they were the places of ``other``
            cells = replace(cells, unlisted=int(ids.max()) + 1)
        keyed = None
        if by_hash:
            assert cells.keys is not None
            keyed = KeyedPlaces(cells.key_places, cells.keys.count, hidden.hashes)
        return replace(counted, places=places, cells=cells, keyed=keyed)

    def _changes(self, stream: LoadedStream, part: Slice) -> Iterator[Apply]:
        """Yield the ``Apply`` calls of a slice: each counts some records and moves the position past them."""
        rows, ahead = self._rows(stream, part), part.assignment.ahead[part.counted]
        positions = part.batch.positions[part.first :][part.counted]
        last_cut_bin = part.state.last_cut_bin
        due_us = None if self._virtual or part.rows else stream.closing.instant_us(last_cut_bin + 1)
        expected, bounds = part.state.position, stream.declared.bounds
        # Cuts that are taken meanwhile do not matter to records below a known cut. Without this, a worker
        # whose calls take as long as a bin would count nothing.
        known = part.state.cuts[-1] if part.state.cuts and not self._virtual else None
        for run, new in _runs(rows.keys, positions, part.batch.end, known):
            far = np.flatnonzero(ahead[run]) + run.start
            near = np.setdiff1d(np.arange(run.start, run.stop), far) if len(far) else run
            bins, cells, deltas, users = rows.aggregated(near)
            aside = None
            if len(far):
                named = far[:MOST_NAMED_AHEAD]
                places = zip(rows.bins[named].tolist(), positions[named].tolist(), strict=True)
                aside = Ahead(*rows.aggregated(far), list(places), rows.weight)
            closes_bin = None if part.rows is None else part.rows.closed_at(new)
            yield Apply(
                strategy_hash="",
                partition=part.batch.partition,
                expected=expected,
                new=new,
                last_cut_bin=last_cut_bin,
                due_us=due_us,
                bins=bins,
                cells=cells,
                deltas=deltas,
                users=users,
                ahead=aside,
                operator_counts=part.outcomes.between(expected, new),
                records=run.stop - run.start,
                left_out=int(np.diff(np.searchsorted(part.left_out, (expected, new)))[0]),
                below=known if known is not None and new <= known.position else None,
                waiting=ALL_WAIT if bounds is None else bounds.waiting,
                origins=() if part.rows is None else part.rows.origins_at(new),
                closes_bin=closes_bin,
            )
            last_cut_bin = last_cut_bin if closes_bin is None else closes_bin
            expected = new


def calls_of(changes: Iterable[Apply]) -> Iterator[list[Apply]]:
    """Divide changes of a stream into calls to the store of limited length.

    Users' records are in calls of their own, because such a call may merge many of them.
    """
    call: list[Apply] = []
    cells = 0
    for change in changes:
        own, aside = len(change.cells), change.ahead
        if aside is not None:
            own += len(aside.cells) + len(aside.places)
        ends = cells + own > LARGEST_APPLY_CELLS or len(call) == MOST_CHANGES
        if call and (ends or change.users is not None or call[-1].users is not None):
            yield call
            call, cells = [], 0
        call.append(change)
        cells += own
    if call:
        yield call


def _are_nobody(names: Sequence[str]) -> NDArray[np.bool_]:
    """Return which names are empty: of no user, of no key."""
    return np.fromiter(map(operator.not_, names), np.bool_, len(names))


def _alike(stream: LoadedStream, state: PartitionState) -> Hashable:
    """Return a key: streams with equal keys count a batch alike. Found keys have a number in each stream."""
    own = stream.name if stream.declared.finds_keys else ""
    alike = stream.strategy.counting, state, stream.rules, stream.windows, stream.user_keys, stream.is_spent
    return *alike, own


def _runs(keys: Int64Array, positions: Int64Array, end: int, cut: Cut | None) -> Iterator[tuple[slice, int]]:
    """Yield runs of records for one call each, with the position after each run; a run ends at the cut.

    Args: keys, positions, of the records that have a bin; end, the position after them.
    """
    first = 0
    for last in [end] if cut is None or cut.position >= end else [cut.position, end]:
        stop = int(np.searchsorted(positions, last))
        for run in split(keys[first:stop]):
            here = slice(first + run.start, first + run.stop)
            yield here, last if here.stop == stop else int(positions[here.stop])
        first = stop


def _refusals(batch: RecordBatch, indices: Mapping[Reason, Int64Array]) -> Iterator[Refusal]:
    """Yield a refusal for each of these records. Args: indices, in the batch, by reason."""
    for reason, found in indices.items():
        for index in found.tolist():
            record = batch.records[index] if batch.records else b""
            yield Refusal(batch.partition, int(batch.positions[index]), reason, record)
