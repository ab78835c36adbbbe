"""DAWA with the first stage of the authors' code, which measured the paper's numbers. It is not private."""

from __future__ import annotations

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms.dawa.deviations import DeviationIndex
from dphist.mechanisms.dawa.partition import interval_lengths, least_cost_partition
from dphist.mechanisms.dawa.query_tree import LATTICE, greedy_tree
from dphist.mechanisms.ranges import bucket_counts, bucket_positions, uniform_expansion
from dphist.mechanisms.trees.weighted_tree import least_squares
from dphist.noise import SeededNoise

_LATTICE_BITS = 12


def authors_partition(
    counts: Int64Array, epsilon: float, bucket_cost: float, noise: SeededNoise
) -> Int64Array:
    """Return the edges of the partition that the authors' published code would choose.

    Guarantee: none. Noise has half of the scale that the paper's theorem 2 and its remark ask for, intervals
        of one bin have no noise, and noisy costs are clipped at zero. The theorem does not cover this. It is
        the missing noise that makes few, large buckets win.
    Args: counts, shape (n,); epsilon of stage 1; bucket_cost in counts.
    Source: written again from reading the authors' code, without copying it.
    """
    index = DeviationIndex(counts, _LATTICE_BITS)
    costs = []
    for length in interval_lengths(counts.size, all_lengths=False):
        cost = index.of_length(length) / 2**_LATTICE_BITS + bucket_cost
        if length > 1:
            scale = (2 - 1 / length - 1 / counts.size) / epsilon
            cost = cost + noise.continuous_laplace(scale, cost.size)
        costs.append((length, np.maximum(cost, 0.0)))
    return least_cost_partition(counts.size, costs)


def authors_dawa(counts: Int64Array, epsilon: float, workload: Int64Array, seed: int) -> FloatArray:
    """Estimate the bins as in the paper's experiments: a quarter of epsilon for stage 1, the greedy tree.

    Guarantee: none, as ``authors_partition``.
    """
    noise = SeededNoise(seed)
    epsilon_counts = 0.75 * epsilon
    edges = authors_partition(counts, 0.25 * epsilon, 1 / epsilon_counts, noise)
    starts, ends = bucket_positions(workload.T, edges)
    tree, parts = greedy_tree(edges.size - 1, starts, ends)
    noisy = [
        total + noise.continuous_laplace(1 / epsilon_counts, total.size) * LATTICE / np.maximum(part, 1)
        for total, part in zip(tree.totals(bucket_counts(counts, edges)), parts, strict=True)
    ]
    weights = [part.astype(np.float64) ** 2 for part in parts]
    return uniform_expansion(least_squares(tree, noisy, weights)[0], edges)
