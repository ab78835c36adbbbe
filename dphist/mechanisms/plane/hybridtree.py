"""HybridTree: cut at private medians on the upper levels, quarter below, and measure every rectangle."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dphist.arrays import Int64Array
from dphist.mechanisms.base import HistogramRelease, Request
from dphist.mechanisms.budget import Epsilon
from dphist.mechanisms.plane.quadtree import LEVEL_GROWTH
from dphist.mechanisms.plane.rectangles import RectangleTree, halves, quarters


def hybridtree(
    request: Request,
    *,
    median_levels: int | None = None,
    median_share: Epsilon = Fraction(3, 10),
    depth: int | None = None,
) -> HistogramRelease:
    """Measure rectangles cut at private medians on the upper levels and in the middle below (kd-hybrid).

    Guarantee: epsilon-DP. Rectangles of one cut are disjoint, so the two cuts of each upper level add up,
        each with an equal part e of the medians' share. A place scores -|events before - events after|,
        whole numbers that one event moves by one, drawn with scale 2 / e. Which axis is cut is fixed, rows
        before columns, never chosen from exact counts. Counts have the rest (``RectangleTree.measure``).
        How many levels there are depends on the cuts, which are published. Unbiased where the last level is
        single bins, the default; the noise's ``variance``, given the cuts, is then the whole squared error.
    Args: median_levels, by default half of the quadtree's depth; median_share of epsilon; depth, levels
        below the root, by default as many as it takes to reach single bins.
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
            tree.grow(lambda rectangles: _median_quarters(request, rectangles, epsilon))
    cut = tree.levels[-1]
    while (depth is None or len(tree.levels) <= depth) and tree.grow(quarters):
        pass
    counts, variance = tree.measure(request, request.ledger.spend_rest("rectangles"), LEVEL_GROWTH)
    return request.release(counts, variance=variance, published={"rectangles": cut})


def _median_quarters(
    request: Request, rectangles: Int64Array, epsilon: Fraction
) -> tuple[Int64Array, Int64Array]:
    """Cut each rectangle at a private median of its rows, then both parts at medians of their columns."""
    parts, parents = rectangles, np.arange(len(rectangles))
    for axis in (0, 1):
        cuts = np.array([_private_median(request, part, axis, epsilon) for part in parts])
        parts, above = halves(parts, axis, cuts)
        parents = parents[above]
    return parts, parents


def _private_median(request: Request, rectangle: Int64Array, axis: int, epsilon: Fraction) -> int:
    top, bottom, left, right = rectangle
    start, end = rectangle[2 * axis : 2 * axis + 2]
    if end - start < 2:
        return int(start)
    events = np.cumsum(request.counts[top:bottom, left:right].sum(axis=1 - axis))
    # Events before a place minus events after it: twice those before, minus all.
    scores = -np.abs(2 * events[:-1] - events[-1])
    return int(start) + 1 + request.select(scores, 2 / epsilon)
