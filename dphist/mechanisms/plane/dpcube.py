"""DPCube: cut the grid where noisy blocks differ, then measure the parts with fresh noise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms.base import HistogramRelease, Request
from dphist.mechanisms.budget import Epsilon
from dphist.mechanisms.plane.rectangles import areas, grid_blocks, grid_edges, paint
from dphist.mechanisms.ranges import prefix_sums, range_sums
from dphist.privacy import exact

# The paper's published code has 24 blocks across 256 bins.
_FEWEST_ACROSS = 24


def dpcube(
    request: Request,
    *,
    blocks_across: int | None = None,
    blocks_share: Epsilon = Fraction(1, 2),
    threshold: float = 1.0,
    total_share: Epsilon = Fraction(1, 50),
) -> HistogramRelease:
    """Measure a grid of blocks, cut it recursively into nearly uniform parts, measure the parts (DPCube).

    Guarantee: epsilon-DP. The total has scale 1 / its share. Blocks are disjoint, one event changes one by
        one; cuts come from the noisy blocks alone; parts are disjoint, one event changes one by one, and
        their noise is drawn afresh. Each part's count is averaged with the sum of its noisy blocks by inverse
        variance. Biased if counts within a part are not uniform. No variance is stated: noisy blocks decide
        the cuts, so given the cuts their noise has another law.
    Args: blocks_across the longer axis, by default the root of noisy total times epsilon, at least 24 (the
        total takes total_share); blocks_share of the rest; threshold, the least gain of a cut: how much it
        lowers the sum of squared deviations, in noise variances of a block times the log of the number of
        places to cut.
    Cost: O(bins + parts blocks_across).
    Source: Xiao, Xiong, Fan, Goryczka, Li (2014). Code that draws both steps' noise from one seed publishes
        differences without noise; here they are independent. Their rule compares squared deviations with
        1 / epsilon, a count; here both sides are squares.
    """
    rows, columns = request.counts.shape
    if blocks_across is None:
        total = request.total(total_share)
        blocks_across = max(_FEWEST_ACROSS, math.isqrt(int(total * request.ledger.epsilon)))
    side = -(-max(rows, columns) // blocks_across)
    row_edges, column_edges = grid_edges(rows, side), grid_edges(columns, side)
    epsilon_blocks = request.ledger.spend("blocks", request.ledger.left * exact(blocks_share))
    epsilon_parts = request.ledger.spend_rest("parts")
    blocks = grid_blocks(row_edges, column_edges)
    noisy, each = request.measure_with_variance(range_sums(request.counts, blocks), 1 / epsilon_blocks)
    grid = noisy.reshape(row_edges.size - 1, column_edges.size - 1)
    parts = _parts(grid, threshold * each)
    rectangles = np.concatenate([row_edges[parts[:, :2]], column_edges[parts[:, 2:]]], axis=1)

    measured, own = request.measure_with_variance(range_sums(request.counts, rectangles), 1 / epsilon_parts)
    from_blocks, spread = range_sums(grid, parts), areas(parts) * each
    weight = spread / (spread + own) if own > 0 else np.ones(len(parts))
    counts = from_blocks + weight * (measured - from_blocks)
    return request.release(
        paint(counts, rectangles, (rows, columns)), published={"blocks": noisy, "rectangles": rectangles}
    )


def _parts(grid: FloatArray, least_gain: float) -> Int64Array:
    """Cut the noisy grid, longer side first, wherever the best cut gains enough."""
    sums = prefix_sums(grid)
    parts, open_parts = [], [(0, grid.shape[0], 0, grid.shape[1])]
    while open_parts:
        part = open_parts.pop()
        cut = _best_cut(sums, part, least_gain)
        if cut is None:
            parts.append(part)
        else:
            open_parts += cut
    return np.array(parts, dtype=np.int64)


def _best_cut(
    sums: FloatArray, part: tuple[int, int, int, int], least_gain: float
) -> list[tuple[int, int, int, int]] | None:
    """Return the two parts of the best cut of either axis, or None if no cut gains enough.

    Cutting n blocks of sum s into n1 of s1 and n2 of s2 lowers their squared deviations by
    s1^2 / n1 + s2^2 / n2 - s^2 / n.
    """
    top, bottom, left, right = part
    height, width = bottom - top, right - left
    if height * width == 1:
        return None
    found: list[tuple[float, int, int]] = []
    for axis, length, across in ((0, height, width), (1, width, height)):
        if length == 1:
            continue
        if axis == 0:
            cumulative = sums[top : bottom + 1, right] - sums[top : bottom + 1, left]
        else:
            cumulative = sums[bottom, left : right + 1] - sums[top, left : right + 1]
        first = cumulative[1:-1] - cumulative[0]
        total = cumulative[-1] - cumulative[0]
        bins = np.arange(1, length) * across
        gain = first**2 / bins + (total - first) ** 2 / (height * width - bins) - total**2 / (height * width)
        place = int(np.argmax(gain))
        found.append((float(gain[place]), axis, place + 1))
    gain, axis, place = max(found)
    if gain <= least_gain * math.log(height + width):
        return None
    if axis == 0:
        return [(top, top + place, left, right), (top + place, bottom, left, right)]
    return [(top, bottom, left, left + place), (top, bottom, left + place, right)]
