"""Dense and exact computations to compare closed forms and certified noise with."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.certified import exp_bounds
from dphist.toeplitz import ToeplitzStrategy

BITS = 160


class GivenNoise:
    """A source that hands out the given draws, of shape (bins, width), in order."""

    private = False

    def __init__(self, draws: Int64Array) -> None:
        self.draws, self.used = draws, 0

    def discrete_gaussian(self, variance: Fraction, shape: int | tuple[int, ...]) -> Int64Array:
        assert isinstance(shape, tuple)
        start, self.used = self.used, self.used + shape[0]
        return self.draws[start : self.used].copy()


def exact_coefficients(strategy: ToeplitzStrategy, count: int) -> list[Fraction]:
    """Return c_0, c_1, ... in fractions."""
    return [Fraction(1)] + [
        sum((a * rate**j for a, rate in zip(strategy.weights, strategy.rates, strict=True)), Fraction(0))
        for j in range(count - 1)
    ]


def exact_inverse(c: Sequence[Fraction]) -> list[Fraction]:
    """Return the coefficients of 1 / c, by long division."""
    found: list[Fraction] = []
    for n in range(len(c)):
        known = sum((c[n - j] * value for j, value in enumerate(found)), Fraction(0))
        found.append((Fraction(n == 0) - known) / c[0])
    return found


def dense(c: Sequence[Fraction] | FloatArray) -> FloatArray:
    """Return the lower-triangular Toeplitz matrix with this first column, in doubles."""
    size = len(c)
    matrix = np.zeros((size, size))
    for row in range(size):
        for column in range(row + 1):
            matrix[row, column] = float(c[row - column])
    return matrix


@lru_cache(maxsize=64)
def noise_law(steps: int) -> dict[int, int]:
    """Return P(Z = z) of discrete Gaussian noise of sigma = steps, for |z| up to 13 sigma."""
    reach = 13 * steps
    masses = {z: exp_bounds(Fraction(z * z, 2 * steps * steps), BITS)[0] for z in range(reach + 1)}
    total = 2 * sum(masses.values()) - masses[0]
    return {z: (masses[abs(z)] << BITS) // total for z in range(-reach, reach + 1)}


@lru_cache(maxsize=4096)
def exact_delta(shift: tuple[int, ...], steps: int, epsilon: Fraction) -> float:
    """Return the least delta for noise and the same noise shifted, off by less than 2^-100.

    With noise z, the loss is (2 <z, h> + |h|^2) / (2 sigma^2): it is a function of <z, h>.
    Args: shift, in lattice steps, without zeros.
    """
    law = {0: 1 << BITS}
    for size in shift:
        law = _plus(law, noise_law(steps), size)
    square = sum(size * size for size in shift)
    delta = 0
    for place, mass in law.items():
        loss = Fraction(2 * place + square, 2 * steps * steps)
        if loss > epsilon:
            delta += mass - (mass * exp_bounds(loss - epsilon, BITS)[0] >> BITS)
    return delta / 2.0**BITS


def _plus(law: dict[int, int], noise: dict[int, int], size: int) -> dict[int, int]:
    """Return the law of a sum: of the first variable and ``size`` times the second."""
    found: dict[int, int] = {}
    for place, mass in law.items():
        for z, other in noise.items():
            key = place + size * z
            found[key] = found.get(key, 0) + (mass * other >> BITS)
    return found


def canonical(shift: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of a shift without zeros, sorted: signs and orders do not change the law."""
    return tuple(sorted(abs(size) for size in shift if size))
