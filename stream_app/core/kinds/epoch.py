"""One epoch as readers see it: the visible rows of its tables, and estimates from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from typing import Self

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.product.columns import ColumnSum, column_sum, key_counts
from dphist.product.design import ColumnDesign
from dphist.product.forest import ProductForest, RangeSum
from dphist.tree.estimate import Estimate, ReleasedForest
from stream_app.core.kinds.tables import PUBLISHED, SeriesKind, SeriesView, Span, TimeDesign, node_table
from stream_app.core.records import EpochRecord

Forest = ReleasedForest | ProductForest  # keeps the released nodes of a causal epoch


class EpochView(ABC):
    """One epoch: the visible rows of its tables.

    Args: width, of a row of running counts as first published; forest, None if no nodes are released.
    """

    def __init__(
        self, record: EpochRecord, design: TimeDesign, width: int, forest: Forest | None = None
    ) -> None:
        self.record = record
        self.design = design
        self.width = width
        self._nodes = forest
        levels = range(1, len(forest.counts) + 1) if forest else ()
        self._levels = {node_table(level): level for level in levels}
        self._rows: dict[str, list[Int64Array]] = defaultdict(list)
        self._whole: tuple[int, dict[str, Estimate]] = (0, {})  # the visible bins, and estimates over all

    @abstractmethod
    def running_values(self, kind: SeriesKind, view: SeriesView) -> FloatArray:
        """Return the running count after each bin, over all cells; a series has its differences as values."""

    @abstractmethod
    def _estimate(self, part: Span, view: SeriesView) -> Estimate: ...

    @property
    def over_axes(self) -> AxesEpoch | None:
        """Return this epoch with its keys and values; None if it counts over time only."""
        return None

    @property
    def bins(self) -> int:
        """Return the number of visible bins."""
        return len(self.published)

    @property
    def span(self) -> Span:
        """Return the visible bins, absolute."""
        return Span(self.record.first_bin, self.record.first_bin + self.bins)

    def rows(self, table: str) -> Int64Array:
        """Return the visible rows of a table, shape (rows, width)."""
        if self._nodes and table in self._levels:
            return self._nodes.nodes(self._levels[table])
        blocks = self._rows[table]
        if not blocks:
            return np.zeros((0, self.width if table == PUBLISHED else 0), np.int64)
        if len(blocks) > 1:
            blocks[:] = [np.concatenate(blocks)]
        return blocks[0]

    def held(self, table: str) -> int:
        """Return how many rows of a table this view holds."""
        if self._nodes and table in self._levels:
            return self._nodes.counts[self._levels[table] - 1]
        return len(self.rows(table))

    def append(self, table: str, values: Int64Array) -> None:
        """Append the next rows of a table."""
        if self._nodes and table in self._levels:
            self._nodes.append_level(self._levels[table], values)
        else:
            self._rows[table].append(values)

    @property
    def published(self) -> Int64Array:
        """Return the running counts as first published, shape (bins, width), in units of 2^-16."""
        return self.rows(PUBLISHED)

    def shifted(self, bins: int) -> Self:
        """Return this epoch with later numbers of its bins; it shares the released rows."""
        if not bins:
            return self
        own = copy(self)
        own.record = replace(self.record, first_bin=self.record.first_bin + bins)
        return own

    def within(self, span: Span) -> Span:
        """Return the part of an absolute range that this epoch measured, in bins relative to the epoch."""
        first = self.record.first_bin
        start, stop = (min(max(edge - first, 0), self.bins) for edge in span)
        return Span(start, stop)

    def estimate(self, part: Span, view: SeriesView) -> Estimate:
        """Return a count within the epoch. For the first published view the part must begin at bin 0."""
        return self._kept(part, view, lambda: self._estimate(part, view))

    def _kept(self, part: Span, name: str, compute: Callable[[], Estimate]) -> Estimate:
        """Return an estimate; keep the estimate of the whole epoch until the epoch grows."""
        if part != (0, self.bins):
            return compute()
        bins, kept = self._whole
        if bins != self.bins:
            self._whole = (self.bins, kept := {})
        if name not in kept:
            kept[name] = compute()
        return kept[name]


class AxesEpoch(EpochView):
    """An epoch over keys and values. Its answers are about one sum of columns, for example a key's count."""

    def __init__(
        self,
        record: EpochRecord,
        axes: ColumnDesign,
        time: TimeDesign,
        width: int,
        forest: Forest | None = None,
    ) -> None:
        super().__init__(record, time, width, forest)
        self._axes = axes
        self._sum = column_sum(axes)

    @property
    def shown(self) -> ColumnSum:
        """Return the sum of columns that this epoch shows as its count."""
        return self._sum

    @property
    def over_axes(self) -> Self:
        """Return this epoch."""
        return self

    def showing(self, columns: ColumnSum) -> Self:
        """Return this epoch with a sum of columns as its count; it shares the released rows."""
        own = copy(self)
        own._sum, own._whole = columns.over(self._axes), (0, {})
        return own

    @abstractmethod
    def range(self, part: Span) -> RangeSum:
        """Return the counts of all cells over a part of the epoch."""

    def of_keys(self, part: Span) -> Estimate:
        """Return the counts of all keys over a part of the epoch: values (keys,), one law for each."""
        return self._kept(part, "keys", lambda: key_counts(self.range(part)))


def running_over(epochs: Iterable[EpochView], of_epoch: Callable[[EpochView], FloatArray]) -> FloatArray:
    """Return running sums at every measured edge of all epochs, shape (measured bins + 1,).

    Args: of_epoch, returns the running sum within an epoch after each of its bins.
    """
    columns = [np.zeros(1)]
    for epoch in epochs:
        if epoch.bins:
            columns.append(columns[-1][-1] + of_epoch(epoch))
    return np.concatenate(columns)
