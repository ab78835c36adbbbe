"""Noise sources for tests: one returns given noise node by node, another remembers its draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.noise import Scale, SeededNoise
from dphist.tree.design import TreeDesign
from dphist.tree.shape import TreeShape, node_counts

Node = tuple[int, int]  # level, index


def touched_nodes(shape: TreeShape, bin: int) -> list[Node]:
    """Return the nodes that count a bin, one per measured level."""
    return [(level, bin // shape.widths[level]) for level in shape.levels]


def node_sums(shape: TreeShape, counts: Int64Array) -> dict[Node, Int64Array]:
    """Return R x: the exact count of every node that these bins complete, by plain summing."""
    return {
        (level, index): counts[index * width : (index + 1) * width].sum(axis=0)
        for level, width in ((level, shape.widths[level]) for level in shape.levels)
        for index in range(len(counts) // width)
    }


def shifted(shape: TreeShape, noise: Mapping[Node, Int64Array], change: Int64Array) -> dict[Node, Int64Array]:
    """Return Z + R change: the given noise, moved by a change of the counts per bin and cell."""
    sums = node_sums(shape, change)
    return {node: value + sums.get(node, 0) for node, value in noise.items()}


class DrawnTogether(NamedTuple):
    """Nodes of one level and scale, whose noise is drawn in one call."""

    level: int
    scale: Fraction
    nodes: list[int]


def drawn_together(design: TreeDesign) -> list[DrawnTogether]:
    """Return the calls that draw a whole epoch's noise, starting with the level next to the root."""
    counts = node_counts(design.shape, design.horizon)
    levels = zip(design.shape.levels, design.scales, counts, strict=True)
    return [DrawnTogether(level, scale, list(range(count))) for level, scale, count in levels]


@dataclass(frozen=True)
class Draw:
    """One vector of noise and the scale at which it was drawn, of Gaussian noise the variance."""

    scale: Fraction
    values: Int64Array


class GivenNoise:
    """Returns given noise, node by node. It recognises a level by its scale, so all scales must differ.

    Args: bins_before, the bins of the epoch that the counter has counted when it draws (0 for a new counter).
        The first node that it draws of a level is the next node to complete.
    """

    private = True  # stands in for the system source, which nobody can steer

    def __init__(
        self,
        design: TreeDesign,
        noise: Mapping[Node, Int64Array],
        width: int = 1,
        bins_before: Callable[[], int] | None = None,
    ) -> None:
        if len(set(design.scales)) != len(design.scales):
            raise ValueError("GivenNoise tells levels apart by their scales; give every level another share")
        self._levels = {scale: level for level, scale in enumerate(design.scales, start=1)}
        self._shape = design.shape
        self._noise = noise
        self._width = width
        self._bins_before = bins_before
        self._next = dict.fromkeys(design.shape.levels, 0)
        self.drawn: dict[Node, list[Fraction]] = {}

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Return the noise of the next nodes of the level with this scale."""
        level = self._levels[Fraction(scale)]
        count = (shape if isinstance(shape, int) else math.prod(shape)) // self._width
        if self._bins_before is None:
            first = self._next[level]
        else:
            first = self._shape.completed_count(self._bins_before(), level)
        self._next[level] = first + count
        nodes = [(level, index) for index in range(first, first + count)]
        for node in nodes:
            self.drawn.setdefault(node, []).append(Fraction(scale))
        values = [np.asarray(self._noise[node], dtype=np.int64).reshape(self._width) for node in nodes]
        return np.array(values, dtype=np.int64).reshape(shape)

    def select(self, scores: NDArray[np.integer[Any]], scale: Scale) -> int:
        """Fail: a tree of counts selects nothing."""
        raise AssertionError("nothing here selects")


class RememberedNoise:
    """Seeded noise that keeps each draw, so that checks can find the draw in a released value."""

    private = True  # takes the place of the system source; the checks need the kept draws

    def __init__(self, seed: int, draws: list[Draw]) -> None:
        self._noise = SeededNoise(seed)
        self._draws = draws

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Draw and remember."""
        return self.remember(scale, self._noise.discrete_laplace(scale, shape))

    def discrete_gaussian(self, variance: Fraction, shape: int | tuple[int, ...]) -> Int64Array:
        """Draw and remember. The draw's scale is the variance."""
        return self.remember(variance, self._noise.discrete_gaussian(variance, shape))

    def remember(self, scale: Scale, values: Int64Array) -> Int64Array:
        """Keep a draw."""
        self._draws.append(Draw(Fraction(scale), values.copy()))
        return values

    def select(self, scores: NDArray[np.integer[Any]], scale: Scale) -> int:
        """Fail: a tree of counts selects nothing."""
        raise AssertionError("nothing here selects")
