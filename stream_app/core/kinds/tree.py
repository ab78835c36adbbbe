"""Counts over time only: a tree whose nodes are released, or running counts with noise drawn ahead."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from dphist import plan_tree
from dphist.arrays import FloatArray, Int64Array
from dphist.laws.interval import half_widths
from dphist.laws.law import LawTable, WeightedNoise
from dphist.noise import NoiseSource
from dphist.product.columns import ColumnSum
from dphist.tree.anticipating import AnticipatingSnapshot, BinsNoise, bins_noise, release_bins
from dphist.tree.counter import CounterSnapshot, TreeCounter
from dphist.tree.decoder import decode_noise, draw_epoch_noise
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate, ReleasedForest, live_estimate
from dphist.tree.forest_laws import RangeErrors, forest_errors, live_errors, series_laws, series_variance
from dphist.tree.published_laws import (
    published_law,
    published_laws,
    published_prefix_variances,
    published_rounding,
)
from dphist.tree.upward import MOST_EVENTS
from dphist.tree.weights import WeightedRange, rounding_bounds, weighted_law
from dphist.units import UNITS_PER_COUNT, check_room
from stream_app.core.kinds.epoch import EpochView
from stream_app.core.kinds.errors import CONFIDENCE, Errors, RowError, row_errors
from stream_app.core.kinds.kind import Asked, Kind, node_tables
from stream_app.core.kinds.tables import Closed, SeriesKind, SeriesView, Span, node_table
from stream_app.core.records import EpochRecord


@dataclass(frozen=True)
class Tree(Kind):
    """Counts over time, cell by cell. Args: width, the number of cells, one tree each; the service uses 1."""

    rows_hold_values = True

    design: TreeDesign
    width: int = 1

    @cached_property
    def tables(self) -> Mapping[str, int]:
        return node_tables(self.design, self.width)

    def weighted_law(self, bins: int, ranges: tuple[WeightedRange, ...]) -> WeightedNoise:
        """Return the law of the total's weighted sum of ranges of one epoch, as ``Errors.weighted``."""
        return WeightedNoise.joined([weighted_law(self.design, bins, ranges)], self.width)

    def row_part(self, closed: Closed, position: int) -> dict[str, object]:
        nodes = self.completed(closed.first_bin + position)
        return {
            "nodes": [[level, index, closed.row(node_table(level), index).tolist()] for level, index in nodes]
        }

    def fields(self) -> dict[str, str]:
        return {"design": self.design.to_json()}

    def at_epsilon(self, asked: Asked) -> Self:
        return replace(self, design=plan_tree(**asked))


class CausalTree(Tree):
    """Each node gets its noise and is released when it is complete; estimates improve with more nodes."""

    def close(self, held: bytes, counts: Int64Array, noise: NoiseSource, ahead: BinsNoise | None) -> Closed:
        counter = TreeCounter(self.design, noise, self.width, history=False)
        if held:
            counter = TreeCounter.restore(self.design, noise, CounterSnapshot.from_bytes(held))
        # By released counts, before noise is drawn: a reader who sees the stream stop learns nothing else.
        check_room(float(counter.live_units().sum(dtype=np.float64)) / UNITS_PER_COUNT, MOST_EVENTS)
        releases = counter.push_many(counts)
        return Closed.of(releases, releases.published, counter.snapshot().to_bytes())

    def row_errors(self, bins: Int64Array) -> list[RowError]:
        design, so_far = self.design, int(bins[-1]) + 1
        laws, row_of_bin = series_laws(design, so_far, "live", bins)
        halves, _ = half_widths(laws, CONFIDENCE)
        # A running count sums at most k - 1 estimates of each level, each rounded to whole units.
        rounding = sum(
            (k - 1) * bound for k, bound in zip(design.branching, rounding_bounds(design), strict=True)
        )
        reaches = halves[row_of_bin] + rounding / UNITS_PER_COUNT
        variances = series_variance(design, so_far, "live", bins)
        return list(zip(variances.tolist(), reaches.tolist(), strict=True))

    def errors(self, known: SeriesView = "unbiased", columns: ColumnSum | None = None) -> Errors:

        def within(bins: int, starts: Int64Array, stops: Int64Array) -> RangeErrors:
            if known == "first_published":
                laws, roundings = live_errors(self.design, stops)
            else:
                laws, roundings = forest_errors(self.design, bins, starts, stops)
            return RangeErrors(laws.repeated(self.width), roundings * self.width)

        leaf = WeightedNoise.of([(1.0, self.width, float(self.design.scales[-1]))])
        leaves = LawTable.of([leaf]) if known == "first_published" else None
        return Errors(self.design.horizon, within, self.weighted_law, leaves)

    def running_variances(self, bins: int) -> FloatArray:
        return self.width * series_variance(self.design, bins, "running", np.arange(bins))

    def epoch(self, record: EpochRecord) -> EpochView:
        return CausalEpoch(record, self.design, self.width)


class AnticipatingTree(Tree):
    """Draws all noise before the epoch begins; published running counts are final."""

    def close(self, held: bytes, counts: Int64Array, noise: NoiseSource, ahead: BinsNoise | None) -> Closed:
        if ahead is None:
            raise ValueError("noise: this stream's is drawn before the epoch; none was given for these bins")
        before = AnticipatingSnapshot.first(self.design, self.width)
        if held:
            before = AnticipatingSnapshot.from_bytes(held)
        releases, after = release_bins(self.design, before, counts, ahead)
        return Closed.of(releases, releases.published, after.to_bytes())

    def draw_pages(self, noise: NoiseSource) -> Iterator[bytes]:
        drawn = draw_epoch_noise(self.design, noise, self.width)
        errors = decode_noise(self.design, drawn)
        yield from self.page_geometry().packed(
            lambda bins: bins_noise(self.design, drawn, errors, bins.start, bins.stop)
        )

    def row_errors(self, bins: Int64Array) -> list[RowError]:
        laws = published_laws(self.design, np.zeros_like(bins), bins + 1)
        return row_errors(laws, published_rounding(self.design, 0))

    def errors(self, known: SeriesView = "unbiased", columns: ColumnSum | None = None) -> Errors:

        def laws(starts: Int64Array, stops: Int64Array) -> LawTable:
            return published_laws(self.design, starts, stops).repeated(self.width)

        rounding = self.width * published_rounding(self.design, 0)
        return Errors.of_published(self.design.horizon, laws, rounding, self.weighted_law)

    def running_variances(self, bins: int) -> FloatArray:
        return self.width * published_prefix_variances(self.design)[:bins]

    def epoch(self, record: EpochRecord) -> EpochView:
        return AnticipatingEpoch(record, self.design, self.width)


class CausalEpoch(EpochView):
    """An epoch whose estimates come from complete nodes and improve as more nodes complete."""

    def __init__(self, record: EpochRecord, design: TreeDesign, width: int) -> None:
        self._tree, self._forest = design, ReleasedForest(design, width)
        super().__init__(record, design, width, self._forest)

    def running_values(self, kind: SeriesKind, view: SeriesView) -> FloatArray:
        if view == "unbiased":
            values = self._forest.series("running").sum(axis=1)
        elif kind == "running":
            values = self.published.sum(axis=1) / UNITS_PER_COUNT
        else:
            leaves = self._forest.nodes(self._tree.shape.height)
            values = np.cumsum(leaves.sum(axis=1))
        return np.asarray(values, dtype=np.float64)

    def _estimate(self, part: Span, view: SeriesView) -> Estimate:
        if view == "unbiased":
            return self._forest.range(part.start, part.stop)
        return live_estimate(self._tree, part.stop, self.published[part.stop - 1])


class PublishedEpoch(EpochView):
    """An epoch whose published running counts are final: every answer is a difference of two of them."""

    @abstractmethod
    def _error(self, part: Span) -> tuple[WeightedNoise, float]:
        """Return the law and the rounding of the error of one cell's count over a part of the epoch."""

    def running_values(self, kind: SeriesKind, view: SeriesView) -> FloatArray:
        return np.asarray(self.published.sum(axis=1) / UNITS_PER_COUNT, dtype=np.float64)

    def _estimate(self, part: Span, view: SeriesView) -> Estimate:
        units = self.published[part.stop - 1].copy()
        if part.start:
            units -= self.published[part.start - 1]
        return Estimate.of_units(units, *self._error(part))


class AnticipatingEpoch(PublishedEpoch):
    """An epoch with noise that was drawn before it began."""

    def __init__(self, record: EpochRecord, design: TreeDesign, width: int) -> None:
        super().__init__(record, design, width)
        self._tree = design

    def _error(self, part: Span) -> tuple[WeightedNoise, float]:
        return published_law(self._tree, part.start, part.stop), published_rounding(self._tree, part.start)
