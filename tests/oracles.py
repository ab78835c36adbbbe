"""Slow and simple computations for comparisons: exact algebra, brute force, given noise.

They import nothing of the code that they check, except the design's numbers (branching, scales, variances).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.noise import Scale, SeededNoise
from dphist.tree.design import TreeDesign

Node = tuple[int, int]


class KeyedNoise:
    """Noise that belongs to nodes, not to calls: the n-th draw of a scale is the same in any batch.

    A level is recognised by its scale, so a design under test needs a different share on every level.
    """

    private = False

    def __init__(self, seed: int, spread: int = 50, draws: int = 2000) -> None:
        self.seed, self.spread, self.draws = seed, spread, draws
        self.used: dict[float, int] = {}
        self.calls: list[tuple[float, tuple[int, ...]]] = []

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        key, shape = float(scale), (shape,) if isinstance(shape, int) else tuple(shape)
        start = self.used.get(key, 0)
        self.used[key] = start + math.prod(shape)
        self.calls.append((key, shape))
        stream = np.random.default_rng([self.seed, int(key * 2**20)])
        values = stream.integers(-self.spread, self.spread, self.draws, dtype=np.int64)
        return values[start : self.used[key]].reshape(shape)

    def select(self, scores: NDArray[np.integer], scale: Scale) -> int:
        raise NotImplementedError("trees select nothing")


class NoNoise:
    """A source whose draws are all 0. It records the scale and the shape of each Laplace draw."""

    private = False

    def __init__(self) -> None:
        self.draws: list[tuple[Fraction, tuple[int, ...]]] = []

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        zeros = np.zeros(shape, np.int64)
        self.draws.append((Fraction(scale), zeros.shape))
        return zeros

    def discrete_gaussian(self, variance: Fraction, shape: int | tuple[int, ...]) -> Int64Array:
        return np.zeros(shape, np.int64)

    def select(self, scores: NDArray[np.integer], scale: Scale) -> int:
        raise AssertionError("nothing is selected here")


class FailingNoise(SeededNoise):
    """Seeded noise that has no entropy after ``left`` more calls."""

    def __init__(self, left: int) -> None:
        super().__init__(1)
        self.left = left

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        self._use()
        return super().discrete_laplace(scale, shape)

    def discrete_gaussian(self, variance: Fraction, shape: int | tuple[int, ...]) -> Int64Array:
        self._use()
        return super().discrete_gaussian(variance, shape)

    def _use(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError("no entropy")


class OneMore:
    """Seeded noise that adds one to a chosen draw of a chosen call. Without a choice it adds nothing."""

    private = False

    def __init__(self, seed: int, call: int | None = None, place: int = 0) -> None:
        self.noise, self.call, self.place = SeededNoise(seed), call, place
        self.draws: list[tuple[float, int]] = []  # scale and size of each call

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        drawn = self.noise.discrete_laplace(scale, shape)
        if len(self.draws) == self.call:
            drawn.flat[self.place] += 1
        self.draws.append((float(scale), drawn.size))
        return drawn

    def select(self, scores: NDArray[np.integer], scale: Scale) -> int:
        return self.noise.select(scores, scale)


def complete_nodes(branching: Sequence[int], bins: int) -> list[Node]:
    """Return every measured node whose bins are all closed, found by trying each node."""
    nodes = []
    for level in range(1, len(branching) + 1):
        width = math.prod(branching[level:])
        nodes += [(level, index) for index in range(bins) if (index + 1) * width <= bins]
    return nodes


def span(branching: Sequence[int], node: Node) -> range:
    """Return the bins under a node."""
    width = math.prod(branching[node[0] :])
    return range(node[1] * width, (node[1] + 1) * width)


class DenseLeastSquares:
    """Weighted least squares over all complete nodes, in exact fractions, by Gaussian elimination."""

    def __init__(self, design: TreeDesign, bins: int) -> None:
        self.design, self.bins = design, bins
        self.nodes = complete_nodes(design.branching, bins)
        self.precision = {node: 1 / Fraction(design.variances[node[0] - 1]) for node in self.nodes}
        normal = [[Fraction(0)] * bins for _ in range(bins)]
        for node in self.nodes:
            for i in span(design.branching, node):
                for j in span(design.branching, node):
                    normal[i][j] += self.precision[node]
        self.covariance = inverse(normal)

    def weights(self, a: int, b: int) -> dict[Node, Fraction]:
        """Return the weight of every complete node in the best estimate of [a, b)."""
        toward = [sum(row[a:b], Fraction(0)) for row in self.covariance]
        return {
            node: self.precision[node] * sum(toward[i] for i in span(self.design.branching, node))
            for node in self.nodes
        }

    def variance(self, a: int, b: int) -> Fraction:
        return sum((sum(row[a:b], Fraction(0)) for row in self.covariance[a:b]), Fraction(0))

    def estimate(self, values: Mapping[Node, int], a: int, b: int) -> Fraction:
        return sum((weight * values[node] for node, weight in self.weights(a, b).items()), Fraction(0))


def inverse(matrix: list[list[Fraction]]) -> list[list[Fraction]]:
    """Invert a positive definite matrix exactly (Gauss and Jordan, no pivoting needed)."""
    size = len(matrix)
    rows = [row + [Fraction(int(i == j)) for j in range(size)] for i, row in enumerate(matrix)]
    for column in range(size):
        pivot = rows[column][column]
        rows[column] = [value / pivot for value in rows[column]]
        for other in range(size):
            factor = rows[other][column]
            if other != column and factor:
                rows[other] = [x - factor * y for x, y in zip(rows[other], rows[column], strict=True)]
    return [row[size:] for row in rows]


def discrete_laplace_pmf(scale: float, reach: int) -> NDArray[np.float64]:
    """Return P(Z = z) for z = -reach..reach, from the definition."""
    powers = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
    a = math.exp(-1.0 / scale)
    return powers * (1.0 - a) / (1.0 + a)


def weighted_sum_pmf(groups: Iterable[tuple[int, int, float]]) -> NDArray[np.float64]:
    """Return the law of sum weight * Z over (whole weight, copies, scale), by plain convolution.

    The result has an odd length, with the probability of 0 in its middle.
    """
    law = np.ones(1)
    for weight, copies, scale in groups:
        one = discrete_laplace_pmf(scale, int(30 * scale) + 2)
        for _ in range(copies):
            # The summand is a multiple of its weight, so it leaves each remainder to itself.
            total = np.zeros(len(law) + weight * (len(one) - 1))
            for rest in range(min(weight, len(law))):
                total[rest::weight] = np.convolve(law[rest::weight], one)
            law = total
    return law


def probability_within(law: NDArray[np.float64], most: int) -> float:
    """Return P(|S| <= most) of such a law."""
    centre = len(law) // 2
    return float(law[max(0, centre - most) : centre + most + 1].sum())
