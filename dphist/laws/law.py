"""The law of an answer's error: a weighted sum of independent discrete Laplace variables, or a normal law.

An answer is linear in the released values, so the distribution of its error is known before anything is
measured. ``interval.py`` turns laws into intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import BoolArray, FloatArray

# Size of intermediate arrays, in doubles: a quarter of a megabyte, so that a few fit in cache.
_CELLS = 2**15
# The largest lattice, in standard deviations; its search may need six times as many frequencies.
_LARGEST_MIXED_LATTICE = 1024.0
_LARGEST_LATTICE = 2.0**14
# In the place of a scale: the variables are standard normal. Scales of discrete Laplace noise are finite.
NORMAL = math.inf


@lru_cache(maxsize=4096)
def discrete_laplace_variance(scale: float) -> float:
    """Return the variance of Z with P(Z = z) proportional to a^|z|, a = exp(-1 / scale).

    The variance is 2a / (1 - a)^2, about 2 scale^2 - 1/6. The formula here keeps its digits for huge scales,
    where 1 - a cancels, and for tiny scales, where a underflows to 0.

    >>> round(discrete_laplace_variance(10.0), 3)
    199.833
    >>> discrete_laplace_variance(1e-9)
    0.0
    """
    rate = 1.0 / scale
    return 2.0 * math.exp(-rate) / math.expm1(-rate) ** 2


def _unit_variance(scale: float) -> float:
    """Return the variance of one variable of a group of this scale, before its weight."""
    return 1.0 if scale == NORMAL else discrete_laplace_variance(scale)


class NoiseGroup(NamedTuple):
    """``copies`` independent variables of the same law, each multiplied by ``weight``.

    The law is discrete Laplace of this ``scale``, or standard normal if the scale is ``NORMAL``.
    """

    weight: float
    copies: int
    scale: float


@dataclass(frozen=True)
class WeightedNoise:
    """The law of a sum of independent groups of noise.

    Groups with the same scale and weight (signs do not matter) are merged, and groups are sorted. So equal
    laws compare and hash alike, and intervals can be cached by law.

    >>> WeightedNoise.of([(0.5, 2, 10.0), (-0.5, 1, 10.0)]).groups
    (NoiseGroup(weight=0.5, copies=3, scale=10.0),)
    >>> WeightedNoise.of([(3.0, 1, NORMAL), (4.0, 1, NORMAL)]) == WeightedNoise.normal(5.0)
    True
    """

    groups: tuple[NoiseGroup, ...]

    @classmethod
    def of(cls, groups: Iterable[tuple[float, int, float]]) -> WeightedNoise:
        """Return the law of (weight, copies, scale) triples; equal groups are merged, and all normal ones."""
        merged: dict[tuple[float, float], int] = {}
        normal: list[float] = []  # variances
        for weight, copies, scale in groups:
            if scale == NORMAL:
                normal.append(copies * weight * weight)
            elif weight and copies:
                key = (abs(weight), scale)
                merged[key] = merged.get(key, 0) + copies
        if variance := math.fsum(normal):
            merged[math.sqrt(variance), NORMAL] = 1
        return cls(tuple(NoiseGroup(w, n, s) for (w, s), n in sorted(merged.items(), reverse=True)))

    @classmethod
    def normal(cls, deviation: float) -> WeightedNoise:
        """Return the normal law of mean 0 and this standard deviation."""
        return cls.of([(deviation, 1, NORMAL)])

    @classmethod
    def joined(cls, laws: Iterable[WeightedNoise], copies: int = 1) -> WeightedNoise:
        """Return the law of a sum of independent errors: ``copies`` errors of each of these laws."""
        return cls.weighted((1.0, copies, law) for law in laws)

    @classmethod
    def weighted(cls, parts: Iterable[tuple[float, int, WeightedNoise]]) -> WeightedNoise:
        """Return the law of a weighted sum of independent errors. Args: parts, (weight, copies, law)."""
        return cls.of((weight * w, copies * n, s) for weight, copies, law in parts for w, n, s in law.groups)

    @cached_property
    def variance(self) -> float:
        """The exact variance."""
        return math.fsum(n * w * w * _unit_variance(s) for w, n, s in self.groups)


@dataclass(frozen=True)
class LawTable:
    """Many laws at once: each row is a law, and each column is a group of noise.

    Args: weights (at least 0), copies and scales, (laws, groups). Zero copies fill up short rows.
    """

    weights: FloatArray
    copies: FloatArray
    scales: FloatArray

    @classmethod
    def of(cls, laws: Sequence[WeightedNoise]) -> LawTable:
        """Return a table of laws, one row each."""
        shape = (len(laws), max((len(law.groups) for law in laws), default=0))
        table = cls(np.zeros(shape), np.zeros(shape), np.ones(shape))
        for row, law in enumerate(laws):
            for column, group in enumerate(law.groups):
                table.weights[row, column], table.copies[row, column], table.scales[row, column] = group
        return table

    @classmethod
    def of_uniform_columns(
        cls, columns: Sequence[tuple[FloatArray, FloatArray, float]], laws: int
    ) -> LawTable:
        """Return a table of laws. Args: columns, each of weights, copies and one scale for all laws."""
        weights, copies = np.zeros((2, len(columns), laws))
        for column, (weight, number, _) in enumerate(columns):
            weights[column], copies[column] = weight, number
        return cls.of_uniform(weights.T, copies.T, np.array([scale for _, _, scale in columns]))

    @classmethod
    def of_uniform(cls, weights: FloatArray, copies: FloatArray, scales: FloatArray) -> LawTable:
        """Return a table in which a group of noise has the same scale in every law. Groups keep their order.

        Args: weights (may be negative) and copies, shape (laws, groups); scales, shape (groups,).
        """
        copies = np.where(weights == 0.0, 0.0, copies)
        return cls(
            np.ascontiguousarray(np.abs(weights)),
            np.ascontiguousarray(copies),
            np.tile(scales, (len(weights), 1)),
        )

    @classmethod
    def of_normal(cls, deviations: FloatArray) -> LawTable:
        """Return a table of normal laws of mean 0. Args: deviations, standard deviations, (laws,)."""
        ones = np.ones((len(deviations), 1))
        return cls(np.asarray(deviations, np.float64)[:, np.newaxis], ones, NORMAL * ones)

    @classmethod
    def joined(cls, tables: Sequence[LawTable]) -> LawTable:
        """Return the laws of sums: row i is for the sum of the independent errors in row i of each table."""
        return cls(
            np.hstack([table.weights for table in tables]),
            np.hstack([table.copies for table in tables]),
            np.hstack([table.scales for table in tables]),
        )

    def __len__(self) -> int:
        return len(self.weights)

    def law(self, row: int) -> WeightedNoise:
        """Return the law in one row."""
        columns = (self.weights[row].tolist(), self.copies[row].tolist(), self.scales[row].tolist())
        return WeightedNoise.of((w, int(n), s) for w, n, s in zip(*columns, strict=True))

    def take(self, rows: NDArray[np.int64]) -> LawTable:
        """Return a table of the chosen rows."""
        if len(self) == len(rows) == 1:
            return self
        return LawTable(self.weights[rows], self.copies[rows], self.scales[rows])

    def distinct(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return rows that together hold every distinct law, and for each law its position among those rows.

        Only rows with equal entries in equal order are merged, so a few equal laws may remain.
        """
        every = np.arange(len(self))
        if len(self) < 2 or not self.weights.shape[1]:
            return every, every
        parts = (self.weights, self.copies, 1.0 / self.scales)  # an infinite scale would hide the others
        factors = np.sqrt(np.arange(2.0, 2.0 + 3 * self.weights.shape[1])).reshape(3, -1)
        mixed = sum(part @ row for part, row in zip(parts, factors, strict=True))
        _, first, place = np.unique(mixed, return_index=True, return_inverse=True)
        if len(first) == len(self):
            return every, every
        alike = all(bool((part == part[first[place]]).all()) for part in parts)
        return (first, place) if alike else (every, every)

    def scaled(self, factors: FloatArray) -> LawTable:
        """Return the laws of the errors multiplied by one factor per law."""
        found = LawTable(self.weights * factors[:, np.newaxis], self.copies, self.scales)
        found.__dict__["variances"] = self.variances  # they do not depend on weights
        return found

    def repeated(self, copies: FloatArray | int) -> LawTable:
        """Return the laws of sums of ``copies`` independent errors. Args: copies, per law or one for all."""
        each = np.broadcast_to(np.asarray(copies, np.float64), len(self))
        return LawTable(self.weights, self.copies * each[:, np.newaxis], self.scales)

    @cached_property
    def variances(self) -> FloatArray:
        """The variance of one variable of each group."""
        rate = np.where(self.scales == NORMAL, 1.0, 1.0 / self.scales)
        return np.where(self.scales == NORMAL, 1.0, 2.0 * np.exp(-rate) / np.expm1(-rate) ** 2)

    @cached_property
    def normal(self) -> BoolArray:
        """Whether each law is normal, shape (laws,).

        Raises: ValueError for a law with both kinds of noise, which has no interval here. No answer has one:
            all releases of a stream have noise of the same kind.
        """
        present = (self.copies > 0) & (self.weights != 0)
        found: BoolArray = (present & (self.scales == NORMAL)).any(axis=1)
        if found.any() and bool((found & (present & (self.scales != NORMAL)).any(axis=1)).any()):
            raise ValueError("law: a sum of normal and of Laplace noise has no certified interval here")
        return found

    def draws(self) -> FloatArray:
        """Return how many variables each law's error is made of; normal ones are not counted: they merge."""
        counted = (self.weights > 0) & (self.scales != NORMAL)
        return np.asarray((counted * self.copies).sum(axis=1))

    def fourth_moments(self) -> FloatArray:
        """Return the fourth moment of every law."""
        excess = np.where(self.scales == NORMAL, 0.0, self.variances + 3.0 * self.variances**2)
        return np.asarray(3.0 * self.deviations() ** 4 + (self.copies * self.weights**4 * excess).sum(axis=1))

    def deviations(self) -> FloatArray:
        """Return the standard deviation of every law."""
        return np.asarray(np.sqrt((self.copies * self.weights**2 * self.variances).sum(axis=1)))

    def decay(self, theta: FloatArray) -> FloatArray:
        """Return minus the logarithm of the characteristic functions. Args: theta, (laws, points)."""
        return self.sums(0.5 * theta, theta.shape[1], _log_of_sines)

    def sums(
        self, at: FloatArray, points: int, log_of: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
    ) -> FloatArray:
        """Return, for each law and point, the sum over its groups of copies * log_of(weights, variances, at).

        Args: at, (laws, any), the arguments of log_of; log_of takes weights and variances of shape
            (laws, groups, 1) and arguments of shape (laws, 1, any), and returns (laws, groups, points).
        """
        total, groups = np.zeros((len(self), points)), self.weights.shape[1]
        # Blocks of laws, or of groups of a single law, keep the intermediate arrays in cache.
        laws = max(1, _CELLS // max(1, points * groups))
        width = max(1, _CELLS // max(1, points)) if laws == 1 else groups
        for first in range(0, len(self), laws):
            rows = slice(first, first + laws)
            looked_at = at[rows, np.newaxis]
            for column in range(0, groups, width):
                part = (rows, slice(column, column + width))
                logs = log_of(
                    self.weights[part][..., np.newaxis], self.variances[part][..., np.newaxis], looked_at
                )
                total[rows] += np.matmul(self.copies[part][:, np.newaxis], logs)[:, 0]
        return total

    def columns(self, points: int) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        """Yield weights, copies and variances, (laws, groups, 1), for one block of groups after the other."""
        step = max(1, _CELLS // max(1, len(self) * points))
        for start in range(0, self.weights.shape[1], step):
            part = (slice(None), slice(start, start + step), np.newaxis)
            yield self.weights[part], self.copies[part], self.variances[part]

    def probability_of_silence(self) -> FloatArray:
        """Return the probability that every variable is 0, a lower bound on the probability of no error."""
        return np.asarray(np.exp((self.copies * np.log(np.tanh(0.5 / self.scales))).sum(axis=1)))

    def lattice_units(self) -> FloatArray:
        """Return a unit of which each law's error is always a multiple, or 0 if none is known.

        The unit is the least weight, if all weights are multiples of it. If there are several variables, the
        unit is only used while the lattice is small: a wide law is inverted faster as a law on no lattice.
        """
        present = (self.copies > 0) & (self.variances > 0)
        least = np.where(present, self.weights, np.inf).min(axis=1, initial=np.inf)
        units = np.where(np.isfinite(least), least, 1.0)
        multiples = np.where(present, self.weights / units[:, np.newaxis], 1.0)
        whole = (multiples == np.rint(multiples)).all(axis=1)
        largest = np.where((multiples == 1.0).all(axis=1), _LARGEST_LATTICE, _LARGEST_MIXED_LATTICE)
        single = np.where(present, self.copies, 0.0).sum(axis=1) <= 1.0
        small = single | (self.deviations() <= largest * units)
        return np.where(whole & small, units, 0.0)


def _log_of_sines(weights: FloatArray, variances: FloatArray, halves: FloatArray) -> FloatArray:
    """Return log(1 + 2 s sin^2(w theta / 2)) from theta / 2."""
    square = squared_sine(weights * halves)
    square *= 2.0 * variances
    return np.asarray(np.log1p(square, out=square))


def squared_sine(angle: FloatArray) -> FloatArray:
    """Return sin^2, as tan^2 / (1 + tan^2): numpy has a tangent several times faster than its sine.

    >>> angles = np.array([0.3, 1.5707963, 40.0])
    >>> bool((abs(squared_sine(angles) - np.sin(angles) ** 2) < 1e-15).all())
    True
    """
    square = np.tan(angle)
    square *= square
    square /= 1.0 + square
    return np.asarray(square)


def waves(angle: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return sine and cosine, both from the tangent of the half angle: see ``squared_sine``.

    >>> angles = np.array([0.3, 3.14159265, 4e4])
    >>> bool((abs(np.array(waves(angles)) - [np.sin(angles), np.cos(angles)]) < 1e-14).all())
    True
    """
    tangent = np.tan(0.5 * angle)
    square = tangent * tangent
    scale = 1.0 / (1.0 + square)
    return np.asarray(2.0 * tangent * scale), np.asarray((1.0 - square) * scale)
