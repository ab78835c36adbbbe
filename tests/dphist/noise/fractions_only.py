"""Algorithms 1 to 3 of Canonne, Kamath and Steinke (2020) in exact fractions, from a seed: an oracle."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import numpy as np

from dphist.arrays import Int64Array


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
