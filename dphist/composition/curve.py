"""The privacy curve of several releases together, in whole numbers: delta for an epsilon, and the reverse."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_UP, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import isqrt, sqrt

import numpy as np

from dphist.certified import exp_bounds
from dphist.composition.losses import BITS, Losses, PureLaw, pure_law

# Discrete Gaussian noise instead of the normal law changes e^epsilon and delta by less than this factor, for
# up to 10^15 noisy numbers: each costs 6 x 1.1e-34.
_DISCRETE = Fraction(1, 2**60)
_LARGEST_EXPONENT = 100  # beyond it the second term of the curve is left out, which only raises the result
_SURE = 12  # beyond it delta is 1 but for 10^-30
_PROPOSALS = Context(prec=6, rounding=ROUND_UP)
_PI_DIGITS = 100
# The first digits of pi, without the point: pi lies between this number and the next, over 10^100.
_PI = 31415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421170679


@lru_cache(maxsize=4096)
def delta_of(losses: Losses, epsilon: Fraction) -> Fraction:
    """Return an upper bound of the least delta with which the releases together are (epsilon, delta)-DP.

    Guarantee: never below the truth, also for releases that run at the same time and for events that depend
        on earlier outputs, as long as no epsilon or mu depends on outputs.
    Cost: some 0.1 ms for each possible sum of pure losses (one more than their number, if they are equal).

    >>> delta_of(Losses.of_pure(Fraction(1)), Fraction(1))
    Fraction(0, 1)
    """
    if losses.is_pure and epsilon >= losses.epsilon:
        return Fraction(0)
    law = pure_law(losses.pure)
    mu = _root_at_least(losses.mu_squared)
    within = epsilon - _DISCRETE if mu else epsilon
    total = law.unbounded * 2**BITS + sum(
        weight * gaussian_delta(within - loss, mu) for loss, weight in law.losses
    )
    delta = Fraction(total, 4**BITS) * (1 + _DISCRETE if mu else 1)
    return min(delta + losses.delta, Fraction(1))


@lru_cache(maxsize=1024)
def epsilon_of(losses: Losses, delta: Fraction) -> Fraction | None:
    """Return a certified epsilon with which the releases together are (epsilon, delta)-DP.

    Guarantee: ``delta_of`` of the result is at most delta. The result has at most six digits, and is above
        the least possible epsilon by a few of the last digit at most, if all pure epsilons are equal.
    Args: delta, at least 0 and below 1.
    Returns: None if no epsilon will do, because the sum of the deltas is at least delta.

    >>> epsilon_of(Losses.of_gaussian(Fraction(1)), Fraction(1, 10**6))
    Fraction(30541, 6250)
    """
    most = losses.epsilon if losses.is_pure else None
    if most is not None and (delta == 0 or most == 0):
        return most
    if losses.delta >= delta:
        return None
    epsilon = _rounded_up(_proposal(losses, float(delta)))
    raised = Fraction(1, 10**6)
    while most is None or epsilon < most:
        if delta_of(losses, epsilon) <= delta:
            return epsilon
        epsilon, raised = _rounded_up(float(epsilon * (1 + raised))), raised * 2
    return most


def gaussian_delta(epsilon: Fraction, mu: Fraction) -> int:
    """Return at least 2^BITS times the delta of normal noise whose mean moves by mu times its scale.

    That delta is Phi(-epsilon / mu + mu / 2) - exp(epsilon) Phi(-epsilon / mu - mu / 2).
    Args: epsilon, of any sign; mu, at least 0. For mu = 0 it is the limit, max(0, 1 - exp(epsilon)).
    """
    if mu == 0:
        return 0 if epsilon >= 0 else (1 << BITS) - exp_bounds(-epsilon, BITS)[0]
    bits = BITS + max(int(epsilon * 3 / 2), 0) if epsilon <= _LARGEST_EXPONENT else BITS
    one, extra = 1 << bits, bits - BITS
    epsilon = Fraction(int(epsilon * one // 1), one)  # rounded down, which raises delta
    near, far = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    upper = normal_bounds(Fraction(-int(-near * one // 1), one), bits)[1]
    if epsilon > _LARGEST_EXPONENT or near > _SURE:
        return -(-upper >> extra)
    lower = normal_bounds(Fraction(int(far * one // 1), one), bits)[0]
    shrinking = exp_bounds(abs(epsilon), bits)
    lower = lower * shrinking[0] >> bits if epsilon < 0 else (lower << bits) // shrinking[1]
    return max(-(-(upper - lower) >> extra), 0)


def _root_at_least(square: Fraction) -> Fraction:
    """Return a fraction at or just above the square root."""
    if square == 0:
        return square
    scaled = -(-(square.numerator << 128) // square.denominator)
    return Fraction(isqrt(scaled - 1) + 1, 1 << 64)


def _rounded_up(epsilon: float) -> Fraction:
    return Fraction(_PROPOSALS.create_decimal(Decimal(epsilon)))


def _proposal(losses: Losses, delta: float) -> float:
    """Return about the least epsilon for a delta, by floats; nothing that is stated rests on it."""
    curve = _float_curve(pure_law(losses.pure), sqrt(losses.mu_squared), float(losses.delta))
    high = 1.0
    while curve(high) > delta:
        high *= 2
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if curve(middle) <= delta else (middle, high)
    return high


def _float_curve(law: PureLaw, mu: float, delta: float) -> Callable[[float], float]:
    from scipy.special import log_ndtr, ndtr  # imported here because most processes never search

    losses, weights = np.array([(float(loss), weight / 2**BITS) for loss, weight in law.losses]).T

    def curve(epsilon: float) -> float:
        left = epsilon - losses
        if mu == 0:
            deltas = np.maximum(-np.expm1(np.minimum(left, 0)), 0)
        else:
            deltas = ndtr(-left / mu + mu / 2) - np.exp(left + log_ndtr(-left / mu - mu / 2))
        return float(weights @ deltas) + delta

    return curve


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
