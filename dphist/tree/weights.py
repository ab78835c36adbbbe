"""The weight of each node in a weighted sum of ranges of one epoch, and the exact law of the sum's error.

Let q be the sum, and let alpha be a node's part in q: the weight of the ranges in the node, averaged over its
bins by the parts of its correction that least squares gives them. Released nodes give equal parts. A path
node is a node in which the weight changes. The estimate of q is a sum of estimates from below z with weights

    alpha on the roots of the forest, and
    alpha_child - alpha_parent on the children of every path node.

The weights of the children of one parent add up to 0 over equal parts. So their weighted sum is uncorrelated
with the parent's z, and the variances add up: var q = sum of weight^2 * var z. The law of the error needs the
weights of the nodes' own values instead. For these, each parent passes the share 1 - gain of its total weight
on to its children; a node's total weight is its weight here plus the part that its parent passes on. Ranges
share nodes, so the law of a sum is not that of independent ranges. ``forest_laws.py`` and
``published_laws.py`` have the laws of many single ranges at once.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from dphist.laws.law import WeightedNoise
from dphist.tree.decoder import WEIGHT_BITS, decoder_weights
from dphist.tree.design import TreeDesign
from dphist.tree.published_laws import unfolded_levels
from dphist.tree.shape import node_counts

_UNIT = 2.0**-WEIGHT_BITS
WeightedRange = tuple[int, int, float]  # bins [a, b) of an epoch, and the weight of their count


class Term(NamedTuple):
    """Consecutive nodes of a level whose subtree estimates have equal weight.

    ``own`` is each estimate's total weight, with the parts that ancestors pass on. A path node (``is_path``)
    is alone in its term: ``own`` weighs its noise only, because its children have separate terms.
    """

    level: int
    first: int
    nodes: int
    weight: float
    own: float
    is_path: bool


class ReleasedWeights:
    """The weights of a causal epoch's complete nodes. Args: bins, closed; ranges, within them."""

    def __init__(self, design: TreeDesign, bins: int, ranges: Sequence[WeightedRange]) -> None:
        self.design, self.bins = design, bins
        self._edges = sorted({0, bins, *(edge for a, b, _ in ranges for edge in (a, b))})
        self._values = [sum(w for a, b, w in ranges if a <= edge < b) for edge in self._edges]
        self._alphas: dict[tuple[int, int], float] = {}

    def terms(self) -> Iterator[Term]:
        """Yield the terms of the sum, roots first. Cost: O(height^2) for each edge of a range."""
        for level, first, nodes in self._roots():
            yield from self._siblings(level, first, first + nodes, 0.0, 0.0)

    def _roots(self) -> Sequence[tuple[int, int, int]]:
        return list(self.design.shape.cover(self.bins))

    def unfolded(self, level: int) -> list[tuple[float, int, float]]:
        """Return a complete node's estimate from below: weight, copies and scale of its subtree's levels."""
        scales = self.design.scales
        return [(w, nodes, float(scales[one - 1])) for one, w, nodes in unfolded(self.design, level)]

    def _share(self, level: int, node: int) -> float:
        """Return the weight of the children's sum in a path node's estimate."""
        return 1.0 - self.design.gains[level - 1]

    def _part(self, level: int, node: int, start: int, stop: int) -> float:
        """Return the part of a path node's correction that its children [start, stop) get."""
        return (stop - start) / self.design.branching[level]

    def _children(self, level: int, node: int) -> tuple[int, int]:
        k = self.design.branching[level]
        return node * k, (node + 1) * k

    def _siblings(self, level: int, first: int, stop: int, above: float, passed: float) -> Iterator[Term]:
        """Yield the terms of siblings (or roots). Args: above, the parent's alpha; 0 for roots."""
        for node, nodes, value in self._runs(level, first, stop):
            if value is not None:
                yield Term(level, node, nodes, value - above, value - above + passed, False)
                continue
            alpha, share = self._alpha(level, node), self._share(level, node)
            reach = alpha - above + passed
            yield Term(level, node, 1, alpha - above, reach - reach * share, True)
            yield from self._siblings(level + 1, *self._children(level, node), alpha, reach * share)

    def _alpha(self, level: int, node: int) -> float:
        if (level, node) not in self._alphas:
            self._alphas[level, node] = sum(
                self._part(level, node, child, child + nodes)
                * (self._alpha(level + 1, child) if value is None else value)
                for child, nodes, value in self._runs(level + 1, *self._children(level, node))
            )
        return self._alphas[level, node]

    def _runs(self, level: int, first: int, stop: int) -> Iterator[tuple[int, int, float | None]]:
        """Yield runs of nodes of equal weight, each with this weight, and path nodes, each with None."""
        width = self.design.shape.widths[level]
        while first < stop:
            piece = bisect_right(self._edges, first * width)
            nodes = min(self._edges[piece] // width, stop) - first
            yield (first, nodes, self._values[piece - 1]) if nodes > 0 else (first, 1, None)
            first += max(nodes, 1)


class PublishedWeights(ReleasedWeights):
    """The weights of all nodes of an anticipating epoch, which every published count uses.

    The horizon may cut nodes, which have weights of their own. So they are path nodes, too.
    """

    def __init__(self, design: TreeDesign, ranges: Sequence[WeightedRange]) -> None:
        super().__init__(design, design.horizon, ranges)
        self._decoder, self._counts = decoder_weights(design), node_counts(design.shape, design.horizon)

    def _roots(self) -> Sequence[tuple[int, int, int]]:
        return [(1, 0, self._counts[0])]

    def unfolded(self, level: int) -> list[tuple[float, int, float]]:
        return unfolded_levels(self.design)[level - 1]

    def _share(self, level: int, node: int) -> float:
        return float(self._decoder.children[level - 1][node]) * _UNIT

    def _part(self, level: int, node: int, start: int, stop: int) -> float:
        parts, begin = self._decoder.parts[level - 1][node], node * self.design.branching[level]
        before = int(parts[start - begin - 1]) if start > begin else 0
        return (int(parts[stop - begin - 1]) - before) * _UNIT

    def _children(self, level: int, node: int) -> tuple[int, int]:
        first, stop = super()._children(level, node)
        return first, min(stop, self._counts[level])


def range_weights(design: TreeDesign, bins: int, a: int, b: int) -> list[Term]:
    """Return the weights of the best linear unbiased estimate of bins [a, b) when ``bins`` bins are closed.

    Args: a causal design; 0 <= a <= b <= bins.
    """
    return [term for term in ReleasedWeights(design, bins, [(a, b, 1.0)]).terms() if term.weight]


@lru_cache(maxsize=128)
def weighted_law(design: TreeDesign, bins: int, ranges: tuple[WeightedRange, ...]) -> WeightedNoise:
    """Return the exact law of the error of a weighted sum of ranges of one epoch, which may share nodes.

    Args: bins, closed, for a causal design, whose best current estimates are added; an anticipating design
        adds published counts, whose errors no later bin changes.
    Cost: O(height^2) for each edge of a range, in Python: some 0.5 ms for two ranges.
    """
    weights = (
        PublishedWeights(design, ranges) if design.anticipates else ReleasedWeights(design, bins, ranges)
    )
    groups = list[tuple[float, int, float]]()
    for term in weights.terms():
        alone = [(1.0, 1, float(design.scales[term.level - 1]))]
        for weight, nodes, scale in alone if term.is_path else weights.unfolded(term.level):
            groups.append((term.own * weight, term.nodes * nodes, scale))
    return WeightedNoise.of(groups)


@lru_cache(maxsize=1024)
def unfolded(design: TreeDesign, level: int) -> tuple[tuple[int, float, int], ...]:
    """Return a released node's estimate from below as (level, weight, nodes) of its subtree's values."""
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
