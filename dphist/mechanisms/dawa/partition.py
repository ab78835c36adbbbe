"""Stage 1 of DAWA: choose buckets within which counts are nearly uniform, privately."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, cast

import numpy as np

from dphist.arrays import Int64Array
from dphist.mechanisms.base import Numbers, Request
from dphist.mechanisms.dawa.deviations import DeviationIndex, sensitivity, sensitivity_from_median

Centre = Literal["mean", "median"]

# All n^2 / 2 interval costs are held at once: 64 MiB at 4096 bins.
LARGEST_SIZE_FOR_ALL = 8192


def private_partition(
    request: Request,
    epsilon: Fraction,
    bucket_cost: Fraction,
    *,
    all_lengths: bool,
    deviation_from: Centre = "mean",
) -> Int64Array:
    """Return the edges of the partition of least noisy cost; a bucket costs its deviation + ``bucket_cost``.

    Guarantee: epsilon-DP. Only the partition is published; the noisy costs are secret. Let D_b be the
        sensitivity of the deviation of interval b (from the mean: 2 - 2 / length, rounded up to the lattice;
        from the median: 1, or 0 for one bin), and D the largest of them. The noise of b has scale (D + D_b) /
        epsilon. This suffices: given all other noise, a partition wins if the noise of its bucket that holds
        the event is at most a bound, and an event moves this bound by at most D + D_b.
        This also holds for integer noise, since ties are broken by an order that does not depend on data.
    Args: bucket_cost in counts, in the paper 1 / epsilon of stage 2; all_lengths, whether buckets may have
        any length or only powers of two; deviation_from "mean", as in the paper, or "median".
    Raises: ValueError for all_lengths above 8192 bins.
    Cost: O(n log^2 n), n log n draws of noise; for all lengths O(n^2 log n) and n^2 / 2 draws.
    Source: Li et al. (2014), algorithm 1, theorem 2 and the remark that follows it. The proof is theirs; the
        exact sensitivity replaces their bound of 2. A deviation from the median is at least half of that from
        the mean and never above it, and has half the sensitivity.
    """
    size = request.counts.size
    if all_lengths and size > LARGEST_SIZE_FOR_ALL:
        raise ValueError(
            f"{request.mechanism} takes {LARGEST_SIZE_FOR_ALL} bins at most, not {size}; choose 'dawa'"
        )
    lattice = lattice_bits(size, epsilon, bucket_cost)
    lengths = interval_lengths(size, all_lengths=all_lengths)
    index = DeviationIndex(request.counts, lattice)
    # The cap on a bucket's cost is above all events and noise together, so it changes no choice.
    each = min(round(bucket_cost * 2**lattice), 1 << (59 - size.bit_length()))
    deviation, moved = index.of, sensitivity
    if deviation_from == "median":
        deviation, moved = index.from_median, sensitivity_from_median
    largest = moved(_class_of(lengths[-1]), lattice)
    costs: list[tuple[int, Numbers]] = []
    for length in lengths:
        starts = np.arange(size - length + 1)
        cost = deviation(starts, starts + length) + each
        # With one bin there is only one partition, so no noise is needed.
        scale = (largest + moved(_class_of(length), lattice)) / epsilon
        costs.append((length, request.measure(cost, scale) if largest else cost))
    return least_cost_partition(size, costs)


def interval_lengths(size: int, *, all_lengths: bool) -> list[int]:
    """Return the lengths of the intervals that may be buckets, ascending."""
    return list(range(1, size + 1)) if all_lengths else [1 << power for power in range(size.bit_length())]


def least_cost_partition(size: int, costs: Sequence[tuple[int, Numbers]]) -> Int64Array:
    """Return the edges, 0 to size, of the partition into intervals of least total cost.

    Among equal costs, the partition with the longest last bucket wins, then with the longest last but one,
    and so on. This order does not depend on data.

    Args: costs, (length, cost by start) in ascending order of length.
    Cost: O(number of costs + size): long intervals by vectors over blocks of ends, short ones one by one.

    >>> least_cost_partition(3, [(1, np.array([1, 1, 1])), (2, np.array([5, 0]))]).tolist()
    [0, 1, 3]
    """
    block = 64 if len(costs) <= 64 else 256
    long = [(length, cost) for length, cost in reversed(costs) if length >= block]
    short = [(length, cost.tolist()) for length, cost in reversed(costs) if length < block]
    best = cast(Numbers, np.zeros_like(costs[0][1], shape=size + 1))
    chosen = [0] * (size + 1)
    known: list[int] | list[float] = [0]  # best[: end], as Python numbers
    for block_start in range(0, size, block):
        ends = np.arange(block_start + 1, min(block_start + block, size) + 1)
        # Long intervals that end in this block start at or before block_start; ``best`` is known there.
        least, by_length = _least_over_long(ends, best, long)
        for end, value, length in zip(ends.tolist(), least.tolist(), by_length.tolist(), strict=True):
            for short_length, cost in short:
                if short_length <= end:
                    start = end - short_length
                    candidate = known[start] + cost[start]
                    if candidate < value:
                        value, length = candidate, short_length
            known.append(value)
            chosen[end] = length
        best[ends] = known[block_start + 1 :]
    return edges_of(chosen)


def edges_of(lengths: Sequence[int]) -> Int64Array:
    """Return the edges of a partition. Args: lengths, per place the length of the bucket that ends there."""
    edges = [len(lengths) - 1]
    while edges[-1] > 0:
        edges.append(edges[-1] - lengths[edges[-1]])
    return np.array(edges[::-1], dtype=np.int64)


def _least_over_long(
    ends: Int64Array, best: Numbers, costs: Sequence[tuple[int, Numbers]]
) -> tuple[Numbers, Int64Array]:
    """Return, for each end, the lowest total cost up to there and the length of its last bucket."""
    unreached = np.iinfo(np.int64).max if best.dtype.kind == "i" else np.inf
    least = cast(Numbers, np.full_like(best, unreached, shape=ends.size))
    by_length = np.zeros(ends.size, dtype=np.int64)
    first_end = int(ends[0])
    for length, cost in costs:
        skip = max(0, length - first_end)
        if skip >= ends.size:
            continue
        start = first_end + skip - length
        stop = int(ends[-1]) + 1 - length
        candidate = best[start:stop] + cost[start:stop]
        better = candidate < least[skip:]
        least[skip:][better] = candidate[better]
        by_length[skip:][better] = length
    return least, by_length


def _class_of(length: int) -> int:
    """Return a length rounded up to a power of two; intervals of one such class share a noise scale."""
    return 1 << (length - 1).bit_length()


def lattice_bits(size: int, epsilon: Fraction, bucket_cost: Fraction) -> int:
    """Return the number of binary places of costs: as many as int64 allows for sums of costs and noise.

    These must fit: a total of 2^42 events, the square of the size, and for each of ``size`` buckets its cost
    and 1000 noise scales. The number depends on public facts only.
    """
    size_bits, cost_bits = size.bit_length(), math.ceil(bucket_cost).bit_length()
    epsilon_bits = math.ceil(1 / epsilon).bit_length()
    return max(0, min(18, 60 - 2 * size_bits, 50 - size_bits - epsilon_bits, 59 - size_bits - cost_bits))
