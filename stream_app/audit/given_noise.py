"""Noise that an audit gives and recognises: the k-th number that is drawn under a law, for each law."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.noise import Scale


class Law(NamedTuple):
    """A law of noise. Args: parameter, a discrete Laplace's scale, or a discrete Gaussian's variance."""

    name: Literal["laplace", "gaussian"]
    parameter: Fraction


class Number(NamedTuple):
    """One number of noise: its law, and how many were drawn under this law before it."""

    law: Law
    place: int


Supply = Callable[[Law, int, int], Int64Array]  # law, first place, how many


class GivenNoise:
    """A source whose numbers somebody else decides. It protects nobody: for made-up records only.

    Args: supply, returns the numbers at consecutive places of a law.
    """

    private = True  # stands in for the system's source, so that the loops do not refuse it

    def __init__(self, supply: Supply) -> None:
        self._supply = supply
        self._drawn: defaultdict[Law, int] = defaultdict(int)

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Return the next numbers of this scale."""
        return self._next(Law("laplace", Fraction(scale)), shape)

    def discrete_gaussian(self, variance: Fraction, shape: int | tuple[int, ...]) -> Int64Array:
        """Return the next numbers of this variance."""
        return self._next(Law("gaussian", Fraction(variance)), shape)

    def select(self, scores: NDArray[np.integer[Any]], scale: Scale) -> int:
        """Refuse: a selection's loss does not follow from differences of numbers."""
        raise ValueError("a private selection cannot be rehearsed; streams with windows are left out")

    def _next(self, law: Law, shape: int | tuple[int, ...]) -> Int64Array:
        count = shape if isinstance(shape, int) else math.prod(shape)
        first = self._drawn[law]
        self._drawn[law] = first + count
        return self._supply(law, first, count).reshape(shape)


def silence(law: Law, first: int, count: int) -> Int64Array:
    """Return zeros: the outputs are then the exact counts."""
    return np.zeros(count, np.int64)


class Labels:
    """Gives each number a different value, by which it is found again in the pipeline's public output."""

    LARGEST = 1 << 30  # sums of a few numbers must not overflow

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.numbers: dict[int, Number] = {}

    def __call__(self, law: Law, first: int, count: int) -> Int64Array:
        """Return new labels."""
        labels = np.empty(count, np.int64)
        for place in range(count):
            label = int(self._random.integers(1 << 20, self.LARGEST))
            while label in self.numbers:
                label = int(self._random.integers(1 << 20, self.LARGEST))
            self.numbers[label] = Number(law, first + place)
            labels[place] = label
        return labels


class Drawn:
    """Draws each number once, from a given source, and returns it again with a shift.

    Args: source, for example ``SystemNoise``; shifts, added to single numbers.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._held: dict[Law, Int64Array] = {}
        self.shifts: dict[Number, int] = {}

    def __call__(self, law: Law, first: int, count: int) -> Int64Array:
        """Return numbers, drawn now or before."""
        held = self._held.get(law, np.empty(0, np.int64))
        if len(held) < first + count:
            held = np.concatenate([held, self._fresh(law, first + count - len(held))])
            self._held[law] = held
        numbers = held[first : first + count].copy()
        for place in range(count):
            numbers[place] += self.shifts.get(Number(law, first + place), 0)
        return numbers

    def _fresh(self, law: Law, count: int) -> Int64Array:
        draw = self._source.discrete_laplace if law.name == "laplace" else self._source.discrete_gaussian
        drawn: Int64Array = draw(law.parameter, count)
        return drawn
