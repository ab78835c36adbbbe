"""Ranges of bins, and buckets of bins.

Ranges are half-open: (m, 2) rows on a line, (m, 4) rectangles on a grid. Buckets lie between edges.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist.arrays import FloatArray, Int64Array, Number


def checked_ranges(ranges: ArrayLike, shape: tuple[int, ...]) -> Int64Array:
    """Return the ranges as int64, after checking that they lie inside the histogram.

    Args: ranges of shape (m, 2), [start, end) in bins, for a histogram of shape (n,); of shape (m, 4),
        [row start, row end, column start, column end), for shape (rows, columns). An empty range is allowed.
    Raises: ValueError naming the first bad row.

    >>> checked_ranges([[0, 3]], (3,)).tolist()
    [[0, 3]]
    >>> checked_ranges([[0, 4]], (3,))
    Traceback (most recent call last):
        ...
    ValueError: range 0 is [0, 4]; need 0 <= start <= end <= size on each axis of (3,)
    """
    given = np.asarray(ranges)
    width = 2 * len(shape)
    if given.ndim != 2 or given.shape[1] != width:
        form = "[start, end]" if width == 2 else "[row start, row end, column start, column end]"
        raise ValueError(f"ranges have shape {given.shape}; a histogram of shape {shape} needs rows {form}")
    if not np.issubdtype(given.dtype, np.integer):
        raise ValueError(f"ranges have dtype {given.dtype}; bin edges are integers")
    checked = given.astype(np.int64)
    starts, ends = checked[:, 0::2], checked[:, 1::2]
    bad = ((starts < 0) | (ends < starts) | (ends > np.array(shape))).any(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"range {row} is {given[row].tolist()}; need 0 <= start <= end <= size on each axis of {shape}"
        )
    return checked


def range_sums(values: NDArray[Number], ranges: Int64Array) -> NDArray[Number]:
    """Return the sum of the values in each range; sums of integers are exact. Cost: O(bins + ranges).

    >>> range_sums(np.arange(4.0), np.array([[1, 3], [0, 4]])).tolist()
    [3.0, 6.0]
    >>> range_sums(np.arange(6).reshape(2, 3), np.array([[0, 2, 1, 3], [0, 1, 0, 1]])).tolist()
    [12, 0]
    """
    prefix = prefix_sums(values)
    if values.ndim == 1:
        return np.asarray(prefix[ranges[:, 1]] - prefix[ranges[:, 0]])
    top, bottom, left, right = ranges.T
    return np.asarray(prefix[bottom, right] - prefix[top, right] - prefix[bottom, left] + prefix[top, left])


def prefix_sums(values: NDArray[Number]) -> NDArray[Number]:
    """Return the sum of all values before each edge; every axis has one edge more than values.

    >>> prefix_sums(np.array([[1, 2], [3, 4]])).tolist()
    [[0, 0, 0], [0, 1, 3], [0, 4, 10]]
    """
    prefix = np.zeros(tuple(size + 1 for size in values.shape), dtype=values.dtype)
    for axis in range(values.ndim):
        values = values.cumsum(axis=axis)
    prefix[(slice(1, None),) * values.ndim] = values
    return prefix


def bucket_counts(counts: Int64Array, edges: Int64Array) -> Int64Array:
    """Sum the counts of each bucket.

    >>> bucket_counts(np.array([2, 3, 8, 1, 0, 2, 0, 4, 2, 4]), np.array([0, 2, 3, 7, 10])).tolist()
    [5, 8, 3, 10]
    """
    return np.add.reduceat(counts, edges[:-1])


def uniform_expansion(buckets: FloatArray, edges: Int64Array) -> FloatArray:
    """Spread each bucket's count evenly over its bins.

    Source: Li et al. (2014), definition 1.

    >>> uniform_expansion(np.array([6.3, 7.1, 3.6, 8.4]), np.array([0, 2, 3, 7, 10])).round(2).tolist()
    [3.15, 3.15, 7.1, 0.9, 0.9, 0.9, 0.9, 2.8, 2.8, 2.8]
    """
    widths = np.diff(edges)
    return np.repeat(buckets / widths, widths)


def bucket_positions(bin_edges: Int64Array, edges: Int64Array) -> FloatArray:
    """Return bin edges as positions among the buckets; an edge inside a bucket has a fractional position.

    Source: Li et al. (2014), definition 6 (the positions are the transformed query's bounds) and example 3:

    >>> bucket_positions(np.array([1, 6]), np.array([0, 2, 3, 7, 10])).tolist()
    [0.5, 2.75]
    """
    return np.interp(bin_edges, edges, np.arange(edges.size))


def squared_cover(edges: Int64Array, ranges: Int64Array) -> FloatArray:
    """Return, per range, the sum over blocks of (the fraction of the block that the range covers)^2.

    This is the variance of a range if each block has independent noise of variance 1, spread over its bins.

    >>> squared_cover(np.array([0, 2, 6]), np.array([[0, 6], [1, 3], [3, 3]])).tolist()
    [2.0, 0.3125, 0.0]
    """
    starts, ends = bucket_positions(ranges.T, edges)
    first, last = np.floor(starts), np.ceil(ends) - 1
    together = np.where(ends > starts, (ends - starts) ** 2, 0.0)
    apart = (first + 1 - starts) ** 2 + np.maximum(last - first - 1, 0) + (ends - last) ** 2
    return np.where(last > first, apart, together)


def spread_ranges(shape: tuple[int, ...], count: int = 2000) -> Int64Array:
    """Return ``count`` ranges spread evenly over all possible ones: a mechanism's default workload.

    Endpoints come from an additive recurrence of low discrepancy, so the ranges depend on the shape alone.

    >>> ranges = spread_ranges((10,))
    >>> ranges.shape, bool((ranges[:, 0] < ranges[:, 1]).all())
    ((2000, 2), True)
    """
    axes = len(shape)
    # The positive root of x^(d+1) = x + 1 gives the recurrence of least discrepancy known in d dimensions.
    ratio = 1.5
    for _ in range(64):
        ratio = (1.0 + ratio) ** (1.0 / (2 * axes + 1))
    steps = ratio ** -np.arange(1, 2 * axes + 1)
    points = (0.5 + np.arange(1, count + 1)[:, None] * steps) % 1.0
    columns = []
    for axis, size in enumerate(shape):
        # Two distinct edges of the size + 1: the second is drawn from the others.
        first = np.floor(points[:, 2 * axis] * (size + 1)).astype(np.int64)
        second = (first + 1 + np.floor(points[:, 2 * axis + 1] * size).astype(np.int64)) % (size + 1)
        columns += [np.minimum(first, second), np.maximum(first, second)]
    return np.stack(columns, axis=1)
