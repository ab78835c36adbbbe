"""The law of an answer's error: a weighted sum of independent discrete Laplace variables.

An answer is linear in the released nodes, so its error is known exactly before anything is measured. This
file holds the law as data and its moments; ``interval.py`` inverts it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


def discrete_laplace_variance(scale: float) -> float:
    """Return the variance of Z with P(Z = z) proportional to a^|z|, a = exp(-1 / scale).

    It is 2a / (1 - a)^2, written so that neither a huge scale (1 - a cancels) nor a tiny one (a underflows
    to a variance of 0, which is then right) loses digits. About 2 scale^2 - 1/6.

    >>> round(discrete_laplace_variance(10.0), 3)
    199.834
    >>> discrete_laplace_variance(1e-9)
    0.0
    """
    rate = 1.0 / scale
    return 2.0 * math.exp(-rate) / math.expm1(-rate) ** 2


class NoiseGroup(NamedTuple):
    """``count`` independent discrete Laplace variables of one scale, each times ``weight``."""

    weight: float
    count: int
    scale: float


@dataclass(frozen=True)
class WeightedNoise:
    """The law of sum over groups of weight * (sum of ``count`` independent discrete Laplace variables).

    Groups of equal weight (up to sign: the variables are symmetric) and scale are merged and sorted, so equal
    laws compare and hash alike and intervals can be cached by law.

    >>> WeightedNoise.of([(0.5, 2, 10.0), (-0.5, 1, 10.0)]).groups
    (NoiseGroup(weight=0.5, count=3, scale=10.0),)
    """

    groups: tuple[NoiseGroup, ...]

    @classmethod
    def of(cls, groups: Iterable[tuple[float, int, float]]) -> WeightedNoise:
        """Merge (weight, count, scale) triples into a law."""
        merged: dict[tuple[float, float], int] = {}
        for weight, count, scale in groups:
            if weight and count:
                key = (abs(weight), scale)
                merged[key] = merged.get(key, 0) + count
        return cls(tuple(NoiseGroup(w, n, s) for (w, s), n in sorted(merged.items(), reverse=True)))

    @cached_property
    def variance(self) -> float:
        """The exact variance: sum of count * weight^2 * variance of one variable."""
        return math.fsum(n * w * w * discrete_laplace_variance(s) for w, n, s in self.groups)
