"""DAWA, its variants and GreedyH: partition the bins privately, then measure the buckets for a workload."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms.base import HistogramRelease, Request
from dphist.mechanisms.dawa.partition import Centre, private_partition
from dphist.mechanisms.dawa.query_tree import LATTICE, TreeParts, best_tree, greedy_tree
from dphist.mechanisms.measured_runs import MeasuredRuns, fit_runs
from dphist.mechanisms.ranges import bucket_counts, bucket_positions, uniform_expansion
from dphist.mechanisms.trees.hierarchical import (
    MeasuredTree,
    consistent_release,
    equal_parts,
    level_parts,
    measure_tree,
)
from dphist.mechanisms.trees.weighted_tree import IntervalTree
from dphist.mechanisms.uniform_buckets import uniform_buckets

PARTITION_SHARE = Fraction(1, 4)
# The extra cost of each bucket, in units of the largest noise scale; without it, buckets would be chosen for
# their lucky noise. The numbers were set once, on the paper's seven histograms and three epsilons.
BUCKET_PENALTY = 2.5
# Largest change that one event can cause in two bucket costs combined, per choice of centre.
LARGEST_MOVES: dict[Centre, int] = {"mean": 4, "median": 2}

# (number of buckets, starts and ends of the workload among them) -> a tree and its parts of the budget
TreeRule = Callable[[int, FloatArray, FloatArray], TreeParts]
Tree = Literal["best", "greedy", "leaves", "equal", "geometric"]


def dawa(
    request: Request,
    *,
    partition_share: Fraction = PARTITION_SHARE,
    bucket_penalty: float = BUCKET_PENALTY,
    deviation_from: Centre = "median",
    tree: Tree = "best",
    branching: int = 2,
    level_ratio: float = 2 ** (1 / 3),
    all_lengths: bool = False,
    merge: bool = False,
) -> HistogramRelease:
    """Partition into buckets of nearly uniform counts, then measure them for the workload (DAWA).

    A bucket's count is spread evenly over its bins. Lengths of buckets are powers of two, or any length up to
    8192 bins with ``all_lengths`` (DAWA-all). The tree over the buckets is for the workload, "best" or
    "greedy"; or noise on every bucket, "leaves" (Partition+Laplace); or all nodes have "equal" budgets
    (Partition+Uniform); or budgets shrink from leaves to root, "geometric" (Partition+Geometric).

    Guarantee: epsilon-DP. Stage 1 spends its share on choosing the partition (``private_partition`` states
        its sensitivities). Stage 2 spends the rest on measuring the buckets' counts (``measure_tree`` states
        how much one event changes them). Biased if counts within a bucket are not uniform. ``variance`` is
        that of stage 2's noise, given the partition. With ``merge`` no variance is stated, because stage 2's
        noise also chooses the buckets.
    Cost: O(n log^2 n + m log n) for m ranges; n log n draws. For all lengths O(n^2 log n) and n^2 / 2 draws:
        a minute of system noise at 4096 bins.
    Source: Li, Hay, Miklau, Wang (2014), the variants in section 5.3; Hay et al. (2010); Cormode et al.
        (2012), whose ratio is the cube root of 2. With bucket_penalty 0, deviation_from "mean" and tree
        "greedy" it is the paper's algorithm as printed. That is private, but intervals whose noise happens to
        be low then win: the partition has thousands of tiny buckets even on the easiest data. The authors'
        published code avoids this with steps that theorem 2 does not cover: half the scale that the remark
        requires, no noise on single bins, noisy costs clipped at zero. Here a constant cost per bucket avoids
        it, without using data. Deviations from the median have half the sensitivity of those from the mean.
        On easy data, errors stay above that code's: see docs/mechanisms.md, and ``adaptive_tree``.
    """
    epsilon_partition = request.ledger.spend_share("partition", partition_share)
    epsilon_counts = request.ledger.spend_rest("bucket counts")
    largest_scale = LARGEST_MOVES[deviation_from] / epsilon_partition
    edges = private_partition(
        request,
        epsilon_partition,
        1 / epsilon_counts + Fraction(bucket_penalty) * largest_scale,
        all_lengths=all_lengths,
        deviation_from=deviation_from,
    )
    starts, ends = bucket_positions(request.ranges.T, edges)
    made, parts = _tree_rule(tree, branching, level_ratio)(edges.size - 1, starts, ends)
    measured = measure_tree(request, made, bucket_counts(request.counts, edges), parts, epsilon_counts)
    if merge:
        # The same noisy counts choose the merged buckets and are fitted to them, so the variance is unknown.
        edges, counts = merged_buckets(measured, edges)
        return request.release(uniform_expansion(counts, edges), published={"edges": edges})
    return request.release(
        uniform_expansion(measured.solve()[0], edges),
        variance=lambda ranges: measured.variance(bucket_positions(ranges, edges)),
        published={"edges": edges},
    )


def _tree_rule(tree: Tree, branching: int, level_ratio: float) -> TreeRule:
    """Return how the buckets are measured: for the workload, or with given budgets of levels."""

    def by_level(buckets: int, starts: FloatArray, ends: FloatArray) -> TreeParts:
        made = IntervalTree(buckets, branching)
        if tree == "leaves":
            return made, level_parts(made, [1] + [0] * (len(made.sizes) - 1))
        if tree == "equal":
            return made, equal_parts(made, root=True)
        shares = level_ratio ** -np.arange(len(made.sizes))
        return made, level_parts(made, np.maximum(1, LATTICE * shares / shares.sum()).astype(np.int64))

    rules: dict[str, TreeRule] = {"best": best_tree, "greedy": greedy_tree}
    return rules.get(tree, by_level)


def greedy_h(request: Request, *, branching: int = 2) -> HistogramRelease:
    """Run DAWA's second stage on the bins themselves, without a partition (GreedyH).

    Guarantee: epsilon-DP (``measure_tree``). Answers are best linear unbiased estimates, of exact variance.
    Cost: O(n + m log n) for m ranges; 2 n draws.
    Source: Li et al. (2014), algorithm 2.
    """
    starts, ends = request.ranges.T.astype(float)
    tree, parts = greedy_tree(request.counts.size, starts, ends, branching)
    epsilon = request.ledger.spend_rest("nodes")
    return consistent_release(request, measure_tree(request, tree, request.counts, parts, epsilon))


def merged_buckets(measured: MeasuredTree, edges: Int64Array) -> tuple[Int64Array, FloatArray]:
    """Merge similar neighbouring buckets; return the edges and the counts, fitted to every measured node.

    A private first stage needs so much noise that it also cuts uniform runs of bins, by chance. The noisy
    counts of stage 2 show which cuts were needless. Merging minimises the negative log-likelihood plus, for
    each merged bucket, half the log of the number of buckets before merging (Schwarz's criterion).

    Guarantee: post-processing of published counts. Biased if counts within a merged bucket are not uniform.
    Args: edges of the tree's leaves, in bins.
    Cost: O(k^2) for k buckets up to 4096, in vectors of k; O(k log k) beyond.
    Source: this library's own.
    """
    leaves = measured.solve()[0]
    first = np.arange(leaves.size)
    variances = measured.variance(np.stack([first, first + 1], axis=1))
    price = 0.5 * math.log(leaves.size)
    kept = edges[uniform_buckets(leaves, np.diff(edges), variances, price=price)]
    runs = []
    for starts, ends, *measurements in measured.runs():
        places = bucket_positions(edges[np.stack([starts, ends])], kept)
        runs.append(MeasuredRuns(*places, *measurements))
    return kept, fit_runs(kept.size - 1, runs)
