"""A tree of intervals in which each node can have its own measurement weight, solved in two passes.

All hierarchical mechanisms on a line use this tree: H-bar and HB give equal weights to all nodes, the
geometric tree one weight to each level, GreedyH and DAWA one to each node. Levels are numbered from the
leaves (0) up to the root. A node of weight w has variance 1 / w; a node of weight 0 is not measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import FloatArray, Int64Array, Number

Value = TypeVar("Value", np.int64, np.float64, np.bool_)


@dataclass(frozen=True)
class IntervalTree:
    """The shape: ``size`` leaves under nodes of ``branching`` children. A level's last node may have fewer.

    Args: branching, one number, or one per level from the root down (16 children, then 4 each: (16, 4)). One
        number above ``size`` is read as ``size``, which gives the same tree.
    Raises: ValueError if the product of the branchings is below ``size``, or one of them is below 2.

    >>> IntervalTree(5, 2).sizes, IntervalTree(12, (2, 6)).sizes
    ((5, 3, 2, 1), (12, 2, 1))
    """

    size: int
    branching: int | tuple[int, ...]

    @cached_property
    def fans(self) -> tuple[int, ...]:
        """The number of children per node of each level above the leaves, lowest level first."""
        if isinstance(self.branching, int):
            if self.branching < 2:
                raise ValueError(f"branching is {self.branching}; a node needs at least 2 children")
            # Arrays are laid out for all children that a node could have.
            fan = min(self.branching, max(2, self.size))
            height = 0
            while fan**height < self.size:
                height += 1
            return (fan,) * height
        if min(self.branching, default=2) < 2 or math.prod(self.branching) < self.size:
            raise ValueError(f"a tree of branching {self.branching} does not reach {self.size} leaves")
        return self.branching[::-1]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of nodes of each level, leaves first, one root last."""
        sizes = [self.size]
        for fan in self.fans:
            sizes.append(-(-sizes[-1] // fan))
        return tuple(sizes)

    def totals(self, leaves: Int64Array) -> list[Int64Array]:
        """Sum the leaves under every node, level by level. Cost: O(size)."""
        levels = [leaves]
        for fan in self.fans:
            levels.append(child_sums(levels[-1], fan))
        return levels

    def to_children(self, level: int, parents: NDArray[Value]) -> NDArray[Value]:
        """Return, for each node of ``level``, the value of its parent."""
        return np.repeat(parents, self.fans[level])[: self.sizes[level]]


def child_sums(values: NDArray[Number], branching: int) -> NDArray[Number]:
    """Return the sums of consecutive runs of ``branching`` values; the last run may be shorter.

    >>> child_sums(np.array([1, 2, 3, 4, 5]), 2).tolist()
    [3, 7, 5]
    """
    whole = values.size // branching * branching
    sums = np.zeros(-(-values.size // branching), dtype=values.dtype)
    if branching <= 16:  # strided adds beat a reduction over a short axis
        for child in range(branching):
            sums[: whole // branching] += values[child:whole:branching]
    else:
        sums[: whole // branching] = values[:whole].reshape(-1, branching).sum(axis=1)
    if whole < values.size:
        sums[-1] = values[whole:].sum()
    return sums


def variances_from_below(tree: IntervalTree, weights: Sequence[FloatArray]) -> list[FloatArray]:
    """Return the variance of each node's estimate from its own subtree. All leaves need weights above 0."""
    below = [1.0 / weights[0]]
    for fan, weight in zip(tree.fans, weights[1:], strict=True):
        children = child_sums(below[-1], fan)
        below.append(children / (1.0 + weight * children))
    return below


def least_squares(
    tree: IntervalTree, noisy: Sequence[FloatArray], weights: Sequence[FloatArray]
) -> list[FloatArray]:
    """Return consistent values of all nodes: those nearest to the noisy values, in weighted squares.

    Guarantee: post-processing; the best linear unbiased estimate of every range.
    Args: noisy and weights, one array per level, leaves first; values of unmeasured nodes are ignored.
    Cost: O(nodes), two passes.
    Source: Hay et al. (2010), theorem 3, with weights: the difference between a parent's estimate and its
        children's sum is divided among the children in proportion to their variances.
    """
    below = variances_from_below(tree, weights)
    sums, upward = [], [noisy[0]]
    for fan, value, weight, variance in zip(tree.fans, noisy[1:], weights[1:], below[1:], strict=True):
        total = child_sums(upward[-1], fan)
        sums.append(total)
        upward.append(total + weight * variance * (value - total))
    consistent = [upward[-1]]
    for level in range(len(tree.sizes) - 2, -1, -1):
        shortfall = (consistent[-1] - sums[level]) / child_sums(below[level], tree.fans[level])
        consistent.append(upward[level] + below[level] * tree.to_children(level, shortfall))
    return consistent[::-1]


def range_variance(
    tree: IntervalTree,
    weights: Sequence[FloatArray],
    starts: Int64Array | FloatArray,
    ends: Int64Array | FloatArray,
) -> FloatArray:
    """Return the variance of the least-squares estimate of each range of leaves.

    Args: starts and ends in leaves, half-open; a fraction takes that part of a leaf's total.
    Cost: O(nodes + ranges * height).
    Source: the variance is q' (Y'DY)^-1 q, with Y the matrix of measurements and D their weights. Each node
        adds a term of rank one to Y'DY, so the formula of Sherman and Morrison gives the variance step by
        step, upwards from the two leaves at the range's ends.
    """
    below = variances_from_below(tree, weights)
    climb = RangeClimb(tree, starts, ends)
    squares = climb.parts**2 * below[0][climb.nodes]
    climb.parts = climb.parts * below[0][climb.nodes]
    for fan, children, weight in zip(tree.fans, below, weights[1:], strict=False):
        squares = climb.gather(squares, children)
        climb.rise(children)
        shrink = (1.0 / (1.0 + weight * child_sums(children, fan)))[climb.nodes]
        squares = squares - weight[climb.nodes] * shrink * climb.parts**2
        climb.parts = climb.parts * shrink
    return np.asarray(squares[0])


class RangeClimb:
    """The first and the last node of each of m ranges on one level; ``rise`` moves up to the next level.

    ``nodes`` and ``parts`` have shape (2, m), for the first and the last node that a range meets on the
    current level: the node's index, and the sum over the part of the range below that node. If both ends are
    in one node, both rows are equal. At the leaves, a part is the fraction of the leaf in the range.

    >>> climb = RangeClimb(IntervalTree(4, 2), np.array([0.5]), np.array([3.0]))
    >>> climb.nodes.ravel().tolist(), climb.parts.ravel().tolist()
    ([0, 2], [0.5, 1.0])
    >>> climb.rise(np.ones(4))
    >>> climb.nodes.ravel().tolist(), climb.parts.ravel().tolist()
    ([0, 1], [1.5, 1.0])
    """

    def __init__(
        self, tree: IntervalTree, starts: Int64Array | FloatArray, ends: Int64Array | FloatArray
    ) -> None:
        self.fans = [*tree.fans]
        first = np.minimum(np.floor(starts), tree.size - 1).astype(np.int64)
        last = np.maximum(np.ceil(ends).astype(np.int64) - 1, first)
        self.nodes = np.stack([first, last])
        self.parts = np.stack(
            [np.minimum(ends, first + 1.0) - starts, np.where(last > first, ends - last, ends - starts)]
        )

    def gather(self, at_ends: FloatArray, values: FloatArray) -> FloatArray:
        """Return, per end node's parent, the sum over its children in the range.

        Args: at_ends, (2, m), the values of the end nodes; values, those of all other nodes of the level.
        """
        prefix = np.concatenate(([0.0], np.cumsum(values)))
        first, last = self.nodes
        fan = self.fans[0]
        first_parent, last_parent = self.nodes // fan
        run_end = np.minimum((first_parent + 1) * fan, values.size)
        first_run = at_ends[0] + prefix[run_end] - prefix[first + 1]
        last_run = at_ends[1] + prefix[last] - prefix[last_parent * fan]
        joined = at_ends[0] + np.where(first == last, 0.0, at_ends[1] + prefix[last] - prefix[first + 1])
        return np.where(first_parent == last_parent, joined, np.stack([first_run, last_run]))

    def rise(self, values: FloatArray) -> None:
        """Move up one level. Args: values, of each node that lies wholly in a range, (nodes,)."""
        self.parts = self.gather(self.parts, values)
        self.nodes = self.nodes // self.fans.pop(0)
