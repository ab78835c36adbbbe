"""A tree over the bins whose budgets fit the workload."""

from __future__ import annotations

from dphist.mechanisms.base import HistogramRelease, Request
from dphist.mechanisms.dawa.query_tree import greedy_tree
from dphist.mechanisms.trees.hierarchical import measure_tree


def greedy_h(request: Request, *, branching: int = 2) -> HistogramRelease:
    """Run DAWA's second stage on the bins themselves (GreedyH; greedy scaling without a partition).

    Guarantee: epsilon-DP; one event changes the measured integers by the parts on one path
        (``measure_tree``). Answers are the best linear unbiased estimates of ranges from the nodes; their
        variance is exact.
    Args: branching, children of a node.
    Cost: O(n + m log n) for m ranges; 2 n draws.
    Source: Li et al. (2014), algorithm 2.
    """
    starts, ends = request.ranges.T.astype(float)
    tree, parts = greedy_tree(request.counts.size, starts, ends, branching)
    epsilon = request.ledger.spend_rest("nodes")
    measured = measure_tree(request, tree, request.counts, parts, epsilon)
    return request.release(
        measured.solve()[0],
        variance=lambda ranges: measured.variance(*ranges.T.astype(float)),
    )
