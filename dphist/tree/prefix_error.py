"""The exact error of the running count on a tree, from the variance of every node's own noise.

Let s be the variance of a node's own noise, x_c its children's variances from below and B their sum. Least
squares from below gives the node the variance v = s B / (s + B). A correction from above is divided among the
children in proportion to x_c. Let alpha_t be the part of a node's correction that falls in its first t bins.
If t is in child j, alpha = (C_j + x_j alpha_child) / B, where C_j is the sum of the variances of the children
before j. The error of the t-th running count is then a sum of independent parts, one per node that t cuts:

    C_j + x_j alpha^2 - (C_j + x_j alpha)^2 / B     (for top-level nodes: without the last term)

The causal count is the sum of the maximal complete nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dphist.arrays import FloatArray
from dphist.tree.epoch_nodes import by_parent
from dphist.tree.shape import TreeShape


def share_of_children(own: FloatArray, children: FloatArray) -> FloatArray:
    """Return the weight of the children's sum in a node's estimate: s / (s + B).

    It is 1 for nodes that are not measured (s infinite) and 0 for nodes without noise.
    """
    odds = np.divide(children, own, out=np.full_like(children, np.inf), where=own > 0)
    return np.asarray(1.0 / (1.0 + odds))


def variances_from_below(shape: TreeShape, variances: Sequence[FloatArray]) -> list[FloatArray]:
    """Return the variance of every node's estimate from its own subtree, per level, root side first."""
    below = [variances[-1]]
    for own, k in zip(variances[-2::-1], shape.branching[:0:-1], strict=True):
        children = by_parent(below[-1], k).sum(axis=1)
        below.append(children * share_of_children(own, children))
    return below[::-1]


def prefix_variances(
    shape: TreeShape, horizon: int, variances: Sequence[FloatArray], anticipating: bool
) -> FloatArray:
    """Return the variance of every published running count, t = 1..horizon, shape (horizon,).

    Cost: O(height * horizon).
    """
    below = variances_from_below(shape, variances)
    ends = np.arange(1, horizon + 1)
    total = np.zeros(horizon)
    alpha = np.ones(horizon)
    for level in reversed(shape.levels):
        k = shape.branching[level - 1] if level > 1 else len(below[0])
        sums = np.concatenate([[0.0], np.cumsum(below[level - 1])])
        if not anticipating:
            done = ends // shape.widths[level]
            total += sums[done] - sums[done // k * k if level > 1 else done * 0]
            continue
        child = (ends - 1) // shape.widths[level]
        parent = child // k
        before, own = sums[child] - sums[parent * k], below[level - 1][child]
        total += before + own * alpha**2
        if level > 1:
            pooled = by_parent(below[level - 1], k).sum(axis=1)[parent]
            reached = before + own * alpha
            alpha = reached / np.where(pooled > 0, pooled, 1.0)
            total -= reached * alpha
    return total
