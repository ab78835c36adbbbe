"""The weight of each released node in the best estimate of a range.

Let q be the number of events in [a, b), and let a path node be a node that the range cuts, with k children.
Least squares gives each child 1/k of its parent's correction. So a node's part in q is alpha, the fraction of
its bins that are in [a, b). The estimate of q is a sum of estimates from below z with weights

    alpha (1 if whole) on the roots of the forest, and
    alpha_child - alpha_parent on the children of every path node (1 - alpha whole, -alpha outside).

The weights of the children of one parent add up to 0. So their weighted sum is uncorrelated with the parent's
z, and the variances add up: var q = sum of weight^2 * var z. The law of the error (``forest_laws.py``) needs
the weights of the nodes' own values instead. For these, each parent passes the part 1 - gain of its total
weight on to its children; a node's total weight is its weight here plus what its parent passes on.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from dphist.tree.design import TreeDesign
from dphist.tree.shape import TreeShape


class Term(NamedTuple):
    """Consecutive nodes of a level whose estimates from below have equal weight."""

    level: int
    first: int
    nodes: int
    weight: float


def range_weights(shape: TreeShape, bins: int, a: int, b: int) -> list[Term]:
    """Return the weights of the best linear unbiased estimate of bins [a, b) when ``bins`` bins are closed.

    Args: 0 <= a <= b <= bins.
    Cost: O(height^2).
    """
    return [
        term
        for level, first, count in shape.cover(bins)
        for term in _siblings(shape, level, first, first + count, a, b, 0.0)
    ]


@lru_cache(maxsize=1024)
def unfolded(design: TreeDesign, level: int) -> tuple[tuple[int, float, int], ...]:
    """Return a node's estimate from below as terms (level, weight, nodes) of its subtree's noisy values."""
    rows, passed = [], 1.0
    for below in range(level, design.shape.height + 1):
        gain = design.gains[below - 1]
        rows.append((below, passed * gain, design.shape.widths[level] // design.shape.widths[below]))
        passed *= 1.0 - gain
    return tuple(rows)


@lru_cache(maxsize=256)
def rounding_bounds(design: TreeDesign) -> tuple[float, ...]:
    """Return a bound per level, in units of 2^-16, on the rounding error of an estimate from below.

    A node's estimate is rounded once, by at most 1/2 plus a product's error; its children's bounds are added.
    """
    bounds = [0.0]
    for gain, k in zip(design.gains[-2::-1], design.branching[:0:-1], strict=True):
        bounds.append((1.0 - gain) * k * bounds[-1] + 0.5 + 2.0**-8)
    return tuple(reversed(bounds))


def _siblings(
    shape: TreeShape, level: int, first: int, stop: int, a: int, b: int, alpha: float
) -> Iterator[Term]:
    """Yield the terms of siblings (or roots) first..stop: those that [a, b) cuts, contains or leaves out.

    Args: alpha of the parent, 0 for roots.
    """
    width = shape.widths[level]
    low, high = (min(max(edge, first * width), stop * width) for edge in (a, b))
    if low == high:
        low = high = first * width
    touched, inside = range(low // width, -(-high // width)), range(-(-low // width), high // width)
    for nodes, weight in (
        (range(first, touched.start), -alpha),
        (inside, 1.0 - alpha),
        (range(touched.stop, stop), -alpha),
    ):
        if len(nodes) and weight:
            yield Term(level, nodes.start, len(nodes), weight)
    for index in sorted({edge // width for edge in (low, high) if edge % width}):
        part = (min(high, (index + 1) * width) - max(low, index * width)) / width
        if part != alpha:
            yield Term(level, index, 1, part - alpha)
        k = shape.branching[level]
        yield from _siblings(shape, level + 1, index * k, (index + 1) * k, a, b, part)
