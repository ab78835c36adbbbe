"""P-HP: bisect the histogram repeatedly into more uniform parts, then measure the buckets."""

from fractions import Fraction

import numpy as np

from dphist.arrays import Int64Array
from dphist.mechanisms.base import HistogramRelease, Request
from dphist.mechanisms.dawa.deviations import DeviationIndex, sensitivity
from dphist.mechanisms.ranges import bucket_counts, squared_cover, uniform_expansion

# Deviations are compared in units of 2^-4 of a count: far finer than any noise, without overflow of int64.
_LATTICE = 4


def p_hp(
    request: Request,
    *,
    partition_share: Fraction = Fraction(1, 2),
    depth: int | None = None,
    nonnegative: bool = False,
) -> HistogramRelease:
    """Cut the histogram recursively, each cut chosen privately; undo late cuts; measure the buckets (P-HP).

    Guarantee: epsilon-DP. The partition spends half its share on cuts and half on choosing how many of the
        cuts to keep. Cuts: clusters of one depth are disjoint, so each of the ``depth`` depths gets an equal
        part e; a cut of a cluster of length L scores -(deviation of its two parts + the price of buckets),
        which one event changes by at most 2 - 2 / L (``sensitivity``), and is drawn with scale 2 (2 - 2 / L)
        / e.
    Number of cuts: the same score over the whole histogram, sensitivity 2 - 2 / n. Counts: the buckets are
        disjoint, so one event changes one count by one. Biased if counts within a bucket are not uniform;
        ``variance`` is that of the noise, given the buckets. With ``nonnegative`` the variance is unknown,
        and long ranges are biased upwards.
    Cost: O(n log n) per depth.
    Source: Acs, Castelluccia, Chen (2012), P-HPartition. Unlike their code, this one clips negative counts
        only on request and uses the budget of the last depth.
    """
    size = request.counts.size
    # Each cut separates at least one bin, so more depths would waste budget.
    depths = max(1, (size - 1).bit_length() if depth is None else min(depth, size - 1))
    epsilon_cuts = request.ledger.spend_share("cuts", partition_share / 2)
    epsilon_stage = request.ledger.spend_share("stage", partition_share / 2)
    epsilon_counts = request.ledger.spend_rest("bucket counts")
    index = DeviationIndex(request.counts, _LATTICE)
    price = round(2**_LATTICE / epsilon_counts)
    cuts = _choose_cuts(request, index, price, depths, epsilon_cuts)
    edges = _choose_stage(request, index, price, cuts, epsilon_stage)
    exact_counts = bucket_counts(request.counts, edges)
    buckets, each = request.measure_with_variance(exact_counts, 1 / epsilon_counts)
    return request.release(
        uniform_expansion(np.maximum(buckets, 0.0) if nonnegative else buckets, edges),
        variance=None if nonnegative else lambda ranges: each * squared_cover(edges, ranges),
        published={"edges": edges},
    )


def _choose_cuts(
    request: Request, index: DeviationIndex, price: int, depths: int, epsilon: Fraction
) -> list[int]:
    """Return the cuts in the order in which they were made, depth by depth from the left."""
    clusters = [(0, request.counts.size)]
    cuts: list[int] = []
    for _ in range(depths):
        clusters = [(start, end) for start, end in clusters if end - start > 1]
        if not clusters:
            break
        scores = _cut_scores(index, price, clusters)
        halves = []
        for (start, end), score in zip(clusters, scores, strict=True):
            moved = sensitivity(end - start, index.lattice)
            chosen = request.select(score, 2 * moved * depths / epsilon)
            # Index 0 leaves the cluster whole, which ends its bisection.
            if chosen:
                cuts.append(start + chosen)
                halves += [(start, start + chosen), (start + chosen, end)]
        clusters = halves
    return cuts


def _cut_scores(index: DeviationIndex, price: int, clusters: list[tuple[int, int]]) -> list[Int64Array]:
    """Return, for each cluster, the scores (minus the costs) of leaving it whole and of each possible cut."""
    starts = np.concatenate([np.full(end - start, start) for start, end in clusters])
    ends = np.concatenate([np.full(end - start, end) for start, end in clusters])
    cuts = np.concatenate([np.arange(start, end) for start, end in clusters])
    whole = cuts == starts
    right = index.of(cuts, ends)
    left = np.zeros_like(right)
    left[~whole] = index.of(starts[~whole], cuts[~whole])
    costs = left + right + price * np.where(whole, 1, 2)
    return np.split(-costs, np.cumsum([end - start for start, end in clusters])[:-1])


def _choose_stage(
    request: Request, index: DeviationIndex, price: int, cuts: list[int], epsilon: Fraction
) -> Int64Array:
    """Choose privately how many of the first cuts to keep; return the edges of their partition."""
    size = request.counts.size
    if not cuts:
        return np.array([0, size])
    edges = [0, size]
    changes = [int(index.of(np.array([0]), np.array([size]))[0]) + price]
    for cut in cuts:
        place = int(np.searchsorted(edges, cut))
        start, end = edges[place - 1], edges[place]
        parts = index.of(np.array([start, cut, start]), np.array([cut, end, end]))
        changes.append(int(parts[0] + parts[1] - parts[2]) + price)
        edges.insert(place, cut)
    scores = -np.cumsum(np.array(changes, dtype=np.int64))
    chosen = request.select(scores, 2 * sensitivity(size, index.lattice) / epsilon)
    return np.sort(np.array([0, size, *cuts[:chosen]], dtype=np.int64))
