"""Uniform and adaptive grids: blocks as fine as the number of events and epsilon justify."""

import math
from fractions import Fraction

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms.base import HistogramRelease, Request
from dphist.mechanisms.plane.rectangles import areas, grid_blocks, grid_edges, paint
from dphist.mechanisms.ranges import range_sums, squared_cover


def uniform_grid(
    request: Request,
    *,
    constant: float = 10.0,
    known_total: bool = False,
    total_share: Fraction = Fraction(1, 50),
) -> HistogramRelease:
    """Measure one grid of N epsilon / constant square blocks (UG).

    Guarantee: epsilon-DP. The total N, which sets the block size, is measured with scale 1 / share. Blocks
        are disjoint, so one event changes one block by one. With ``known_total`` the exact total is used and
        neighbours differ by one event moved, which changes two blocks: scale 2 / epsilon. Biased if counts
        within a block are not uniform; ``variance`` is that of the noise.
    Source: Qardaji, Yang, Li (2013), guideline 1. The exact total is not private if events may be added.
    """
    total = request.total(total_share, known=known_total)
    epsilon = request.ledger.spend_rest("blocks")
    rows, columns = request.counts.shape
    blocks = max(1.0, total * float(epsilon) / constant)
    side = max(1, math.floor(math.sqrt(rows * columns / blocks)))
    edges = grid_edges(rows, side), grid_edges(columns, side)
    rectangles = grid_blocks(*edges)
    moved = 2 if known_total else 1
    noisy, each = request.measure_with_variance(range_sums(request.counts, rectangles), moved / epsilon)

    def variance(ranges: Int64Array) -> FloatArray:
        return each * squared_cover(edges[0], ranges[:, :2]) * squared_cover(edges[1], ranges[:, 2:])

    return request.release(
        paint(noisy, rectangles, (rows, columns)),
        variance=variance,
        published={"rectangles": rectangles},
        known_total=known_total,
    )


def adaptive_grid(
    request: Request,
    *,
    constant: float = 10.0,
    fine_constant: float = 5.0,
    coarse_share: Fraction = Fraction(1, 2),
    known_total: bool = False,
    total_share: Fraction = Fraction(1, 50),
) -> HistogramRelease:
    """Measure a coarse grid, cut each block as finely as its noisy count justifies, measure again (AG).

    Guarantee: epsilon-DP. The total is measured as in ``uniform_grid``. Then one event changes one coarse
        block and one fine block by one; coarse and fine blocks each have a share of the remaining epsilon.
        (With ``known_total`` an event that is moved changes two coarse and two fine blocks, so scales are
        doubled.) How finely a block is cut depends on its noisy count. Biased if counts within a fine block
        are not uniform, and by the coarse noise, which decides how a block is cut and also enters its
        estimate; so no ``variance`` is stated.
    Source: Qardaji, Yang, Li (2013), section 4. If a coarse block has k fine ones, the two measurements are
        averaged by inverse variance with that k. Their formula uses m2^2 for k, even if there are fewer bins.
    """
    total = request.total(total_share, known=known_total)
    epsilon_coarse = request.ledger.spend("coarse blocks", request.ledger.left * coarse_share)
    epsilon_fine = request.ledger.spend_rest("fine blocks")
    moved = 2 if known_total else 1
    rows, columns = request.counts.shape
    wanted = total * float(epsilon_coarse + epsilon_fine) / constant
    across = max(10, math.floor(math.sqrt(wanted) / 4))
    side = max(1, math.floor(math.sqrt(rows * columns) / across))
    coarse = grid_blocks(grid_edges(rows, side), grid_edges(columns, side))
    noisy, own = request.measure_with_variance(range_sums(request.counts, coarse), moved / epsilon_coarse)

    fine, parents = _fine_blocks(coarse, noisy * float(epsilon_fine) / fine_constant)
    measured, each = request.measure_with_variance(range_sums(request.counts, fine), moved / epsilon_fine)
    children = np.bincount(parents, minlength=len(coarse))
    sums = np.bincount(parents, measured, len(coarse))
    spread = children * each
    both = own + spread
    weight = np.divide(spread, both, out=np.ones_like(both), where=both > 0)
    counts = measured + (weight * (noisy - sums) / children)[parents]
    return request.release(
        paint(counts, fine, (rows, columns)), published={"rectangles": fine}, known_total=known_total
    )


def _fine_blocks(coarse: Int64Array, wanted: FloatArray) -> tuple[Int64Array, Int64Array]:
    """Cut each coarse block into about ``wanted`` squares; return the squares, and each one's block."""
    across = np.floor(np.sqrt(np.maximum(wanted, 1.0)))
    sides = np.maximum(1, np.floor(np.sqrt(areas(coarse)) / across)).astype(np.int64)
    fine, parents = [], []
    for number, ((top, bottom, left, right), side) in enumerate(
        zip(coarse.tolist(), sides.tolist(), strict=True)
    ):
        blocks = grid_blocks(grid_edges(bottom - top, side) + top, grid_edges(right - left, side) + left)
        fine.append(blocks)
        parents.append(np.full(len(blocks), number))
    return np.concatenate(fine), np.concatenate(parents)
