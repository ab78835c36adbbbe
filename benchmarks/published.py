"""What published code does differently, written again from reading it: yardsticks, not to be used.

Each is stated with why it is not private. None of that code is here; noise is the papers' continuous Laplace.
"""

from __future__ import annotations

import numpy as np

from dphist.mechanisms import release
from dphist.mechanisms.dawa.deviations import DeviationIndex
from dphist.mechanisms.dawa.expand import bucket_counts, bucket_positions, uniform_expansion
from dphist.mechanisms.dawa.partition import interval_lengths, least_cost_partition
from dphist.mechanisms.dawa.query_tree import LATTICE, greedy_tree
from dphist.mechanisms.ranges import FloatArray, Int64Array
from dphist.mechanisms.weighted_tree import least_squares
from dphist.noise import SeededNoise


def published_dawa(counts: Int64Array, epsilon: float, workload: Int64Array, seed: int) -> FloatArray:
    """DAWA with a first stage as in its authors' code, without theorem 2's guarantee: a yardstick only.

    Written again from reading that code, not their program: half of the scale that the theorem's remark asks
    for, none on single bins, noisy costs clipped at zero; then this library's greedy tree, which has less
    variance than theirs.
    """
    rng = np.random.default_rng(seed)
    first, second = 0.25 * epsilon, 0.75 * epsilon
    size, lattice = counts.size, 12
    index = DeviationIndex(counts, lattice)
    costs = []
    for length in interval_lengths(size, all_lengths=False):
        cost = index.of_length(length) / 2**lattice + 1 / second
        if length > 1:
            cost += rng.laplace(0, (2 - 1 / length - 1 / size) / first, cost.size)
        costs.append((length, np.maximum(cost, 0.0)))
    edges = least_cost_partition(size, costs)
    starts, ends = bucket_positions(workload.T, edges)
    tree, parts = greedy_tree(edges.size - 1, starts, ends)
    noisy = [
        total + rng.laplace(0, 1 / second, total.size) * LATTICE / np.maximum(part, 1)
        for total, part in zip(tree.totals(bucket_counts(counts, edges)), parts, strict=True)
    ]
    weights = [part.astype(np.float64) ** 2 for part in parts]
    return uniform_expansion(least_squares(tree, noisy, weights)[0], edges)


def published_mwem(counts: Int64Array, epsilon: float, workload: Int64Array, seed: int) -> FloatArray:
    """MWEM as in DPBench: ten rounds, half of each for the choice, and the exact total taken as public.

    Not private for an event added or removed, which changes the total.
    """
    noise = SeededNoise(seed)
    return release(
        "mwem", counts, epsilon, workload, noise, continuous=True, rounds=10, known_total=True
    ).counts


YARDSTICKS = {
    "dawa as published (not private)": published_dawa,
    "mwem as published (not private)": published_mwem,
}
