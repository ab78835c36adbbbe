"""Choose the tree of the third look: its branching and shares, given the results of earlier looks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms.dawa.query_tree import LATTICE
from dphist.mechanisms.trees.hierarchical import least_branching
from dphist.mechanisms.trees.weighted_tree import IntervalTree, range_variance

# More ranges than this do not change the choice.
_LARGEST_WORKLOAD = 500
_LEAF_SHARES = (0.0, 0.3, 1.0)
_FACTORS = (0.5, 0.75, 4 / 3, 2.0)


@dataclass(frozen=True, eq=False)
class PlannedTree:
    """A tree over the buckets and its levels' shares of epsilon, leaves first; the root is not measured."""

    tree: IntervalTree
    shares: FloatArray

    def parts(self) -> list[Int64Array]:
        """Return the shares as integer parts of ``LATTICE`` for each node, as ``measure_tree`` takes them."""
        levels = np.floor(self.shares / self.shares.sum() * LATTICE).astype(np.int64)
        return [np.full(size, part) for size, part in zip(self.tree.sizes, levels, strict=True)]


def plan_tree(known: FloatArray, epsilon: float, starts: FloatArray, ends: FloatArray) -> PlannedTree:
    """Return the tree of least mean error over the workload, given what is known of the buckets.

    Candidates are the trees of equal branching of each height, with equal level weights and smaller or zero
    weights for leaves, which may already be known well. Then the best tree's shares are improved one by one.

    Args: known, one over the variance of each bucket's count so far, above 0; epsilon of the tree; the
        workload's starts and ends in buckets.
    Cost: about 50 + 8 height evaluations of 500 ranges.
    """
    step = -(-starts.size // _LARGEST_WORKLOAD)
    starts, ends = starts[::step], ends[::step]

    def error(planned: PlannedTree) -> float:
        shares = planned.shares / planned.shares.sum()
        weights = [
            np.full(size, (share * epsilon) ** 2 / 2)
            for size, share in zip(planned.tree.sizes, shares, strict=True)
        ]
        weights[0] = weights[0] + known
        return float(np.sqrt(range_variance(planned.tree, weights, starts, ends)).sum())

    best = min(_candidates(known.size), key=error)
    least = error(best)
    for _ in range(2):
        for level in range(len(best.shares) - 1):
            for factor in _FACTORS:
                shares = best.shares.copy()
                shares[level] *= factor
                moved = PlannedTree(best.tree, shares)
                if (found := error(moved)) < least:
                    best, least = moved, found
    return best


def _candidates(buckets: int) -> Iterator[PlannedTree]:
    """Yield trees of each height with equal shares on all levels except leaves and root."""
    heights = range(1, max(2, buckets.bit_length()))
    for branching in sorted({least_branching(buckets, height) for height in heights}):
        tree = IntervalTree(buckets, branching)
        for leaves in _LEAF_SHARES:
            shares = np.ones(len(tree.sizes))
            shares[-1] = 0.0
            shares[0] = leaves if shares.size > 2 else 1.0
            yield PlannedTree(tree, shares)
