"""Non-negative views of published trees, which the service's own consistent view is compared with.

A tree is a list of arrays, top level first. The children of node v are nodes k v .. k v + k - 1 of the next
level, with k the ratio of the two lengths.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import FloatArray


def zero_negative_subtrees(levels: Sequence[ArrayLike]) -> list[FloatArray]:
    """Return the levels; where a node's estimate is zero or below, its whole subtree is set to zero.

    This is a heuristic for sparse data, where a high node's count shows more certainly that its bins are
    empty. The result is biased upwards, and parents no longer equal the sums of their children.

    Args: consistent estimates, top level first.
    Cost: O(nodes).
    Source: Hay et al. (2010), section 4.2.

    >>> [level.tolist() for level in zero_negative_subtrees([[4.0], [-1.0, 5.0], [2.0, -3.0, 6.0, -1.0]])]
    [[4.0], [0.0, 5.0], [0.0, 0.0, 6.0, 0.0]]
    """
    checked = _checked_levels(levels)
    alive = np.ones(checked[0].size, dtype=bool)
    zeroed = []
    for level in checked:
        alive = np.repeat(alive, level.size // alive.size) & (level > 0)
        zeroed.append(np.where(alive, level, 0.0))
    return zeroed


def nonnegative_least_squares(levels: Sequence[ArrayLike], weights: Sequence[ArrayLike]) -> FloatArray:
    """Return the non-negative leaves whose subtree sums are closest to the noisy tree, exactly.

    Minimises sum_i w_i sum_v (y_v - sum of v's leaves)^2 over leaves >= 0. Let p be the price of one more
    unit in a subtree (the derivative of the best cost). The best total is a convex, piecewise linear,
    non-decreasing function of p with one breakpoint per leaf. Children's functions add up, and a node's own
    term only shifts the prices. So each node passes one sorted array of breakpoints up the tree, and one
    pass down yields the exact optimum.

    Args: noisy counts, top level first; weights (1 / variance), one per level or per node: 0 for a level or
        node that was not measured, infinite for a leaf that is known to be empty.
    Returns: (leaves,) float64, at least zero.
    Raises: ValueError for levels that do not fit one another, a bad weight, or leaves of weight zero.
    Cost: O(n h log n) time, O(n h) memory, for n leaves and h levels.

    >>> nonnegative_least_squares([[4.0], [-2.0, 5.0]], [1.0, 1.0]).tolist()
    [0.0, 4.5]
    """
    checked = _checked_levels(levels)
    mass = _checked_weights(weights, checked)
    # A leaf's total is zero up to the price -2 w y, then rises with slope 1 / 2w; a known leaf's stays zero.
    prices = -2.0 * (np.where(np.isinf(mass[-1]), 0.0, mass[-1]) * checked[-1])[:, None]
    slopes = 0.5 / mass[-1][:, None]
    functions = [(prices, slopes)]
    for level, weight in zip(checked[-2::-1], mass[-2::-1], strict=True):
        prices, slopes = _add_children(prices, slopes, level.size)
        # The node's own term adds 2 w (total - y) to the price of one more unit.
        own = weight[:, None]
        prices = prices + 2.0 * own * (_totals(prices, slopes) - level[:, None])
        slopes = slopes / (1.0 + 2.0 * own * slopes)
        functions.append((prices, slopes))
    # Going down: at the optimum one more unit in the whole tree costs nothing, so the root's price is zero.
    price = np.zeros(checked[0].size)
    for level, weight, (prices, slopes) in zip(checked, mass, reversed(functions), strict=True):
        price = np.repeat(price, level.size // price.size)
        total = _total_at(price, prices, slopes)
        price = price - 2.0 * np.where(np.isinf(weight), 0.0, weight) * (total - level)
    return total


def _add_children(prices: FloatArray, slopes: FloatArray, parents: int) -> tuple[FloatArray, FloatArray]:
    """Add up the children's totals as functions of the price: merge their breakpoints and slope changes."""
    changes = np.diff(slopes, axis=1, prepend=0.0).reshape(parents, -1)
    merged = prices.reshape(parents, -1)
    order = np.argsort(merged, axis=1, kind="stable")
    ordered = np.take_along_axis(changes, order, axis=1)
    return np.take_along_axis(merged, order, axis=1), np.cumsum(ordered, axis=1)


def _totals(prices: FloatArray, slopes: FloatArray) -> FloatArray:
    """Return each node's total at each of its breakpoints; at the first one the total is zero."""
    totals = np.zeros_like(prices)
    np.cumsum(slopes[:, :-1] * np.diff(prices, axis=1), axis=1, out=totals[:, 1:])
    return totals


def _total_at(price: FloatArray, prices: FloatArray, slopes: FloatArray) -> FloatArray:
    """Return the total of each node, read from its function of the price at the price given for it."""
    segment = (prices <= price[:, None]).sum(axis=1) - 1
    nodes, last = np.arange(price.size), np.maximum(segment, 0)
    rise = slopes[nodes, last] * (price - prices[nodes, last])
    return np.where(segment < 0, 0.0, _totals(prices, slopes)[nodes, last] + rise)


def _checked_weights(weights: Sequence[ArrayLike], levels: Sequence[FloatArray]) -> list[FloatArray]:
    mass = [np.asarray(weight, dtype=np.float64) for weight in weights]
    if len(mass) != len(levels):
        raise ValueError(f"weights need one entry for each of {len(levels)} levels; got {len(mass)}")
    for depth, (weight, level) in enumerate(zip(mass, levels, strict=True)):
        finite = np.isfinite(weight).all() or (depth == len(levels) - 1 and not np.isnan(weight).any())
        above = (weight > 0).all() if depth == len(levels) - 1 else (weight >= 0).all()
        if weight.shape not in ((), level.shape) or not (finite and above):
            raise ValueError(
                f"weights of level {depth} need a number, or one per node, finite and at least 0; leaves "
                "need one above 0, or infinite for an empty leaf"
            )
    return [np.broadcast_to(weight, level.shape) for weight, level in zip(mass, levels, strict=True)]


def _checked_levels(levels: Sequence[ArrayLike]) -> list[FloatArray]:
    checked = [np.asarray(level, dtype=np.float64) for level in levels]
    if not checked:
        raise ValueError("a tree needs at least one level")
    for depth, level in enumerate(checked):
        if level.ndim != 1 or level.size == 0 or not np.isfinite(level).all():
            raise ValueError(f"level {depth} needs shape (nodes,), not empty, of finite numbers")
        if depth and level.size % checked[depth - 1].size:
            raise ValueError(
                f"level {depth} has {level.size} nodes, not a multiple of the {checked[depth - 1].size} above"
            )
    return checked
