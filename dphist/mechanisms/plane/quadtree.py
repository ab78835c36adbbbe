"""QuadTree: quarter the grid down to single bins and measure every square, with more budget below."""

from __future__ import annotations

from dphist.mechanisms.base import HistogramRelease, Request
from dphist.mechanisms.plane.rectangles import RectangleTree, quarters

# Cormode et al.: the budgets that minimise the worst rectangle's variance bound grow by the cube root of 2.
LEVEL_GROWTH = 2 ** (1 / 3)


def quadtree(
    request: Request, *, depth: int | None = None, level_growth: float = LEVEL_GROWTH
) -> HistogramRelease:
    """Measure a quadtree with geometric budgets and make it consistent (QuadTree).

    Guarantee: epsilon-DP. The tree depends on the shape alone; one event changes one square of each level by
        one, and the levels' budgets add up to epsilon (``RectangleTree.measure``). Unbiased when the last
        level is single bins, the default; the noise's ``variance`` is then the whole squared error.
    Args: depth, how often squares are quartered, by default until they are bins; level_growth, the ratio of a
        level's budget to that of the level above.
    Cost: O(bins) and 4 / 3 draws per bin.
    Source: Cormode, Procopiuc, Srivastava, Shen, Yu (2012), sections 4 and 5.
    """
    tree = RectangleTree(request.counts.shape)
    while (depth is None or len(tree.levels) <= depth) and tree.grow(quarters):
        pass
    counts, variance = tree.measure(request, request.ledger.spend_rest("squares"), level_growth)
    return request.release(counts, variance=variance)
