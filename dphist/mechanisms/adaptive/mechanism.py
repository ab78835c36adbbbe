"""Measure a histogram in three looks, each planned from the results of the previous one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms.adaptive.third_look import plan_tree
from dphist.mechanisms.base import HistogramRelease, Request, noise_variance
from dphist.mechanisms.budget import Epsilon
from dphist.mechanisms.dawa.expand import bucket_counts, bucket_positions, uniform_expansion
from dphist.mechanisms.measured_runs import MeasuredRuns
from dphist.mechanisms.trees.hierarchical import measure_tree
from dphist.mechanisms.uniform_buckets import uniform_buckets

# A block is cut into about (its events) epsilon / 20 pieces, so that a piece exceeds its noise.
_EVENTS_PER_PIECE = 20.0


def adaptive_tree(
    request: Request,
    *,
    blocks: int = 64,
    blocks_share: Epsilon = Fraction(1, 10),
    pieces_share: Epsilon = Fraction(2, 5),
) -> HistogramRelease:
    """Measure blocks; cut each into as many pieces as its count justifies; merge pieces that look alike.

    First look: equal blocks of bins. Second look: each block is cut into a power of two pieces, chosen from
    its noisy count, and these are measured. Neighbouring pieces whose noisy counts are those of a uniform run
    become buckets. Third look: a tree over the buckets, planned for the workload and for what is already
    known. One least-squares estimate uses all three looks; buckets are spread evenly over their bins.

    Guarantee: epsilon-DP. Each look measures integers with its own part of epsilon; its shape is computed
        from published results of earlier looks. Blocks are disjoint, and so are pieces: one event changes one
        count by one. Third look: ``measure_tree``, one path's parts. No selection reads the data. Biased if
        counts within a bucket are not uniform. No ``variance`` is stated: the same noisy counts choose the
        buckets and enter their estimates.
    Args: blocks, their largest number; blocks_share and pieces_share of epsilon, the tree gets the rest.
    Cost: O(p^2 + m log n) for p pieces up to 4096, O(p log p) beyond; 2 p draws.
    Source: this library's own. As in DAWA (Li et al. 2014) buckets follow the data and the tree the workload;
        as in adaptive grids (Qardaji et al. 2013) a first look decides how fine the second is. Defaults were
        set on generated histograms (``benchmarks/generated.py``), not on the papers'.

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
    block_edges = np.arange(min(blocks, size) + 1) * size // min(blocks, size)
    epsilon_blocks = request.ledger.spend_share("blocks", blocks_share)
    noisy_blocks, block_variance = _measure_runs(request, block_edges, epsilon_blocks)

    epsilon_pieces = request.ledger.spend_share("pieces", pieces_share)
    piece_edges = _cut_blocks(block_edges, noisy_blocks, float(request.ledger.epsilon))
    noisy_pieces, piece_variance = _measure_runs(request, piece_edges, epsilon_pieces)

    joined = _joined(block_edges, noisy_blocks, block_variance, piece_edges, noisy_pieces, piece_variance)
    edges = piece_edges[uniform_buckets(joined[0], np.diff(piece_edges), joined[1])]

    runs = MeasuredRuns(edges.size - 1)
    known = np.zeros(edges.size - 1)
    for looked_at, noisy, variance in (
        (block_edges, noisy_blocks, block_variance),
        (piece_edges, noisy_pieces, piece_variance),
    ):
        known += _add_look(runs, edges, looked_at, noisy, variance)
    _add_tree(request, runs, edges, known)
    return request.release(
        uniform_expansion(runs.solve(), edges),
        published={"edges": edges, "pieces": piece_edges},
    )


def _measure_runs(request: Request, edges: Int64Array, epsilon: Fraction) -> tuple[FloatArray, float]:
    """Measure disjoint runs of bins; return their noisy counts and the variance of each."""
    scale = 1 / epsilon
    noisy = request.measure(bucket_counts(request.counts, edges), scale).astype(np.float64)
    # Noise far below one count is always 0; its tiny variance would only harm the arithmetic.
    return noisy, noise_variance(max(scale, Fraction(1, 10)), continuous=request.continuous)


def _cut_blocks(block_edges: Int64Array, noisy: FloatArray, epsilon: float) -> Int64Array:
    """Return the edges of the pieces: each block cut into a power of two, by its noisy count."""
    sizes = np.diff(block_edges)
    wanted = np.clip(noisy * epsilon / _EVENTS_PER_PIECE, 1.0, sizes)
    pieces = 2 ** np.floor(np.log2(wanted)).astype(np.int64)
    # If only its odd size keeps a block from being cut into single bins, cut it into single bins.
    pieces = np.where((wanted == sizes) | (pieces > sizes), sizes, pieces)
    cuts = [
        start + np.arange(count) * size // count
        for start, size, count in zip(block_edges[:-1].tolist(), sizes.tolist(), pieces.tolist(), strict=True)
    ]
    return np.append(np.concatenate(cuts), block_edges[-1])


def _joined(
    block_edges: Int64Array,
    noisy_blocks: FloatArray,
    block_variance: float,
    piece_edges: Int64Array,
    noisy_pieces: FloatArray,
    piece_variance: float,
) -> tuple[FloatArray, FloatArray]:
    """Return the pieces' counts made consistent with their blocks', and their variances.

    Only a piece that is its whole block gains much precision; the small gain of others is ignored.
    """
    block = np.searchsorted(block_edges, piece_edges[:-1], side="right") - 1
    pieces = np.bincount(block)
    total_variance = pieces * piece_variance
    shortfall = noisy_blocks - np.bincount(block, noisy_pieces)
    moved = shortfall * total_variance / (total_variance + block_variance)
    alone = 1.0 / (1.0 / piece_variance + 1.0 / block_variance)
    return noisy_pieces + (moved / pieces)[block], np.where(pieces[block] == 1, alone, piece_variance)


def _add_look(
    runs: MeasuredRuns, edges: Int64Array, looked_at: Int64Array, noisy: FloatArray, variance: float
) -> FloatArray:
    """Add a look's measurements to the network, summed between common edges; return its precisions.

    Returns: per bucket, one over the variance of its count from this look alone; 0 if an edge is missing.
    """
    common = np.isin(looked_at, edges, assume_unique=True).nonzero()[0]
    places = np.searchsorted(edges, looked_at[common])
    variances = variance * np.diff(common)
    runs.add(places[:-1], places[1:], np.add.reduceat(noisy, common[:-1]), variances)
    known = np.zeros(edges.size - 1)
    single = np.diff(places) == 1
    known[places[:-1][single]] = 1.0 / variances[single]
    return known


def _add_tree(request: Request, runs: MeasuredRuns, edges: Int64Array, known: FloatArray) -> None:
    """Measure the buckets with the rest of epsilon, by the tree that is best for the workload."""
    epsilon = request.ledger.spend_rest("tree")
    starts, ends = bucket_positions(request.ranges.T, edges)
    planned = plan_tree(known, float(epsilon), starts, ends)
    leaves = bucket_counts(request.counts, edges)
    measured = measure_tree(request, planned.tree, leaves, planned.parts(), epsilon)
    for starts, ends, noisy, variances in measured.runs():
        runs.add(starts, ends, noisy, variances)
