"""Cumulative counts: measured directly, or added up from noisy bins or from the noisy nodes of a tree.

In these releases, ``published["cumulative"]`` holds the cumulative counts of 0..n bins, and ``counts`` their
differences. With ``neighbours="substitute"`` (the paper's swap model) one event may move to any bin.
Sensitivities then double, the number of events N is public, and the last cumulative count is exactly N. With
``"add_remove"`` N is private and every cumulative count is noisy.
"""

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.cdf import Budgets, CdfTree, best_tree, difference_uses, level_sums, prefixes, suffixes, tree_of
from dphist.consistency.isotonic import Error, consistent_cdf
from dphist.mechanisms.base import HistogramRelease, RangeFunction, Request
from dphist.privacy import Neighbours


def cdf_direct(
    request: Request, *, neighbours: Neighbours = "add_remove", consistent: Error | None = None
) -> HistogramRelease:
    """Add noise to every cumulative count (M_R).

    Guarantee: epsilon-DP. Adding an event to the first bin changes all n cumulative counts by one: L1
        sensitivity n, scale n / epsilon. Moving an event changes at most the n - 1 counts before the last,
        which is N: scale (n - 1) / epsilon. Unbiased. The noise of a range is one draw at each end.
    Source: Rameshwar, Tandon, section III-A.
    """
    total = int(request.counts.sum()) if neighbours == "substitute" else None
    measured = request.counts.size - (total is not None)
    scale = max(1, measured) / request.ledger.spend_rest("cumulative counts")
    noisy, each = request.measure_with_variance(np.cumsum(request.counts)[:measured], scale)
    cumulative = np.concatenate([[0.0], noisy, [] if total is None else [total]])
    known = np.zeros(cumulative.size)
    known[1 : measured + 1] = each

    def variance(ranges: Int64Array) -> FloatArray:
        starts, ends = ranges.T
        return np.where(starts == ends, 0.0, known[starts] + known[ends])

    return _release(request, cumulative, variance, consistent, total)


def cdf_histogram(
    request: Request, *, neighbours: Neighbours = "add_remove", consistent: Error | None = None
) -> HistogramRelease:
    """Measure every bin and add up the noisy counts (M_H).

    Guarantee: epsilon-DP. An event that is added changes one bin by one, scale 1 / epsilon; an event that is
        moved changes two bins, scale 2 / epsilon. Unbiased; the variance of a range is its number of bins
        times the variance of one draw.
    Source: Rameshwar, Tandon, section III-B.
    """
    bins = (request.counts.size,)
    return cdf_tree(request, branching=bins, budgets="equal", neighbours=neighbours, consistent=consistent)


def cdf_binary(
    request: Request, *, neighbours: Neighbours = "add_remove", consistent: Error | None = None
) -> HistogramRelease:
    """Measure a binary tree with equal budgets on all levels, and add up its noisy nodes.

    Guarantee: epsilon-DP. An event that is added changes one node of each of the h levels by one, scale h /
        epsilon; an event that is moved changes two, scale 2 h / epsilon. Unbiased, variance known.
    Source: Chan, Shi, Song (2011); Dwork, Naor, Pitassi, Rothblum (2010).
    """
    twos = (2,) * max(1, (request.counts.size - 1).bit_length())
    return cdf_tree(request, branching=twos, budgets="equal", neighbours=neighbours, consistent=consistent)


def cdf_tree(
    request: Request,
    *,
    branching: tuple[int, ...] | None = None,
    budgets: Budgets = "optimal",
    neighbours: Neighbours = "add_remove",
    consistent: Error | None = None,
) -> HistogramRelease:
    """Measure the level-uniform tree of least error, and add up its noisy nodes.

    Guarantee: epsilon-DP. Level l has budget eps_l; the budgets add up to epsilon. An event that is added
        changes one node of each level by one, scale 1 / eps_l; an event that is moved changes two, scale 2 /
        eps_l. Unbiased, variance known.
    Cost: O(h n).
    Source: Rameshwar, Tandon, theorems IV.1 and IV.2, section V.
    """
    total, tree, nodes, variances = _measured_tree(request, branching, budgets, neighbours)
    cumulative = prefixes(nodes, tree)
    if total is not None:
        cumulative[-1] = total

    def variance(ranges: Int64Array) -> FloatArray:
        starts, ends = ranges.T
        if total is not None:
            # N is public, so a range that ends at the last bin is N minus a cumulative count.
            ends = np.where(ends == tree.bins, 0, ends)
            starts, ends = np.minimum(starts % tree.bins, ends), np.maximum(starts % tree.bins, ends)
        return np.asarray(np.array(variances) @ difference_uses(starts, ends, tree))

    return _release(request, cumulative, variance, consistent, total)


def cdf_refined(
    request: Request,
    *,
    branching: tuple[int, ...] | None = None,
    budgets: Budgets = "optimal",
    neighbours: Neighbours = "add_remove",
    consistent: Error | None = None,
) -> HistogramRelease:
    """Run ``cdf_tree`` with better estimates: average each node with its children, then use the total N.

    Each node becomes the inverse-variance mean of its own noisy count and the sum of its refined children. If
    N is public (``substitute``), a cumulative count is estimated from the nodes on its left, and again as N
    minus the nodes on its right. The two estimates share no noise, so their inverse-variance mean is used.

    Guarantee: as ``cdf_tree``; the rest is post-processing. Unbiased. ``published["cumulative_variance"]``
        holds the variance of each cumulative count. ``variance`` is known for ranges that start at the first
        bin (and, if N is public, for those that end at the last), and nan for others.
    Cost: O(h n).
    Source: Honaker (2015), section 3.2; Rameshwar, Tandon, appendix B, lemma IV.4.
    """
    total, tree, noisy, variances = _measured_tree(request, branching, budgets, neighbours)
    nodes, spread = _from_below(noisy, variances, tree)
    cumulative, left = prefixes(nodes, tree), prefixes(spread, tree)
    if total is not None:
        right = suffixes(spread, tree)
        # Both ends are known exactly: 0 from the left, N from the right.
        weight = np.divide(right, left + right, out=np.ones_like(left), where=left + right > 0)
        cumulative = weight * cumulative + (1.0 - weight) * (total - suffixes(nodes, tree))
        left = weight * left

    def variance(ranges: Int64Array) -> FloatArray:
        starts, ends = ranges.T
        of_range = np.where(starts == 0, left[ends], np.nan)
        if total is not None:
            of_range = np.where((ends == tree.bins) & (starts > 0), left[starts], of_range)
        return np.where(starts == ends, 0.0, of_range)

    return _release(request, cumulative, variance, consistent, total, {"cumulative_variance": left})


def _measured_tree(
    request: Request, branching: tuple[int, ...] | None, budgets: Budgets, neighbours: Neighbours
) -> tuple[int | None, CdfTree, list[FloatArray], list[float]]:
    """Return N (None if not public), the tree, its noisy nodes, and per level the variance of a node."""
    bins, known = request.counts.size, neighbours == "substitute"
    if branching is None:
        tree = best_tree(bins, total_known=known, budgets=budgets)
    else:
        tree = tree_of(bins, branching, total_known=known, budgets=budgets)
    moved = 2 if known else 1
    nodes, variances = [], []
    for level, (sums, share) in enumerate(zip(level_sums(request.counts, tree), tree.shares, strict=True), 1):
        scale = moved / request.ledger.spend_share(f"level {level}", share)
        noisy, variance = request.measure_with_variance(sums, scale)
        nodes.append(noisy)
        variances.append(variance)
    return int(request.counts.sum()) if known else None, tree, nodes, variances


def _from_below(
    noisy: list[FloatArray], variances: list[float], tree: CdfTree
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Average each node with its children's sum, bottom up; bins beyond the last are known to be empty."""
    nodes = [noisy[-1]]
    spread = [np.full(noisy[-1].size, variances[-1])]
    for own, own_variance, branch in zip(
        noisy[-2::-1], variances[-2::-1], tree.branching[:0:-1], strict=True
    ):
        starts = np.arange(0, nodes[0].size, branch)
        below, below_variance = np.add.reduceat(nodes[0], starts), np.add.reduceat(spread[0], starts)
        both = own_variance + below_variance
        weight = np.divide(below_variance, both, out=np.ones_like(both), where=both > 0)
        nodes.insert(0, weight * own + (1.0 - weight) * below)
        spread.insert(0, weight * own_variance)
    return nodes, spread


def _release(
    request: Request,
    cumulative: FloatArray,
    variance: RangeFunction | None,
    consistent: Error | None,
    total: int | None,
    published: dict[str, FloatArray] | None = None,
) -> HistogramRelease:
    if consistent is not None:
        # A private N is replaced by its published estimate.
        last = max(0, round(float(cumulative[-1]))) if total is None else total
        cumulative = np.append(0.0, consistent_cdf(cumulative[1:], last, consistent))
        variance = None
    return request.release(
        np.diff(cumulative),
        answer=lambda ranges: cumulative[ranges[:, 1]] - cumulative[ranges[:, 0]],
        variance=variance,
        published={"cumulative": cumulative, **(published or {})},
        known_total=total is not None,
    )
