"""How much each released node counts in the best estimate of a range.

Let q be the number of events in [a, b), and let a path node be one that the range cuts, with k children.
Least squares hands each child 1/k of what its parent knows better, so a node's part in q is
alpha = |[a, b) within the node| / |node|, and q estimated is a sum of estimates from below z with the weights

    alpha (1 if whole) on the roots of the forest, and
    alpha_child - alpha_parent on the children of every path node (1 - alpha whole, -alpha outside).

Weights under one parent add up to 0, so their sum is uncorrelated with the parent's z and the variances add
up: var q = sum of weight^2 * var z. For the law of the error, z is unfolded further into the nodes' own
values: the weight that reaches a node is its own plus what its parent passes on, (1 - gain) times its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from dphist.tree.design import TreeDesign
from dphist.tree.law import WeightedNoise


class Term(NamedTuple):
    """Consecutive nodes of a level with one weight on their estimates from below.

    ``reach`` is the weight that reaches these nodes in all, what ancestors pass on included; ``cut`` says
    that this is a path node, whose children have terms of their own.
    """

    level: int
    first: int
    nodes: int
    weight: float
    reach: float
    cut: bool


@dataclass(frozen=True)
class RangeWeights:
    """The best linear unbiased estimate of a range, as terms over estimates from below."""

    design: TreeDesign
    terms: tuple[Term, ...]

    @property
    def variance(self) -> float:
        """The exact variance, in counts squared."""
        below = self.design.variances_from_below
        return sum(term.nodes * term.weight**2 * below[term.level - 1] for term in self.terms)

    @property
    def rounding_units(self) -> float:
        """A bound on what integer estimates from below add, in units of 2^-16."""
        bounds = rounding_bounds(self.design)
        return sum(term.nodes * abs(term.weight) * bounds[term.level - 1] for term in self.terms)

    def law(self) -> WeightedNoise:
        """Return the law of the error, over the noise of single nodes."""
        design, scales = self.design, [float(scale) for scale in self.design.scales]
        groups, below = [], [unfolded(design, level) for level in design.shape.levels]
        for term in self.terms:
            if term.cut:
                gain = design.gains[term.level - 1]
                groups.append((term.reach * gain, term.nodes, scales[term.level - 1]))
                continue
            for level, weight, nodes in below[term.level - 1]:
                groups.append((term.reach * weight, term.nodes * nodes, scales[level - 1]))
        return WeightedNoise.of(groups)


def range_weights(design: TreeDesign, bins: int, a: int, b: int) -> RangeWeights:
    """Return the weights for bins [a, b) when ``bins`` bins are closed.

    Args: 0 <= a <= b <= bins.
    Cost: O(height^2).
    """
    terms: list[Term] = []
    for level, first, count in design.shape.cover(bins):
        terms += _siblings(design, level, first, first + count, a, b)
    return RangeWeights(design, tuple(terms))


def live_weights(design: TreeDesign, bins: int) -> RangeWeights:
    """Return the weights of the running count as first published: the greedy cover of [0, bins)."""
    cover = design.shape.cover(bins)
    return RangeWeights(
        design, tuple(Term(level, first, count, 1.0, 1.0, False) for level, first, count in cover)
    )


@lru_cache(maxsize=1024)
def unfolded(design: TreeDesign, level: int) -> tuple[tuple[int, float, int], ...]:
    """Write a node's estimate from below as (level, weight, nodes) over the values of its subtree."""
    rows, passed = [], 1.0
    for below in range(level, design.shape.height + 1):
        gain = design.gains[below - 1]
        rows.append((below, passed * gain, design.shape.widths[level] // design.shape.widths[below]))
        passed *= 1.0 - gain
    return tuple(rows)


@lru_cache(maxsize=256)
def rounding_bounds(design: TreeDesign) -> tuple[float, ...]:
    """Bound, per level, how far an integer estimate from below is from the exact one, in units of 2^-16.

    A node rounds once, by at most 1/2 and a trifle for the double product, and passes on its children's.
    """
    bounds = [0.0]
    for gain, k in zip(design.gains[-2::-1], design.branching[:0:-1], strict=True):
        bounds.append((1.0 - gain) * k * bounds[-1] + 0.5 + 2.0**-8)
    return tuple(reversed(bounds))


def _siblings(
    design: TreeDesign,
    level: int,
    first: int,
    stop: int,
    a: int,
    b: int,
    alpha: float = 0.0,
    passed: float = 0.0,
) -> Iterator[Term]:
    """Give terms to the siblings (or roots) first..stop: outside, inside and cut by the range [a, b).

    Args: alpha of the parent, 0 for roots; passed, the weight that the parent passes on to each child.
    """
    width = design.shape.widths[level]
    low, high = (min(max(edge, first * width), stop * width) for edge in (a, b))
    if low == high:
        low = high = first * width
    touched, inside = range(low // width, -(-high // width)), range(-(-low // width), high // width)
    for nodes, weight in (
        (range(first, touched.start), -alpha),
        (inside, 1.0 - alpha),
        (range(touched.stop, stop), -alpha),
    ):
        if len(nodes) and (weight or passed):
            yield Term(level, nodes.start, len(nodes), weight, weight + passed, False)
    for index in sorted({edge // width for edge in (low, high) if edge % width}):
        part = (min(high, (index + 1) * width) - max(low, index * width)) / width
        weight = part - alpha
        yield Term(level, index, 1, weight, weight + passed, True)
        k = design.shape.branching[level]
        passed_on = (1.0 - design.gains[level - 1]) * (weight + passed)
        yield from _siblings(design, level + 1, index * k, (index + 1) * k, a, b, part, passed_on)
