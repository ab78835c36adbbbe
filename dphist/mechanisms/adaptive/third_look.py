"""Choose the tree of the third look: its branching and shares, given the results of earlier looks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dphist.arrays import FloatArray
from dphist.mechanisms.dawa.query_tree import LATTICE, TreeParts
from dphist.mechanisms.trees.hierarchical import least_branching, level_parts
from dphist.mechanisms.trees.weighted_tree import IntervalTree, range_variance

# More ranges than this do not change the choice.
_LARGEST_WORKLOAD = 500
_LEAF_SHARES = (0.0, 0.3, 1.0)
_FACTORS = (0.5, 0.75, 4 / 3, 2.0)


def plan_tree(known: FloatArray, epsilon: float, starts: FloatArray, ends: FloatArray) -> TreeParts:
    """Return the tree of least mean error over the workload, given what is known of the buckets.

    Candidates are the trees of equal branching of each height, with equal level weights and smaller or zero
    weights for leaves, which may already be known well. Then the best tree's shares are improved one by one.

    Args: known, one over the variance of each bucket's count so far, above 0; epsilon of the tree; the
        workload's starts and ends in buckets.
    Returns: the tree, and the parts of epsilon of its nodes, as ``measure_tree`` takes them.
    Cost: about 50 + 8 height evaluations of 500 ranges.
    """
    step = -(-starts.size // _LARGEST_WORKLOAD)
    starts, ends = starts[::step], ends[::step]

    def error(tree: IntervalTree, shares: FloatArray) -> float:
        levels = zip(tree.sizes, shares / shares.sum(), strict=True)
        weights = [np.full(size, (share * epsilon) ** 2 / 2) for size, share in levels]
        weights[0] = weights[0] + known
        return float(np.sqrt(range_variance(tree, weights, starts, ends)).sum())

    tree, shares = min(_candidates(known.size), key=lambda planned: error(*planned))
    least = error(tree, shares)
    for _ in range(2):
        for level in range(shares.size - 1):
            for factor in _FACTORS:
                moved = shares.copy()
                moved[level] *= factor
                if (found := error(tree, moved)) < least:
                    shares, least = moved, found
    return tree, level_parts(tree, (shares / shares.sum() * LATTICE).astype(np.int64))


def _candidates(buckets: int) -> Iterator[tuple[IntervalTree, FloatArray]]:
    """Yield trees of each height with equal shares, smaller ones for leaves, and an unmeasured root."""
    heights = range(1, max(2, buckets.bit_length()))
    for branching in sorted({least_branching(buckets, height) for height in heights}):
        tree = IntervalTree(buckets, branching)
        for leaves in _LEAF_SHARES:
            shares = np.ones(len(tree.sizes))
            shares[-1] = 0.0
            shares[0] = leaves if shares.size > 2 else 1.0
            yield tree, shares
