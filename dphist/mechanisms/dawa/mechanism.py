"""DAWA and its parts: partition the bins privately, then measure the buckets, for a workload of ranges."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dphist.mechanisms.base import HistogramRelease, Request
from dphist.mechanisms.budget import Epsilon
from dphist.mechanisms.dawa.expand import bucket_counts, bucket_positions, uniform_expansion
from dphist.mechanisms.dawa.partition import private_partition
from dphist.mechanisms.dawa.query_tree import LATTICE, greedy_parts
from dphist.mechanisms.hierarchical import equal_parts, measure_tree
from dphist.mechanisms.ranges import FloatArray, Int64Array
from dphist.mechanisms.weighted_tree import IntervalTree

PARTITION_SHARE = Fraction(1, 4)

# (tree over the buckets, starts and ends of the workload among the buckets) -> parts of the budget
PartsRule = Callable[[IntervalTree, FloatArray, FloatArray], list[Int64Array]]


def dawa(
    request: Request, *, partition_share: Epsilon = PARTITION_SHARE, branching: int = 2
) -> HistogramRelease:
    """Partition into buckets of nearly uniform counts, then measure them for the workload (DAWA).

    Guarantee: epsilon-DP. Stage 1 spends its share on choosing the partition (``private_partition`` states
        its sensitivities), stage 2 the rest on the buckets' counts (``measure_tree``: one event changes the
        measured integers by the parts on one path); the expansion is post-processing. Biased by what is not
        uniform within a bucket; ``variance`` is that of the noise, given the partition.
    Args: partition_share of epsilon for stage 1; branching of the tree over the buckets. Buckets have lengths
        that are powers of two.
    Cost: O(n log^2 n + m log n) for m ranges; n log n draws.
    Source: Li, Hay, Miklau, Wang (2014).
    """
    return _partitioned(request, partition_share, branching, workload_parts)


def dawa_all(
    request: Request, *, partition_share: Epsilon = PARTITION_SHARE, branching: int = 2
) -> HistogramRelease:
    """As ``dawa``, choosing among buckets of all lengths (DAWA-all); up to 8192 bins.

    Guarantee: as ``dawa``.
    Cost: O(n^2 log n); n^2 / 2 draws: a minute of system noise at 4096 bins.
    Source: Li et al. (2014), section 5.3.2.
    """
    return _partitioned(request, partition_share, branching, workload_parts, all_lengths=True)


def partition_laplace(request: Request, *, partition_share: Epsilon = PARTITION_SHARE) -> HistogramRelease:
    """DAWA's partition, then independent noise on every bucket (Partition+Laplace).

    Guarantee: as ``dawa``; one event changes one bucket by one.
    Source: Li et al. (2014), section 5.3.1.
    """

    def leaves_only(tree: IntervalTree, starts: FloatArray, ends: FloatArray) -> list[Int64Array]:
        return [np.full(size, int(level == 0), dtype=np.int64) for level, size in enumerate(tree.sizes)]

    return _partitioned(request, partition_share, 2, leaves_only)


def partition_uniform(
    request: Request, *, partition_share: Epsilon = PARTITION_SHARE, branching: int = 2
) -> HistogramRelease:
    """DAWA's partition, then H-bar over the buckets: all nodes weighed equally (Partition+Uniform).

    Guarantee: as ``dawa``; one event changes one bucket count of every level by one.
    Source: Li et al. (2014), section 5.3.3; Hay et al. (2010).
    """

    def equally(tree: IntervalTree, starts: FloatArray, ends: FloatArray) -> list[Int64Array]:
        return equal_parts(tree, root=True)

    return _partitioned(request, partition_share, branching, equally)


def partition_geometric(
    request: Request,
    *,
    partition_share: Epsilon = PARTITION_SHARE,
    branching: int = 2,
    level_ratio: float = 2 ** (1 / 3),
) -> HistogramRelease:
    """DAWA's partition, then a tree whose budgets shrink from leaves to root (Partition+Geometric).

    Guarantee: as ``dawa``.
    Args: level_ratio, the budget of a level over that of the level above it.
    Source: Li et al. (2014), section 5.3.3; Cormode et al. (2012), whose ratio is the cube root of 2.
    """
    if not 1 <= level_ratio <= 2:
        raise ValueError(f"{request.mechanism} level_ratio is {level_ratio}; choose one from 1 to 2")

    def by_level(tree: IntervalTree, starts: FloatArray, ends: FloatArray) -> list[Int64Array]:
        shares = level_ratio ** -np.arange(len(tree.sizes))
        parts = np.maximum(1, np.floor(LATTICE * shares / shares.sum())).astype(np.int64)
        return [np.full(size, part) for size, part in zip(tree.sizes, parts, strict=True)]

    return _partitioned(request, partition_share, branching, by_level)


def workload_parts(tree: IntervalTree, starts: FloatArray, ends: FloatArray) -> list[Int64Array]:
    """DAWA's greedy parts; single leaves weigh one hundredth of the workload.

    With that they keep a budget where no query separates them; the workload's error grows by less than 0.1 %.
    """
    return greedy_parts(tree, starts, ends, unit_weight=0.01 * starts.size / tree.size)


def _partitioned(
    request: Request,
    partition_share: Epsilon,
    branching: int,
    parts_rule: PartsRule,
    *,
    all_lengths: bool = False,
) -> HistogramRelease:
    """The three stages: partition, measured tree over the buckets, uniform expansion."""
    if not 0 < partition_share < 1:
        raise ValueError(f"{request.mechanism} partition_share is {partition_share}; it is between 0 and 1")
    if branching < 2:
        raise ValueError(f"{request.mechanism} branching is {branching}; a node needs at least 2 children")
    epsilon_partition = request.ledger.spend_share("partition", partition_share)
    epsilon_counts = request.ledger.spend_rest("bucket counts")
    edges = private_partition(
        request, request.counts, epsilon_partition, 1 / epsilon_counts, all_lengths=all_lengths
    )
    tree = IntervalTree(edges.size - 1, branching)
    starts, ends = bucket_positions(request.ranges.T, edges)
    parts = parts_rule(tree, starts, ends)
    measured = measure_tree(request, tree, bucket_counts(request.counts, edges), parts, epsilon_counts)
    return request.release(
        uniform_expansion(measured.solve()[0], edges),
        variance=lambda ranges: measured.variance(*bucket_positions(ranges.T, edges)),
        published={"edges": edges},
    )
