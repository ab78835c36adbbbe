"""Mutants that count other events than the stream declares. The simulator must catch each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from dphist.arrays import Int64Array
from stream_app.core.counting.bins import Assignment, only
from stream_app.core.counting.cells import Amounts, numbers
from stream_app.core.records import RecordBatch
from stream_app.loops import ingest
from stream_app.loops.loaded_streams import LoadedStream
from stream_app.loops.stream import Ports
from tests.models.memory import MemoryStore
from tests.simulator.pipeline import Pipeline
from tests.simulator.schedule import Schedule


class LettersOfUnmatched(Pipeline):
    """A record that does not match the condition is refused like the others, with a dead letter."""

    def patched(self) -> AbstractContextManager[object]:
        """Let the condition decide about the records that count, and about no others."""
        return patch.object(ingest, "only", _counted_only)


def _counted_only(assignment: Assignment, mask: Any) -> Assignment:
    return replace(assignment, kept=assignment.kept & mask, ahead=assignment.ahead & mask)


def _refused_only(assignment: Assignment, mask: Any) -> Assignment:
    return replace(assignment, refused=only(assignment, mask).refused)


class WhereAfterCap(Pipeline):
    """The condition decides after the cap: records that do not match use up their user's cap."""

    def patched(self) -> AbstractContextManager[object]:
        """Put the records that do not match into one more cell of their bin, which no release reads."""
        patches = ExitStack()
        patches.enter_context(patch.object(ingest.Ingest, "_binned", _with_one_more_cell))
        patches.enter_context(patch.object(ingest._Rows, "keys", property(_keys_with_one_more_cell)))
        return patches

    def make_store(self, clock_us: Callable[[], int]) -> MemoryStore:
        """Return a store that leaves the additional cell out of what is read."""
        return _NarrowStore(clock_us)


class _NarrowStore(MemoryStore):
    async def read_cells(self, stream: str, first_bin: int, last_bin: int, width: int) -> Int64Array:
        """Return the counts of the declared cells."""
        return (await super().read_cells(stream, first_bin, last_bin, width + 1))[:, :width]


def _with_one_more_cell(ingest_loop: Any, stream: LoadedStream, batch: RecordBatch, state: Any) -> Any:
    where = stream.declared.where
    with patch.object(ingest, "only", _refused_only):
        part = _binned(ingest_loop, stream, batch, state)
    if where is None or part.users is None:
        return _binned(ingest_loop, stream, batch, state)
    matching = where.matches({field: batch.columns[field][part.first :] for field in where.fields})
    return replace(part, places=np.where(matching, part.places, stream.declared.cells.width))


def _keys_with_one_more_cell(rows: Any) -> Int64Array:
    keys: Int64Array = rows.bins * (rows.cells.width + 1) + rows.places
    return keys if rows.users is None else np.asarray(rows.users.keys(keys))


class UsersForgottenAtACrash(Pipeline):
    """A worker keeps in its memory which users have counted, so that a crash forgets them."""

    async def run(self, schedule: Schedule, ports: Ports) -> None:
        """Forget the counted records of all users at each start of a worker."""
        for state in ports.store._inner._streams.values():  # type: ignore[attr-defined]
            for counted in state.users.values():
                counted.clear()
        await super().run(schedule, ports)


class AmountsRoundedFirst(Pipeline):
    """An amount becomes a whole number of units before it is clamped, so a huge one does not fit."""

    def patched(self) -> AbstractContextManager[object]:
        """Round amounts to whole units before they are moved into the range."""
        return patch.object(Amounts, "places", _rounded_first)


def _rounded_first(amounts: Amounts, column: Sequence[Any]) -> Int64Array:
    values = numbers(column)
    with np.errstate(invalid="ignore"):
        units = np.rint((values - float(amounts.low)) / float(amounts.unit)).astype(np.int64)
    return np.where(np.isnan(values), -1, np.clip(units, 0, amounts.range.weight))


_binned = ingest.Ingest._binned
