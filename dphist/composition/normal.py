"""Bounds of the normal law's distribution function in whole numbers."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import isqrt

from dphist.noise.exponentials import exp_bounds

_PI_DIGITS = 100
# The first digits of pi, without the point: pi lies between this number and the next, over 10^100.
_PI = 31415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421170679


def normal_bounds(x: Fraction, bits: int) -> tuple[int, int]:
    """Return whole numbers between which 2^bits * Phi(x) lies; Phi(x) = P(a standard normal <= x).

    Args: bits, at least 1; beyond 320 the bounds get no closer.
    Guarantee: lower <= 2^bits * Phi(x) <= upper.
    Cost: 0.1 to 1 ms for 128 bits.

    >>> normal_bounds(Fraction(1), 20)
    (882213, 882214)
    """
    if x < 0:
        lower, upper = normal_bounds(-x, bits)
        return (1 << bits) - upper, (1 << bits) - lower
    exponent = x * x / 2
    if exponent > bits:
        return (1 << bits) - 1, 1 << bits  # Phi(-x) <= exp(-x^2 / 2) / 2 < 2^-bits
    extra = 16 + int(exponent * 3 / 2)  # the series is at most 2 exp(x^2 / 2)
    precision = bits + extra
    density = exp_bounds(exponent, precision)
    series, root = _series_bounds(x, precision), _root_bounds(precision)
    beyond_half = [
        series[0] * density[0] * root[0] >> 2 * precision,
        -(-series[1] * density[1] * root[1] >> 2 * precision),
    ]
    half = 1 << precision - 1
    lower, upper = half + beyond_half[0] >> extra, -(-(half + beyond_half[1]) >> extra)
    return lower, min(upper, 1 << bits)


def _series_bounds(x: Fraction, precision: int) -> tuple[int, int]:
    """Return bounds of 2^precision (x + x^3 / 3 + x^5 / (3 5) + ...); the sum is (Phi(x) - 1/2) / phi(x)."""
    square = x * x
    square_lower = (square.numerator << precision) // square.denominator
    square_upper = square_lower + 1
    lower = (x.numerator << precision) // x.denominator
    upper = lower + 1
    lower_sum = upper_sum = 0
    odd = 1
    # Once a term is below half of the term before, all that follows is at most as large as that term.
    while upper > 1 or 2 * square_upper > odd << precision:
        lower_sum, upper_sum, odd = lower_sum + lower, upper_sum + upper, odd + 2
        lower = lower * square_lower // (odd << precision)
        upper = -(-upper * square_upper // (odd << precision))
    return lower_sum, upper_sum + 2 * upper


@lru_cache
def _root_bounds(precision: int) -> tuple[int, int]:
    """Return bounds of 2^precision / sqrt(2 pi)."""
    scaled = 10**_PI_DIGITS << 2 * precision
    return isqrt(scaled // (2 * (_PI + 1))), isqrt(scaled // (2 * _PI)) + 1
