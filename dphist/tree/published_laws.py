"""Laws of the errors of published ranges, as a table, in O(height^2) per range.

The error of a published range is a weighted sum of all nodes' noise; the decoder's weights give the weights.
All complete nodes of a level have equal decoder weights, so they can be grouped. Only the nodes on three
paths down the tree are treated one by one: the paths to the bins at the range's two ends, and the path to the
epoch's last bin, whose nodes the horizon may cut off. Each other node is below a complete child of a path
node, and wholly inside or wholly outside the range:

    alpha(v) = the part of v's correction that falls in the range = sum over children of part(c) alpha(c)
    reach(c) = alpha(c) - alpha(v) + share(v) reach(v),   weight of v's own noise = (1 - share(v)) reach(v)

with the decoder's integer weights for part and share, so the laws are exactly those of the published values.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dphist.arrays import BoolArray, FloatArray, Int64Array
from dphist.laws.law import LawTable, WeightedNoise
from dphist.tree.decoder import WEIGHT_BITS, decoder_weights
from dphist.tree.design import TreeDesign
from dphist.tree.epoch_nodes import node_counts
from dphist.tree.range_error import prefix_variances
from dphist.units import UNITS_PER_COUNT

_UNIT = 2.0**-WEIGHT_BITS


def published_laws(design: TreeDesign, starts: Int64Array, stops: Int64Array) -> LawTable:
    """Return the exact laws of the errors of published ranges [a, b), one per row; a = 0 gives a prefix.

    Guarantee: the laws for the decoder's own weights, with a term for each group of equal nodes.
    Args: an anticipating design; 0 <= a <= b <= horizon, each of shape (ranges,).
    Cost: O(height^2 * ranges), in numpy; for the first ranges of a design, O(horizon).
    """
    weights, copies, scales = zip(*_Walk(design, starts, stops).terms(), strict=True)
    nodes = np.concatenate(copies, axis=1)
    used = np.flatnonzero(nodes.any(axis=0))
    return LawTable.of_uniform(
        np.concatenate(weights, axis=1)[:, used], nodes[:, used], np.concatenate(scales)[used]
    )


def published_law(design: TreeDesign, a: int, b: int) -> WeightedNoise:
    """Return the law of the error of one published range [a, b). Cost: some 0.7 ms."""
    return published_laws(design, np.array([a]), np.array([b])).law(0)


def published_rounding(design: TreeDesign, a: int) -> float:
    """Return a bound, in counts, on the decoder's rounding error in a published range that starts at a."""
    return (1 + (a > 0)) * decoder_weights(design).rounding_units / UNITS_PER_COUNT


def published_prefix_variances(design: TreeDesign) -> FloatArray:
    """Return the variance of every published running count, t = 1..horizon, in closed form: (horizon,).

    Guarantee: exact for unrounded weights, which gives the decoder's variances up to about 1e-13.
    Cost: O(height * horizon).
    """
    return prefix_variances(design.shape, design.horizon, design.node_variances(), design.anticipates)


class _Terms(NamedTuple):
    """Groups of nodes with equal weights: ``weights`` and ``copies`` (ranges, groups), a scale per group."""

    weights: FloatArray
    copies: FloatArray
    scales: FloatArray


class _Paths(NamedTuple):
    """The paths' nodes on one level, (paths, ranges); ``fresh``: no earlier path has the same node."""

    node: Int64Array
    alpha: FloatArray
    fresh: BoolArray


class _Walk:
    """The paths of all ranges, level by level; ``paths[i]`` holds their nodes on level i + 1."""

    def __init__(self, design: TreeDesign, starts: Int64Array, stops: Int64Array) -> None:
        self.design = design
        self.weights = decoder_weights(design)
        self.counts = node_counts(design.shape, design.horizon)
        self.below_complete = _all_unfolded(design)
        self.starts, self.stops = np.asarray(starts, np.int64), np.asarray(stops, np.int64)
        last = design.horizon - 1
        # Ranges from 0 need no path to their start; if the horizon cuts nodes, the path to the last bin is
        # needed.
        bins = [np.minimum(self.starts, last)] if self.starts.any() else []
        bins.append(np.minimum(self.stops, last))
        if any(design.horizon % width for width in design.shape.widths[1:]):
            bins.append(np.full_like(self.stops, last))
        self.paths = self._from_below(np.stack(bins))

    def inside(self, level: int) -> tuple[Int64Array, Int64Array]:
        """Return, per range, the first and the end index of the level's nodes that lie wholly inside."""
        width = self.design.shape.widths[level]
        return -(-self.starts // width), self.stops // width

    def _from_below(self, bins: Int64Array) -> list[_Paths]:
        """Return, root side first, each level's nodes on the paths to these bins, with their ``alpha``."""
        levels: list[_Paths] = []
        for level in reversed(self.design.shape.levels):
            node = bins // self.design.shape.widths[level]
            fresh = np.ones(node.shape, np.bool_)
            for place in range(1, len(node)):
                fresh[place] = (node[:place] != node[place]).all(axis=0)
            if levels:
                alpha = self._alpha(level, node, levels[-1])
            else:
                alpha = ((node >= self.starts) & (node < self.stops)).astype(np.float64)
            levels.append(_Paths(node, alpha, fresh))
        return levels[::-1]

    def _alpha(self, level: int, node: Int64Array, below: _Paths) -> FloatArray:
        k = self.design.branching[level]
        first, stop = self.inside(level + 1)
        parent = below.node // k
        of, child = np.empty((2, 4, *node.shape), np.int64)  # one call for all: few calls are quick
        of[:2], of[2:] = node, parent
        child[0], child[1], child[2], child[3] = np.maximum(stop, first), first, below.node + 1, below.node
        handed = self._handed(level, of, child)
        # First the children wholly inside; then those that the range or the horizon cuts.
        alpha, own = handed[0] - handed[1], handed[2] - handed[3]
        cut = below.fresh & ((below.node < first) | (below.node >= stop))
        parts = np.where(cut, own * below.alpha, 0.0)
        return np.asarray(alpha + np.where(parent == node[:, np.newaxis], parts, 0.0).sum(axis=1))

    def _handed(self, level: int, node: Int64Array, child: Int64Array) -> FloatArray:
        """Return the part of a node's correction that goes to all of its children before ``child``."""
        parts, k = self.weights.parts[level - 1], self.design.branching[level]
        before = np.minimum(np.maximum(child - node * k, 0), k)
        return np.where(before > 0, parts[node, before - 1] * _UNIT, 0.0)

    def terms(self) -> Iterator[_Terms]:
        """Yield groups of nodes with equal weights, from the top down."""
        nothing = np.zeros((1, len(self.stops)))
        parents = _Paths(np.zeros_like(self.stops)[np.newaxis], nothing, np.ones(nothing.shape, np.bool_))
        passed = nothing
        for level, paths in zip(self.design.shape.levels, self.paths, strict=True):
            yield self._children(level, parents, passed)
            reach = weight = paths.alpha - parents.alpha + passed
            if level < self.design.shape.height:
                passed = reach * (self.weights.children[level - 1][paths.node] * _UNIT)
                weight = reach - passed
            scale = np.full(len(weight), float(self.design.scales[level - 1]))
            yield _Terms(weight.T, paths.fresh.T.astype(np.float64), scale)
            parents = paths

    def _children(self, level: int, parents: _Paths, passed: FloatArray) -> _Terms:
        """Return the terms of the path nodes' children off the paths, and of all nodes below these."""
        k = self.design.branching[level - 1] if level > 1 else self.counts[0]
        first = parents.node * k
        stop = np.minimum(first + k, self.counts[level - 1])
        low, high = (np.minimum(np.maximum(edge, first), stop) for edge in self.inside(level))
        node, fresh = self.paths[level - 1].node, self.paths[level - 1].fresh
        mine = fresh & (node >= first[:, np.newaxis]) & (node < stop[:, np.newaxis])
        whole = mine & (node >= low[:, np.newaxis]) & (node < high[:, np.newaxis])
        inside = np.maximum(high - low, 0)
        outside = stop - first - inside - (mine & ~whole).sum(axis=1)
        inside = inside - whole.sum(axis=1)
        copies = np.where(parents.fresh, np.stack([inside, outside]), 0)
        reach = np.array([1.0, 0.0])[:, np.newaxis, np.newaxis] - parents.alpha + passed
        below, ranges = self.below_complete[level - 1], len(self.stops)
        return _Terms(
            np.multiply.outer(reach, below.weights).transpose(2, 0, 1, 3).reshape(ranges, -1),
            np.multiply.outer(copies, below.copies).transpose(2, 0, 1, 3).reshape(ranges, -1),
            np.tile(below.scales, 2 * len(passed)),
        )


@lru_cache(maxsize=64)
def _all_unfolded(design: TreeDesign) -> tuple[_Terms, ...]:
    """Return, per level, the weights of a complete node's estimate on the noise of its subtree's levels."""
    weights, scales = decoder_weights(design), [float(scale) for scale in design.scales]
    levels = []
    for level in design.shape.levels:
        rows, passed, nodes = [], 1.0, 1
        for below in range(level, design.shape.height):
            share = float(weights.children[below - 1][0]) * _UNIT
            rows.append((passed - passed * share, nodes, scales[below - 1]))
            passed, nodes = passed * share, nodes * design.branching[below]
        rows.append((passed, nodes, scales[-1]))
        levels.append(_Terms(*np.array(rows).T))
    return tuple(levels)
