"""StructureFirst: draw the boundaries of k buckets privately, then measure a tree in each bucket."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Literal

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms.base import HistogramRelease, Request
from dphist.mechanisms.dawa.deviations import DeviationIndex
from dphist.mechanisms.ranges import prefix_sums
from dphist.mechanisms.trees.hierarchical import equal_parts, measure_tree
from dphist.mechanisms.trees.weighted_tree import IntervalTree

# A bucket in the table of least costs is at most this many times the mean bucket's length.
_LONGEST = 8
# Larger than any cost; the sum of two still fits int64.
_UNREACHED = 2**61


# (starts, ends) of buckets -> the cost of each, in whole units
BucketCosts = Callable[[Int64Array, Int64Array], Int64Array]


def squared_deviations(counts: Int64Array, largest_count: int) -> BucketCosts:
    """Return a function for buckets' costs: squared deviation from the mean of counts clipped at F, floored.

    One more event moves a count from a to a + 1 <= F. This changes the sum of squared deviations of a bucket
    of L bins by (1 - 1 / L) (2 (a - mean of the others) + 1), which is between 1 - 2 F and 2 F - 1.
    """
    clipped = np.minimum(counts, largest_count)
    sums, squares = prefix_sums(clipped), prefix_sums(clipped**2)

    def costs(starts: Int64Array, ends: Int64Array) -> Int64Array:
        total, length = sums[ends] - sums[starts], ends - starts
        # sum x^2 - s^2 / L, with s = q L + r so that no product overflows int64.
        floor, rest = np.divmod(total, length)
        centred = squares[ends] - squares[starts] - floor * (total + rest)
        return np.asarray(centred - -(-(rest * rest) // length))

    return costs


def structure_first(
    request: Request,
    *,
    buckets: int | None = None,
    partition_share: Fraction = Fraction(1, 20),
    deviation: Literal["absolute", "squared"] = "absolute",
    largest_count: int = 1024,
    branching: int = 8,
) -> HistogramRelease:
    """Choose k buckets privately, so that their counts deviate little, and measure a tree in each bucket.

    Guarantee: epsilon-DP. The k - 1 boundaries are drawn from last to first; each gets an equal part e of the
        partition's share. Given the boundary to its right, the score of a place is minus the sum of two
        costs: the least cost of the buckets to its left, and the cost of the bucket that begins there. An
        event is in one of these buckets and changes the score by at most D. With the absolute deviation from
        the median D is 1; with the squared deviation of counts clipped at F it is 2 F - 1. The place is drawn
        with scale 2 D / e. Counts: buckets are disjoint, so an event is in one tree and changes one node of
        each of its levels. Given any boundaries, answers are unbiased and ``variance`` exact.
    Args: partition_share, small by default: boundaries add no bias, and their noise is so large that more
        budget for them did not help on DPBench's data; largest_count F, for squared deviations only.
    Cost: O(k n L) for the table of least costs, with buckets of at most L = 8 n / k bins: at most 8 n^2.
    Source: Xu, Zhang, Xiao, Yang, Yu, Winslett (2013), StructureFirst, with trees in buckets and absolute
        deviation as in their code. Their code takes F from the data, which is not private. Their table has no
        limit L on a bucket's length. With L, k buckets cost at most as much as their best k - k / 8.
    """
    size = request.counts.size
    count = math.ceil(size / 10) if buckets is None else buckets
    if count > size:
        raise ValueError(f"{request.mechanism} buckets is {count}; choose 1 to {size}, the number of bins")
    edges = np.array([0, size]) if count == 1 else np.arange(size + 1)
    if 1 < count < size:
        epsilon = request.ledger.spend_share("boundaries", partition_share)
        costs: BucketCosts = DeviationIndex(request.counts, 0).from_median
        moved = 1
        if deviation == "squared":
            costs, moved = squared_deviations(request.counts, largest_count), 2 * largest_count - 1
        edges = _draw_boundaries(request, costs, count, 2 * moved * (count - 1) / epsilon)
    epsilon = request.ledger.spend_rest("nodes")
    trees = []
    for start, end in pairwise(edges.tolist()):
        tree = IntervalTree(end - start, branching)
        parts = equal_parts(tree, root=True)
        trees.append(measure_tree(request, tree, request.counts[start:end], parts, epsilon))
    counts = np.concatenate([tree.solve()[0] for tree in trees])

    def variance(ranges: Int64Array) -> FloatArray:
        summed = np.zeros(len(ranges))
        for tree, first, end in zip(trees, edges[:-1], edges[1:], strict=True):
            inside = np.clip(ranges, first, end) - first
            touched = inside[:, 0] < inside[:, 1]
            summed[touched] += tree.variance(inside[touched])
        return summed

    return request.release(counts, variance=variance, published={"edges": edges})


def _draw_boundaries(request: Request, costs: BucketCosts, buckets: int, scale: Fraction) -> Int64Array:
    """Draw the boundaries from last to first; the possible places depend only on published boundaries."""
    size = request.counts.size
    longest = min(size, _LONGEST * -(-size // buckets))
    table = least_costs(costs, size, buckets - 1, longest)
    edges = [size]
    for left in range(buckets - 1, 0, -1):
        places = np.arange(left, min(edges[-1] - 1, left * longest) + 1)
        scores = -(table[left - 1, places] + costs(places, np.full(places.size, edges[-1])))
        edges.append(int(places[request.select(scores, scale)]))
    return np.array([*edges, 0][::-1], dtype=np.int64)


def least_costs(costs: BucketCosts, size: int, buckets: int, longest: int) -> Int64Array:
    """Return the least cost of cutting the first i bins into p buckets of at most ``longest`` bins.

    Returns: (buckets, size + 1), in row p - 1 and column i; ``_UNREACHED`` if p buckets are impossible.
    Raises: ValueError for a table of more than 2^27 numbers (1 GB).
    """
    if buckets * size > 2**27:
        raise ValueError(
            f"{size} bins x {buckets} buckets are more than 2^27 least costs; ask for fewer buckets"
        )
    # Row i, column l: the bucket [i - longest + l, i), aligned with a window of the previous layer.
    ends = np.repeat(np.arange(size + 1), longest)
    starts = ends - np.tile(np.arange(longest, 0, -1), size + 1)
    real = starts >= 0
    flat = np.full(ends.size, _UNREACHED)
    flat[real] = costs(starts[real], ends[real])
    last_bucket = flat.reshape(size + 1, longest)
    padded = np.full(longest + size + 1, _UNREACHED)
    padded[longest] = 0
    windows = np.lib.stride_tricks.sliding_window_view(padded, longest)[: size + 1]
    table = np.empty((buckets, size + 1), dtype=np.int64)
    total = np.empty_like(last_bucket)
    for layer in range(buckets):
        np.add(windows, last_bucket, out=total)
        np.minimum(total.min(axis=1), _UNREACHED, out=table[layer])
        padded[longest:] = table[layer]
    return table
