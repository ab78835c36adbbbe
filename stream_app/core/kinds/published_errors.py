"""Error laws of many ranges over several epochs at once, for charts of anticipating streams.

Epochs of one stream have one design and independent noise, so a range's law joins the laws of its parts:
whole epochs, which all have the same law, and at most a few partial epochs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dphist.arrays import Int64Array
from dphist.laws.law import LawTable
from dphist.product.columns import ColumnSum
from dphist.tree.design import TreeDesign
from dphist.tree.forest_laws import RangeErrors
from dphist.tree.published_error import published_rounding
from dphist.tree.published_laws import published_laws
from stream_app.core.kinds.epoch import EpochView
from stream_app.core.kinds.errors import Errors
from stream_app.core.kinds.over_epochs_cover import EpochCovers


@dataclass(frozen=True)
class PublishedErrors(Errors):
    """The errors of differences of published running counts. Args: design, of the tree over time."""

    design: TreeDesign

    @abstractmethod
    def laws(self, starts: Int64Array, stops: Int64Array) -> LawTable:
        """Return the laws of ranges [a, b) of one epoch, one per row."""

    @abstractmethod
    def rounding(self) -> float:
        """Return what integer arithmetic adds at most to a running count, in counts."""

    def within(self, bins: int, starts: Int64Array, stops: Int64Array) -> RangeErrors:
        """Return the errors of ranges [a, b) of one epoch, however many bins of it are closed."""
        roundings = np.where(starts > 0, 2.0, 1.0) * self.rounding()
        return RangeErrors(self.laws(starts, stops), roundings)

    def points(
        self,
        epochs: Sequence[EpochView],
        starts: Int64Array,
        stops: Int64Array,
        over: EpochCovers | None = None,
    ) -> RangeErrors:
        """Return the errors of ranges over several epochs.

        Cost: O(height^2 * points) for each partial epoch in a range, in numpy.
        """
        return published_points(self, epochs, starts, stops, over)


@dataclass(frozen=True)
class PublishedTreeErrors(PublishedErrors):
    """The errors of sums of ``width`` cells that have one tree each."""

    width: int

    def laws(self, starts: Int64Array, stops: Int64Array) -> LawTable:
        """Return the laws of ranges [a, b), one per row."""
        return published_laws(self.design, starts, stops).repeated(self.width)

    def rounding(self) -> float:
        """Return what integer arithmetic adds at most to a running count, in counts."""
        return self.width * published_rounding(self.design, 0)


@dataclass(frozen=True)
class PublishedAxesErrors(PublishedErrors):
    """The errors of a weighted sum of published columns."""

    columns: ColumnSum

    def laws(self, starts: Int64Array, stops: Int64Array) -> LawTable:
        """Return the laws of ranges [a, b), one per row."""
        return self.columns.published_laws(starts, stops)

    def rounding(self) -> float:
        """Return what integer arithmetic adds at most to a running count, in counts."""
        return self.columns.published_rounding(0)


def published_points(
    errors: PublishedErrors,
    epochs: Sequence[EpochView],
    starts: Int64Array,
    stops: Int64Array,
    over: EpochCovers | None = None,
) -> RangeErrors:
    """Return the errors of ranges over several epochs.

    Args: starts, stops, absolute bins, half-open, shape (points,); over, nodes over epochs, used for whole
        epochs.
    Cost: O(height^2 * points) for each partial epoch in a range, in numpy.
    """
    whole = np.zeros(len(starts), np.int64)
    rounding = np.zeros(len(starts))
    partial: list[tuple[Int64Array, Int64Array]] = []
    horizon, of_prefix = errors.design.horizon, errors.rounding()
    for epoch in epochs:
        first, last = epoch.span
        low, high = np.clip(starts, first, last) - first, np.clip(stops, first, last) - first
        touched, complete = low < high, (low == 0) & (high == horizon)
        whole += complete
        rounding += np.where(touched, of_prefix * (1 + (low > 0)), 0.0)
        _place(partial, touched & ~complete, low, high)
    tables = [errors.laws(low, high) for low, high in partial]
    if over is not None:
        digits = over.digits(over.covers(starts, stops))
        covered = digits @ np.array(over.design.widths, np.int64)
        of_nodes, rounding_of_nodes = over.law_table(digits)
        tables += of_nodes
        whole -= covered
        rounding += rounding_of_nodes - covered * of_prefix
    if whole.any():
        one = errors.laws(np.array([0]), np.array([horizon]))
        tables.append(one.take(np.zeros(len(starts), np.int64)).repeated(whole.astype(np.float64)))
    if not tables:
        nothing = np.zeros((len(starts), 0))
        return RangeErrors(LawTable(nothing, nothing, nothing), rounding)
    return RangeErrors(LawTable.joined(tables), rounding)


def _place(
    partial: list[tuple[Int64Array, Int64Array]],
    wanted: np.ndarray[tuple[int], np.dtype[np.bool_]],
    low: Int64Array,
    high: Int64Array,
) -> None:
    """Put each range's partial epoch into the range's first free place; few places serve many epochs."""
    for starts, stops in partial:
        free = wanted & (starts == stops)
        starts[free], stops[free] = low[free], high[free]
        wanted = wanted & ~free
    if wanted.any():
        partial.append((np.where(wanted, low, 0), np.where(wanted, high, 0)))
