"""The probability that a weighted sum of discrete Laplace noises stays within a bound, by convolution.

This is the oracle of every stated interval. It takes the weight and the scale of each single noise, computes
the probabilities of every sum of equal terms from the definition, and convolves them on one grid. If all
weights are multiples of one unit, the grid is the lattice of this unit, and nothing is rounded. Otherwise
every term moves by at most half a step, and the result is two bounds on the exact probability.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dphist.arrays import FloatArray

CELLS = 2**17
_PERIOD = 44.0  # of the grid, in standard deviations
_SAME = 1e-9  # weights that differ by less than this part of the largest one are equal
_FAR = 34.0  # in scales: a noise is larger than this with a probability of 1e-15
_EXACT_BITS = 20  # sums of whole multiples of 2^-20 are exact in doubles


class Chances(NamedTuple):
    """A lower and an upper bound on P(|sum| <= bound)."""

    least: float
    most: float


class Term(NamedTuple):
    """``copies`` independent noises of one scale, all with the same weight."""

    weight: float
    copies: int
    scale: float

    @property
    def variance(self) -> float:
        """The variance of the sum of the term's noises."""
        one = 2.0 * math.exp(-1.0 / self.scale) / math.expm1(-1.0 / self.scale) ** 2
        return self.copies * self.weight**2 * one

    @property
    def reach(self) -> float:
        """A bound that the sum of the term's noises exceeds with negligible probability only."""
        return 9.0 * math.sqrt(self.variance) + self.weight * (_FAR * self.scale + 2.0)


class Convolved:
    """The law of the sum of weights[i] * Z[i], each Z[i] discrete Laplace noise of scale scales[i].

    ``unit`` is the number of which the sum is always a multiple; 0 if there is none. A bound may be such a
    multiple itself. ``most`` then counts the probability at the bound. ``least`` counts it too if the sums of
    weights are exact in doubles.
    """

    def __init__(self, weights: FloatArray, scales: FloatArray, cells: int = CELLS) -> None:
        terms = list(_terms(np.abs(weights), scales))
        self.deviation = math.sqrt(sum(term.variance for term in terms))
        reach, unit = sum(term.reach for term in terms), min((term.weight for term in terms), default=1.0)
        multiples = np.array([term.weight / unit for term in terms])
        whole = np.abs(multiples - np.rint(multiples)) <= 4 * _SAME * multiples.max(initial=1.0)
        self.unit = unit if whole.all() and 2.0 * reach < cells * unit else 0.0
        if self.unit:
            self.step = unit
            exact = (unit * 2.0**_EXACT_BITS).is_integer()
            self.below, self.above = (-1e-6 * unit if exact else 1e-6 * unit), 1e-6 * unit
        else:
            self.step = max(_PERIOD * self.deviation, 2.0 * unit) / cells
            self.below = self.above = 0.5 * self.step * len(terms) + _SAME * reach
        self.cumulative = self._added(terms, cells)

    def within(self, bound: float) -> Chances:
        """Return a lower and an upper bound on P(|sum| <= bound)."""
        return Chances(self._chance(bound - self.below), self._chance(bound + self.above))

    def _chance(self, bound: float) -> float:
        reach = min(math.floor(bound / self.step), len(self.cumulative) - 1)
        return float(self.cumulative[reach]) if reach >= 0 else 0.0

    def _added(self, terms: list[Term], cells: int) -> FloatArray:
        """Return P(|sum| <= j steps) for j = 0, 1, ..."""
        spectrum = np.ones(cells // 2 + 1, np.complex128)
        for term in terms:
            masses = _of_copies(term)
            reach = len(masses) // 2
            places = np.rint(np.arange(-reach, reach) * (term.weight / self.step)).astype(np.int64)
            spectrum *= np.fft.rfft(np.bincount(places % cells, masses, minlength=cells))
        masses, half = np.fft.irfft(spectrum, cells), cells // 2
        return np.asarray(np.cumsum(np.append(masses[0], masses[1:half] + masses[:half:-1])))


def _terms(weights: FloatArray, scales: FloatArray) -> Iterator[Term]:
    """Yield one term for all noises of equal weight and scale, without those of weight 0."""
    tolerance = _SAME * weights.max(initial=0.0)
    used = weights > tolerance
    for scale in np.unique(scales[used]).tolist():
        own = np.sort(weights[used & (scales == scale)])
        starts = np.flatnonzero(np.diff(own, prepend=-1.0) > tolerance).tolist()
        for first, stop in zip(starts, [*starts[1:], len(own)], strict=True):
            yield Term(float(own[first]), stop - first, scale)


def _of_copies(term: Term) -> FloatArray:
    """Return the probabilities that the sum of a term's noises is -n, ..., n - 1."""
    reach = 2 ** math.ceil(math.log2(term.reach / term.weight))
    values = np.arange(-reach, reach)
    one = math.tanh(0.5 / term.scale) * np.exp(-np.abs(values) / term.scale)
    spectrum = np.fft.rfft(np.fft.ifftshift(one)) ** term.copies
    return np.asarray(np.fft.fftshift(np.fft.irfft(spectrum, 2 * reach)))
