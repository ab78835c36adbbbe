"""DPCube: cut the grid where noisy blocks differ, then measure the parts with fresh noise."""

import math
from fractions import Fraction

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms.base import HistogramRelease, Request
from dphist.mechanisms.plane.rectangles import areas, grid_blocks, grid_edges, paint
from dphist.mechanisms.ranges import prefix_sums, range_sums

# The paper's published code has 24 blocks across 256 bins.
_FEWEST_ACROSS = 24


def dpcube(
    request: Request,
    *,
    blocks_across: int | None = None,
    blocks_share: Fraction = Fraction(1, 2),
    threshold: float = 1.0,
    total_share: Fraction = Fraction(1, 50),
) -> HistogramRelease:
    """Measure a grid of blocks, cut it recursively into nearly uniform parts, measure the parts (DPCube).

    Guarantee: epsilon-DP. The total has scale 1 / its share. Blocks are disjoint, so one event changes one
        block by one. The cuts are computed from the noisy blocks alone. Parts are disjoint, so one event
        changes one part by one, and they get fresh noise. Each part's count is averaged with the sum of its
        noisy blocks by inverse variance. Biased if counts within a part are not uniform. No variance is
        stated: noisy blocks decide the cuts, so given the cuts their noise has another law.
    Args: blocks_across, by default the root of the noisy total times epsilon, at least 24 (if the number is
        given, no total is measured, and blocks and parts have all of epsilon); threshold, how much a cut must
        lower the sum of squared deviations, in units of a block's noise variance times the log of the number
        of places to cut.
    Cost: O(bins + parts blocks_across).
    Source: Xiao, Xiong, Fan, Goryczka, Li (2014). Code that draws the noise of both steps from one seed
        publishes differences without noise; here the two are independent. Their rule compares squared
        deviations with 1 / epsilon, which is in counts; here both sides are squares.
    """
    rows, columns = request.counts.shape
    if blocks_across is None:
        total = request.total(total_share)
        blocks_across = max(_FEWEST_ACROSS, math.isqrt(int(total * request.ledger.epsilon)))
    side = -(-max(rows, columns) // blocks_across)
    row_edges, column_edges = grid_edges(rows, side), grid_edges(columns, side)
    epsilon_blocks = request.ledger.spend("blocks", request.ledger.left * blocks_share)
    epsilon_parts = request.ledger.spend_rest("parts")
    blocks = grid_blocks(row_edges, column_edges)
    noisy, each = request.measure_with_variance(range_sums(request.counts, blocks), 1 / epsilon_blocks)
    grid = noisy.reshape(row_edges.size - 1, column_edges.size - 1)
    parts = uniform_parts(grid, threshold * each)
    rectangles = np.concatenate([row_edges[parts[:, :2]], column_edges[parts[:, 2:]]], axis=1)

    measured, own = request.measure_with_variance(range_sums(request.counts, rectangles), 1 / epsilon_parts)
    from_blocks, spread = range_sums(grid, parts), areas(parts) * each
    weight = spread / (spread + own) if own > 0 else np.ones(len(parts))
    counts = from_blocks + weight * (measured - from_blocks)
    return request.release(
        paint(counts, rectangles, (rows, columns)), published={"blocks": noisy, "rectangles": rectangles}
    )


def uniform_parts(grid: FloatArray, least_gain: float) -> Int64Array:
    """Cut the noisy grid, then each part, wherever the best cut gains enough."""
    prefix = prefix_sums(grid)
    parts, open_parts = [], [[0, grid.shape[0], 0, grid.shape[1]]]
    while open_parts:
        part = open_parts.pop()
        cut = _best_cut(prefix, part, least_gain)
        if cut is None:
            parts.append(part)
        else:
            open_parts += cut
    return np.array(parts)


def _best_cut(prefix: FloatArray, part: list[int], least_gain: float) -> tuple[list[int], list[int]] | None:
    """Return the two parts of the best cut of either axis, or None if no cut gains enough.

    Cutting n blocks of sum s into n1 blocks of sum s1 and n2 of sum s2 lowers the sum of their squared
    deviations by s1^2 / n1 + s2^2 / n2 - s^2 / n.
    """
    top, bottom, left, right = part
    height, width = bottom - top, right - left
    # The sums before each edge of the part, along its rows and along its columns.
    rows = prefix[top : bottom + 1, right] - prefix[top : bottom + 1, left]
    columns = prefix[bottom, left : right + 1] - prefix[top, left : right + 1]
    found = []
    for axis, sums, across in ((0, rows, width), (1, columns, height)):
        if sums.size > 2:
            first, total = sums[1:-1] - sums[0], sums[-1] - sums[0]
            blocks, number = np.arange(1, sums.size - 1) * across, height * width
            gains = first**2 / blocks + (total - first) ** 2 / (number - blocks) - total**2 / number
            best = int(np.argmax(gains))
            found.append((float(gains[best]), axis, part[2 * axis] + best + 1))
    gain, axis, place = max(found, default=(-math.inf, 0, 0))
    if gain <= least_gain * math.log(height + width):
        return None
    first_part, second_part = [*part], [*part]
    first_part[2 * axis + 1] = second_part[2 * axis] = place
    return first_part, second_part
