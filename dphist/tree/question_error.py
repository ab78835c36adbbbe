"""The error of any list of ranges on a tree, with its derivative by every node's noise.

The variance of a best linear unbiased estimate is the sum over nodes of weight^2 times the node's variance,
and, the weights being optimal, its derivative by a node's variance is that weight^2. So all that is needed
is, for every node, the sum over questions of its squared weight. Weights are walked down the tree for all
questions at once: what reaches a node is what it is asked for beyond its parent's even part, D, and what its
parent passes on, p W. A question that does not cut the parent has D = 0 below it, and one that does is told
by the two paths to its first and last bin: between them children are asked for whole, outside not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dphist.tree.epoch_nodes import by_parent, to_children
from dphist.tree.node_error import share_of_children, variances_from_below
from dphist.tree.shape import TreeShape

FloatArray = NDArray[np.float64]
Int64Array = NDArray[np.int64]


def questions_error(
    shape: TreeShape,
    horizon: int,
    variances: Sequence[FloatArray],
    questions: Int64Array,
    anticipating: bool,
) -> tuple[float, list[FloatArray]]:
    """Return the squared error summed over questions, and its derivative by each node's variance.

    Guarantee: exact; causal answers are those known when the question's last bin closes.
    Args: variances of the nodes' own noise, per measured level (nodes,), infinite where not measured;
        questions (n, 2), half-open ranges of bins, none empty.
    Cost: O(nodes + height * questions), in numpy.
    """
    tree = _Tree(shape, horizon, variances)
    walk = _anticipating_walk if anticipating else _causal_walk
    gradient = []
    for moments, passed in zip(walk(tree, questions), tree.passed, strict=True):
        gradient.append(moments * (1.0 - passed) ** 2)
    finite = [np.where(np.isfinite(own), own, 0.0) for own in variances]
    return sum(float(g @ own) for g, own in zip(gradient, finite, strict=True)), gradient


class _Tree:
    """What all questions share: per level, root side first, nodes' variances from below and their sums."""

    def __init__(self, shape: TreeShape, horizon: int, variances: Sequence[FloatArray]) -> None:
        self.shape, self.horizon = shape, horizon
        self.below = variances_from_below(shape, variances)
        self.sums = [np.append(0.0, np.cumsum(rows)) for rows in self.below]
        # Of each node: children's variances added up, and the part of its weight that they get.
        self.pooled = [
            by_parent(rows, k).sum(axis=1)
            for rows, k in zip(self.below[1:], shape.branching[1:], strict=True)
        ]
        passed = [share_of_children(own, total) for own, total in zip(variances, self.pooled, strict=False)]
        self.passed = [*passed, np.zeros(len(variances[-1]))]

    def children(self, level: int, nodes: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return where the children of nodes of a level start and stop."""
        k = self.shape.branching[level]
        return nodes * k, np.minimum((nodes + 1) * k, len(self.below[level]))

    def part(self, level: int, parents: Int64Array, asked: FloatArray) -> FloatArray:
        """Return alpha of nodes of a level from the variances of the children that are asked for."""
        pooled = self.pooled[level - 1][parents]
        return np.asarray(asked / np.where(pooled > 0, pooled, 1.0))


@dataclass
class _Paths:
    """Questions' paths on one level: the cut nodes, the part asked for, what reaches them."""

    nodes: Int64Array
    alphas: FloatArray
    reach: FloatArray


def _anticipating_walk(tree: _Tree, questions: Int64Array) -> list[FloatArray]:
    shape = tree.shape
    first, last = questions[:, 0], questions[:, 1] - 1
    heads, tails = _alphas(tree, first, last)
    moments: list[FloatArray] = []
    reach_head = reach_tail = np.zeros(0)
    for level in shape.levels:
        own, count = np.zeros(len(tree.below[level - 1])), len(tree.below[level - 1])
        head, tail = first // shape.widths[level], last // shape.widths[level]
        alpha_head, alpha_tail = heads[level - 1], tails[level - 1]
        apart = head != tail
        if level == 1:
            reach_head, reach_tail = alpha_head, alpha_tail
            own += _between(count, head + 1, tail, np.where(apart, 1.0, 0.0))
        else:
            above_head, above_tail = first // shape.widths[level - 1], last // shape.widths[level - 1]
            one = above_head == above_tail
            up_head, up_tail = heads[level - 2], tails[level - 2]
            base_head = tree.passed[level - 2][above_head] * reach_head - up_head
            base_tail = tree.passed[level - 2][above_tail] * reach_tail - up_tail
            seen = np.bincount(above_head, reach_head**2, len(moments[-1]))
            seen += np.bincount(above_tail[~one], reach_tail[~one] ** 2, len(moments[-1]))
            rest = np.maximum(moments[-1] - seen, 0.0) * tree.passed[level - 2] ** 2
            own += to_children(rest, shape.branching[level - 1], count)
            start_head, stop_head = tree.children(level - 1, above_head)
            start_tail, stop_tail = tree.children(level - 1, above_tail)
            own += _between(count, start_head, head, base_head**2)
            own += _between(count, tail + 1, stop_tail, base_tail**2)
            own += _between(count, head + 1, np.where(one, tail, stop_head), (1.0 + base_head) ** 2)
            own += _between(count, start_tail, np.where(one, start_tail, tail), (1.0 + base_tail) ** 2)
            reach_head, reach_tail = alpha_head + base_head, alpha_tail + base_tail
        own += np.bincount(head, reach_head**2, count)
        own += np.bincount(tail[apart], reach_tail[apart] ** 2, count)
        moments.append(own)
    return moments


def _alphas(tree: _Tree, first: Int64Array, last: Int64Array) -> tuple[list[FloatArray], list[FloatArray]]:
    """Return, per level, which part of the nodes that hold the first and the last bin is asked for."""
    shape = tree.shape
    heads, tails = [np.ones(len(first))], [np.ones(len(first))]
    for level in range(shape.height, 1, -1):
        values, sums, width = tree.below[level - 1], tree.sums[level - 1], shape.widths[level]
        head, tail = first // width, last // width
        k = shape.branching[level - 1]
        above_head, above_tail = head // k, tail // k
        _, stop = tree.children(level - 1, above_head)
        start, _ = tree.children(level - 1, above_tail)
        in_head, in_tail = values[head] * heads[-1], values[tail] * tails[-1]
        both = np.where(head == tail, in_head, in_head + in_tail + sums[tail] - sums[head + 1])
        one = above_head == above_tail
        asked_head = np.where(one, both, in_head + sums[stop] - sums[head + 1])
        asked_tail = np.where(one, both, in_tail + sums[tail] - sums[start])
        heads.append(tree.part(level - 1, above_head, asked_head))
        tails.append(tree.part(level - 1, above_tail, asked_tail))
    return heads[::-1], tails[::-1]


def _causal_walk(tree: _Tree, questions: Int64Array) -> list[FloatArray]:
    """The forest complete when a question's last bin closes: one root is cut, those after it are whole."""
    shape = tree.shape
    first, stop = questions[:, 0], questions[:, 1]
    alphas = _suffix_alphas(tree, first)
    moments: list[FloatArray] = []
    reach, rooted = np.zeros(len(first)), np.zeros(len(first), np.bool_)
    for level in shape.levels:
        width, count = shape.widths[level], len(tree.below[level - 1])
        node, done = first // width, stop // width
        own, above = np.zeros(count), first // shape.widths[level - 1]
        complete = (node + 1) * width <= stop
        if level > 1:
            own += to_children(
                _uncut(tree, level - 1, moments[-1], above[rooted], reach[rooted]),
                shape.branching[level - 1],
                count,
            )
            base = np.where(rooted, tree.passed[level - 2][above] * reach - alphas[level - 2], 0.0)
            start, end = tree.children(level - 1, above)
            own += _between(count, start[rooted], node[rooted], base[rooted] ** 2)
            own += _between(count, node[rooted] + 1, end[rooted], (1.0 + base[rooted]) ** 2)
            reach = alphas[level - 1] + base
        else:
            reach = alphas[0]
        # Whole roots: after the first root on its own level, the open parent's children below.
        open_start = stop // shape.widths[level - 1] * shape.branching[level - 1] if level > 1 else 0 * stop
        begin = np.where(rooted, open_start, np.maximum(node + 1, open_start))
        own += _between(count, begin, np.where(rooted | complete, done, begin), np.ones(len(first)))
        rooted = rooted | complete
        own += np.bincount(node[rooted], reach[rooted] ** 2, count)
        reach = np.where(rooted, reach, 0.0)
        moments.append(own)
    return moments


def _uncut(tree: _Tree, level: int, moments: FloatArray, nodes: Int64Array, reach: FloatArray) -> FloatArray:
    """Return what nodes of a level pass on, squared, for the questions that do not cut them."""
    seen = np.bincount(nodes, reach**2, len(moments))
    return np.asarray(np.maximum(moments - seen, 0.0) * tree.passed[level - 1] ** 2)


def _suffix_alphas(tree: _Tree, first: Int64Array) -> list[FloatArray]:
    """Return, per level, which part of the node that holds a bin lies at or after it."""
    shape, alphas = tree.shape, [np.ones(len(first))]
    for level in range(shape.height, 1, -1):
        node = first // shape.widths[level]
        above = node // shape.branching[level - 1]
        _, stop = tree.children(level - 1, above)
        sums = tree.sums[level - 1]
        asked = tree.below[level - 1][node] * alphas[-1] + sums[stop] - sums[node + 1]
        alphas.append(tree.part(level - 1, above, asked))
    return alphas[::-1]


def _between(count: int, start: Int64Array, stop: Int64Array, value: FloatArray) -> FloatArray:
    """Add each value to all places from start to stop (nothing if stop is not beyond start)."""
    some = stop > start
    change = np.bincount(start[some], value[some], count + 1)
    change -= np.bincount(stop[some], value[some], count + 1)
    return np.asarray(np.cumsum(change[:-1]))
