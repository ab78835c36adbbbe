"""Counts over keys, values or both: thousands of columns; a sum of columns answers a question.

There is a column for every cell and every sum of cells that the design releases. A causal stream releases
the columns of completed nodes, an anticipating stream the columns of the running count. Rows of the chain
hold the hashes of these columns, so the chain vouches for them, and the running count of the total.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np

from dphist import plan_product
from dphist.arrays import FloatArray, Int64Array
from dphist.laws.law import LawTable
from dphist.noise import NoiseSource
from dphist.planning.product import plan_sums
from dphist.product.columns import ColumnSum, column_sum
from dphist.product.counter import ProductCounter
from dphist.product.design import ColumnDesign, ProductDesign
from dphist.product.forest import ProductForest, RangeSum
from dphist.product.published import CellTotals, draw_errors, publish_bins, published_range
from dphist.tree.anticipating import BinsNoise
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate
from dphist.tree.forest_laws import RangeErrors, series_variance
from dphist.tree.published_laws import published_prefix_variances
from dphist.units import UNITS_PER_COUNT
from stream_app.core.kinds.epoch import AxesEpoch
from stream_app.core.kinds.errors import Errors, RowError, row_errors
from stream_app.core.kinds.kind import Asked, Kind, Vector, node_tables, values_hash
from stream_app.core.kinds.tables import (
    PUBLISHED,
    Block,
    Closed,
    SeriesKind,
    SeriesView,
    Span,
    TimeDesign,
    node_table,
)
from stream_app.core.records import EpochRecord

_ROWS_AT_ONCE = 1024  # rows converted to doubles at once for a weighted sum
_ONCE_MORE = 1.0 / UNITS_PER_COUNT  # the total's running count is rounded to whole units a second time


def totals(product: ColumnDesign, published: Int64Array) -> Int64Array:
    """Return the total's running counts, shape (bins, 1), taken from all columns; in units of 2^-16."""
    return np.rint(published @ column_sum(product).weights).astype(np.int64)[:, np.newaxis]


@dataclass(frozen=True)
class Axes(Kind):
    """Counts over keys and values. Args: axes, the shares of all axes."""

    axes: ProductDesign = field()

    @property
    def design(self) -> TreeDesign:  # type: ignore[override]
        return self.axes.time

    @property
    def width(self) -> int:  # type: ignore[override]
        return self.axes.cells

    def fields(self) -> dict[str, str]:
        return {"design": self.design.to_json(), "product": self.axes.to_json()}

    def row_errors(self, bins: Int64Array) -> list[RowError]:
        return self.column_errors(bins, column_sum(self.axes))

    def at_epsilon(self, asked: Asked) -> Axes:
        keys, values, weight = self.axes.keys, self.axes.values, self.axes.weight
        count, total_share = keys.keys, keys.total_share
        if weight > 1:
            sums = plan_sums(**asked, weight=weight, keys=count, total_share=total_share)
            return replace(self, axes=sums)
        again = plan_product(**asked, keys=count, buckets=values.buckets, total_share=total_share)
        return replace(self, axes=again)


class CausalAxes(Axes):
    """Releases the columns of complete nodes, and of the running count only the total."""

    @cached_property
    def tables(self) -> Mapping[str, int]:
        return node_tables(self.design, self.axes.columns) | {PUBLISHED: 1}

    def close(self, held: bytes, counts: Int64Array, noise: NoiseSource, ahead: BinsNoise | None) -> Closed:
        product = self.axes
        counter = ProductCounter.restore(product, noise, held) if held else ProductCounter(product, noise)
        releases = counter.push_many(counts)
        running = totals(product, releases.published)
        return Closed.of(releases, running, counter.to_bytes(), releases.published)

    def row_part(self, closed: Closed, position: int) -> dict[str, object]:
        nodes = self.completed(closed.first_bin + position)
        hashes = [[level, index, values_hash(closed.row(node_table(level), index))] for level, index in nodes]
        return {"nodes": [], "node_hashes": hashes}

    def vectors(self) -> Mapping[Vector, int]:
        """Return the noise vectors that closing one bin may need, and the largest number of each."""
        wanted: dict[Vector, int] = defaultdict(int)
        for group in self.axes.groups:
            for scale in group.design.scales:
                wanted[Fraction(scale), (1, group.width)] += 1
        return dict(wanted)

    def column_errors(self, bins: Int64Array, columns: ColumnSum) -> list[RowError]:
        laws, roundings = columns.live_errors(bins + 1)
        return row_errors(laws, roundings, _ONCE_MORE)

    def errors(self, known: SeriesView = "unbiased", columns: ColumnSum | None = None) -> Errors:
        summed, horizon = columns or column_sum(self.axes), self.design.horizon
        if known == "unbiased":
            return Errors(horizon, summed.forest_errors, summed.weighted_law)

        def within(bins: int, starts: Int64Array, stops: Int64Array) -> RangeErrors:
            laws, roundings = summed.live_errors(stops)
            return RangeErrors(laws, roundings + _ONCE_MORE)

        leaf = LawTable.of([summed.of_nodes(self.design.shape.height, 1).law])
        return Errors(horizon, within, summed.weighted_law, leaf)

    def running_variances(self, bins: int) -> FloatArray:
        return series_variance(self.design, bins, "running", np.arange(bins))

    def epoch(self, record: EpochRecord) -> AxesEpoch:
        return CausalAxesEpoch(record, self.axes)


class AnticipatingAxes(Axes):
    """Releases the running counts of all columns, with noise that was drawn before the epoch."""

    keys_as_first_published = True

    @property
    def node_levels(self) -> Sequence[int]:
        return ()

    @cached_property
    def tables(self) -> Mapping[str, int]:
        return {PUBLISHED: self.axes.columns}

    def close(self, held: bytes, counts: Int64Array, noise: NoiseSource, ahead: BinsNoise | None) -> Closed:
        if ahead is None:
            raise ValueError("noise: this stream's is drawn before the epoch; none was given for these bins")
        before = CellTotals.from_bytes(held) if held else CellTotals.first(self.axes)
        if ahead.first_bin != before.bin:
            raise ValueError(
                f"noise: that of bins from {ahead.first_bin} given; bins from {before.bin} needed"
            )
        published, after = publish_bins(self.axes, before, counts, ahead.errors)
        block = Block(PUBLISHED, before.bin, published)
        return Closed(before.bin, totals(self.axes, published), (block,), after.to_bytes(), published)

    def row_part(self, closed: Closed, position: int) -> dict[str, object]:
        return {"nodes": [], "columns_hash": values_hash(closed.blocks[0].values[position])}

    def draw_pages(self, noise: NoiseSource) -> Iterator[bytes]:
        errors = draw_errors(self.axes, noise)
        yield from self.page_geometry().packed(
            lambda bins: BinsNoise(bins.start, errors[bins.start : bins.stop], ())
        )

    def column_errors(self, bins: Int64Array, columns: ColumnSum) -> list[RowError]:
        laws = columns.published_laws(np.zeros_like(bins), bins + 1)
        return row_errors(laws, columns.published_rounding(0), _ONCE_MORE)

    def errors(self, known: SeriesView = "unbiased", columns: ColumnSum | None = None) -> Errors:
        summed = columns or column_sum(self.axes)
        rounding = summed.published_rounding(0)
        laws = summed.published_laws, rounding, summed.weighted_law
        return Errors.of_published(self.design.horizon, *laws)

    def running_variances(self, bins: int) -> FloatArray:
        return published_prefix_variances(self.design)[:bins]

    def epoch(self, record: EpochRecord) -> AxesEpoch:
        return PublishedAxesEpoch(record, self.axes, self.design)


class CausalAxesEpoch(AxesEpoch):
    """A causal epoch over several axes: all its estimates come from released nodes."""

    def __init__(self, record: EpochRecord, axes: ProductDesign) -> None:
        self._columns = ProductForest(axes)
        super().__init__(record, axes, axes.time, 1, self._columns)

    def range(self, part: Span) -> RangeSum:
        return self._columns.range(part.start, part.stop)

    def running_values(self, kind: SeriesKind, view: SeriesView) -> FloatArray:
        if view == "unbiased":
            return self._columns.running(self._sum.numerators) / self._sum.divisor
        if kind == "running":
            return np.asarray(self.published[:, 0] / UNITS_PER_COUNT, dtype=np.float64)
        leaves = self._columns.nodes(self._columns.design.time.shape.height)
        return np.asarray(np.cumsum(leaves @ self._sum.weights), dtype=np.float64)

    def _estimate(self, part: Span, view: SeriesView) -> Estimate:
        if view == "unbiased":
            return self._sum.of_range(self.range(part))
        law, rounding = self._sum.live_errors(np.array([part.stop])).error(0)
        value = float(self.published[part.stop - 1, 0]) / UNITS_PER_COUNT
        return Estimate(value, law.variance, law, rounding + _ONCE_MORE)


class PublishedAxesEpoch(AxesEpoch):
    """An epoch over several axes whose rows are final: every answer is a difference of two of them."""

    def __init__(self, record: EpochRecord, axes: ColumnDesign, time: TimeDesign) -> None:
        super().__init__(record, axes, time, axes.columns)
        self._running = np.zeros(0)

    def showing(self, columns: ColumnSum) -> Self:
        """Return this epoch with a sum of columns as its count; it shares the released rows."""
        own = super().showing(columns)
        own._running = np.zeros(0)
        return own

    def range(self, part: Span) -> RangeSum:
        return published_range(self._axes, self.published, part.start, part.stop)

    def running_values(self, kind: SeriesKind, view: SeriesView) -> FloatArray:
        done, weights = len(self._running), self._sum.numerators
        used = np.flatnonzero(weights)  # one key needs only its own columns and the columns of the total
        fresh = [self._running]
        for first in range(done, self.bins, _ROWS_AT_ONCE):
            rows = self.published[first : first + _ROWS_AT_ONCE, used]
            fresh.append(rows @ weights[used] / UNITS_PER_COUNT / self._sum.divisor)
        self._running = np.concatenate(fresh)
        return self._running

    def _estimate(self, part: Span, view: SeriesView) -> Estimate:
        return self._sum.of_range(self.range(part))
