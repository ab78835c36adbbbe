"""Keys beside time in an approximate release: one column of a Toeplitz mechanism for each key.

All keys have noise of the same law. Their total is their sum, or a column of its own with other noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np

from dphist.arrays import Int64Array
from dphist.laws.law import LawTable, WeightedNoise
from dphist.product.axis import KeyAxis, ValueAxis
from dphist.product.design import ColumnDesign, ColumnGroup
from dphist.toeplitz import ToeplitzDesign
from dphist.toeplitz.estimate import prefix_variances, range_variances, rounding_bounds
from dphist.tree.shape import TreeShape
from dphist.tree.weights import WeightedRange
from dphist.units import UNITS_PER_COUNT

_ONE_BUCKET = ValueAxis(1, TreeShape((2,)), (Fraction(1),))
# Standard deviations of the part of the noise that rounds it to the lattice: beyond them it lies with a
# probability below 5e-16, which is less than an interval's TAIL_SHARE for every confidence up to 1 - 4e-11.
_LATTICE_DEVIATIONS = 8.5


@dataclass(frozen=True)
class ToeplitzGroup(ColumnGroup):
    """The columns of all keys, or of the total. Args: design, of the mechanism that releases them."""

    design: ToeplitzDesign

    def published_laws(self, starts: Int64Array, stops: Int64Array) -> LawTable:
        if starts.any():
            variances = range_variances(self.design, starts, stops)
        else:
            variances = prefix_variances(self.design, stops)
        return LawTable.of_normal(np.sqrt(variances))

    def published_rounding(self, a: int) -> float:
        return (1 + (a > 0)) * _rounding(self.design)

    def weighted_law(self, bins: int, ranges: tuple[WeightedRange, ...]) -> WeightedNoise:
        weights: dict[int, float] = {}  # of each running count; they add up to 0
        for a, b, weight in ranges:
            weights[b] = weights.get(b, 0.0) + weight
            weights[a] = weights.get(a, 0.0) - weight
        pairs = np.array(list(combinations(sorted(weights), 2)), np.int64).T
        products = [weights[a] * weights[b] for a, b in pairs.T.tolist()]
        # For weights that add up to 0: var(sum w_t o_t) = -sum over pairs of w_s w_t var(o_t - o_s).
        variance = -float(range_variances(self.design, *pairs) @ np.array(products))
        return WeightedNoise.normal(math.sqrt(max(variance, 0.0)))


@dataclass(frozen=True)
class ToeplitzColumns(ColumnDesign):
    """One column for each key, after that of the total if it is measured.

    Args: time, the mechanism of the keys; its width is their number unless there is a total; total, the
        mechanism of all events; count, the number of keys beside it. Events without a key are the rest.
    """

    time: ToeplitzDesign
    total: ToeplitzDesign | None = None
    count: int = 0
    values = _ONE_BUCKET
    weight = 1

    @cached_property
    def keys(self) -> KeyAxis:  # type: ignore[override]
        if self.total is None:
            return KeyAxis(self.time.width)
        return KeyAxis(self.count, self.time.share, self.total.share, rest=True)

    @cached_property
    def groups(self) -> tuple[ToeplitzGroup, ...]:
        keys, first = self.keys.keys, int(self.total is not None)
        total = () if self.total is None else (ToeplitzGroup(True, 1, 1, 1, 0, self.total),)
        return (*total, *([ToeplitzGroup(False, 1, keys, 1, first, self.time)] if keys else []))


@lru_cache(maxsize=64)
def _rounding(design: ToeplitzDesign) -> float:
    """Return a bound, in counts, on the part of a published running count's error that is not normal.

    A range from a later bin has at most twice as much, as the difference of two running counts. The bound
    adds up three parts: the roundings of counter and reader; the rounding to 2^-16 of a count; and the
    lattice. The discrete noise of a bin is, in law, a normal variable of no larger variance plus a
    sub-Gaussian one of parameter 2u.
    """
    start, stop = np.array([0]), np.array([design.horizon])
    weights = math.sqrt(float(prefix_variances(design, stop)[0])) / float(design.sigma)
    lattice = _LATTICE_DEVIATIONS * 2.0 * float(design.step) * weights
    return float(rounding_bounds(design, start, stop)[0]) + lattice + 0.5 / UNITS_PER_COUNT
