"""One epoch as readers see it: the visible rows of its tables, and estimates from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.product.forest import RangeSum
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate
from stream_app.core.kinds.tables import PUBLISHED, SeriesKind, SeriesView, Span, node_table
from stream_app.core.records import EpochRecord


class EpochView(ABC):
    """One epoch: the visible rows of its tables.

    Args: width, the columns of the running counts as first published.
    """

    def __init__(self, record: EpochRecord, design: TreeDesign, width: int) -> None:
        self.record = record
        self.design = design
        self.width = width
        self._rows: dict[str, list[Int64Array]] = defaultdict(list)
        self._whole: tuple[int, dict[SeriesView, Estimate]] = (0, {})

    @property
    @abstractmethod
    def bins(self) -> int:
        """Return the number of visible bins."""

    @abstractmethod
    def running_values(self, kind: SeriesKind, view: SeriesView) -> FloatArray:
        """Return the running count after each bin, over all cells; its differences are the values of a kind.

        Cost: O(bins * width), in numpy.
        """

    @abstractmethod
    def _estimate(self, part: Span, view: SeriesView) -> Estimate: ...

    @property
    def span(self) -> Span:
        """Return the visible bins, absolute."""
        return Span(self.record.first_bin, self.record.first_bin + self.bins)

    def rows(self, table: str) -> Int64Array:
        """Return the visible rows of a table, shape (rows, width)."""
        blocks = self._rows[table]
        if not blocks:
            return np.zeros((0, self.width if table == PUBLISHED else 0), np.int64)
        if len(blocks) > 1:
            blocks[:] = [np.concatenate(blocks)]
        return blocks[0]

    def held(self, table: str) -> int:
        """Return how many rows of a table are here."""
        return len(self.rows(table))

    def append(self, table: str, values: Int64Array) -> None:
        """Append the next rows of a table."""
        self._rows[table].append(values)

    @property
    def published(self) -> Int64Array:
        """Return the running counts as first published, shape (bins, width), in units of 2^-16."""
        return self.rows(PUBLISHED)

    def nodes(self, level: int) -> Int64Array:
        """Return the released nodes of a level, shape (nodes, width)."""
        return self.rows(node_table(level))

    def within(self, span: Span) -> Span:
        """Return the part of an absolute range that this epoch measured, in bins relative to the epoch."""
        first = self.record.first_bin
        start, stop = (min(max(edge - first, 0), self.bins) for edge in span)
        return Span(start, stop)

    def estimate(self, part: Span, view: SeriesView) -> Estimate:
        """Return a count within the epoch. For the first published view the part must begin at bin 0."""
        if part != (0, self.bins):
            return self._estimate(part, view)
        bins, kept = self._whole
        if bins != self.bins:
            self._whole = (self.bins, kept := {})
        if view not in kept:
            kept[view] = self._estimate(part, view)
        return kept[view]

    # -- keys and values ----------------------------------------------------------------------------

    def of_key(self, key: int) -> EpochView:
        """Return this epoch for one key of the list; it shares the released rows."""
        raise NotImplementedError("this epoch has no keys")

    def range(self, part: Span) -> RangeSum:
        """Return the counts of all cells over a part of the epoch."""
        raise NotImplementedError("this epoch has one cell")

    def of_keys(self, part: Span) -> Estimate:
        """Return the counts of all keys over a part of the epoch: values (keys,), one law for each."""
        raise NotImplementedError("this epoch has no keys")
