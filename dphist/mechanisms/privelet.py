"""Noise on the Haar wavelet coefficients of the counts."""

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms.base import HistogramRelease, Request


def privelet(request: Request) -> HistogramRelease:
    """Measure the total and, for each node of a binary tree, the left half minus the right half.

    Guarantee: epsilon-DP. Empty bins are added up to 2^h bins. One event changes the total and one difference
        of each of the h levels by one, so these integers get noise of scale (h + 1) / epsilon. Unbiased; the
        variance of a range is exact.
    Source: Xiao, Wang, Gehrke (2010). Their coefficient of a node over L bins is this difference divided by
        L, with noise weighted by 1 / L. So equal noise on all differences is the same mechanism.
    """
    bins = request.counts.size
    height = (bins - 1).bit_length()
    scale = (height + 1) / request.ledger.spend_rest("coefficients")
    padded = np.zeros(1 << height, dtype=np.int64)
    padded[:bins] = request.counts
    noisy, each = request.measure_with_variance(haar_differences(padded), scale)
    return request.release(
        from_haar_differences(noisy)[:bins],
        variance=lambda ranges: each * _squared_weights(height, ranges),
        published={"coefficients": noisy},
    )


def haar_differences(values: Int64Array) -> Int64Array:
    """Return the total, then for each node, from the root down, its left half minus its right half.

    >>> haar_differences(np.array([2, 0, 10, 2])).tolist()
    [14, -10, 2, 8]
    """
    coefficients = np.empty_like(values)
    while values.size > 1:
        left, right = values[0::2], values[1::2]
        coefficients[left.size : values.size] = left - right
        values = left + right
    coefficients[0] = values[0]
    return coefficients


def from_haar_differences(coefficients: FloatArray) -> FloatArray:
    """Return the values that have this total and these differences."""
    values = coefficients[:1]
    while values.size < coefficients.size:
        differences = coefficients[values.size : 2 * values.size]
        finer = np.empty(2 * values.size)
        np.add(values, differences, out=finer[0::2])
        np.subtract(values, differences, out=finer[1::2])
        values = np.multiply(finer, 0.5, out=finer)
    return values


def _squared_weights(height: int, ranges: Int64Array) -> FloatArray:
    """Return, per range, the sum of the squared weights with which the coefficients enter its answer."""
    starts, ends = ranges.T
    total = ((ends - starts) / (1 << height)) ** 2
    for level in range(1, height + 1):
        at_start, at_end = (_tent(edges, level) for edges in (starts, ends))
        same = starts >> level == ends >> level
        total += np.where(same, (at_end - at_start) ** 2, at_start**2 + at_end**2)
    return np.asarray(total)


def _tent(edges: Int64Array, level: int) -> FloatArray:
    """Return, per edge, the weight in [0, edge) of its node's difference; nodes have 2^level bins."""
    inside = edges & ((1 << level) - 1)
    return np.asarray(np.minimum(inside, (1 << level) - inside) / (1 << level))
