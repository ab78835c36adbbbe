"""Mutants that count other events than the stream declares. The simulator must catch each of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from dphist.arrays import Int64Array
from dphist.caps import Caps
from stream_app.core.counting.bins import Assignment, only
from stream_app.core.counting.bounding import Bounds
from stream_app.core.counting.cells import Amounts, Cells
from stream_app.core.counting.keys import KeyList
from stream_app.core.counting.read_values import numbers
from stream_app.core.declaration import Declaration
from stream_app.loops import slices
from stream_app.loops.cell_rows import CellRows
from stream_app.loops.loaded_streams import LoadedStream
from stream_app.loops.stream import Ports
from tests.models.memory import MemoryStore
from tests.simulator.pipeline import Pipeline
from tests.simulator.schedule import Schedule


def _counted_only(assignment: Assignment, mask: Any) -> Assignment:
    return replace(assignment, kept=assignment.kept & mask, ahead=assignment.ahead & mask)


class LettersOfUnmatched(Pipeline):
    """A record that does not match the condition is refused like the others, with a dead letter."""

    wrong = ((slices, "only", _counted_only),)


def _refused_only(assignment: Assignment, mask: Any) -> Assignment:
    return replace(assignment, refused=only(assignment, mask).refused)


class _NarrowStore(MemoryStore):
    async def read_cells(self, stream: str, first_bin: int, last_bin: int, width: int) -> Int64Array:
        """Return the counts of the declared cells."""
        return (await super().read_cells(stream, first_bin, last_bin, width + 1))[:, :width]


class WhereAfterCap(Pipeline):
    """The condition decides after the cap: records that do not match use up their user's cap."""

    def patched(self) -> AbstractContextManager[object]:
        """Put the records that do not match into one more cell of their bin, which no release reads."""
        patches = ExitStack()
        patches.enter_context(patch.object(slices.Slices, "_binned", _with_one_more_cell))
        patches.enter_context(patch.object(CellRows, "keys", property(_keys_with_one_more_cell)))
        return patches

    store = _NarrowStore


def _with_one_more_cell(made: slices.Slices, stream: LoadedStream, state: Any) -> Any:
    where, batch = stream.declared.where, made.batch
    with patch.object(slices, "only", _refused_only):
        part = _binned(made, stream, state)
    if where is None or part.users is None:
        return _binned(made, stream, state)
    matching = where.matches({field: batch.columns[field][part.first :] for field in where.fields})
    return replace(part, places=np.where(matching, part.places, stream.declared.cells.width))


def _keys_with_one_more_cell(rows: Any) -> Int64Array:
    keys: Int64Array = rows.bins * (rows.cells.width + 1) + rows.places
    return keys if rows.users is None else np.asarray(rows.users.keys(keys))


class UsersForgottenAtACrash(Pipeline):
    """A worker keeps in its memory which users have counted, so that a crash forgets them."""

    async def run(self, schedule: Schedule, ports: Ports) -> None:
        """Forget the counted records of all users at each start of a worker."""
        for state in ports.store._inner.streams.values():  # type: ignore[attr-defined]
            for counted in state.users.values():
                counted.clear()
        await super().run(schedule, ports)


def _rounded_first(amounts: Amounts, column: Sequence[Any]) -> Int64Array:
    values = numbers(column)
    with np.errstate(invalid="ignore"):
        units = np.rint((values - float(amounts.low)) / float(amounts.unit)).astype(np.int64)
    return np.where(np.isnan(values), -1, np.clip(units, 0, amounts.range.weight))


class AmountsRoundedFirst(Pipeline):
    """An amount becomes a whole number of units before it is clamped, so a huge one does not fit."""

    wrong = ((Amounts, "places", _rounded_first),)


def _at_one_end(cells: Cells, bins: Int64Array, places: Int64Array, numbers: Int64Array | None) -> Any:
    bins, found, deltas = _added(cells, bins, places, numbers)
    upper = found % 2 == (1 if cells.amounts else found % 2)
    return bins[upper], found[upper], deltas[upper]


class AmountAtOneEnd(Pipeline):
    """An amount is counted at the upper end of its range only, so its count is lost."""

    wrong = ((Cells, "added", _at_one_end),)


def _second_field_first(keys: KeyList, *columns: Sequence[Any]) -> Int64Array:
    if len(columns) == 1:
        return _places(keys, *columns)
    first, second = (part.places(column) for part, column in zip(keys.parts, columns, strict=True))
    plan: Int64Array = second * keys.sizes[0] + first
    return np.where((first < 0) | (second < 0), -1, plan)


class FieldsTurnedRound(Pipeline):
    """The cells of two key fields are numbered by the second field first."""

    wrong = ((KeyList, "places", _second_field_first),)


def _bounds_by_key(declared: Declaration) -> Bounds | None:
    bounds: Bounds | None = _bounds(declared)
    if bounds is None:
        return None
    return replace(bounds, caps=Caps(max_keys=100, max_per_key=bounds.caps.max_events))


class CapsByKey(Pipeline):
    """The cap holds for each key of a user, not for all of them together."""

    wrong = ((Declaration, "bounds", property(_bounds_by_key)),)


def _keys_without_amounts(rows: Any) -> Int64Array:
    keys: Int64Array = rows.bins * rows.cells.width + rows.cells.keys_of(rows.places)
    return keys if rows.users is None else np.asarray(rows.users.keys(keys))


class OneAmountOfAUser(Pipeline):
    """A user's records of one key and bin count as if all had the amount of the first one."""

    wrong = ((CellRows, "keys", property(_keys_without_amounts)),)


_added = Cells.added
_places = KeyList.places
_bounds = Declaration.bounds.fget  # type: ignore[attr-defined]
_binned = slices.Slices._binned
