"""Answers from released nodes: running counts, ranges and whole series, each with its variance."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.interval import Interval as Interval  # its users name it beside Estimate
from dphist.laws.interval import half_width, half_widths
from dphist.laws.law import WeightedNoise
from dphist.tree.design import TreeDesign
from dphist.tree.forest_laws import (
    Series,
    checked_series,
    forest_errors,
    live_errors,
    series_laws,
    series_variance,
)
from dphist.tree.release import BinRelease, BinReleases
from dphist.tree.upward import UpwardPass
from dphist.tree.weights import range_weights, rounding_bounds
from dphist.units import UNITS_PER_COUNT


@dataclass(frozen=True)
class Estimate:
    """An unbiased answer and the law of its error.

    Args: value, in counts, a float, or (width,) if the stream has several cells; variance and law, of each
        cell's error; rounding, a bound in counts on the rounding error.
    """

    value: float | FloatArray
    variance: float
    law: WeightedNoise = field(repr=False)
    rounding: float = 0.0

    @classmethod
    def of_units(cls, units: Int64Array | FloatArray, law: WeightedNoise, rounding: float) -> Estimate:
        """Return the estimate of values (width,) in units of 2^-16. Args: rounding, in counts."""
        counts = np.asarray(units / UNITS_PER_COUNT, dtype=np.float64)
        return cls(float(counts[0]) if len(counts) == 1 else counts, law.variance, law, rounding)

    @property
    def stderr(self) -> float:
        """The standard error, in counts."""
        return float(np.sqrt(self.variance))

    def interval(self, confidence: float = 0.95) -> Interval:
        """Return the shortest symmetric interval with at least this confidence, from the exact law.

        Raises: ValueError for a confidence outside (0, 1).
        """
        half = half_width(self.law, confidence)
        reach = half.value + self.rounding
        return Interval(self.value - reach, self.value + reach, half.level)


def live_estimate(design: TreeDesign, bins: int, units: Int64Array) -> Estimate:
    """Return a published running count, in units of 2^-16 and shape (width,), as an estimate.

    Guarantee: the best linear unbiased estimate of [0, bins) from the nodes complete at bin ``bins``.
    """
    return Estimate.of_units(units, *live_errors(design, np.array([bins])).error(0))


class ReleasedForest:
    """A reader's view of one epoch: its released nodes, and the best linear unbiased estimates from them.

    Guarantee: post-processing; estimates are unbiased and of the least variance among all linear ones from
        complete nodes, up to ``Estimate.rounding``.
    Args: the epoch's design; width in cells.
    Cost: 16 bytes per node and cell, and 8 bytes per bin and cell.
    """

    def __init__(self, design: TreeDesign, width: int = 1) -> None:
        self.design = design
        self.width = width
        height = design.shape.height
        self._nodes = [_Rows(width) for _ in range(height)]
        self._estimates = [_Rows(width) for _ in range(height)]
        self._live = _Rows(width)
        self._upward = UpwardPass(design, width)

    @property
    def bins(self) -> int:
        """The number of closed bins. A bin is closed if all nodes that it completes have been appended."""
        return self._upward.bins

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of nodes appended per measured level, root side first."""
        return tuple(len(rows) for rows in self._nodes)

    def append_level(self, level: int, values: Int64Array) -> None:
        """Append the next nodes of a level, in index order: noisy counts of shape (n, width).

        Levels may come in any order; estimates use the bins that are closed on all of them.
        Raises: ValueError for a level that is not measured, another width or dtype, nodes beyond the epoch.
        """
        shape, rows = self.design.shape, np.asarray(values)
        if rows.dtype != np.int64 or rows.ndim != 2 or rows.shape[1] != self.width:
            raise ValueError(
                f"nodes: {rows.dtype} {rows.shape} given; int64 of shape (n, {self.width}) is needed"
            )
        most = shape.completed_count(self.design.horizon, level)
        if len(self._nodes[level - 1]) + len(rows) > most:
            raise ValueError(f"nodes: level {level} has {most} nodes in an epoch; more were appended")
        self._nodes[level - 1].extend(rows)
        self._advance()

    def append(self, release: BinRelease) -> None:
        """Append one bin's nodes. Raises: ValueError for a bin that is not the next one."""
        self._expect(release.bin)
        for node in release.nodes:
            self._nodes[node.level - 1].extend(node.values[np.newaxis])
        self._advance()

    def append_many(self, releases: BinReleases) -> None:
        """Append consecutive bins' nodes. Raises: ValueError for bins that are not the next ones."""
        self._expect(releases.first_bin)
        for rows, column in zip(self._nodes, releases.levels, strict=True):
            rows.extend(column.values)
        self._advance()

    def nodes(self, level: int, start: int = 0, stop: int | None = None) -> Int64Array:
        """Return a read-only view of a level's noisy counts, shape (n, width)."""
        self.design.shape.completed_count(0, level)
        return self._nodes[level - 1].view()[start:stop]

    def prefix(self, t: int) -> Estimate:
        """Return the best current estimate of the number of events in bins [0, t)."""
        return self.range(0, t)

    def range(self, a: int, b: int) -> Estimate:
        """Return the best current estimate of the number of events in bins [a, b).

        Guarantee: the best linear unbiased estimate from all complete nodes (Hay et al., Theorem 4).
        Raises: ValueError unless 0 <= a <= b <= bins.
        Cost: O(height^2 + height * branching).
        """
        if not 0 <= a <= b <= self.bins:
            raise ValueError(f"range [{a}, {b}): closed bins are [0, {self.bins})")
        units = np.zeros(self.width)
        for one in range_weights(self.design, self.bins, a, b):
            nodes = self._estimates[one.level - 1].view()[one.first : one.first + one.nodes]
            units += one.weight * nodes.sum(axis=0)
        errors = forest_errors(self.design, self.bins, np.array([a]), np.array([b]))
        return Estimate.of_units(units, *errors.error(0))

    def live_prefix(self, t: int) -> Estimate:
        """Return the number of events in bins [0, t) as it was first published, when bin t - 1 closed.

        Raises: ValueError unless 0 <= t <= bins.
        """
        if not 0 <= t <= self.bins:
            raise ValueError(f"prefix {t}: closed bins are [0, {self.bins})")
        units = self._live.view()[t - 1] if t else np.zeros(self.width, np.int64)
        return live_estimate(self.design, t, units)

    def series(self, kind: Series = "running") -> FloatArray:
        """Return every point of a series, shape (bins, width), in counts. Cost: O(bins * width)."""
        if checked_series(kind) == "live":
            return self._live.view() / UNITS_PER_COUNT
        bins, shape = self.bins, self.design.shape
        estimates: list[FloatArray] = [
            np.asarray(
                rows.view()[: shape.completed_count(bins, level)] * (1.0 / UNITS_PER_COUNT), np.float64
            )
            for level, rows in zip(shape.levels, self._estimates, strict=True)
        ]
        leaves = _final_leaves(estimates, shape.branching[1:])
        if kind == "bin":
            return leaves
        return np.asarray(np.cumsum(leaves, axis=0, out=leaves))

    def series_variance(self, kind: Series = "running", points: ArrayLike | None = None) -> FloatArray:
        """Return the exact variance of points of a series, in counts squared, shape (points,).

        Args: points, indices into the series; by default all.
        Raises: ValueError for a point that is not closed.
        Cost: O(height * points), in numpy.
        """
        return series_variance(self.design, self.bins, kind, self._checked_points(points))

    def series_half_widths(
        self, kind: Series = "running", confidence: float = 0.95, points: ArrayLike | None = None
    ) -> FloatArray:
        """Return half widths of the intervals of points of a series, shape (points,), rounding included.

        Guarantee: each point's interval, by itself, contains the true value with at least this confidence.
        Args, Raises: as ``series_variance``; confidence in (0, 1).
        """
        laws, place = series_laws(self.design, self.bins, kind, self._checked_points(points))
        # A point is a sum over siblings along at most two paths down the tree, each with weight at most 1.
        rounding = 2.0 * sum(map(operator.mul, self.design.branching, rounding_bounds(self.design)))
        widths, _ = half_widths(laws, confidence)
        return np.asarray(widths[place] + rounding / UNITS_PER_COUNT)

    def _checked_points(self, points: ArrayLike | None) -> Int64Array:
        chosen = np.arange(self.bins) if points is None else np.asarray(points)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise ValueError(
                f"points: {chosen.dtype} {chosen.shape} given; whole numbers of shape (n,) are needed"
            )
        if chosen.size and (chosen.min() < 0 or chosen.max() >= self.bins):
            raise ValueError(f"points: some are outside the {self.bins} closed bins")
        return chosen.astype(np.int64)

    def _advance(self) -> None:
        """Extend the estimates by all bins whose nodes have been appended on every level."""
        shape, done = self.design.shape, self.bins
        bins = min(
            (len(rows) + 1) * width - 1 for rows, width in zip(self._nodes, shape.widths[1:], strict=True)
        )
        if bins <= done:
            return
        fresh = [
            rows.view()[done // width : bins // width]
            for rows, width in zip(self._nodes, shape.widths[1:], strict=True)
        ]
        estimates, live = self._upward.advance(fresh)
        for rows, values in zip(self._estimates, estimates, strict=True):
            rows.extend(values)
        self._live.extend(live)

    def _expect(self, bin: int) -> None:
        if bin != self.bins or self.counts != tuple(self.bins // w for w in self.design.shape.widths[1:]):
            raise ValueError(f"release of bin {bin}: the next bin of this forest is {self.bins}")


class _Rows:
    """A growing array of int64 rows; appending a row has amortised constant cost."""

    def __init__(self, width: int) -> None:
        self._rows = np.empty((16, width), np.int64)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def view(self) -> Int64Array:
        rows = self._rows[: self._length]
        rows.flags.writeable = False
        return rows

    def extend(self, rows: Int64Array | Sequence[Int64Array]) -> None:
        length = self._length + len(rows)
        if length > len(self._rows):
            grown = np.empty((max(length, 2 * len(self._rows)), self._rows.shape[1]), np.int64)
            grown[: self._length] = self.view()
            self._rows = grown
        self._rows[self._length : length] = rows
        self._length = length


def _final_leaves(estimates: Sequence[FloatArray], branching: Sequence[int]) -> FloatArray:
    """Return the leaves' least-squares estimates. Overwrites ``estimates``.

    A parent's difference from its children's sum is divided evenly among them. Roots have incomplete parents.

    Args: estimates from below, (nodes, width) per level, root side first; branching below each level.
    Source: Hay et al. (2010), Theorem 3.
    """
    parents = estimates[0]
    for k, level in zip(branching, estimates[1:], strict=True):
        children = level[: len(parents) * k].reshape(len(parents), k, level.shape[1])
        children += ((parents - children.sum(axis=1)) / k)[:, np.newaxis]
        parents = level
    return parents
