"""DAWA and its parts: partition the bins privately, then measure the buckets, for a workload of ranges."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dphist.arrays import FloatArray
from dphist.mechanisms.base import HistogramRelease, Request
from dphist.mechanisms.budget import Epsilon
from dphist.mechanisms.dawa.expand import bucket_counts, bucket_positions, uniform_expansion
from dphist.mechanisms.dawa.merge import merged_buckets
from dphist.mechanisms.dawa.partition import Centre, private_partition
from dphist.mechanisms.dawa.query_tree import LATTICE, TreeParts, best_tree, greedy_tree
from dphist.mechanisms.trees.hierarchical import equal_parts, measure_tree
from dphist.mechanisms.trees.weighted_tree import IntervalTree

PARTITION_SHARE = Fraction(1, 4)
# What a bucket costs beyond 1 / epsilon_2, in units of the largest noise scale, so that buckets are not
# chosen for their noise. Set once on the seven histograms of the paper and three epsilons; more intervals
# compete where all lengths do.
BUCKET_PENALTY = 2.5
BUCKET_PENALTY_ALL = 4.0
# An event moves two bucket costs by at most this together, by what deviations are from.
LARGEST_MOVES: dict[Centre, int] = {"mean": 4, "median": 2}

# (number of buckets, starts and ends of the workload among them) -> a tree and its parts of the budget
TreeRule = Callable[[int, FloatArray, FloatArray], TreeParts]
_TREE_RULES: dict[str, TreeRule] = {"best": best_tree, "greedy": greedy_tree}


def dawa(
    request: Request,
    *,
    partition_share: Epsilon = PARTITION_SHARE,
    bucket_penalty: float = BUCKET_PENALTY,
    deviation_from: Centre = "median",
    tree: str = "best",
    merge: bool = False,
) -> HistogramRelease:
    """Partition into buckets of nearly uniform counts, then measure them for the workload (DAWA).

    Guarantee: epsilon-DP. Stage 1 spends its share on choosing the partition (``private_partition`` states
        its sensitivities), stage 2 the rest on the buckets' counts (``measure_tree``: one event changes the
        measured integers by the parts on one path); the expansion is post-processing. Biased by what is not
        uniform within a bucket; ``variance`` is that of the noise, given the partition, which other noise
        chose. With ``merge`` there is none: the noise that it would be of chooses the buckets.
    Args: partition_share of epsilon for stage 1; bucket_penalty, what a bucket costs beyond 1 / epsilon_2, in
        units of the largest noise scale (below); deviation_from, what counts in a bucket should be near: the
        paper's "mean", or the "median", which one event moves half as far; tree, "greedy" for the paper's
        algorithm 2, "best" for the better of it and of equally weighted trees for this workload; merge,
        whether neighbours that look alike after stage 2 become one bucket, which is not the paper's. Buckets
        of stage 1 have lengths that are powers of two.
    Cost: O(n log^2 n + m log n) for m ranges; n log n draws.
    Source: Li, Hay, Miklau, Wang (2014). With bucket_penalty 0, deviation_from "mean" and tree "greedy" it is
        the paper's algorithm as printed, which is private, but its least noisy partition is a sum of many
        lucky draws: thousands of tiny buckets on the easiest data. The authors' published code avoids that by
        what theorem 2 does not cover: half the scale that the remark asks for, no noise on single bins, noisy
        costs clipped at zero. A constant cost for each bucket counters luck and depends on no data. Errors
        stay above that code's where data are easy: see docs/mechanisms.md, and ``adaptive_tree``.
    """
    return _partitioned(
        request, partition_share, bucket_penalty, deviation_from, _TREE_RULES[tree], merge=merge
    )


def dawa_all(
    request: Request,
    *,
    partition_share: Epsilon = PARTITION_SHARE,
    bucket_penalty: float = BUCKET_PENALTY_ALL,
    deviation_from: Centre = "median",
    tree: str = "best",
) -> HistogramRelease:
    """As ``dawa``, choosing among buckets of all lengths (DAWA-all); up to 8192 bins.

    Guarantee: as ``dawa``.
    Cost: O(n^2 log n); n^2 / 2 draws: a minute of system noise at 4096 bins.
    Source: Li et al. (2014), section 5.3.2.
    """
    return _partitioned(
        request, partition_share, bucket_penalty, deviation_from, _TREE_RULES[tree], all_lengths=True
    )


def partition_laplace(
    request: Request,
    *,
    partition_share: Epsilon = PARTITION_SHARE,
    bucket_penalty: float = BUCKET_PENALTY,
    deviation_from: Centre = "median",
) -> HistogramRelease:
    """DAWA's partition, then independent noise on every bucket (Partition+Laplace).

    Guarantee: as ``dawa``; one event changes one bucket by one.
    Source: Li et al. (2014), section 5.3.1.
    """

    def leaves_only(buckets: int, starts: FloatArray, ends: FloatArray) -> TreeParts:
        tree = IntervalTree(buckets, 2)
        return tree, [np.full(size, int(level == 0), dtype=np.int64) for level, size in enumerate(tree.sizes)]

    return _partitioned(request, partition_share, bucket_penalty, deviation_from, leaves_only)


def partition_uniform(
    request: Request,
    *,
    partition_share: Epsilon = PARTITION_SHARE,
    bucket_penalty: float = BUCKET_PENALTY,
    deviation_from: Centre = "median",
    branching: int = 2,
) -> HistogramRelease:
    """DAWA's partition, then H-bar over the buckets: all nodes weighed equally (Partition+Uniform).

    Guarantee: as ``dawa``; one event changes one bucket count of every level by one.
    Source: Li et al. (2014), section 5.3.3; Hay et al. (2010).
    """

    def equally(buckets: int, starts: FloatArray, ends: FloatArray) -> TreeParts:
        tree = IntervalTree(buckets, branching)
        return tree, equal_parts(tree, root=True)

    return _partitioned(request, partition_share, bucket_penalty, deviation_from, equally)


def partition_geometric(
    request: Request,
    *,
    partition_share: Epsilon = PARTITION_SHARE,
    bucket_penalty: float = BUCKET_PENALTY,
    deviation_from: Centre = "median",
    branching: int = 2,
    level_ratio: float = 2 ** (1 / 3),
) -> HistogramRelease:
    """DAWA's partition, then a tree whose budgets shrink from leaves to root (Partition+Geometric).

    Guarantee: as ``dawa``.
    Args: level_ratio, the budget of a level over that of the level above it.
    Source: Li et al. (2014), section 5.3.3; Cormode et al. (2012), whose ratio is the cube root of 2.
    """

    def by_level(buckets: int, starts: FloatArray, ends: FloatArray) -> TreeParts:
        tree = IntervalTree(buckets, branching)
        shares = level_ratio ** -np.arange(len(tree.sizes))
        parts = np.maximum(1, np.floor(LATTICE * shares / shares.sum())).astype(np.int64)
        return tree, [np.full(size, part) for size, part in zip(tree.sizes, parts, strict=True)]

    return _partitioned(request, partition_share, bucket_penalty, deviation_from, by_level)


def _partitioned(
    request: Request,
    partition_share: Epsilon,
    bucket_penalty: float,
    deviation_from: Centre,
    tree_rule: TreeRule,
    *,
    all_lengths: bool = False,
    merge: bool = False,
) -> HistogramRelease:
    """The three stages: partition, measured tree over the buckets, uniform expansion."""
    epsilon_partition = request.ledger.spend_share("partition", partition_share)
    epsilon_counts = request.ledger.spend_rest("bucket counts")
    largest_scale = LARGEST_MOVES[deviation_from] / epsilon_partition
    edges = private_partition(
        request,
        request.counts,
        epsilon_partition,
        1 / epsilon_counts + Fraction(bucket_penalty) * largest_scale,
        all_lengths=all_lengths,
        deviation_from=deviation_from,
    )
    starts, ends = bucket_positions(request.ranges.T, edges)
    tree, parts = tree_rule(edges.size - 1, starts, ends)
    measured = measure_tree(request, tree, bucket_counts(request.counts, edges), parts, epsilon_counts)
    if merge:
        # The merged buckets are chosen by the very counts that are fitted to them: no variance is known.
        edges, runs = merged_buckets(measured, edges)
        return request.release(uniform_expansion(runs.solve(), edges), published={"edges": edges})
    return request.release(
        uniform_expansion(measured.solve()[0], edges),
        variance=lambda ranges: measured.variance(*bucket_positions(ranges.T, edges)),
        published={"edges": edges},
    )
