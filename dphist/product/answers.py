"""Answers over keys and values: counts with their exact law, CDFs with a band, quantiles and distances.

A ``RangeSum`` is already estimated over time. The answers here are fixed weighted sums of it: first over the
keys and their total, within each value level, then over the value levels. A share is a quotient of two noisy
counts, so its law has no closed form. But if the bands of both distributions contain the true counts,
quotients of their edges bound every true share, and so the distance of two distributions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.consistency.isotonic import consistent_cdf
from dphist.curve import Curve
from dphist.laws.interval import LARGEST_CONFIDENCE
from dphist.laws.law import WeightedNoise
from dphist.product.axis import ValueAxis
from dphist.product.band import cumulative_stderr, sup_error
from dphist.product.columns import key_weights, weight_groups
from dphist.product.forest import GroupSum, RangeSum
from dphist.tree.estimate import Estimate

_FLOATING_ERROR = 1e-10
# Each of the two bands may miss half as often.
LARGEST_DISTANCE_CONFIDENCE = 2 * LARGEST_CONFIDENCE - 1


@dataclass(frozen=True)
class Histogram:
    """Estimates of the value axis' nodes, for one key or for several together, over one range of time.

    Args: axis; per level of the axis: levels, the unbiased values of its nodes, (nodes,); laws, the law of
        each node's error, all independent; rounding, a bound in counts on each node's rounding error.
    """

    axis: ValueAxis
    levels: tuple[FloatArray, ...]
    laws: tuple[WeightedNoise, ...]
    rounding: tuple[float, ...]

    @classmethod
    def of(cls, total: RangeSum, key: int | Sequence[int] | None = None) -> Histogram:
        """Return the histogram of one key, several together, or all (None), by least squares over keys.

        Raises: ValueError for a key that is not on the list, or a key named twice.
        Cost: O(columns).
        """
        keys, axis = total.design.keys, total.design.values
        of_total, of_keys = key_weights(keys, key)
        height = axis.shape.height
        totals = total.groups[:height] if keys.total_share else [None] * height
        pairs = zip(totals, total.groups[-height:], strict=True)
        sums = [_weighted_sum(measured, of_total, apart, of_keys) for measured, apart in pairs]
        levels, laws = tuple(one.values[0] for one in sums), tuple(one.law for one in sums)
        return cls(axis, levels, laws, tuple(one.rounding for one in sums))

    @cached_property
    def buckets(self) -> FloatArray:
        """The best estimate of every bucket, shape (buckets,)."""
        return self.axis.least_squares(self.levels)

    @cached_property
    def cumulative_stderr(self) -> FloatArray:
        """The standard error of every unbiased cumulative count, shape (buckets,)."""
        return cumulative_stderr(self.axis, self.laws)

    def estimated(self) -> Int64Array:
        """Return the closest cumulative counts that are whole, never fall and are never negative; biased."""
        values = self.buckets.cumsum()
        return consistent_cdf(values, max(0, round(float(values[-1]))))

    def count(self, start: int = 0, stop: int | None = None) -> Estimate:
        """Return the number of events in buckets [start, stop), by default in all.

        Guarantee: unbiased, with the exact law of its error.
        Raises: ValueError for buckets that do not exist.
        """
        stop = self.axis.buckets if stop is None else stop
        if not 0 <= start < stop <= self.axis.buckets:
            raise ValueError(f"buckets [{start}, {stop}): there are [0, {self.axis.buckets})")
        weights = [
            level[stop - 1] - (level[start - 1] if start else 0.0) for level in self.axis.prefix_weights
        ]
        law = WeightedNoise.weighted(
            (weight, copies, law)
            for level, law in zip(weights, self.laws, strict=True)
            for weight, copies in weight_groups(level)
        )
        rounding = sum(
            float(np.abs(level).sum()) * bound for level, bound in zip(weights, self.rounding, strict=True)
        )
        return Estimate(float(self.buckets[start:stop].sum()), law.variance, law, rounding)

    def cdf(self, confidence: float = 0.95) -> Cdf:
        """Return the cumulative counts of all buckets, and a band that contains all true ones at once.

        Guarantee: the band contains them all with at least this confidence, except for the one chance in a
            million of ``band.sup_error``.
        Raises, Cost: as ``band.sup_error``.
        """
        slack, stderr = self.axis.prefix_bounds(self.rounding), self.cumulative_stderr
        values = self.buckets.cumsum()
        # A sum of doubles may come out slightly below a count that is known exactly.
        slack += _FLOATING_ERROR * (1.0 + np.abs(values).max())
        whole = np.rint(values)
        if not stderr.any() and np.all(np.abs(values - whole) <= np.minimum(slack, 0.4)):
            return Cdf(
                whole, stderr, np.zeros_like(stderr), confidence
            )  # true counts are whole, so they are known
        reach = sup_error(self.axis, self.laws, confidence) * stderr + slack
        return Cdf(values, stderr, reach, confidence)


@dataclass(frozen=True)
class Cdf:
    """Cumulative counts: entry t counts the events in buckets 0..t, so the last entry counts all events.

    Args: values, unbiased, with the stderr of each; reach, half the width of a band that holds all of them at
        once with this confidence; each of shape (buckets,).
    """

    values: FloatArray
    stderr: FloatArray
    reach: FloatArray
    confidence: float

    @property
    def lower(self) -> FloatArray:
        """The band's lower edge; like cumulative counts, it never falls and is never negative."""
        return self._edges[0]

    @property
    def upper(self) -> FloatArray:
        """The band's upper edge, which never falls and is never below the lower one."""
        return self._edges[1]

    @cached_property
    def _edges(self) -> tuple[FloatArray, FloatArray]:
        rising = np.maximum.accumulate(np.maximum(self.values - self.reach, 0.0))
        below = np.maximum(np.minimum.accumulate((self.values + self.reach)[::-1])[::-1], 0.0)
        # Where the two cross, no rising curve fits all values, so the band has missed already. Both rise.
        return np.minimum(rising, below), np.maximum(rising, below)

    def curve(self) -> Curve:
        """Return the cumulative counts as a curve over buckets; its band holds all of them at once."""
        at = np.arange(len(self.values))
        band = self.lower, self.upper, self.confidence
        return Curve("events up to", "bucket", at, self.values, *band, of_each=False)

    def consistent(self) -> Int64Array:
        """Return the closest cumulative counts that are whole, never fall and lie in the band; biased.

        Guarantee: where the band holds no whole number, the entry lies less than 1 below it.
        """
        closest = consistent_cdf(self.values, max(0, round(float(self.values[-1]))))
        lower, upper = self._edges
        # The edges never fall, so the counts still rise.
        return np.clip(closest, np.ceil(lower), np.floor(upper)).astype(np.int64)

    def quantile(self, q: float) -> Quantile:
        """Return the bucket of the q-quantile: the first whose cumulative count reaches q times the total.

        Guarantee: if the band contains all true counts, the interval contains the true bucket, for every q.
            The interval contains the estimated bucket always.
        Raises: ValueError for q outside (0, 1).
        """
        if not 0.0 < q < 1.0:
            raise ValueError(f"q: {q!r} is outside (0, 1); write for example 0.95")
        values = self.consistent()
        last = len(values) - 1
        lower, upper = self.lower, self.upper
        # The true bucket t has F(t) >= q N and F(t - 1) < q N, with F and N within the band.
        first = int(np.argmax(upper >= q * lower[-1]))
        reached = lower >= q * upper[-1]
        stop = int(np.argmax(reached)) if reached.any() else last
        value = int(np.argmax(values >= q * values[-1])) if values[-1] else None
        return Quantile(q, value, first, stop)


@dataclass(frozen=True)
class Quantile:
    """A quantile: the best estimate (None if the estimated total is 0) and an inclusive range of buckets."""

    q: float
    bucket: int | None
    first: int
    last: int


def _weighted_sum(total: GroupSum | None, of_total: float, keys: GroupSum, of_keys: FloatArray) -> GroupSum:
    """Return, per value node, the weighted sum over the keys and their total: values of shape (1, nodes)."""
    values = of_keys[np.newaxis] @ keys.values
    found, copies = np.unique(np.abs(of_keys), return_counts=True)
    parts = [(float(w), int(n), keys.law) for w, n in zip(found, copies, strict=True)]
    rounding = float(np.abs(of_keys).sum()) * keys.rounding
    if total is not None:
        values = values + of_total * total.values
        parts.append((of_total, 1, total.law))
        rounding += of_total * total.rounding
    return GroupSum(values, WeightedNoise.weighted(parts), rounding)


@dataclass(frozen=True)
class Distance:
    """The largest distance between two distributions, with lower and upper bounds."""

    value: float
    lower: float
    upper: float


def ks_estimate(one: Histogram, other: Histogram) -> float:
    """Return the distance between the two estimated distributions, without its error. Cost: O(buckets).

    The estimate is biased upwards: it is the largest of many noisy differences.
    """
    return float(np.abs(_shares(one.buckets.cumsum()) - _shares(other.buckets.cumsum())).max())


def ks_distance(one: Histogram, other: Histogram, confidence: float = 0.95) -> Distance:
    """Return max over t of |F(t) / N - G(t) / M|, with an interval that contains the true distance.

    Guarantee: the interval contains the true distance with at least this confidence, except for two chances
        in a million (``band.sup_error``), even if the noise of the two is not independent. The distance to a
        distribution without events is 0.
    Args: two histograms over the same buckets.
    Raises: ValueError for other buckets, or a confidence outside (0, 0.998].
    Cost: two bands (``band.sup_error``).
    """
    if one.axis.buckets != other.axis.buckets:
        raise ValueError(f"distance: {one.axis.buckets} and {other.axis.buckets} buckets; give the same ones")
    if not 0.0 < confidence <= LARGEST_DISTANCE_CONFIDENCE:
        raise ValueError(f"confidence: {confidence!r} is outside (0, {LARGEST_DISTANCE_CONFIDENCE:.3f}]")
    each = (1.0 + confidence) / 2.0
    lower, upper = distance_bounds(one.cdf(each), other.cdf(each))
    return Distance(ks_estimate(one, other), float(lower), float(upper))


def distance_bounds(one: Cdf, other: Cdf) -> tuple[FloatArray, FloatArray]:
    """Return bounds on the distance that are true if both bands contain the true counts.

    Args: bands with values of shape (buckets, ...), for example one column per draw.
    """
    (low, high), (other_low, other_high) = share_bounds(one), share_bounds(other)
    least = np.maximum(low - other_high, other_low - high).max(axis=0)
    most = np.maximum(high - other_low, other_high - low).max(axis=0)
    return np.maximum(least, 0.0), np.minimum(most, 1.0)


def share_bounds(cdf: Cdf) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and the largest share of events up to each bucket that a band allows."""
    lower, upper = cdf.lower, cdf.upper
    least, most = lower[-1], upper[-1]
    low = np.divide(lower, most, out=np.zeros_like(lower), where=most > 0)
    high = np.divide(upper, least, out=np.ones_like(upper), where=least > 0)
    low[-1] = np.where(least > 0, 1.0, low[-1])
    return np.minimum(low, 1.0), np.minimum(high, 1.0)


def _shares(cumulative: FloatArray) -> FloatArray:
    """Return cumulative counts as shares that never fall; zeros if the estimated total is 0."""
    total = cumulative[-1]
    if total <= 0:
        return np.zeros_like(cumulative)
    return np.asarray(np.clip(np.maximum.accumulate(cumulative) / total, 0.0, 1.0), np.float64)
