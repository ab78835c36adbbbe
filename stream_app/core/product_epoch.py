"""One epoch of a stream over several axes, as readers see it: one key of it, or all keys together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

import numpy as np

from dphist.noise import Int64Array
from dphist.product.columns import ColumnSum, column_sum, key_counts
from dphist.product.design import ProductDesign
from dphist.product.forest import ProductForest, RangeSum
from dphist.product.published import published_range
from dphist.tree.estimate import Estimate
from dphist.tree.upward import UNITS_PER_COUNT
from stream_app.core.epoch_view import EpochView, Float64Array, Kind, Missing, Span, View
from stream_app.core.records import ROWS, EpochRecord
from stream_app.core.visible import visible_bins

_ROWS_AT_ONCE = 1024  # as doubles, for a weighted sum


class AxesEpoch(EpochView):
    """An epoch over several axes; ``of_key`` shows one key of what this one holds."""

    _whole_keys: tuple[int, Estimate] | None = None  # of so many bins: running counts ask for it again

    @abstractmethod
    def of_key(self, key: int) -> AxesEpoch:
        """Return this epoch for one key, sharing what is released."""

    @abstractmethod
    def range(self, part: Span) -> RangeSum:
        """Return all cells over a part of the epoch."""

    def of_keys(self, part: Span) -> Estimate:
        """Return the counts of all keys over a part of the epoch: values (keys,), one law for each."""
        if part != (0, self.bins):
            return key_counts(self.range(part))
        if self._whole_keys is None or self._whole_keys[0] != self.bins:
            self._whole_keys = self.bins, key_counts(self.range(part))
        return self._whole_keys[1]


class ProductEpoch(AxesEpoch):
    """A causal epoch over several axes: all estimates come from released nodes.

    Args: product, the design; key, its place in the list, None for the total over keys.
    """

    def __init__(self, record: EpochRecord, product: ProductDesign, key: int | None = None) -> None:
        super().__init__(record, product.time, 1)
        self._columns = ProductForest(product)
        self._key = key
        self._sum: ColumnSum = column_sum(product, key)

    def of_key(self, key: int) -> ProductEpoch:
        """Return this epoch for one key, sharing what is released."""
        own = ProductEpoch(self.record, self._columns.design, key)
        own._columns, own._published = self._columns, self._published
        return own

    @property
    def bins(self) -> int:
        """Return the number of visible bins."""
        return self._columns.bins

    def nodes(self, level: int) -> Int64Array:
        """Return the released nodes of a level, shape (nodes, columns)."""
        return self._columns.nodes(level)

    def range(self, part: Span) -> RangeSum:
        """Return all cells over a part of the epoch."""
        return self._columns.range(part.start, part.stop)

    def missing(self, record: EpochRecord, visible_seq: int) -> Iterable[Missing]:
        """Yield what has to be read to know all that is visible. Args: record, the epoch as it is by then."""
        bins, shape = visible_bins(record, visible_seq), self._columns.design.time.shape
        have = dict(zip(shape.levels, self._columns.counts, strict=True)) | {ROWS: len(self.published)}
        for level, first in have.items():
            rows = (bins if level == ROWS else shape.completed_count(bins, level)) - first
            if rows > 0:
                yield Missing(self.record.epoch, level, first, rows)

    def running_values(self, kind: Kind, view: View) -> Float64Array:
        """Return the running count after each bin; its differences are the values of a kind."""
        if view == "unbiased":
            return self._columns.running(self._sum.weights)
        if kind == "running":
            return np.asarray(self.published[:, 0] / UNITS_PER_COUNT, dtype=np.float64)
        leaves = self._columns.nodes(self._columns.design.time.shape.height)
        return np.asarray(np.cumsum(leaves @ self._sum.weights), dtype=np.float64)

    def _append_nodes(self, level: int, values: Int64Array) -> None:
        self._columns.append_level(level, values)

    def _estimate(self, part: Span, view: View) -> Estimate:
        if view == "unbiased":
            return self._sum.of_range(self.range(part))
        error = self._sum.live_error(part.stop)
        value = float(self.published[part.stop - 1, 0]) / UNITS_PER_COUNT
        return Estimate(value, error.variance, error.law, error.rounding + 1.0 / UNITS_PER_COUNT)


class PublishedAxesEpoch(AxesEpoch):
    """An anticipating epoch over several axes: every answer is a difference of two published rows.

    Args: product, the design; key, its place in the list, None for the total over keys.
    """

    def __init__(self, record: EpochRecord, product: ProductDesign, key: int | None = None) -> None:
        super().__init__(record, product.time, product.columns)
        self._product = product
        self._sum: ColumnSum = column_sum(product, key)
        self._running = np.zeros(0)

    def of_key(self, key: int) -> PublishedAxesEpoch:
        """Return this epoch for one key, sharing what is released."""
        own = PublishedAxesEpoch(self.record, self._product, key)
        own._published = [self.published]
        return own

    @property
    def bins(self) -> int:
        """Return the number of visible bins."""
        return len(self.published)

    def nodes(self, level: int) -> Int64Array:
        """Return no nodes: none are released."""
        return np.zeros((0, self.width), np.int64)

    def range(self, part: Span) -> RangeSum:
        """Return all cells over a part of the epoch."""
        return published_range(self._product, self.published, part.start, part.stop)

    def missing(self, record: EpochRecord, visible_seq: int) -> Iterable[Missing]:
        """Yield what has to be read to know all that is visible. Args: record, the epoch as it is by then."""
        rows = visible_bins(record, visible_seq) - self.bins
        if rows > 0:
            yield Missing(self.record.epoch, ROWS, self.bins, rows)

    def running_values(self, kind: Kind, view: View) -> Float64Array:
        """Return the running count after each bin: the same for every kind and view."""
        done, weights = len(self._running), self._sum.weights
        used = np.flatnonzero(weights)  # a key alone needs its own columns, and those of the total
        fresh = [self._running]
        for first in range(done, self.bins, _ROWS_AT_ONCE):
            rows = self.published[first : first + _ROWS_AT_ONCE, used]
            fresh.append(rows @ weights[used] / UNITS_PER_COUNT)
        self._running = np.concatenate(fresh)
        return self._running

    def _append_nodes(self, level: int, values: Int64Array) -> None:
        raise AssertionError("an anticipating epoch over several axes releases no nodes")

    def _estimate(self, part: Span, view: View) -> Estimate:
        return self._sum.of_range(self.range(part))
