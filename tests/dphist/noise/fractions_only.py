"""Algorithms 1 to 3 of Canonne, Kamath and Steinke (2020) in exact fractions, from a seed: an oracle."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache
from random import Random

import numpy as np

from dphist.arrays import Int64Array

DIGITS = Context(prec=250)


def gaussian_by_fractions(variance: Fraction, size: int) -> Int64Array:
    """Return discrete Gaussian draws, shape (size,)."""
    random = Random(2020)
    draws: list[int] = []
    scale = math.isqrt(int(variance)) + 1
    while len(draws) < size:
        found = _laplace(random, scale)
        if _bernoulli_exp(random, (abs(found) - variance / scale) ** 2 / (2 * variance)):
            draws.append(found)
    return np.array(draws, dtype=np.int64)


def _bernoulli(random: Random, probability: Fraction) -> bool:
    return random.randrange(probability.denominator) < probability.numerator


def _bernoulli_exp(random: Random, rate: Fraction) -> bool:
    """Return True with probability exp(-rate)."""
    while rate > 1:
        if not _bernoulli_exp(random, Fraction(1)):
            return False
        rate -= 1
    tries = 1
    while _bernoulli(random, rate / tries):
        tries += 1
    return tries % 2 == 1


def _laplace(random: Random, scale: int) -> int:
    """Return a discrete Laplace draw."""
    while True:
        low, high = random.randrange(scale), 0
        if not _bernoulli_exp(random, Fraction(low, scale)):
            continue
        while _bernoulli_exp(random, Fraction(1)):
            high += 1
        found, minus = low + scale * high, random.randrange(2)
        if found or not minus:
            return -found if minus else found


def exp_of(x: Fraction) -> Decimal:
    """Return exp(-x), off by less than 10^-240 of itself."""
    return DIGITS.exp(-DIGITS.divide(Decimal(x.numerator), Decimal(x.denominator)))


@cache
def geometric_below(step: Fraction, limit: int | None, value: int) -> Decimal:
    """Return P(V < value) for P(V = j) proportional to exp(-j step), below the limit."""
    with localcontext(DIGITS):
        whole = 1 - exp_of(step * limit) if limit else Decimal(1)
        return (1 - exp_of(step * value)) / whole


def value_of(uniform: Fraction, step: Fraction, limit: int | None) -> int:
    """Return the number of cumulative probabilities that are at most the uniform number."""
    with localcontext(DIGITS):
        exact = Decimal(uniform.numerator) / Decimal(uniform.denominator)
    low, high = 0, limit or 1 << 20  # P_low <= exact < P_high
    while high - low > 1:
        middle = (low + high) // 2
        if geometric_below(step, limit, middle) <= exact:
            low = middle
        else:
            high = middle
    return low
