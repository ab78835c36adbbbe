"""One epoch as readers see it: released nodes, running counts as first published, and their estimates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate, ReleasedForest, live_estimate
from dphist.tree.law import WeightedNoise
from dphist.tree.upward import UNITS_PER_COUNT
from stream_app.core.records import ROWS, EpochRecord, Int64Array
from stream_app.core.visible import visible_bins

Float64Array = NDArray[np.float64]
Kind = Literal["running", "bin", "window"]
View = Literal["unbiased", "first_published"]


class Missing(NamedTuple):
    """Visible rows that a view does not have yet: ``rows`` of a level (or of ROWS) from ``first`` on."""

    epoch: int
    level: int
    first: int
    rows: int


class Span(NamedTuple):
    """A range of bins, half-open: absolute, or within one epoch."""

    start: int
    stop: int


class EpochView:
    """One epoch: its released nodes and its running counts as first published."""

    def __init__(self, record: EpochRecord, design: TreeDesign, width: int) -> None:
        self.record = record
        self.forest = ReleasedForest(design, width)
        self._published = [np.zeros((0, width), np.int64)]
        self._whole: tuple[int, dict[View, Estimate]] = (0, {})

    @property
    def bins(self) -> int:
        """Return the number of visible bins."""
        return self.forest.bins

    @property
    def span(self) -> Span:
        """Return the visible bins, absolute."""
        return Span(self.record.first_bin, self.record.first_bin + self.bins)

    @property
    def published(self) -> Int64Array:
        """Return the running counts as first published, shape (bins, width), in units of 2^-16."""
        if len(self._published) > 1:
            self._published = [np.concatenate(self._published)]
        return self._published[0]

    def missing(self, visible_seq: int) -> Iterable[Missing]:
        """Yield what has to be read to know all that is visible."""
        bins, shape = visible_bins(self.record, visible_seq), self.forest.design.shape
        have = dict(zip(shape.levels, self.forest.counts, strict=True)) | {ROWS: len(self.published)}
        for level, first in have.items():
            rows = (bins if level == ROWS else shape.completed_count(bins, level)) - first
            if rows > 0:
                yield Missing(self.record.epoch, level, first, rows)

    def append(self, level: int, values: Int64Array) -> None:
        """Take the next rows of a level (or of ROWS)."""
        if level == ROWS:
            self._published.append(values)
        else:
            self.forest.append_level(level, values)

    def within(self, span: Span) -> Span:
        """Return the part of an absolute range that this epoch measured, in its own bins."""
        first = self.record.first_bin
        start, stop = (min(max(edge - first, 0), self.bins) for edge in span)
        return Span(start, stop)

    def estimate(self, part: Span, view: View) -> Estimate:
        """Return a count within the epoch. As first published it is the running count, so from bin 0 on."""
        if part != (0, self.bins):
            return self._estimate(part, view)
        bins, kept = self._whole
        if bins != self.bins:
            self._whole = (self.bins, kept := {})
        if view not in kept:
            kept[view] = self._estimate(part, view)
        return kept[view]

    def bins_as_published(self, part: Span) -> Estimate:
        """Return the sum of bins by their own nodes alone, as they were released with each bin."""
        design = self.forest.design
        values = self.forest.nodes(design.shape.height, part.start, part.stop)
        count, scale, variance = part.stop - part.start, float(design.scales[-1]), design.variances[-1]
        return Estimate(
            values.sum(axis=0).astype(np.float64), count * variance, WeightedNoise.of([(1.0, count, scale)])
        )

    def running_values(self, kind: Kind, view: View) -> Float64Array:
        """Return the running count after each bin, over all cells; its differences are the values of a kind.

        Cost: O(bins * width), in numpy.
        """
        if view == "unbiased":
            values = self.forest.series("running").sum(axis=1)
        elif kind == "running":
            values = self.published.sum(axis=1) / UNITS_PER_COUNT
        else:
            leaves = self.forest.nodes(self.forest.design.shape.height)
            values = np.cumsum(leaves.sum(axis=1))
        return np.asarray(values, dtype=np.float64)

    def _estimate(self, part: Span, view: View) -> Estimate:
        if view == "unbiased":
            return self.forest.range(part.start, part.stop)
        return live_estimate(self.forest.design, part.stop, self.published[part.stop - 1])
