"""Dense and exact computations to compare the closed forms with. They use a strategy's numbers only."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.toeplitz import ToeplitzStrategy


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
