"""The errors of running counts in closed form: the effect of one unit of noise on later estimates.

The estimate of a running count is A C^-1 y, where A adds up bins. The noise of one bin enters the estimate n
bins later with weight b_n, the running sum of the coefficients of 1 / c. With m buffers

    b_n = limit + sum_i gain_i root_i^n,   0 <= root_i < 1,

so every sum of weights has a closed form: a question about a million bins costs O(m^2). These numbers are
doubles; they are computed from the public strategy and never touch data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.toeplitz.strategy import ToeplitzStrategy

_BLOCK = 1 << 13  # questions that are answered at once: their terms fit into the processor's cache
_HALVINGS = 64  # of a range of 2^200 in ratio: what is left is below the precision of a double


@dataclass(frozen=True)
class InverseWeights:
    """The weights b_n of a strategy. Args: decays, 1 - root_i, of which the first is 0; gains, per decay.

    The limit is the gain of the decay 0, so b_n = sum_i gains_i (1 - decays_i)^n.
    """

    gains: FloatArray
    decays: FloatArray

    @classmethod
    def of(cls, weights: FloatArray, decays: FloatArray) -> InverseWeights:
        """Return the weights b_n of the buffers a_i and 1 - l_i. Args: decays rising, in (0, 1)."""
        roots = _roots(weights, decays)
        residues = np.array([1.0 / np.sum(weights / (decays - root) ** 2) for root in roots])
        limit = 1.0 / (1.0 + np.sum(weights / decays))
        return cls(np.append(limit, residues / roots), np.append(0.0, roots))

    def weights(self, n: Int64Array) -> FloatArray:
        """Return b_n for each n >= 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            powers = np.where(n == 0, 1.0, np.exp(n * np.log1p(-self.decays)[:, np.newaxis]))
        return np.asarray(self.gains @ powers)

    def sums(self, n: Int64Array) -> FloatArray:
        """Return b_0 + ... + b_(n-1) for each n >= 0."""
        return np.asarray(self.gains @ geometric(self.decays[:, np.newaxis], n))

    def squares(self, n: Int64Array) -> FloatArray:
        """Return b_0^2 + ... + b_(n-1)^2 for each n >= 0: the variance of a running count, over sigma^2."""
        return _quadratic(self.gains[:, np.newaxis], self.decays, n)

    def mean_square(self, horizon: int) -> float:
        """Return the mean of ``squares`` over 1, ..., horizon: sum_j (1 - j / horizon) b_j^2."""
        pairs = _pairs(self.decays)
        terms = geometric(pairs, np.array(horizon))
        with np.errstate(divide="ignore", invalid="ignore"):
            means = (1.0 - (1.0 - pairs) * terms / horizon) / pairs
        # Where the powers hardly fall, the difference above cancels; two terms of its series are enough.
        series = (horizon + 1) / 2.0 - pairs * (horizon * horizon - 1) / 6.0
        return float(self.gains @ np.where(pairs * horizon < 1e-5, series, means) @ self.gains)

    def range_squares(self, starts: Int64Array, stops: Int64Array) -> FloatArray:
        """Return the sum of squared weights in the number of events in bins [start, stop), over sigma^2.

        The last stop - start bins have weights b_n, the bins before them b_n - b_(n - stop + start).
        """
        blocks = range(0, len(starts), _BLOCK)
        found = [self._range_squares(starts[i : i + _BLOCK], stops[i : i + _BLOCK]) for i in blocks]
        return np.concatenate(found) if found else np.zeros(0)

    def _range_squares(self, starts: Int64Array, stops: Int64Array) -> FloatArray:
        # Points of a chart are ranges of one length, or of few.
        lengths, place = np.unique(stops - starts, return_inverse=True)
        changes = -self.gains[:, np.newaxis] * self.decays[:, np.newaxis]
        changes = (changes * geometric(self.decays[:, np.newaxis], lengths))[:, place]
        one, other = np.triu_indices(len(self.decays))
        terms = geometric(_pairs(self.decays)[one, other, np.newaxis], starts)
        twice = np.where(one == other, 1.0, 2.0)
        earlier = np.einsum("p,pq,pq,pq->q", twice, changes[one], changes[other], terms)
        return np.asarray(self.squares(lengths)[place] + earlier)

    def range_sums(self, starts: Int64Array, stops: Int64Array) -> FloatArray:
        """Return the sum of the sizes of these weights. b falls, so the sizes of differences telescope."""
        return 2.0 * self.sums(stops - starts) + self.sums(starts) - self.sums(stops)


@lru_cache(maxsize=64)
def inverse_weights(strategy: ToeplitzStrategy) -> InverseWeights:
    """Return the weights b_n of a strategy. Cost: about a millisecond, then cached."""
    weights = np.array([float(weight) for weight in strategy.weights])
    return InverseWeights.of(weights, np.array([float(1 - rate) for rate in strategy.rates]))


def _roots(weights: FloatArray, decays: FloatArray) -> FloatArray:
    """Return the v with 1 + sum_i a_i / (u_i - v) = 0, u the decays: one above each u_i, below the next.

    Raises: ValueError if two decays are so close that no double lies between them.
    """
    gaps = np.diff(decays, append=decays[-1] + weights.sum() + 1.0)
    if (gaps <= 1e-14 * decays).any():
        raise ValueError("rates: two are equal in doubles")
    # The sum rises from minus infinity to above 0 with the distance from u_i: halve the range, in ratio.
    distances = decays - decays[:, np.newaxis]
    low, high = gaps * 2.0**-200, gaps * (1.0 - 2.0**-50)
    for _ in range(_HALVINGS):
        middle = np.sqrt(low) * np.sqrt(high)
        below = 1.0 + (weights / (distances - middle[:, np.newaxis])).sum(axis=1) < 0.0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(decays + high)


def geometric(decays: FloatArray, n: Int64Array) -> FloatArray:
    """Return sum_(j < n) (1 - decay)^j without cancellation, n if the decay is 0. Shapes broadcast."""
    counts = np.asarray(n, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(counts == 0.0, 0.0, counts * np.log1p(-decays))
        return np.asarray(np.where(decays == 0.0, counts, -np.expm1(logs) / decays))


def _quadratic(gains: FloatArray, decays: FloatArray, n: Int64Array) -> FloatArray:
    """Return sum_(j < n) (sum_i gains_i (1 - decays_i)^j)^2. Args: gains, (modes, 1); n, of each question."""
    found = np.empty(np.shape(n))
    for start in range(0, len(found), _BLOCK):
        terms = geometric(_pairs(decays)[..., np.newaxis], n[start : start + _BLOCK])
        found[start : start + _BLOCK] = (gains[:, np.newaxis] * gains * terms).sum(axis=(0, 1))
    return found


def _pairs(decays: FloatArray) -> FloatArray:
    """Return 1 - (1 - decays_i) (1 - decays_k), which is 0 for two decays of 0."""
    return np.asarray(decays[:, np.newaxis] + decays - decays[:, np.newaxis] * decays)
