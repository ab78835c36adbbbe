"""Error laws of many ranges over several epochs at once, for charts of causal streams.

Within an epoch a range's law depends on how many bins are closed. Across epochs the noise is independent, so
a range's law joins the laws of its parts: the epochs wholly inside it, and at most two partly inside.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.law import LawTable
from dphist.product.columns import ColumnSum
from dphist.tree.design import TreeDesign
from dphist.tree.forest_laws import RangeErrors, forest_errors, live_errors
from dphist.units import UNITS_PER_COUNT
from stream_app.core.kinds.epoch import EpochView
from stream_app.core.kinds.errors import Errors
from stream_app.core.kinds.over_epochs_cover import EpochCovers
from stream_app.core.kinds.tables import SeriesKind, SeriesView


@dataclass(frozen=True)
class CausalErrors(Errors):
    """The errors of ranges within one causal epoch.

    Args: design, the tree over time; known, whether values are as first published or current estimates.
    """

    design: TreeDesign
    known: SeriesView

    @abstractmethod
    def _of_leaf(self) -> LawTable:
        """Return the law of one bin's own node, a table of one row."""

    def of_own_nodes(self, kind: SeriesKind) -> bool:
        """Return whether points of this kind are sums of the bins' own nodes only, as first published."""
        return self.known == "first_published" and kind != "running"

    def sums(self, bins: Int64Array) -> RangeErrors:
        """Return the errors of sums of the bins' own nodes only. Args: bins, in each sum."""
        rows = np.zeros(len(bins), np.int64)
        return RangeErrors(self._of_leaf().take(rows).repeated(bins.astype(np.float64)), np.zeros(len(bins)))

    def points(
        self,
        epochs: Sequence[EpochView],
        starts: Int64Array,
        stops: Int64Array,
        over: EpochCovers | None = None,
    ) -> RangeErrors:
        """Return the errors of ranges over several epochs.

        Cost: in numpy O(height^2 * points) for each place of ``_Parts``, and O(points) for each epoch.
        """
        return causal_points(self, epochs, starts, stops, over)


@dataclass(frozen=True)
class CausalTreeErrors(CausalErrors):
    """The errors of sums of ``width`` cells that have one tree each."""

    width: int

    def within(self, bins: int, starts: Int64Array, stops: Int64Array) -> RangeErrors:
        """Return the errors of ranges [a, b), when ``bins`` bins of their epoch are closed."""
        if self.known == "first_published":
            laws, roundings = live_errors(self.design, stops)
        else:
            laws, roundings = forest_errors(self.design, bins, starts, stops)
        return RangeErrors(laws.repeated(self.width), roundings * self.width)

    def _of_leaf(self) -> LawTable:
        one = np.array([1])
        return LawTable.of_uniform_columns([(one, one, float(self.design.scales[-1]))], 1).repeated(
            self.width
        )


@dataclass(frozen=True)
class CausalAxesErrors(CausalErrors):
    """The errors of a weighted sum of released columns."""

    columns: ColumnSum

    def within(self, bins: int, starts: Int64Array, stops: Int64Array) -> RangeErrors:
        """Return the errors of ranges [a, b), when ``bins`` bins of their epoch are closed."""
        if self.known == "first_published":
            laws, roundings = self.columns.live_errors(stops)
            return RangeErrors(laws, roundings + 1.0 / UNITS_PER_COUNT)
        return self.columns.forest_errors(bins, starts, stops)

    def _of_leaf(self) -> LawTable:
        return LawTable.of([self.columns.of_nodes(self.design.shape.height, 1).law])


def causal_points(
    errors: CausalErrors,
    epochs: Sequence[EpochView],
    starts: Int64Array,
    stops: Int64Array,
    over: EpochCovers | None = None,
) -> RangeErrors:
    """Return the errors of ranges over several epochs.

    Args: starts, stops, absolute bins, half-open, shape (points,); over, nodes over epochs, used for whole
        epochs.
    Cost: O(height^2 * points) for each place of ``_Parts``, in numpy, and O(points) for each epoch.
    """
    roundings, parts, horizon = np.zeros(len(starts)), _Parts(len(starts)), errors.design.horizon
    # By length in bins, how many whole epochs each range contains; epochs that ended early have other laws.
    whole: dict[int, Int64Array] = {}
    for epoch in epochs:
        first, last = epoch.span
        low, high = np.clip(starts, first, last) - first, np.clip(stops, first, last) - first
        touched = low < high
        complete = touched & (low == 0) & (high == epoch.bins)
        if complete.any():
            whole[epoch.bins] = whole.get(epoch.bins, 0) + complete
        rows = np.flatnonzero(touched & ~complete)
        if len(rows):
            found = errors.within(epoch.bins, low[rows], high[rows])
            roundings[rows] += found.roundings
            parts.add(rows, found.laws)
    tables = parts.tables()
    if over is not None:
        digits = over.digits(over.covers(starts, stops))
        of_nodes, rounding_of_nodes = over.law_table(digits)
        tables += of_nodes
        roundings += rounding_of_nodes
        whole[horizon] = whole.get(horizon, 0) - digits @ np.array(over.design.widths, np.int64)
    return _with_whole(errors, whole, tables, roundings)


def _with_whole(
    errors: CausalErrors, whole: dict[int, Int64Array], tables: list[LawTable], roundings: FloatArray
) -> RangeErrors:
    """Return the joined errors with the ranges' whole epochs: few groups, even for many epochs."""
    copies: dict[tuple[float, float], FloatArray] = {}
    for bins, times in whole.items():
        one, rounding = errors.within(bins, np.array([0]), np.array([bins]))
        roundings = roundings + times * rounding[0]
        for weight, number, scale in one.law(0).groups:
            before = copies.get((weight, scale), np.zeros(len(roundings)))
            copies[weight, scale] = np.asarray(before + times * float(number), np.float64)
    every = np.ones(len(roundings))
    columns = [(weight * every, numbers, scale) for (weight, scale), numbers in copies.items()]
    return RangeErrors(
        LawTable.joined([LawTable.of_uniform_columns(columns, len(roundings)), *tables]), roundings
    )


class _Parts:
    """Laws of parts of ranges: each goes to the first free place of its range; a range has two ends."""

    def __init__(self, ranges: int) -> None:
        self.ranges = ranges
        self.taken: list[Int64Array] = []
        self.found: list[list[tuple[Int64Array, LawTable]]] = []

    def add(self, rows: Int64Array, laws: LawTable) -> None:
        """Add one law to each of these ranges."""
        left = np.arange(len(rows))
        for place in range(len(self.found) + 1):
            if place == len(self.found):
                self.taken.append(np.zeros(self.ranges, np.int64))
                self.found.append([])
            free = self.taken[place][rows[left]] == 0
            mine, left = left[free], left[~free]
            self.taken[place][rows[mine]] = 1
            self.found[place].append((rows[mine], laws.take(mine)))
            if not len(left):
                return

    def tables(self) -> list[LawTable]:
        """Return one table for each place, as wide as the widest law in it."""
        return [self._table(found) for found in self.found]

    def _table(self, found: list[tuple[Int64Array, LawTable]]) -> LawTable:
        shape = (self.ranges, max(laws.weights.shape[1] for _, laws in found))
        table = LawTable(np.zeros(shape), np.zeros(shape), np.ones(shape))
        for rows, laws in found:
            columns = laws.weights.shape[1]
            table.weights[rows, :columns] = laws.weights
            table.copies[rows, :columns] = laws.copies
            table.scales[rows, :columns] = laws.scales
        return table
