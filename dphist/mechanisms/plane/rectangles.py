"""Rectangles that partition a grid, and trees of rectangles that are measured and made consistent.

A rectangle is a row (row start, row end, column start, column end), half-open, as in a workload.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from dphist.arrays import BoolArray, FloatArray, Int64Array
from dphist.mechanisms.base import RangeFunction, Request
from dphist.mechanisms.ranges import range_sums

# A path's budget in integer parts; multiplied by a total of 2^42 events it stays inside int64.
_PARTS = 2**20
# Size of the arrays of covered parts: this many numbers at once.
_NUMBERS_AT_ONCE = 2**20

# Returns the place of each rectangle's cut along an axis: 0 for rows, 1 for columns.
Cuts = Callable[[Int64Array, int], Int64Array]


def areas(rectangles: Int64Array) -> Int64Array:
    """Return the number of bins of each rectangle."""
    return (rectangles[:, 1] - rectangles[:, 0]) * (rectangles[:, 3] - rectangles[:, 2])


def paint(values: FloatArray, rectangles: Int64Array, shape: tuple[int, ...]) -> FloatArray:
    """Spread each rectangle's value evenly over its bins.

    Args: values of shape (m,); rectangles, (m, 4), that cover every bin of the shape exactly once.

    >>> paint(np.array([2.0, 9.0]), np.array([[0, 2, 0, 1], [0, 2, 1, 2]]), (2, 2)).tolist()
    [[1.0, 4.5], [1.0, 4.5]]
    """
    # Integers at the corners, summed along both axes, give each bin's rectangle without rounding.
    owner = np.zeros((shape[0] + 1, shape[1] + 1), dtype=np.int64)
    top, bottom, left, right = rectangles.T
    number = np.arange(len(rectangles))
    for row, column, sign in ((top, left, 1), (bottom, left, -1), (top, right, -1), (bottom, right, 1)):
        np.add.at(owner, (row, column), sign * number)
    owner = np.cumsum(np.cumsum(owner, axis=0), axis=1)[:-1, :-1]
    return np.asarray((values / areas(rectangles))[owner])


def covered_parts(ranges: Int64Array, rectangles: Int64Array) -> FloatArray:
    """Return the fraction of each rectangle that each range covers, shape (ranges, rectangles)."""
    top, bottom, left, right = ranges.T[:, :, None]
    height = np.minimum(bottom, rectangles[:, 1]) - np.maximum(top, rectangles[:, 0])
    width = np.minimum(right, rectangles[:, 3]) - np.maximum(left, rectangles[:, 2])
    return np.asarray(np.maximum(height, 0) * np.maximum(width, 0) / areas(rectangles))


def grid_edges(size: int, side: int) -> Int64Array:
    """Return the edges of blocks of ``side`` bins along an axis; the last block may be shorter."""
    return np.append(np.arange(0, size, side), size)


def grid_blocks(row_edges: Int64Array, column_edges: Int64Array) -> Int64Array:
    """Return all blocks between these edges as rectangles, row by row."""
    rows = np.stack([row_edges[:-1], row_edges[1:]], axis=1)
    columns = np.stack([column_edges[:-1], column_edges[1:]], axis=1)
    return np.hstack([np.repeat(rows, len(columns), axis=0), np.tile(columns, (len(rows), 1))])


def halves(rectangles: Int64Array, axis: int, cuts: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Cut each rectangle along an axis. If a cut is not inside its rectangle, the rectangle stays whole.

    Returns: the parts, and for each the index of its rectangle.
    """
    start, end = rectangles[:, 2 * axis], rectangles[:, 2 * axis + 1]
    split = (start < cuts) & (cuts < end)
    first, second = rectangles.copy(), rectangles[split].copy()
    first[split, 2 * axis + 1] = cuts[split]
    second[:, 2 * axis] = cuts[split]
    parents = np.concatenate([np.arange(len(rectangles)), np.flatnonzero(split)])
    order = np.argsort(parents, kind="stable")
    return np.concatenate([first, second])[order], parents[order]


def middles(rectangles: Int64Array, axis: int) -> Int64Array:
    """Return the middle of each rectangle along an axis, rounded up if the size is odd."""
    return np.asarray((rectangles[:, 2 * axis] + rectangles[:, 2 * axis + 1] + 1) // 2)


def quarters(rectangles: Int64Array, cuts: Cuts = middles) -> tuple[Int64Array, Int64Array]:
    """Cut each rectangle along its rows, then both parts along their columns.

    Returns: the parts, and for each the index of its rectangle.
    """
    parts, parents = rectangles, np.arange(len(rectangles))
    for axis in (0, 1):
        parts, above = halves(parts, axis, cuts(parts, axis))
        parents = parents[above]
    return parts, parents


class RectangleTree:
    """Levels of rectangles, the whole grid first. Each level holds the parts of the level above.

    ``parents[i]`` holds, for each rectangle of level i + 1, the index of its parent on level i. A rectangle
    without parts is a leaf; the leaves of all levels cover every bin exactly once.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.levels = [np.array([[0, shape[0], 0, shape[1]]])]
        self.parents: list[Int64Array] = []

    def grow(self, cuts: Cuts = middles) -> bool:
        """Add a level: quarter the last level's rectangles larger than a bin. Return whether any was."""
        large = np.flatnonzero(areas(self.levels[-1]) > 1)
        if large.size == 0:
            return False
        parts, parents = quarters(self.levels[-1][large], cuts)
        self.levels.append(parts)
        self.parents.append(large[parents])
        return True

    def grow_down_to(self, depth: int | None) -> None:
        """Add levels, cut in the middle, until the tree has this depth or, if None, down to single bins."""
        while (depth is None or len(self.levels) <= depth) and self.grow():
            pass

    def measure(self, request: Request, epsilon: Fraction, growth: float) -> tuple[FloatArray, RangeFunction]:
        """Measure every rectangle; return the consistent estimates, spread over the bins, and their variance.

        Guarantee: epsilon-DP. Each rectangle has a part of the budget, and part * count (integers) are
            measured with one scale, 2^20 / epsilon. A level has ``growth`` times the part of the level above.
            A leaf also gets the parts of the levels below it. So the parts of the rectangles that hold an
            event add up to at most 2^20.
        """
        parts = self.parts(growth)
        sums = [range_sums(request.counts, level) for level in self.levels]
        values = np.concatenate([part * total for part, total in zip(parts, sums, strict=True)])
        measured, unit = request.measure_with_variance(values, _PARTS / epsilon)
        noisy = np.split(measured, np.cumsum([part.size for part in parts])[:-1])
        variances = [unit / part.astype(np.float64) ** 2 for part in parts]
        consistent = self.solve([value / part for value, part in zip(noisy, parts, strict=True)], variances)
        leaves = self._leaves()
        counts = np.concatenate([value[leaf] for value, leaf in zip(consistent, leaves, strict=True)])
        rectangles = np.concatenate([level[leaf] for level, leaf in zip(self.levels, leaves, strict=True)])
        return paint(counts, rectangles, self.shape), lambda ranges: self.variance(variances, ranges)

    def variance(self, variances: Sequence[FloatArray], ranges: Int64Array) -> FloatArray:
        """Return the noise variance of each range's estimate, with leaves spread evenly over their bins.

        Args: variances of the measured rectangles, one array per level.
        Cost: O(rectangles) per range.
        Source: let a rectangle be measured with variance s, let t be the variance of the sum of its parts,
            and a the covariance of this sum and the range. The measurement lowers the range's variance by a^2
            / (s + t), and multiplies a and t by s / (s + t).
        """
        below, _ = self._from_below(variances)
        answers = np.empty(len(ranges))
        step = max(1, _NUMBERS_AT_ONCE // max(len(level) for level in self.levels))
        for first in range(0, len(ranges), step):
            some = slice(first, first + step)
            answers[some] = self._variance_of_some(variances, below, ranges[some])
        return np.maximum(answers, 0.0)

    def _variance_of_some(
        self, variances: Sequence[FloatArray], below: Sequence[FloatArray], ranges: Int64Array
    ) -> FloatArray:
        answers = np.zeros(len(ranges))
        joint = np.zeros((len(ranges), 0))
        for level in range(len(self.levels) - 1, -1, -1):
            parts = covered_parts(ranges, self.levels[level])
            own = parts * variances[level]
            leaf = np.ones(len(self.levels[level]), dtype=bool)
            if level < len(self.parents):
                # Parts are stored in the order of their parents.
                cut, firsts = np.unique(self.parents[level], return_index=True)
                leaf[cut] = False
                together = np.add.reduceat(joint, firsts, axis=1)
                both = variances[level][cut] + np.bincount(self.parents[level], below[level + 1])[cut]
                inverse = np.divide(1.0, both, out=np.zeros_like(both), where=both > 0)
                answers -= (together**2 * inverse).sum(axis=1)
                own[:, cut] = together * variances[level][cut] * inverse
            answers += (parts[:, leaf] * own[:, leaf]).sum(axis=1)
            joint = own
        return answers

    def solve(self, noisy: Sequence[FloatArray], variances: Sequence[FloatArray]) -> list[FloatArray]:
        """Return the least-squares values of all rectangles.

        Args: one array per level, the whole grid first.
        Cost: O(rectangles), two passes.
        Source: Hay et al. (2010), theorem 3, with weights, and each rectangle's own number of parts.
        """
        below, weights = self._from_below(variances)
        upward = [noisy[-1]]
        for own, weight, parents in zip(noisy[-2::-1], weights[::-1], self.parents[::-1], strict=True):
            total = np.bincount(parents, upward[0], own.size).astype(np.float64)
            upward.insert(0, total + weight * (own - total))
        consistent = [upward[0]]
        for parents, value, own_spread in zip(self.parents, upward[1:], below[1:], strict=True):
            above = consistent[-1]
            short = above - np.bincount(parents, value, above.size)
            together = np.bincount(parents, own_spread, above.size)[parents]
            share = np.divide(own_spread, together, out=np.zeros_like(own_spread), where=together > 0)
            consistent.append(value + share * short[parents])
        return consistent

    def _from_below(self, variances: Sequence[FloatArray]) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return, per level, the variance of each rectangle's estimate from its own count and its parts.

        Also return the weight of its own count, for every level but the last; 1 if the rectangle was not cut.
        """
        below, weights = [variances[-1]], list[FloatArray]()
        for own, parents in zip(variances[-2::-1], self.parents[::-1], strict=True):
            spread = np.bincount(parents, below[0], own.size)
            both = spread + own
            cut = np.bincount(parents, minlength=own.size) > 0
            weights.insert(0, np.divide(spread, both, out=np.ones_like(both), where=cut & (both > 0)))
            below.insert(0, weights[0] * own)
        return below, weights

    def _leaves(self) -> list[BoolArray]:
        sizes = [len(level) for level in self.levels]
        cut = [np.bincount(up, minlength=size) > 0 for up, size in zip(self.parents, sizes, strict=False)]
        return [~inner for inner in cut] + [np.ones(sizes[-1], dtype=bool)]

    def parts(self, growth: float) -> list[Int64Array]:
        """Return each rectangle's share of the budget per level, in 2^-20; over a bin they add up to 1."""
        share = growth ** np.arange(len(self.levels), dtype=np.float64)
        part = np.maximum(1, np.floor((_PARTS - share.size) * share / share.sum())).astype(np.int64)
        rest = _PARTS - np.cumsum(part) + part
        return [np.where(leaf, rest[i], part[i]) for i, leaf in enumerate(self._leaves())]
