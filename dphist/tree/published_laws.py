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

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.law import LawTable, WeightedNoise
from dphist.tree.decoder import WEIGHT_BITS, decoder_weights
from dphist.tree.design import TreeDesign
from dphist.tree.range_error import prefix_variances
from dphist.tree.shape import node_counts
from dphist.units import UNITS_PER_COUNT

_UNIT = 2.0**-WEIGHT_BITS


def published_laws(design: TreeDesign, starts: Int64Array, stops: Int64Array) -> LawTable:
    """Return the exact laws of the errors of published ranges [a, b), one per row; a = 0 gives a prefix.

    Guarantee: the laws for the decoder's own weights, with a term for each group of equal nodes.
    Args: an anticipating design; 0 <= a <= b <= horizon, each of shape (ranges,).
    Cost: O(height^2 * ranges), in numpy; for the first ranges of a design, O(horizon).
    """
    walk = _Walk(design, np.asarray(starts, np.int64), np.asarray(stops, np.int64))
    groups, (weights, copies) = _groups(design, walk.paths), walk.terms()
    nodes = copies[groups.terms] * groups.copies[:, np.newaxis]
    used = np.flatnonzero(nodes.any(axis=1))
    weights = weights[groups.terms[used]] * groups.weights[used, np.newaxis]
    return LawTable.of_uniform(weights.T, nodes[used].T, groups.scales[used])


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


class _Walk:
    """The paths of all ranges. Arrays are (levels, paths, ranges), root side first; few calls are quick."""

    def __init__(self, design: TreeDesign, starts: Int64Array, stops: Int64Array) -> None:
        self.design, self.decoder = design, decoder_weights(design)
        last, widths = design.horizon - 1, np.array(design.shape.widths[1:])[:, np.newaxis]
        # Ranges from 0 need no path to their start; if the horizon cuts nodes, the path to the last bin is
        # needed.
        bins = [np.minimum(starts, last)] if starts.any() else []
        bins.append(np.minimum(stops, last))
        if (design.horizon % widths).any():
            bins.append(np.full_like(stops, last))
        self.paths = len(bins)
        self.node = np.stack(bins) // widths[..., np.newaxis]
        self.fresh = np.ones(self.node.shape, np.bool_)  # no earlier path has the same node
        for place in range(1, self.paths):
            others = self.node[:, :place] != self.node[:, place, np.newaxis]
            self.fresh[:, place] = others.all(axis=1)
        # Per level and range, the first and the end index of the nodes that lie wholly inside.
        self.first, self.stop = -(-starts // widths)[:, np.newaxis], (stops // widths)[:, np.newaxis]
        self.alpha = self._alpha(starts, stops)

    def _alpha(self, starts: Int64Array, stops: Int64Array) -> FloatArray:
        node, below, inner = self.node[:-1], self.node[1:], len(self.node) - 1
        k = np.array(self.design.branching[1:]).reshape(-1, 1, 1)
        child = np.empty((inner, 4, *node.shape[1:]), np.int64)
        child[:, 0], child[:, 1] = np.maximum(self.stop, self.first)[1:], self.first[1:]
        child[:, 2], child[:, 3] = below + 1, below
        # The part of a node's correction that goes to all of its children before ``child``.
        begin = (node * k)[:, np.newaxis]
        before = np.minimum(np.maximum(child - begin, 0), k[:, np.newaxis])
        place = begin + np.maximum(before - 1, 0)
        handed = np.empty(child.shape)
        for level, parts in enumerate(self.decoder.parts):
            handed[level] = parts.reshape(-1)[place[level]]
        handed = np.where(before > 0, handed * _UNIT, 0.0)
        # First the children wholly inside; then those that the range or the horizon cuts.
        inside, own = handed[:, 0] - handed[:, 1], handed[:, 2] - handed[:, 3]
        cut = self.fresh[1:] & ((below < self.first[1:]) | (below >= self.stop[1:]))
        own = np.where(cut, own, 0.0)[:, np.newaxis] * (node[:, np.newaxis] == node[:, :, np.newaxis])
        alpha = np.empty(self.node.shape)
        alpha[-1] = (self.node[-1] >= starts) & (self.node[-1] < stops)
        for level in reversed(range(inner)):
            alpha[level] = inside[level] + (own[level] * alpha[level + 1]).sum(axis=1)
        return alpha

    def terms(self) -> tuple[FloatArray, FloatArray]:
        """Return weights and copies of the terms, (terms, ranges).

        First, for each level, its nodes off the paths that are wholly inside and wholly outside the range,
        for each path to their parents: (levels, 2, paths). Then the nodes on the paths: (levels, paths).
        """
        parent_alpha = np.zeros(self.alpha.shape)
        parent_alpha[1:] = self.alpha[:-1]
        gained, passed, weight = (
            self.alpha - parent_alpha,
            np.zeros(self.alpha.shape),
            np.empty(self.alpha.shape),
        )
        for level, children in enumerate(self.decoder.children):
            reach = gained[level] + passed[level]
            passed[level + 1] = reach * (children[self.node[level]] * _UNIT)
            weight[level] = reach - passed[level + 1]
        weight[-1] = gained[-1] + passed[-1]
        reach = np.array([1.0, 0.0])[:, np.newaxis, np.newaxis] - parent_alpha[:, np.newaxis]
        reach += passed[:, np.newaxis]
        ranges = self.alpha.shape[2]
        weights = (reach.reshape(-1, ranges), weight.reshape(-1, ranges))
        copies = (self._off_the_paths().reshape(-1, ranges), self.fresh.reshape(-1, ranges))
        return np.concatenate(weights), np.concatenate(copies, dtype=np.float64)

    def _off_the_paths(self) -> Int64Array:
        """Return how many children of each path's nodes are on no path: inside and outside, from the root."""
        counts = np.array(node_counts(self.design.shape, self.design.horizon)).reshape(-1, 1, 1)
        k = np.array(self.design.branching).reshape(-1, 1, 1)
        parent, fresh = np.zeros_like(self.node), np.zeros_like(self.fresh)
        parent[1:], fresh[1:], fresh[0, 0] = self.node[:-1], self.fresh[:-1], True
        first = parent * k
        stop = np.minimum(first + k, counts)
        low, high = (np.minimum(np.maximum(edge, first), stop) for edge in (self.first, self.stop))
        node, own = self.node[:, np.newaxis], self.fresh[:, np.newaxis]
        mine = own & (node >= first[:, :, np.newaxis]) & (node < stop[:, :, np.newaxis])
        whole = mine & (node >= low[:, :, np.newaxis]) & (node < high[:, :, np.newaxis])
        inside, on_paths = np.maximum(high - low, 0), whole.sum(axis=2)
        outside = stop - first - inside - (mine.sum(axis=2) - on_paths)
        return np.where(fresh[:, np.newaxis], np.stack([inside - on_paths, outside], axis=1), 0)


class _Groups(NamedTuple):
    """Groups of nodes with equal weights, from the top down, (groups,): a term of ``_Walk.terms`` for each.

    ``weights`` and ``copies`` multiply those of the term; ``scales`` are those of the groups' noise.
    """

    terms: Int64Array
    weights: FloatArray
    copies: FloatArray
    scales: FloatArray


@lru_cache(maxsize=64)
def _groups(design: TreeDesign, paths: int) -> _Groups:
    """Return the groups of all ranges with this number of paths."""
    found: list[tuple[float, ...]] = []
    on_paths = 2 * paths * design.shape.height  # the first of these terms
    for level, below in enumerate(unfolded_levels(design)):
        for term in range(2 * paths * level, 2 * paths * (level + 1)):
            found += [(term, *group) for group in below]
        own = range(on_paths + paths * level, on_paths + paths * (level + 1))
        found += [(term, 1.0, 1.0, float(design.scales[level])) for term in own]
    terms, *columns = np.array(found).T
    return _Groups(terms.astype(np.int64), *columns)


@lru_cache(maxsize=64)
def unfolded_levels(design: TreeDesign) -> list[list[tuple[float, int, float]]]:
    """Return, per level, a complete node's estimate: weight, copies and scale of its subtree's levels."""
    weights, scales = decoder_weights(design), [float(scale) for scale in design.scales]
    levels = []
    for level in design.shape.levels:
        rows, passed, nodes = [], 1.0, 1
        for below in range(level, design.shape.height):
            share = float(weights.children[below - 1][0]) * _UNIT
            rows.append((passed - passed * share, nodes, scales[below - 1]))
            passed, nodes = passed * share, nodes * design.branching[below]
        levels.append([*rows, (passed, nodes, scales[-1])])
    return levels
