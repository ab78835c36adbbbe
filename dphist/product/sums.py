"""Sums and means of a bounded amount, from counts of the two ends of its range.

An amount is a whole number of units from ``low`` to ``high``. An event of amount u adds ``high - u`` to the
cell of the low end and ``u - low`` to the cell of the high end: together always ``high - low``, the weight.
With L and H the sums of the two cells, the count is (L + H) / weight, the sum (low L + high H) / weight, and
the mean low + f (high - low) with f = H / (L + H). docs/decisions/0031-sums.md says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.interval import half_width, half_widths
from dphist.laws.law import LawTable, WeightedNoise
from dphist.product.columns import ColumnSum, KeyPlaces
from dphist.product.design import ColumnDesign
from dphist.tree.estimate import Estimate

# With this weight an epoch holds some 176 million events.
LARGEST_WEIGHT = 100_000
_CELLS = 32  # parts into which a search for an interval's end divides what remains
_ROUNDS = 3
_SLACK = 1e-4  # the part of 1 - confidence that pays for the laws between two points of a search


@dataclass(frozen=True)
class AmountRange:
    """The range of an amount, in units. Args: low and high, the least and the greatest amount.

    >>> AmountRange(-2, 3).ends(np.array([-2, 0, 3])).tolist()
    [[5, 0], [3, 2], [0, 5]]
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 1 <= self.high - self.low <= LARGEST_WEIGHT:
            raise ValueError(f"sum: {self.weight} units from min to max are not in [1, {LARGEST_WEIGHT}]")

    @property
    def weight(self) -> int:
        """The weight that every event adds to its two cells together."""
        return self.high - self.low

    def ends(self, units: Int64Array) -> Int64Array:
        """Return each event's weights for its two cells, shape (n, 2). Args: amounts within the range."""
        return np.stack([self.high - units, units - self.low], axis=-1)


def sum_columns(design: ColumnDesign, amounts: AmountRange, key: KeyPlaces | None = None) -> ColumnSum:
    """Return the sum of the amounts, in units, as a weighted sum of columns. Args: key, as ``ColumnSum``."""
    # Without their common divisor the weights stay small, so that sums of doubles stay exact.
    common = gcd(amounts.low, amounts.high)
    ends = np.array([amounts.low // common, amounts.high // common], np.float64)
    return ColumnSum(design, key, ends, amounts.weight // common)


@dataclass(frozen=True)
class Mean:
    """The mean of the amounts of a range of time, in units.

    Args: value, None if the estimated count is not above 0; lower and upper, an interval that holds the true
        mean with the asked confidence; the whole range of the amount if the release says nothing about it.
    """

    value: float | None
    lower: float
    upper: float


def end_columns(design: ColumnDesign, key: int | Sequence[int] | None = None) -> tuple[ColumnSum, ColumnSum]:
    """Return the columns of the range's low end and of its high end, in units of weight."""
    return ColumnSum(design, key, np.array([1.0, 0.0]), 1), ColumnSum(design, key, np.array([0.0, 1.0]), 1)


def mean_of_ends(low: Estimate, high: Estimate, amounts: AmountRange, confidence: float = 0.95) -> Mean:
    """Return the mean of a range of time, with an interval from the exact law.

    Guarantee: the interval holds the true mean with at least this confidence, if there is an event. The value
        is a quotient of unbiased estimates; it is biased where the count is small beside its error.
    Args: low and high, the estimates of ``end_columns``, whose errors are independent and have one law.
    Raises: ValueError for a confidence outside (0, 1).
    Cost: some 100 laws: 2 to 10 ms.
    """
    value, lower, upper = _fraction(low, high, confidence)
    weight = amounts.weight
    found = None if value is None else amounts.low + value * weight
    return Mean(found, amounts.low + lower * weight, amounts.low + upper * weight)


def _fraction(low: Estimate, high: Estimate, confidence: float) -> tuple[float | None, float, float]:
    """Return the high end's part of two independent estimates of one law, and its interval in [0, 1]."""
    ends = (float(low.value), float(high.value))
    total = sum(ends)
    value = min(max(ends[1] / total, 0.0), 1.0) if total > 0 else None
    search = _Search(ends, low.law, low.rounding, confidence)
    edges = np.linspace(0.0, 1.0, _CELLS + 1)
    first = last = np.stack([edges[:-1], edges[1:]])
    lower, upper = 0.0, 1.0
    for _ in range(_ROUNDS):
        from_below, from_above = search.possible(first), search.possible(last)
        if not from_below.shape[1] or not from_above.shape[1]:
            break
        lower, upper = float(from_below[0].min()), float(from_above[1].max())
        first, last = _divided(from_below[:, 0]), _divided(from_above[:, -1])
    return value, lower, upper


def _divided(cell: FloatArray) -> FloatArray:
    edges = np.linspace(cell[0], cell[1], _CELLS + 1)
    return np.stack([edges[:-1], edges[1:]])


class _Search:
    """Finds the fractions f that the estimates allow: |(1 - f) H - f L| is within the reach of its error.

    For the true fraction the left side is an error, whose law is known exactly: that of L's and H's noise
    with weights f and 1 - f. So the set of all f that pass holds the true one with the confidence. Between
    two points f differs by at most d, and the error by d times the noise of L + H, which exceeds ``_widest``
    with a chance that is part of ``_SLACK``. So a law at one point bounds the laws beside it.
    """

    def __init__(
        self, ends: tuple[float, float], law: WeightedNoise, rounding: float, confidence: float
    ) -> None:
        self._low, self._high = ends
        self._law, self._rounding = law, rounding
        slack = (1.0 - confidence) * _SLACK
        self._confidence = confidence + slack
        self._widest = half_width(WeightedNoise.joined([law], 2), 1.0 - slack).value

    def possible(self, cells: FloatArray) -> FloatArray:
        """Return the cells that hold a possible fraction, cut down to these fractions: (2, cells).

        Args: starts and stops of rising cells, shape (2, cells).
        """
        middle, half = cells.mean(axis=0), 0.5 * (cells[1] - cells[0])
        laws = LawTable.of(
            [WeightedNoise.weighted([(f, 1, self._law), (1.0 - f, 1, self._law)]) for f in middle.tolist()]
        )
        reach = half_widths(laws, self._confidence)[0] + half * self._widest + self._rounding
        # (1 - f) H - f L is linear in f: |H - f (L + H)| <= reach.
        total = self._low + self._high
        if total == 0.0:
            return cells[:, np.abs(self._high) <= reach]
        edges = np.sort(np.stack([self._high - reach, self._high + reach]) / total, axis=0)
        cut = np.stack([np.maximum(cells[0], edges[0]), np.minimum(cells[1], edges[1])])
        return np.asarray(cut[:, cut[0] <= cut[1]])
