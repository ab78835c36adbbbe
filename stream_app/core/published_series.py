"""Laws of many published ranges over several epochs at once, for charts of anticipating streams.

Epochs of one stream have one design and independent noise, so a range's law joins those of its parts: whole
epochs, which are all alike, and at most a few partial ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dphist.product.columns import ColumnSum, column_sum
from dphist.tree.design import TreeDesign
from dphist.tree.law import LawTable
from dphist.tree.published_error import published_rounding
from dphist.tree.published_laws import published_laws
from stream_app.core.epoch_view import EpochView, Float64Array
from stream_app.core.levels_view import EpochCovers
from stream_app.core.records import ROWS, Int64Array
from stream_app.core.strategy import Strategy


@dataclass(frozen=True)
class PublishedErrors:
    """The errors of ranges within one epoch, summed over the cells that a reader asked for.

    Args: design, the tree over time; width, how many cells are summed; columns, the weights of what is
        published where there are several axes.
    """

    design: TreeDesign
    width: int
    columns: ColumnSum | None

    @classmethod
    def of(cls, strategy: Strategy, key: int | None = None) -> PublishedErrors:
        """Return those of a stream's total, or of one key of its list."""
        columns = None if strategy.product is None else column_sum(strategy.product, key)
        return cls(strategy.design, strategy.released_width(ROWS), columns)

    def laws(self, starts: Int64Array, stops: Int64Array) -> LawTable:
        """Return the laws of ranges [a, b), one a row."""
        if self.columns is not None:
            return self.columns.published_laws(starts, stops)
        return published_laws(self.design, starts, stops).repeated(self.width)

    def rounding(self) -> float:
        """Return what integer arithmetic adds at most to a running count, in counts."""
        if self.columns is not None:
            return self.columns.published_rounding(0)
        return self.width * published_rounding(self.design, 0)


def published_points(
    errors: PublishedErrors,
    epochs: Sequence[EpochView],
    starts: Int64Array,
    stops: Int64Array,
    over: EpochCovers | None = None,
) -> tuple[LawTable, Float64Array]:
    """Return the laws of the errors of ranges, and bounds on their rounding, in counts.

    Args: absolute bins, half-open, shape (points,); over, nodes over epochs that stand for whole ones.
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
        return LawTable(nothing, nothing, nothing), rounding
    return LawTable.joined(tables), rounding


def _place(
    partial: list[tuple[Int64Array, Int64Array]],
    wanted: np.ndarray[tuple[int], np.dtype[np.bool_]],
    low: Int64Array,
    high: Int64Array,
) -> None:
    """Put each range's part into the first place that it has free: few places for however many epochs."""
    for starts, stops in partial:
        free = wanted & (starts == stops)
        starts[free], stops[free] = low[free], high[free]
        wanted = wanted & ~free
    if wanted.any():
        partial.append((np.where(wanted, low, 0), np.where(wanted, high, 0)))
