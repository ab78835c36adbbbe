"""Answers over keys and values: counts with their exact law, CDFs with a band, quantiles from the band.

A ``RangeSum`` is already estimated over time. The rest is linear with fixed weights: first over the keys,
which combines the keys and their total within one value level, then over the value, which combines levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.consistency.trellis import consistent_cdf
from dphist.laws.law import WeightedNoise
from dphist.product.axis import ValueAxis
from dphist.product.band import sup_error
from dphist.product.columns import key_weights
from dphist.product.forest import GroupSum, RangeSum
from dphist.tree.estimate import Estimate

FLOATING_ERROR = 1e-10


@dataclass(frozen=True)
class Histogram:
    """Estimates of the value axis' nodes, for one key or for all keys together, over one range of time.

    Args: axis; levels, unbiased node values, (nodes,) per level; laws, per level the law of each node's
        error, all independent; rounding, in counts, per level.
    """

    axis: ValueAxis
    levels: tuple[FloatArray, ...]
    laws: tuple[WeightedNoise, ...]
    rounding: tuple[float, ...]

    @classmethod
    def of(cls, total: RangeSum, key: int | Sequence[int] | None = None) -> Histogram:
        """Return the histogram of one key, of several together, or of all (None), by least squares over keys.

        Raises: ValueError for a key that is not on the list, or a key named twice.
        Cost: O(columns).
        """
        keys, axis = total.design.keys, total.design.values
        of_total, of_keys = key_weights(keys, key)
        levels, laws, rounding = [], [], []
        for number in range(axis.shape.height):
            measured = total.groups[number] if keys.total_share else None
            apart = total.groups[number + (axis.shape.height if keys.total_share else 0)]
            taken = _taken(measured, of_total, apart, of_keys)
            levels.append(taken.values[0])
            laws.append(taken.law)
            rounding.append(taken.rounding)
        return cls(axis, tuple(levels), tuple(laws), tuple(rounding))

    @cached_property
    def buckets(self) -> FloatArray:
        """The best estimate of every bucket, shape (buckets,)."""
        return self.axis.least_squares(self.levels)

    @cached_property
    def cumulative_stderr(self) -> FloatArray:
        """The standard error of every unbiased cumulative count, shape (buckets,)."""
        variances = np.zeros(self.axis.buckets)
        for weights, law in zip(self.axis.prefix_weights, self.laws, strict=True):
            variances += law.variance * (weights**2).sum(axis=1)
        return np.sqrt(variances)

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
        law = WeightedNoise.of(_weighted(weights, self.laws))
        rounding = sum(
            float(np.abs(level).sum()) * bound for level, bound in zip(weights, self.rounding, strict=True)
        )
        return Estimate(float(self.buckets[start:stop].sum()), law.variance, law, rounding)

    def cdf(self, confidence: float = 0.95) -> Cdf:
        """Return the cumulative counts of all buckets with one band around all of them.

        Guarantee: the band holds all cumulative counts at once with at least this confidence, except for the
            one chance in a million of ``band.sup_error``.
        Raises: ValueError for a confidence outside (0, 0.999].
        Cost: about 0.2 s for 256 buckets on the first call for a law.
        """
        slack = np.zeros(self.axis.buckets)
        for weights, bound in zip(self.axis.prefix_weights, self.rounding, strict=True):
            slack += bound * np.abs(weights).sum(axis=1)
        stderr = self.cumulative_stderr
        values = self.buckets.cumsum()
        # A sum of doubles may come out slightly below a count that is known exactly.
        slack += FLOATING_ERROR * (1.0 + np.abs(values).max())
        reach = sup_error(self.axis, self.laws, confidence) * stderr + slack
        return Cdf(values, stderr, reach, confidence)


@dataclass(frozen=True)
class Cdf:
    """Cumulative counts: entry t counts the events in buckets 0..t, the last one all events.

    Args: values, unbiased, shape (buckets,); stderr of each; reach, half the width of a band that holds all
        of them at once; confidence.
    """

    values: FloatArray
    stderr: FloatArray
    reach: FloatArray
    confidence: float

    @property
    def lower(self) -> FloatArray:
        """The band's lower edge; like cumulative counts, it never falls and is never negative."""
        return np.maximum.accumulate(np.maximum(self.values - self.reach, 0.0))

    @property
    def upper(self) -> FloatArray:
        """The band's upper edge, which never falls."""
        return np.maximum(np.minimum.accumulate((self.values + self.reach)[::-1])[::-1], 0.0)

    def consistent(self) -> Int64Array:
        """Return the closest cumulative counts that are whole, never fall and are never negative.

        Biased post-processing; the total is the estimated one, rounded.
        """
        return consistent_cdf(self.values, max(0, round(float(self.values[-1]))))

    def quantile(self, q: float) -> Quantile:
        """Return the bucket of the q-quantile: the first whose cumulative count reaches q times the total.

        Guarantee: whenever the band holds, the interval holds the true bucket, for every q at once.
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
    """A quantile: the best estimate (None if no event is seen) and an inclusive range of buckets."""

    q: float
    bucket: int | None
    first: int
    last: int


def _taken(total: GroupSum | None, of_total: float, keys: GroupSum, of_keys: FloatArray) -> GroupSum:
    """Return, per node, a weighted sum of keys and of their total: values (1, nodes)."""
    values = of_keys[np.newaxis] @ keys.values
    found, copies = np.unique(np.abs(of_keys), return_counts=True)
    parts = [(float(w), int(n), keys.law) for w, n in zip(found, copies, strict=True)]
    rounding = float(np.abs(of_keys).sum()) * keys.rounding
    if total is not None:
        values = values + of_total * total.values
        parts.append((of_total, 1, total.law))
        rounding += of_total * total.rounding
    return GroupSum(values, _repeated(*parts), rounding)


def _repeated(*parts: tuple[float, int, WeightedNoise]) -> WeightedNoise:
    return WeightedNoise.of(
        (w * weight, n * copies, s) for weight, copies, law in parts for w, n, s in law.groups
    )


def _weighted(
    weights: list[FloatArray], laws: tuple[WeightedNoise, ...]
) -> Iterator[tuple[float, int, float]]:
    """Yield the noise groups of a weighted sum of nodes; nodes of equal weight form one group."""
    for level, law in zip(weights, laws, strict=True):
        found, copies = np.unique(np.abs(level).round(12), return_counts=True)
        for weight, nodes in zip(found.tolist(), copies.tolist(), strict=True):
            yield from ((weight * w, nodes * n, s) for w, n, s in law.groups)
