"""Non-negative bins, computed from the root down: each node's total is divided among its children.

Setting single negative bins to zero would raise every sum above them, although sums have smaller relative
errors than bins. So a node's sum is fixed first; its children become the closest non-negative numbers of this
sum.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import FloatArray

# Zero variances become this part of the largest one: such values then move by less than doubles resolve.
_LEAST_VARIANCE = 1e-12


def onto_simplex(values: FloatArray, variances: FloatArray, totals: FloatArray) -> FloatArray:
    """Return, for each row, the closest non-negative numbers that add up to its total.

    Each row x minimises sum (x - y)^2 / variance over x >= 0, given its total. The solution is x = max(0, y -
    price * variance), with a price that is found among the sorted y / variance.

    Args: values (rows, n); variances (rows, n), above zero, but zero at places that the row does not use;
        totals (rows,), at least zero.
    Returns: (rows, n), zero at unused places.
    Cost: O(rows * n log n), in numpy.

    >>> onto_simplex(np.array([[5.0, -2.0, 1.0]]), np.ones((1, 3)), np.array([4.0])).tolist()
    [[4.0, 0.0, 0.0]]
    """
    there = variances > 0
    ratios = np.where(there, values / np.where(there, variances, 1.0), -np.inf)
    order = np.argsort(-ratios, axis=1, kind="stable")
    sums = np.take_along_axis(np.where(there, values, 0.0), order, axis=1).cumsum(axis=1)
    weights = np.take_along_axis(variances, order, axis=1).cumsum(axis=1)
    # Entry k: the price if the first k + 1 numbers of a row stay above zero.
    prices = (sums - totals[:, np.newaxis]) / np.where(weights > 0, weights, 1.0)
    positive = (np.take_along_axis(ratios, order, axis=1) > prices).sum(axis=1)
    price = np.take_along_axis(prices, np.maximum(positive - 1, 0)[:, np.newaxis], axis=1)
    return np.where(there, np.maximum(values - price * variances, 0.0), 0.0)


def top_down(
    leaves: ArrayLike, total: float, branching: Sequence[int], variances: Sequence[ArrayLike]
) -> FloatArray:
    """Return non-negative leaves that add up to a total, fixed level by level from the root.

    The children of each node become the non-negative numbers closest to their estimates (weighted by one over
    the variance from their own subtrees) that add up to the node. If all leaves and sums are above zero and
    add up to the total, nothing changes.

    Args: leaves of shape (n,), least-squares estimates; total, at least zero; branching, root to leaf, of a
        tree of at least n leaves; variances, per level below the root, of the own noise of each node that
        holds a leaf: infinite for a node that was not measured, or not yet.
    Raises: ValueError for leaves, a total or variances that do not fit.
    Cost: O(n h log k) for h levels of k children, in numpy.
    Source: Abowd et al. (2022), "The 2020 Census Disclosure Avoidance System TopDown Algorithm", for the
        order from the root. (Hay et al. 2010, section 4.2, do not keep the parents' sums.)

    >>> top_down([-2.0, 5.0, 1.0, -1.0], 3.0, (2, 2), [[1.0, 1.0], [1.0] * 4]).tolist()
    [0.0, 3.0, 0.0, 0.0]
    """
    points = np.asarray(leaves, dtype=np.float64)
    if points.ndim != 1 or points.size == 0 or not np.isfinite(points).all():
        raise ValueError(f"leaves need shape (n,), not empty, of finite numbers; got shape {points.shape}")
    if not 0.0 <= total < np.inf:
        raise ValueError(f"total: {total!r} is not a number of at least 0")
    levels = _from_below(points, branching, variances)
    settled = np.array([float(total)])
    for k, (values, own) in zip(branching, levels, strict=True):
        settled = onto_simplex(_rows(values, k), _rows(own, k), settled).ravel()[: values.size]
    return settled


def _from_below(
    leaves: FloatArray, branching: Sequence[int], variances: Sequence[ArrayLike]
) -> list[tuple[FloatArray, FloatArray]]:
    """Return each node's sum of leaves, and the variance of that sum's estimate, root side first."""
    measured = [np.asarray(level, dtype=np.float64) for level in variances]
    known = _least(measured[-1], leaves.size, "leaves")
    levels = [(leaves, known)]
    for k, own in zip(branching[:0:-1], measured[-2::-1], strict=True):
        values, below = levels[-1]
        sums, spread = _rows(values, k).sum(axis=1), _rows(below, k).sum(axis=1)
        levels.append((sums, 1.0 / (1.0 / spread + 1.0 / _least(own, sums.size, "nodes"))))
    if _rows(levels[-1][0], branching[0]).shape[0] != 1:
        raise ValueError(f"branching: {tuple(branching)} holds fewer than {leaves.size} leaves")
    return levels[::-1]


def _least(variances: FloatArray, nodes: int, what: str) -> FloatArray:
    """Return variances with zeros replaced by a tiny part of the largest one (of 1 if all are zero)."""
    if variances.shape != (nodes,) or not (variances >= 0).all():
        raise ValueError(f"variances: shape {variances.shape} of numbers >= 0 is not one for {nodes} {what}")
    finite = variances[np.isfinite(variances)]
    return np.maximum(variances, _LEAST_VARIANCE * (float(finite.max(initial=0.0)) or 1.0))


def _rows(values: FloatArray, k: int) -> FloatArray:
    """Return a level's values, one row per parent; zeros where the last parent has fewer children."""
    missing = -len(values) % k
    return np.concatenate([values, np.zeros(missing)]).reshape(-1, k)
