"""Rectangles that partition a grid, and trees of them measured level by level and made consistent.

A rectangle is a row (row start, row end, column start, column end), half-open, as in a workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from dphist.mechanisms.base import Request, noise_variance
from dphist.mechanisms.ranges import FloatArray, Int64Array

# Level budgets are kept as exact fractions of this many parts.
_SHARE_PARTS = 2**20


def areas(rectangles: Int64Array) -> Int64Array:
    """Return the number of bins of each rectangle."""
    return (rectangles[:, 1] - rectangles[:, 0]) * (rectangles[:, 3] - rectangles[:, 2])


def exact_sums(counts: Int64Array, rectangles: Int64Array) -> Int64Array:
    """Sum the counts in each rectangle, in integers.

    >>> exact_sums(np.arange(6).reshape(2, 3), np.array([[0, 2, 1, 3], [0, 1, 0, 1]])).tolist()
    [12, 0]
    """
    prefix = np.zeros((counts.shape[0] + 1, counts.shape[1] + 1), dtype=np.int64)
    np.cumsum(np.cumsum(counts, axis=0), axis=1, out=prefix[1:, 1:])
    top, bottom, left, right = rectangles.T
    return np.asarray(prefix[bottom, right] - prefix[top, right] - prefix[bottom, left] + prefix[top, left])


def paint(values: FloatArray, rectangles: Int64Array, shape: tuple[int, ...]) -> FloatArray:
    """Spread each rectangle's value evenly over its bins.

    Args: values of shape (m,); rectangles, (m, 4), that cover every bin of the shape exactly once.

    >>> paint(np.array([2.0, 9.0]), np.array([[0, 2, 0, 1], [0, 2, 1, 2]]), (2, 2)).tolist()
    [[1.0, 4.5], [1.0, 4.5]]
    """
    # Whole numbers at the corners, summed along both axes, name each bin's rectangle without rounding.
    owner = np.zeros((shape[0] + 1, shape[1] + 1), dtype=np.int64)
    top, bottom, left, right = rectangles.T
    number = np.arange(len(rectangles))
    for row, column, sign in ((top, left, 1), (bottom, left, -1), (top, right, -1), (bottom, right, 1)):
        np.add.at(owner, (row, column), sign * number)
    owner = np.cumsum(np.cumsum(owner, axis=0), axis=1)[:-1, :-1]
    return np.asarray((values / areas(rectangles))[owner])


def grid_edges(size: int, side: int) -> Int64Array:
    """Cut an axis into blocks of this many bins, the last one possibly shorter."""
    return np.append(np.arange(0, size, side), size)


def grid_blocks(row_edges: Int64Array, column_edges: Int64Array) -> Int64Array:
    """Return all blocks of a grid, row by row."""
    rows = np.stack([row_edges[:-1], row_edges[1:]], axis=1)
    columns = np.stack([column_edges[:-1], column_edges[1:]], axis=1)
    return np.hstack([np.repeat(rows, len(columns), axis=0), np.tile(columns, (len(rows), 1))])


def halves(rectangles: Int64Array, axis: int, cuts: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Cut each rectangle along an axis; one whose cut is not inside it stays whole, as one child.

    Returns: the parts, and the index of the rectangle each is a part of.
    """
    start, end = rectangles[:, 2 * axis], rectangles[:, 2 * axis + 1]
    split = (start < cuts) & (cuts < end)
    first, second = rectangles.copy(), rectangles[split].copy()
    first[split, 2 * axis + 1] = cuts[split]
    second[:, 2 * axis] = cuts[split]
    parents = np.concatenate([np.arange(len(rectangles)), np.flatnonzero(split)])
    order = np.argsort(parents, kind="stable")
    return np.concatenate([first, second])[order], parents[order]


def quarters(rectangles: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Cut each rectangle in the middle of both axes, rounding the first half up."""
    parts, parents = rectangles, np.arange(len(rectangles))
    for axis in (0, 1):
        middle = (parts[:, 2 * axis] + parts[:, 2 * axis + 1] + 1) // 2
        parts, above = halves(parts, axis, middle)
        parents = parents[above]
    return parts, parents


@dataclass
class RectangleTree:
    """Levels of rectangles, the whole grid first, each cut from the one before.

    Every level covers every bin exactly once. ``parents[i]`` holds, for each rectangle of level i + 1, the
    index of the one of level i that it is a part of.
    """

    levels: list[Int64Array]
    parents: list[Int64Array] = field(default_factory=list)

    def grow(self, parts: Int64Array, parents: Int64Array) -> None:
        """Add a level below the last."""
        self.levels.append(parts)
        self.parents.append(parents)

    def measure(self, request: Request, epsilon: Fraction, growth: float) -> FloatArray:
        """Measure every rectangle and return the consistent counts of the last level.

        Guarantee: epsilon-DP. One event is in one rectangle of each level; a level has ``growth`` times the
            budget of the one above, so scales are 1 / (its budget), and the budgets add up to epsilon.
        """
        weights = [
            max(1, round(_SHARE_PARTS * growth ** (i - len(self.levels)))) for i in range(len(self.levels))
        ]
        noisy, variances = [], []
        for rectangles, weight in zip(self.levels, weights, strict=True):
            scale = sum(weights) / (epsilon * weight)
            noisy.append(request.measure(exact_sums(request.counts, rectangles), scale).astype(np.float64))
            variances.append(noise_variance(scale, continuous=request.continuous))
        return self.solve(noisy, variances)

    def solve(self, noisy: Sequence[FloatArray], variances: Sequence[float]) -> FloatArray:
        """Return the least-squares counts of the last level, given each level's noise variance.

        Cost: O(rectangles), two passes.
        Source: Hay et al. (2010), theorem 3, with weights, and each node's own number of children.
        """
        below = [np.full(noisy[-1].size, variances[-1])]
        upward = [noisy[-1]]
        for own, variance, parents in zip(noisy[-2::-1], variances[-2::-1], self.parents[::-1], strict=True):
            children = np.bincount(parents, upward[0], own.size)
            spread = np.bincount(parents, below[0], own.size)
            weight = spread / (spread + variance) if variance > 0 else np.ones_like(spread)
            upward.insert(0, children + weight * (own - children))
            below.insert(0, weight * variance)
        consistent = upward[0]
        for parents, value, spread in zip(self.parents, upward[1:], below[1:], strict=True):
            short = consistent - np.bincount(parents, value, consistent.size)
            total = np.bincount(parents, spread, consistent.size)
            part = np.divide(spread, total[parents], out=np.zeros_like(spread), where=total[parents] > 0)
            consistent = value + part * short[parents]
        return consistent


def whole(shape: tuple[int, ...]) -> Int64Array:
    """Return the one rectangle that is the grid."""
    return np.array([[0, shape[0], 0, shape[1]]])
