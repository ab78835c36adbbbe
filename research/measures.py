"""One trial: run a mechanism once, with the papers' continuous noise, and measure its errors.

Guarantee: none. Errors are exact and noise is seeded: for public and generated data only.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.consistency.isotonic import consistent_cdf
from dphist.mechanisms import HistogramRelease, release
from dphist.mechanisms.dawa.deviations import DeviationIndex
from dphist.mechanisms.dawa.partition import interval_lengths, least_cost_partition
from dphist.mechanisms.dawa.query_tree import LATTICE, greedy_tree
from dphist.mechanisms.ranges import bucket_counts, bucket_positions, range_sums, uniform_expansion
from dphist.mechanisms.trees.weighted_tree import least_squares
from dphist.noise import SeededNoise
from research.intervals import intervals_of_length
from research.trials import Outcome

AUTHORS_DAWA = "dawa by its authors' code"
# Of a count, in costs of intervals: as the authors' code has them, and for costs that are compared exactly.
_AUTHORS_BITS, _FINE_BITS = 12, 18


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
    index = DeviationIndex(counts, _AUTHORS_BITS)
    costs = []
    for length in interval_lengths(counts.size, all_lengths=False):
        cost = index.of_length(length) / 2**_AUTHORS_BITS + bucket_cost
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


def answer_errors(
    *,
    mechanism: str,
    counts: Int64Array,
    workload: Int64Array,
    epsilon: float,
    seed: int,
    options: Mapping[str, Any],
) -> Outcome:
    """Return the mean absolute error per query, in counts, and the time of the release in seconds."""
    started = time.perf_counter()
    if mechanism == AUTHORS_DAWA:
        answers = range_sums(authors_dawa(counts, epsilon, workload, seed), workload)
    else:
        answers = _released(mechanism, counts, workload, epsilon, seed, options).answer(workload)
    seconds = time.perf_counter() - started
    truth = range_sums(counts.astype(np.float64), workload)
    return {"absolute": float(np.abs(answers - truth).mean()), "seconds": seconds}


def errors_by_length(
    *, mechanism: str, counts: Int64Array, epsilon: float, seed: int, lengths: list[int], ranges: int
) -> Outcome:
    """Return, per length, the mean squared error of the answers to random ranges of that length.

    Answers are rounded to whole numbers of at least zero, as in Hay et al., section 5.2. Bins are not
    rounded, because the sum of rounded bins is biased by about half a noise scale for every empty bin.
    """
    made = _released(mechanism, counts, None, epsilon, seed, {})
    exact = counts.astype(np.float64)
    squared = []
    for length in lengths:
        asked = intervals_of_length(counts.size, length, ranges, seed)
        answers = np.maximum(np.rint(made.answer(asked)), 0.0)
        squared.append(float(((answers - range_sums(exact, asked)) ** 2).mean()))
    return {"squared": squared}


def sorted_errors(*, mechanism: str, counts: Int64Array, epsilon: float, seed: int) -> Outcome:
    """Return the mean squared error of a sorted count."""
    made = _released(mechanism, counts, None, epsilon, seed, {})
    return {"squared": float(((made.counts - np.sort(counts)) ** 2).mean())}


def variance_of_range(*, mechanism: str, bins: int, start: int, end: int) -> Outcome:
    """Return the noise variance of one range at epsilon 1."""
    made = _released(mechanism, np.zeros(bins, dtype=np.int64), None, 1.0, 0, {})
    variance = made.variance([[start, end]])
    assert variance is not None
    return {"variance": float(variance[0])}


def least_partition(*, counts: Int64Array, bucket_cost: float) -> Outcome:
    """Return the number of buckets and the cost of the least-cost partition, over intervals of any length."""
    edges = least_cost_partition(counts.size, _costs(counts, bucket_cost))
    return {"buckets": edges.size - 1, "cost": _partition_cost(counts, edges, bucket_cost)}


def equal_partitions(*, counts: Int64Array, bucket_cost: float) -> Outcome:
    """Return the fewest and the most buckets among all partitions of least cost.

    To choose among partitions of equal cost, the price of a bucket is changed by 2^-18 up or down; the
    rounding of deviations is taken into account.
    """
    costs = _costs(counts, bucket_cost)
    fewest, most = (
        least_cost_partition(counts.size, [(length, cost + unit) for length, cost in costs]).size - 1
        for unit in (1, -1)
    )
    return {"fewest": fewest, "most": most}


def _costs(counts: Int64Array, bucket_cost: float) -> list[tuple[int, Int64Array]]:
    """Return the cost of every interval as a bucket, by its length and start, in units of 2^-18."""
    index, each = DeviationIndex(counts, _FINE_BITS), round(bucket_cost * 2**_FINE_BITS)
    lengths = interval_lengths(counts.size, all_lengths=True)
    return [(length, index.of_length(length) + each) for length in lengths]


def private_partition_cost(
    *,
    mechanism: str,
    counts: Int64Array,
    epsilon_partition: float,
    bucket_cost: float,
    seed: int,
    options: Mapping[str, Any],
) -> Outcome:
    """Return the cost of a mechanism's partition: exact deviations plus bucket_cost for each bucket.

    The mechanism's stage 2 has the epsilon 1 / bucket_cost.
    """
    if mechanism == AUTHORS_DAWA:
        edges = authors_partition(counts, epsilon_partition, bucket_cost, SeededNoise(seed))
    else:
        epsilon = epsilon_partition + 1 / bucket_cost
        shared = {**options, "partition_share": epsilon_partition / epsilon}
        edges = _released(mechanism, counts, None, epsilon, seed, shared).published["edges"]
    return {"buckets": edges.size - 1, "cost": _partition_cost(counts, edges, bucket_cost)}


def cdf_errors(
    *, mechanism: str, counts: Int64Array, epsilon: float, seed: int, options: Mapping[str, Any]
) -> Outcome:
    """Return the summed errors of the cumulative counts, in counts, before and after consistency."""
    made = _released(mechanism, counts, None, epsilon, seed, {**options, "neighbours": "substitute"})
    exact = np.cumsum(counts)
    raw = made.published["cumulative"][1:]
    forms = {
        "raw": raw,
        "consistent_absolute": consistent_cdf(raw, int(exact[-1]), "absolute"),
        "consistent_squared": consistent_cdf(raw, int(exact[-1]), "squared"),
    }
    outcome: Outcome = {}
    for form, cumulative in forms.items():
        wrong: FloatArray = cumulative - exact
        outcome[f"{form} L1"] = float(np.abs(wrong).sum())
        outcome[f"{form} L2"] = float((wrong**2).sum())
    return outcome


def _released(
    mechanism: str,
    counts: Int64Array,
    workload: Int64Array | None,
    epsilon: float,
    seed: int,
    options: Mapping[str, Any],
) -> HistogramRelease:
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    return release(mechanism, counts, epsilon, workload, SeededNoise(seed), continuous=True, **given)


def _partition_cost(counts: Int64Array, edges: Int64Array, bucket_cost: float) -> float:
    deviations = DeviationIndex(counts, _FINE_BITS).of(edges[:-1], edges[1:])
    return float(deviations.sum()) / 2.0**_FINE_BITS + bucket_cost * (edges.size - 1)
