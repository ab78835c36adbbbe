"""Exact discrete Gaussian draws, by rejection from discrete Laplace draws."""

from fractions import Fraction
from functools import lru_cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.certified import exp_bounds
from dphist.noise.laplace import DiscreteLaplace, Entropy

# Beyond these a proposal's distance from the centre would not fit the fixed-point numbers below.
LEAST_VARIANCE = Fraction(1, 2**40)
LARGEST_VARIANCE = Fraction(2**80)

_AT_ONCE = 1 << 16
_UNIFORM_BITS = 31
_RATE_BITS = 26  # fraction bits of the exponent r
_TABLE_BITS = 13  # two tables cover the fraction bits
_LARGEST_RATE = 100  # exp(-100) is far below one step of the uniform numbers
_DISTANCE_BITS = 31
_FACTOR_BITS = 28


class DiscreteGaussian:
    """Independent integers Z with P(Z = z) proportional to exp(-z^2 / (2 variance)).

    A discrete Laplace draw y of scale t is kept with probability exp(-r), r = (|y| - variance / t)^2 / (2
    variance). Whole numbers bound exp(-r). They decide for all but one in a million of the proposals;
    exact arithmetic decides these.

    Args: variance, in [2^-40, 2^80].
    Raises: ValueError for another variance.
    Guarantee: the law is exact, if the entropy is independent uniform bytes.
    Source: Canonne, Kamath, Steinke (2020), algorithm 3.
    """

    def __init__(self, variance: Fraction) -> None:
        if not LEAST_VARIANCE <= variance <= LARGEST_VARIANCE:
            raise ValueError(f"variance {variance} is outside [2^-40, 2^80]; choose another epsilon or unit")
        self.variance = variance = Fraction(variance)  # a whole number would make floats below
        scale = isqrt(int(variance)) + 1
        self._proposals = DiscreteLaplace(Fraction(scale))
        self._centre = variance / scale
        reach = isqrt(int(2 * _LARGEST_RATE * variance * 4**40)) + 1  # 2^40 times the largest distance
        self._shift = _DISTANCE_BITS + 40 - reach.bit_length()  # a distance is in units of 2^-shift
        self._largest = (reach << self._shift) >> 40 if self._shift >= 0 else reach >> 40 - self._shift
        self._outside = int(self._centre) + (reach >> 40) + 2
        self._centre_units = _scaled(self._centre, self._shift)
        # A distance of d units has r = d^2 * rate.
        rate = 1 / (2 * variance * Fraction(4) ** self._shift)
        self._factor = int(rate * 2 ** (32 + _RATE_BITS + _FACTOR_BITS))
        self._margin = _margin(rate, self._largest)

    def draw(self, size: int, entropy: Entropy) -> Int64Array:
        """Return independent draws, shape (size,)."""
        drawn = np.empty(size, dtype=np.int64)
        done = 0
        while done < size:
            left = min(size - done, _AT_ONCE)
            proposed = self._proposals.draw(left + left // 2 + 8, entropy)
            found = proposed[self.kept(proposed, entropy)][:left]
            drawn[done : done + found.size] = found
            done += found.size
        return drawn

    def kept(self, proposed: Int64Array, entropy: Entropy) -> NDArray[np.bool_]:
        """Return which of the proposals are kept."""
        uniform = np.frombuffer(entropy(4 * proposed.size), dtype=np.uint32).astype(np.int64) >> 1
        lower, upper = self.bounds(proposed)
        kept = uniform < lower
        for place in np.flatnonzero(~kept & (uniform < upper)).tolist():
            kept[place] = self._decide(int(uniform[place]), abs(int(proposed[place])), entropy)
        return kept

    def bounds(self, proposed: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return, for each proposal, whole numbers between which 2^31 exp(-r) lies."""
        sizes = np.minimum(np.abs(proposed), self._outside)
        units = sizes << self._shift if self._shift >= 0 else sizes >> -self._shift
        distance = np.minimum(np.abs(units - self._centre_units), self._largest)
        rates = ((distance * distance >> 32) * self._factor) >> _FACTOR_BITS
        size = 1 << _TABLE_BITS
        found = _table(0, 2 * _LARGEST_RATE)[rates >> _RATE_BITS]
        found = found * _table(_TABLE_BITS, size)[rates >> _TABLE_BITS & (size - 1)] >> _UNIFORM_BITS
        found = found * _table(_RATE_BITS, size)[rates & (size - 1)] >> _UNIFORM_BITS
        # Three factors and two products are rounded down: together less than 7 steps.
        return found - self._margin, found + self._margin + 7

    def _decide(self, uniform: int, size: int, entropy: Entropy) -> bool:
        """Return whether a uniform number, of which 31 bits are drawn, is below exp(-r)."""
        rate = (size - self._centre) ** 2 / (2 * self.variance)
        bits = _UNIFORM_BITS
        while True:
            lower, upper = exp_bounds(rate, bits)
            if uniform + 1 <= lower:
                return True
            if uniform >= upper:
                return False
            uniform = (uniform << 64) | int.from_bytes(entropy(8), "little")
            bits += 64


def _scaled(number: Fraction, shift: int) -> int:
    """Return 2^shift times the number, rounded down."""
    return int(number * Fraction(2) ** shift)


def _margin(rate: Fraction, largest: int) -> int:
    """Return by how much 2^31 exp(-r) may be off because the exponent r is rounded.

    Four errors add up. The distance, at most ``largest``, is off by less than 2; its square loses less than
    2^32; the factor loses less than 1, and so does the product. Their sum is the error of r in units of
    2^-26. Each unit moves 2^31 exp(-r) by less than 2^5.
    """
    unit = rate * 2**_RATE_BITS
    off = (4 * largest + 4) * unit + 2**32 * unit + Fraction(largest**2 >> 32, 2**_FACTOR_BITS) + 1
    return (int(off) + 1) << (_UNIFORM_BITS - _RATE_BITS)


@lru_cache(maxsize=3)
def _table(fraction_bits: int, size: int) -> Int64Array:
    """Return 2^31 exp(-j / 2^fraction_bits) for j = 0, 1, ..., rounded down.

    Cost: some milliseconds, once.
    """
    precision = 4 * _UNIFORM_BITS
    factor, _ = exp_bounds(Fraction(1, 1 << fraction_bits), precision)
    found, power = [], 1 << precision
    for _ in range(size):
        found.append(power >> precision - _UNIFORM_BITS)
        power = power * factor >> precision
    return np.array(found, dtype=np.int64)
