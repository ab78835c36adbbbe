"""The Hilbert curve over any grid, and DAWA along it."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms.base import HistogramRelease, RangeFunction, Request
from dphist.mechanisms.dawa.mechanism import PARTITION_SHARE, dawa

# More runs than this do not change the choice of buckets.
_LARGEST_WORKLOAD = 20_000


def dawa_hilbert(request: Request, *, partition_share: Fraction = PARTITION_SHARE) -> HistogramRelease:
    """Lay the grid out along the Hilbert curve and run DAWA on the line (DAWA, two-dimensional).

    The workload's rectangles become the runs of the curve inside them.

    Guarantee: as ``dawa``; the curve depends on the shape alone and each bin is one bin of the line.
        Estimates are not rounded: truncating them to integers would bias every sum. ``variance`` is that of
        the noise, given the partition.
    Cost: O(bins log^2 bins); the variance of a rectangle O(r^2 log bins) for r runs.
    Source: Li, Hay, Miklau, Wang (2014), section 5.4.
    """
    rows, columns = request.counts.shape
    order = hilbert_order(rows, columns)
    runs = curve_runs(request.ranges, order, (rows, columns))
    step = -(-len(runs) // _LARGEST_WORKLOAD)
    line = replace(
        request, counts=request.counts.ravel()[order], workload=runs[::step] if len(runs) else None
    )
    made = dawa(line, partition_share=partition_share)
    counts = np.empty(rows * columns)
    counts[order] = made.counts
    of_runs = made.variance_from
    assert of_runs is not None

    def variance(ranges: Int64Array) -> FloatArray:
        each = (curve_runs(rectangle[None, :], order, (rows, columns)) for rectangle in ranges)
        return np.array([_union_variance(of_runs, runs) for runs in each])

    return request.release(counts.reshape(rows, columns), variance=variance, published=made.published)


def _union_variance(of_runs: RangeFunction, runs: Int64Array) -> float:
    """Return the variance of the sum of disjoint runs, from the variances of single runs.

    The sum is a sum of running counts at the runs' ends, with signs that add up to zero. So its variance is
    minus the sum, over all pairs of ends, of both signs' product times the variance of the count between
    them.
    """
    ends = runs.ravel()
    signs = np.tile([-1.0, 1.0], len(runs))
    first, second = np.triu_indices(ends.size, 1)
    pairs = np.sort(np.stack([ends[first], ends[second]], axis=1), axis=1)
    return max(0.0, -float((signs[first] * signs[second]) @ of_runs(pairs)))


def hilbert_order(rows: int, columns: int) -> Int64Array:
    """Return the bins, as row * columns + column, in the order of a Hilbert curve.

    The curve fills the smallest square with a power-of-two side; bins outside the grid are left out.

    Cost: O(side^2 log side).

    >>> hilbert_order(2, 2).tolist()
    [0, 1, 3, 2]
    """
    side = 1 << max(rows - 1, columns - 1).bit_length()
    rest = np.arange(side * side)
    row, column = np.zeros_like(rest), np.zeros_like(rest)
    size = 1
    while size < side:
        # The lowest two binary digits of the position choose the quarter; two quarters rotate their content.
        down = (rest >> 1) & 1
        across = (rest ^ down) & 1
        turned, flipped = across == 0, (across == 0) & (down == 1)
        row, column = np.where(flipped, size - 1 - row, row), np.where(flipped, size - 1 - column, column)
        row, column = np.where(turned, column, row), np.where(turned, row, column)
        row, column = row + size * down, column + size * across
        rest >>= 2
        size *= 2
    inside = (row < rows) & (column < columns)
    return np.asarray((row * columns + column)[inside])


def curve_runs(rectangles: Int64Array, order: Int64Array, shape: tuple[int, int]) -> Int64Array:
    """Return the half-open runs of the curve that cover the rectangles, rectangle by rectangle.

    Only the bins on a rectangle's border need a check: the curve moves from bin to neighbouring bin (or skips
    bins beyond the edge of the grid), so a run starts and ends on the border.

    Cost: O(sum of the rectangles' perimeters).

    >>> curve_runs(np.array([[0, 2, 0, 1], [0, 2, 0, 2]]), hilbert_order(2, 2), (2, 2)).tolist()
    [[0, 1], [3, 4], [0, 4]]
    """
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    place = place.reshape(shape)
    row, column = np.divmod(order, shape[1])
    runs = [np.empty((0, 2), dtype=np.int64)]
    for top, bottom, left, right in rectangles.tolist():
        if top == bottom or left == right:
            continue
        block = place[top:bottom, left:right]
        border = np.unique(np.concatenate([block[0], block[-1], block[:, 0], block[:, -1]]))
        rectangle = top, bottom, left, right
        starts = border[~_holds(rectangle, border - 1, row, column)]
        ends = border[~_holds(rectangle, border + 1, row, column)] + 1
        runs.append(np.stack([starts, ends], axis=1))
    return np.concatenate(runs)


def _holds(
    rectangle: tuple[int, int, int, int], places: Int64Array, row: Int64Array, column: Int64Array
) -> NDArray[np.bool_]:
    """Return, per position of the curve, whether it is in the rectangle; positions off the curve are not."""
    top, bottom, left, right = rectangle
    known = np.clip(places, 0, row.size - 1)
    inside = (top <= row[known]) & (row[known] < bottom) & (left <= column[known]) & (column[known] < right)
    return np.asarray(inside & (known == places))
