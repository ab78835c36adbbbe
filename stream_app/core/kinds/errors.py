"""The exact errors of answers: the laws of many ranges over several epochs at once, for points of charts.

Epochs of one stream have one design and independent noise. So a range's error is the sum of those of its
parts: the epochs wholly inside it, which have few different laws, and at most one epoch at each end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dphist.arrays import BoolArray, FloatArray, Int64Array
from dphist.laws.interval import half_widths
from dphist.laws.law import LawTable, WeightedNoise
from dphist.tree.forest_laws import RangeErrors
from dphist.tree.weights import WeightedRange
from stream_app.core.kinds.epoch import EpochCovers, EpochView

CONFIDENCE = 0.95  # for the intervals in rows of the chain
RowError = tuple[float, float]  # variance and half width, in counts


@dataclass(frozen=True)
class Errors:
    """The errors of counts of ranges of bins, for the total or for one key.

    Args:
        horizon: bins in an epoch.
        within: returns the errors of ranges [a, b) of one epoch, from the number of its closed bins, the
            starts and the stops.
        weighted: returns the law of the best current estimate of a weighted sum of ranges of one epoch, from
            the number of its closed bins. Ranges of one epoch may share noise.
        leaf: the law of one bin's own node, a table of one row. It is given if points of bins and windows are
            sums of these nodes, as in the first published view of a causal stream. Otherwise every point is
            a difference of running counts.
    """

    horizon: int
    within: Callable[[int, Int64Array, Int64Array], RangeErrors]
    weighted: Callable[[int, tuple[WeightedRange, ...]], WeightedNoise]
    leaf: LawTable | None = None

    @classmethod
    def of_published(
        cls,
        horizon: int,
        laws: Callable[[Int64Array, Int64Array], LawTable],
        rounding: float,
        weighted: Callable[[int, tuple[WeightedRange, ...]], WeightedNoise],
    ) -> Errors:
        """Return the errors of differences of published running counts; no later bin changes them.

        Args: laws, returns the laws of ranges [a, b) of one epoch, one per row; rounding, a bound in counts
            on the rounding error of one running count.
        """

        def within(bins: int, starts: Int64Array, stops: Int64Array) -> RangeErrors:
            return RangeErrors(laws(starts, stops), np.where(starts > 0, 2.0, 1.0) * rounding)

        return cls(horizon, within, weighted)

    def points(
        self,
        epochs: Sequence[EpochView],
        starts: Int64Array,
        stops: Int64Array,
        over: EpochCovers | None = None,
    ) -> RangeErrors:
        """Return the errors of ranges over several epochs.

        Args: starts, stops, absolute bins, half-open, shape (points,); over, nodes over epochs, used for
            whole epochs.
        Cost: O(height^2 * points) in numpy, O(points) for each epoch, and a few calls of ``within`` for each
            different number of closed bins.
        """
        nothing = np.zeros(len(starts), np.int64)
        whole: dict[int, Int64Array] = {}  # how many whole epochs each range has, by their closed bins
        begun, ended = _Parts(len(starts)), _Parts(len(starts))
        for epoch in epochs:
            first, last = epoch.span
            low, high = np.clip(starts, first, last) - first, np.clip(stops, first, last) - first
            touched, from_start, to_end = low < high, low == 0, high == epoch.bins
            whole[epoch.bins] = whole.get(epoch.bins, nothing) + (touched & from_start & to_end)
            begun.store_part(touched & ~from_start, epoch.bins, low, high)
            ended.store_part(touched & from_start & ~to_end, epoch.bins, low, high)
        found = [begun.errors(self), ended.errors(self)]
        if over is not None:
            digits = over.digits(over.covers(starts, stops))
            covered = digits @ np.array(over.design.widths, np.int64)
            whole[self.horizon] = whole.get(self.horizon, nothing) - covered
            found.append(over.errors(digits))
        found.append(self._of_whole(whole, len(starts)))
        return RangeErrors.added(found)

    def _of_whole(self, whole: Mapping[int, Int64Array], ranges: int) -> RangeErrors:
        """Return the errors of the whole epochs in each range. Epochs of equal length have the same law."""
        roundings, every = np.zeros(ranges), np.ones(ranges)
        copies: dict[tuple[float, float], FloatArray] = {}
        for bins, times in whole.items():
            if not times.any():
                continue
            law, rounding = self.within(bins, np.array([0]), np.array([bins])).error(0)
            roundings += times * rounding
            for weight, number, scale in law.groups:
                copies[weight, scale] = copies.get((weight, scale), 0.0 * every) + times * float(number)
        columns = [(weight * every, numbers, scale) for (weight, scale), numbers in copies.items()]
        return RangeErrors(LawTable.of_uniform_columns(columns, ranges), roundings)


def sums_of_nodes(leaf: LawTable, bins: Int64Array) -> RangeErrors:
    """Return the errors of sums of leaf nodes. Args: leaf, the law of one leaf; bins, the leaves per sum."""
    laws = leaf.take(np.zeros(len(bins), np.int64)).repeated(bins.astype(np.float64))
    return RangeErrors(laws, np.zeros(len(bins)))


class _Parts:
    """For each range, at most one part of it that lies within a single epoch."""

    def __init__(self, ranges: int) -> None:
        self._closed = np.zeros(ranges, np.int64)  # the closed bins of the part's epoch; 0: no part
        self._low, self._high = np.zeros(ranges, np.int64), np.zeros(ranges, np.int64)

    def store_part(self, which: BoolArray, closed: int, low: Int64Array, high: Int64Array) -> None:
        """Store ``[low, high)``, in an epoch with ``closed`` bins, as the part of each range in ``which``."""
        self._closed[which], self._low[which], self._high[which] = closed, low[which], high[which]

    def errors(self, errors: Errors) -> RangeErrors:
        """Return each range's error within its part, 0 without a part; laws are as wide as the widest."""
        found = []
        for closed in np.unique(self._closed[self._closed > 0]).tolist():
            rows = np.flatnonzero(self._closed == closed)
            found.append((rows, errors.within(closed, self._low[rows], self._high[rows])))
        shape = (len(self._closed), max((one.laws.weights.shape[1] for _, one in found), default=0))
        table, roundings = LawTable(np.zeros(shape), np.zeros(shape), np.ones(shape)), np.zeros(shape[0])
        for rows, (laws, rounding) in found:
            groups = laws.weights.shape[1]
            table.weights[rows, :groups] = laws.weights
            table.copies[rows, :groups] = laws.copies
            table.scales[rows, :groups] = laws.scales
            roundings[rows] = rounding
        return RangeErrors(table, roundings)


def row_errors(laws: LawTable, *roundings: FloatArray | float) -> list[RowError]:
    """Return the variance and the half width of each law.

    Args: roundings, added to the half widths one by one: another order could change the last bit of a row.
    """
    halves, _ = half_widths(laws, CONFIDENCE)
    for rounding in roundings:
        halves = halves + rounding
    return list(zip((laws.deviations() ** 2).tolist(), halves.tolist(), strict=True))
