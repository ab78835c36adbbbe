"""The exact error of the running count on a tree whose nodes may all have different noise.

Least squares from below pools a node's own variance s with its children's sum B into v = s B / (s + B). What
the node learns from above it hands to its children in proportion to their variances x_c. Let alpha_t be the
part of a node's correction that lands in its first t bins, so alpha = (C_j + x_j alpha_child) / B for a t in
child j, C_j the variances of the children before j. The error of the t-th running count is then a sum of
independent parts, one per node that t cuts:

    C_j + x_j alpha^2 - (C_j + x_j alpha)^2 / B     (above the top level nothing is known: no last term)

Summed over all t, a node needs only n (its bins), S1 = sum alpha and S2 = sum alpha^2 of its children.
The causal count is the sum of the maximal complete nodes: sum of v times the number of t that use a node.
Both errors come with their derivatives, by hand (reverse mode), in numpy; cost O(nodes).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dphist.noise import Int64Array
from dphist.tree.epoch_nodes import bins_below, by_parent, to_children
from dphist.tree.shape import TreeShape

FloatArray = NDArray[np.float64]


class Pool(NamedTuple):
    """What a level's nodes see of their children: inputs (parents, k), sums (parents,)."""

    bins: FloatArray
    variances: FloatArray
    first_moments: FloatArray
    second_moments: FloatArray
    before: FloatArray
    total: FloatArray
    first: FloatArray
    second: FloatArray
    spread: FloatArray

    @property
    def divisor(self) -> FloatArray:
        """The children's variances added up, 1 where all of them are free of noise."""
        return np.where(self.total > 0, self.total, 1.0)

    @property
    def residual(self) -> FloatArray:
        """The error, summed over a node's bins, that remains when the node itself is known."""
        return self.spread - self.second / self.divisor


def pool(bins: FloatArray, variances: FloatArray, first: FloatArray, second: FloatArray) -> Pool:
    """Sum up children, all arguments of shape (parents, k) and zero where no child exists.

    Args: bins under each child, its variance from below, and the sums of alpha and alpha^2 over its bins.
    """
    before = np.zeros_like(variances)
    np.cumsum(variances[:, :-1], axis=1, out=before[:, 1:])
    weighted = variances * first
    return Pool(
        bins,
        variances,
        first,
        second,
        before,
        variances.sum(axis=1),
        (bins * before + weighted).sum(axis=1),
        (before * (bins * before + 2.0 * weighted) + variances**2 * second).sum(axis=1),
        (bins * before + variances * second).sum(axis=1),
    )


def share_of_children(own: FloatArray, children: FloatArray) -> FloatArray:
    """Return the weight of the children's sum in a node's estimate: s / (s + B).

    It is 1 for nodes that are not measured (s infinite) and 0 for those free of noise.
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


def anticipating_error(
    shape: TreeShape, horizon: int, variances: Sequence[FloatArray]
) -> tuple[float, list[FloatArray]]:
    """Return the squared error of the anticipating running count, summed over t = 1..horizon.

    Args: variances of the nodes' own noise, per measured level (nodes,); infinite: not measured.
    Returns: the sum, and its derivative by each of the variances.
    """
    pools: list[Pool] = []
    error, below = 0.0, variances[-1]
    first = second = np.ones(horizon)
    for level in range(shape.height, 0, -1):
        k = shape.branching[level - 1] if level > 1 else len(below)
        bins = bins_below(shape, horizon, level).astype(np.float64)
        pools.append(pool(*(by_parent(row, k) for row in (bins, below, first, second))))
        if level == 1:
            return error + float(pools[-1].spread[0]), _anticipating_gradient(shape, variances, pools)
        error += float(pools[-1].residual.sum())
        total = pools[-1].total
        below = total * share_of_children(variances[level - 2], total)
        first, second = pools[-1].first / pools[-1].divisor, pools[-1].second / pools[-1].divisor ** 2
    raise AssertionError("a tree has at least one level")


def _anticipating_gradient(
    shape: TreeShape, variances: Sequence[FloatArray], pools: list[Pool]
) -> list[FloatArray]:
    """Walk back from the top: ``by_*`` are derivatives of the error by what a node hands to its parent."""
    nothing = np.zeros(1)
    by_variance, by_first, by_second = _children_adjoint(pools[-1], nothing, nothing, nothing)
    gradient = []
    for level, seen in zip(shape.levels[:-1], pools[-2::-1], strict=True):
        count = len(variances[level - 1])
        passed = share_of_children(variances[level - 1], seen.total)
        gradient.append(by_variance[:count] * (1.0 - passed) ** 2)
        divisor = seen.divisor
        first, second = by_first[:count] / divisor, by_second[:count] / divisor**2 - 1.0 / divisor
        total = (
            by_variance[:count] * passed**2
            - (first * seen.first + 2.0 * by_second[:count] * seen.second / divisor**2) / divisor
            + seen.second / divisor**2
        )
        by_variance, by_first, by_second = _children_adjoint(seen, first, second, total)
    gradient.append(by_variance[: len(variances[-1])])
    return gradient


def _children_adjoint(
    seen: Pool, by_first: FloatArray, by_second: FloatArray, by_total: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return derivatives by the children's variances and moments, flat; ``spread`` counts once."""
    p, q, b = (rows[:, np.newaxis] for rows in (by_first, by_second, by_total))
    x, before = seen.variances, seen.before
    by_before = seen.bins * (1.0 + p) + q * 2.0 * (seen.bins * before + x * seen.first_moments)
    after = np.zeros_like(by_before)
    np.cumsum(by_before[:, :0:-1], axis=1, out=after[:, -2::-1])
    by_variance = (
        after
        + p * seen.first_moments
        + q * 2.0 * (before * seen.first_moments + x * seen.second_moments)
        + seen.second_moments
        + b
    )
    return (
        by_variance.ravel(),
        (p * x + q * 2.0 * before * x).ravel(),
        (q * x * x + x).ravel(),
    )


def causal_error(
    shape: TreeShape, horizon: int, variances: Sequence[FloatArray]
) -> tuple[float, list[FloatArray]]:
    """Return the squared error of the causal running count, summed over t = 1..horizon.

    Args, Returns: as ``anticipating_error``; nodes cut off by the horizon never complete and must not be
        measured.
    """
    below = variances_from_below(shape, variances)
    uses = [causal_uses(shape, horizon, level).astype(np.float64) for level in shape.levels]
    error = sum(float(use @ v) for use, v in zip(uses, below, strict=True))
    gradient, by_variance = [], uses[0]
    for level in shape.levels[:-1]:
        k, children = shape.branching[level], len(below[level])
        total = by_parent(below[level], k).sum(axis=1)
        passed = share_of_children(variances[level - 1], total)
        gradient.append(by_variance * (1.0 - passed) ** 2)
        by_variance = uses[level] + to_children(by_variance * passed**2, k, children)
    return error, [*gradient, by_variance]


def causal_uses(shape: TreeShape, horizon: int, level: int) -> Int64Array:
    """Return for how many t in 1..horizon each node of a level is in the greedy cover of [0, t).

    A node is used from its last bin on until its parent is complete.

    >>> causal_uses(TreeShape((2, 3)), 6, 2).tolist()
    [2, 1, 0, 2, 1, 0]
    """
    width = shape.widths[level]
    ends = np.arange(width, horizon + width, width, dtype=np.int64)
    parents = shape.widths[level - 1] if level > 1 else shape.capacity + 1
    until = (ends - 1) // parents * parents + parents
    return np.asarray(np.maximum(np.minimum(until, horizon + 1) - ends, 0))


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
