"""dphist's own mechanism: measure a histogram three times, each time planned from earlier results.

Only ``Request.measure`` reads data; everything else is computed from its results.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms.base import HistogramRelease, Request
from dphist.mechanisms.dawa.query_tree import LATTICE, TreeParts
from dphist.mechanisms.measured_runs import MeasuredRuns, fit_runs
from dphist.mechanisms.ranges import bucket_counts, bucket_positions, uniform_expansion
from dphist.mechanisms.trees.hierarchical import least_branching, level_parts, measure_tree
from dphist.mechanisms.trees.weighted_tree import IntervalTree, range_variance
from dphist.mechanisms.uniform_buckets import uniform_buckets

# The third measurement is planned for at most this many ranges; more do not change the choice.
_LARGEST_WORKLOAD = 500
_LEAF_SHARES = (0.0, 0.3, 1.0)
_FACTORS = (0.5, 0.75, 4 / 3, 2.0)
# A block of n events is cut into about n epsilon / 20 pieces, so that a piece's count exceeds its noise.
_EVENTS_PER_PIECE = 20.0


def adaptive_tree(
    request: Request,
    *,
    blocks: int = 64,
    blocks_share: Fraction = Fraction(1, 10),
    pieces_share: Fraction = Fraction(2, 5),
) -> HistogramRelease:
    """Measure blocks; cut each into as many pieces as its count justifies; merge similar pieces; measure.

    First look: equal blocks of bins are measured. Second look: each block is cut into pieces, whose number is
    a power of two chosen from the block's noisy count, and the pieces are measured. Neighbouring pieces with
    similar noisy counts become buckets. Third look: a tree over the buckets, planned for the workload and the
    results so far, gets the rest of epsilon. One least-squares estimate uses all three looks; a bucket's
    count is spread evenly over its bins.

    Guarantee: epsilon-DP. Each look measures integers with its own part of epsilon; what it measures is
        computed from published results of earlier looks, never from exact counts. Blocks are disjoint, and so
        are pieces: one event changes one count by one. For the third look see ``measure_tree``. Biased if
        counts within a bucket are not uniform. No ``variance`` is stated: the same noisy counts choose the
        buckets and enter their estimates.
    Cost: O(p^2 + m log n) for p pieces up to 4096, O(p log p) beyond; 2 p draws.
    Source: this library's own. As in DAWA (Li et al. 2014), the data decide the buckets and the workload
        decides the tree. As in adaptive grids (Qardaji et al. 2013), a first look decides how fine the second
        is. Defaults were set on generated histograms (``benchmarks/generated.py``), not the papers'.

    >>> from dphist.mechanisms import release
    >>> from dphist.noise import SeededNoise
    >>> r = release("adaptive_tree", [90] * 8 + [0] * 56, epsilon=1, noise=SeededNoise(2), blocks=8)
    >>> r.published["edges"].tolist()
    [0, 8, 64]
    """
    size = request.counts.size
    if blocks_share + pieces_share >= 1:
        raise ValueError(
            f"{request.mechanism} blocks_share is {blocks_share} and pieces_share {pieces_share}; "
            "leave something for the tree"
        )
    number = min(blocks, size)
    epsilon_blocks = request.ledger.spend_share("blocks", blocks_share)
    epsilon_pieces = request.ledger.spend_share("pieces", pieces_share)
    coarse = _look_at(request, np.arange(number + 1) * size // number, epsilon_blocks)
    fine = _look_at(request, _cut_blocks(coarse, float(request.ledger.epsilon)), epsilon_pieces)

    noisy, variances = _joined(coarse, fine)
    edges = fine.edges[uniform_buckets(noisy, np.diff(fine.edges), variances)]
    runs = [_in_buckets(look, edges) for look in (coarse, fine)]
    runs += _measured_tree(request, edges, runs)
    return request.release(
        uniform_expansion(fit_runs(edges.size - 1, runs), edges),
        published={"edges": edges, "pieces": fine.edges},
    )


class _Look(NamedTuple):
    """One measurement: disjoint runs of bins, their noisy counts, and the variance of each count."""

    edges: Int64Array
    noisy: FloatArray
    variance: float


def _look_at(request: Request, edges: Int64Array, epsilon: Fraction) -> _Look:
    """Measure the runs of bins between the edges."""
    noisy = request.measure(bucket_counts(request.counts, edges), 1 / epsilon).astype(np.float64)
    # Noise far below one count is always 0; its tiny variance would only harm the arithmetic.
    return _Look(edges, noisy, request.variance_of(max(1 / epsilon, Fraction(1, 10))))


def _cut_blocks(blocks: _Look, epsilon: float) -> Int64Array:
    """Return the edges of all pieces: each block is cut into as many pieces as its noisy count justifies."""
    sizes = np.diff(blocks.edges)
    wanted = np.clip(blocks.noisy * epsilon / _EVENTS_PER_PIECE, 1.0, sizes)
    pieces = 2 ** np.floor(np.log2(wanted)).astype(np.int64)
    # A block whose count justifies single bins is cut into these, even if their number is no power of two.
    pieces = np.where((wanted == sizes) | (pieces > sizes), sizes, pieces)
    rows = np.stack([blocks.edges[:-1], sizes, pieces], axis=1).tolist()
    cuts = [start + np.arange(count) * size // count for start, size, count in rows]
    return np.append(np.concatenate(cuts), blocks.edges[-1])


def _joined(blocks: _Look, pieces: _Look) -> tuple[FloatArray, FloatArray]:
    """Return the counts of the pieces, made consistent with those of their blocks, and the variances.

    Only the variance of a piece that is a whole block is lowered; the small gain of other pieces is ignored.
    """
    block = np.searchsorted(blocks.edges, pieces.edges[:-1], side="right") - 1
    number = np.bincount(block)
    total_variance = number * pieces.variance
    shortfall = blocks.noisy - np.bincount(block, pieces.noisy)
    moved = shortfall * total_variance / (total_variance + blocks.variance)
    alone = 1.0 / (1.0 / pieces.variance + 1.0 / blocks.variance)
    return pieces.noisy + (moved / number)[block], np.where(number[block] == 1, alone, pieces.variance)


def _in_buckets(look: _Look, edges: Int64Array) -> MeasuredRuns:
    """Return a look's counts as runs of whole buckets: those between shared edges are added up."""
    common = np.isin(look.edges, edges, assume_unique=True).nonzero()[0]
    places = np.searchsorted(edges, look.edges[common])
    noisy = np.add.reduceat(look.noisy, common[:-1])
    return MeasuredRuns(places[:-1], places[1:], noisy, look.variance * np.diff(common))


def _measured_tree(
    request: Request, edges: Int64Array, looks: Sequence[MeasuredRuns]
) -> Iterator[MeasuredRuns]:
    """Measure the buckets with the rest of epsilon, by the tree that is best after the two looks."""
    # Per bucket: the precision (one over the variance) from the looks that measured exactly this bucket.
    known = np.zeros(edges.size - 1)
    for starts, ends, _, variances in looks:
        single = ends - starts == 1
        known[starts[single]] += 1.0 / variances[single]
    epsilon = request.ledger.spend_rest("tree")
    tree, parts = plan_tree(known, float(epsilon), *bucket_positions(request.ranges.T, edges))
    return measure_tree(request, tree, bucket_counts(request.counts, edges), parts, epsilon).runs()


def plan_tree(known: FloatArray, epsilon: float, starts: FloatArray, ends: FloatArray) -> TreeParts:
    """Return the tree of least mean error over the workload, given how precisely buckets are known already.

    Candidates are trees with the same branching on every level, one per height. Levels have equal shares;
    leaves, which may be known well already, also smaller or no shares. Then the best tree's shares are
    improved one by one.

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
    """Yield trees of each height. Levels have equal shares, but leaves may have less; the root has none."""
    heights = range(1, max(2, buckets.bit_length()))
    for branching in sorted({least_branching(buckets, height) for height in heights}):
        tree = IntervalTree(buckets, branching)
        for leaves in _LEAF_SHARES:
            shares = np.ones(len(tree.sizes))
            shares[-1] = 0.0
            shares[0] = leaves if shares.size > 2 else 1.0
            yield tree, shares
