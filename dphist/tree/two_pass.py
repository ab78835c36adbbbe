"""Weighted least squares on trees of noisy counts in two passes: from below, then from above.

Both passes work on a forest of level-uniform trees, with one array per level: ``levels[0]`` holds the roots,
node j of a level has children ``j * k .. j * k + k - 1`` on the next. While a stream's tree is growing, lower
levels may hold complete nodes whose parents are not complete; such nodes are roots of their own trees.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import FloatArray


def least_squares(
    levels: Sequence[ArrayLike], branching: Sequence[int], variances: Sequence[float]
) -> list[FloatArray]:
    """Return the consistent counts (children add up to parents) that are closest to the noisy ones.

    Guarantee: the minimum of sum (x_v - y_v)^2 / variance_v over consistent trees, hence unbiased, and of the
        least variance among linear unbiased estimates of any range. Post-processing: costs no privacy.
    Args: levels, roots first, each (n,) or (n, width) noisy counts; pass a measured root as a first level of
        one node. branching: children per node between consecutive levels, one fewer than levels.
        variances: of one node's noise per level, above 0.
    Raises: ValueError where these do not fit together.
    Cost: O(nodes), in numpy.
    Source: Hay et al. (2010), Theorems 3 and 4, with the level variances as weights.

    Hay et al., Figure 2 (the root is measured):

    >>> levels = least_squares([[13], [3, 11], [4, 1, 12, 1]], (2, 2), (1, 1, 1))
    >>> [level.round(9).tolist() for level in levels]
    [[14.0], [3.0, 11.0], [3.0, 0.0, 11.0, 0.0]]
    """
    return from_above(from_below(levels, branching, variances), branching)


def from_below(
    levels: Sequence[ArrayLike], branching: Sequence[int], variances: Sequence[float]
) -> list[FloatArray]:
    """Return every node's best estimate from its own subtree: Hay et al.'s z, weighted by variances.

    Args, Raises, Cost: as ``least_squares``.
    """
    noisy = [np.asarray(level, dtype=np.float64) for level in levels]
    _check_forest(noisy, branching, variances)
    estimates, variance = [noisy[-1]], variances[-1]
    for own, k, own_variance in zip(noisy[-2::-1], branching[::-1], variances[-2::-1], strict=True):
        sums = _children(estimates[-1], len(own), k).sum(axis=1)
        gain = k * variance / (own_variance + k * variance)
        estimates.append(sums + gain * (own - sums))
        variance = gain * own_variance
    return estimates[::-1]


def from_above(estimates: Sequence[FloatArray], branching: Sequence[int]) -> list[FloatArray]:
    """Return consistent estimates: divide each parent's difference from its children's sum evenly among them.

    Args: estimates from below, roots first; branching as in ``least_squares``.
    Cost: O(nodes), in numpy.
    """
    consistent = [estimates[0]]
    for k, own in zip(branching, estimates[1:], strict=True):
        parents, adjusted = consistent[-1], own.copy()
        children = _children(adjusted, len(parents), k)
        children += ((parents - children.sum(axis=1)) / k)[:, np.newaxis]
        consistent.append(adjusted)
    return consistent


def _children(level: FloatArray, parents: int, k: int) -> FloatArray:
    """View the children of the complete parents as (parents, k, ...)."""
    return level[: parents * k].reshape(parents, k, *level.shape[1:])


def _check_forest(levels: Sequence[FloatArray], branching: Sequence[int], variances: Sequence[float]) -> None:
    if not len(levels) == len(variances) == len(branching) + 1:
        raise ValueError(
            f"levels: {len(levels)} levels need as many variances and one branching factor fewer; "
            f"got {len(variances)} and {len(branching)}"
        )
    if min(variances) <= 0:
        raise ValueError(f"variances: {tuple(variances)} must all be above 0")
    for position, (parents, children, k) in enumerate(zip(levels, levels[1:], branching, strict=False)):
        if len(children) < len(parents) * k or children.shape[1:] != parents.shape[1:]:
            raise ValueError(
                f"levels: {len(parents)} nodes at position {position} need {k} children each; "
                f"got shape {children.shape} below {parents.shape}"
            )
