"""QuadTree and HybridTree: cut the grid into quarters of quarters and measure every rectangle."""

from fractions import Fraction

import numpy as np

from dphist.arrays import Int64Array
from dphist.mechanisms.base import HistogramRelease, Request
from dphist.mechanisms.plane.rectangles import RectangleTree

# Cormode et al.: the budgets that minimise the worst rectangle's variance bound grow by the cube root of 2.
LEVEL_GROWTH = 2 ** (1 / 3)


def quadtree(
    request: Request, *, depth: int | None = None, level_growth: float = LEVEL_GROWTH
) -> HistogramRelease:
    """Measure a quadtree with geometric budgets and make it consistent (QuadTree).

    Guarantee: epsilon-DP. The tree depends on the shape alone; one event changes one square of each level by
        one, and the levels' budgets add up to epsilon (``RectangleTree.measure``). Unbiased if the last level
        is single bins (the default); ``variance`` is then the whole squared error.
    Cost: O(bins) and 4 / 3 draws per bin.
    Source: Cormode, Procopiuc, Srivastava, Shen, Yu (2012), sections 4 and 5.
    """
    tree = RectangleTree(request.counts.shape)
    tree.grow_down_to(depth)
    counts, variance = tree.measure(request, request.ledger.spend_rest("squares"), level_growth)
    return request.release(counts, variance=variance)


def hybridtree(
    request: Request,
    *,
    median_levels: int | None = None,
    median_share: Fraction = Fraction(3, 10),
    depth: int | None = None,
) -> HistogramRelease:
    """Measure a tree of rectangles, cut at private medians on upper levels, in the middle below (kd-hybrid).

    Guarantee: epsilon-DP. Each upper level cuts all its rectangles along rows, then the halves along columns.
        The rectangles are disjoint, so each of these two steps costs one part e of the medians' share; all
        parts are equal and add up. The score of a place is -|events before - events after|, a whole number
        that one event changes by one; the place is drawn with scale 2 / e. Counts have the rest of epsilon
        (``RectangleTree.measure``). How many levels there are depends on the cuts, which are published.
        Unbiased if the last level is single bins (the default); ``variance`` is for the given cuts.
    Cost: O(bins) per level.
    Source: Cormode, Procopiuc, Srivastava, Shen, Yu (2012), section 3.3, with their share of 0.3.
    """
    medians = max(request.counts.shape).bit_length() // 2 if median_levels is None else median_levels
    if depth is not None and depth < medians:
        raise ValueError(
            f"{request.mechanism} has {medians} median levels of {depth}; choose from 0 to the depth"
        )
    tree = RectangleTree(request.counts.shape)
    if medians:
        epsilon = request.ledger.spend_share("medians", median_share) / (2 * medians)
        for _ in range(medians):
            tree.grow(lambda parts, axis: _private_medians(request, parts, axis, epsilon))
    cut = tree.levels[-1]
    tree.grow_down_to(depth)
    counts, variance = tree.measure(request, request.ledger.spend_rest("rectangles"), LEVEL_GROWTH)
    return request.release(counts, variance=variance, published={"rectangles": cut})


def _private_medians(request: Request, rectangles: Int64Array, axis: int, epsilon: Fraction) -> Int64Array:
    """Choose privately, for each rectangle, a cut with about as many events before it as after it."""
    cuts = rectangles[:, 2 * axis].copy()  # a cut at the start leaves a rectangle whole
    for number, (top, bottom, left, right) in enumerate(rectangles):
        events = np.cumsum(request.counts[top:bottom, left:right].sum(axis=1 - axis))
        if events.size > 1:
            # Events before a place minus events after it: twice those before, minus all.
            scores = -np.abs(2 * events[:-1] - events[-1])
            cuts[number] += 1 + request.select(scores, 2 / epsilon)
    return cuts
