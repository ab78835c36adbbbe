"""Laws of published ranges on trees with a share per node, in O(height) numbers a range.

Nearly every node has a weight of its own, but what matters of all nodes under a node that the range does not
cut is the sums of powers of their weights (``merged_noise.py``), and those are the same for every range up to
one factor, the subtree's reach:

    alpha(v) = the part of v's correction that lands in the range = sum over children of part(c) alpha(c)
    reach(c) = alpha(c) - alpha(v) + share(v) reach(v),   weight of v's own noise = (1 - share(v)) reach(v)

Nodes that the range cuts, at most two a level, keep terms of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dphist.noise import Int64Array
from dphist.tree.decoder import WEIGHT_BITS, decoder_weights
from dphist.tree.design import TreeDesign
from dphist.tree.epoch_nodes import by_parent, node_counts, to_children
from dphist.tree.law import LawTable, WeightedNoise
from dphist.tree.merged_noise import FEATURES, LEAST_SCALE, WEIGHT_POWERS, merged, term_features
from dphist.tree.node_design import NodeDesign

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_UNIT = 2.0**-WEIGHT_BITS
LEAST_NODES = 512


def noise_weights(design: TreeDesign | NodeDesign, a: int, b: int) -> list[FloatArray]:
    """Return how much each node's noise counts in o_b - o_a of an anticipating design.

    Args: 0 <= a <= b <= horizon.
    Returns: per measured level, root side first, shape (nodes,).
    Cost: O(nodes).
    """
    weights, unit = decoder_weights(design), 2.0**-WEIGHT_BITS
    inside = np.zeros(design.horizon)
    inside[a:b] = 1.0
    # From the leaves up: alpha, the part of a node's correction that lands in the range.
    alphas = [inside]
    for parts, k in zip(weights.parts[::-1], design.branching[:0:-1], strict=True):
        alphas.append((np.diff(parts, axis=1, prepend=0) * unit * by_parent(alphas[-1], k)).sum(axis=1))
    alphas.reverse()
    # From the top down: what reaches a node is its own weight and what its parent passes on.
    reach, own = alphas[0], []
    for level, share in enumerate(weights.children, start=1):
        passed = reach * (share * unit)
        own.append(reach - passed)
        k, children = design.branching[level], len(alphas[level])
        reach = alphas[level] - to_children(alphas[level - 1] - passed, k, children)
    return [*own, reach]


@lru_cache(maxsize=4096)
def whole_law(design: NodeDesign, a: int, b: int) -> WeightedNoise:
    """Return the law of a published range with a term for every node and weight, nothing merged.

    Cost: O(nodes), and up to a group for each of them.
    """
    groups: list[tuple[float, int, float]] = []
    for weights, scales in zip(noise_weights(design, a, b), design.node_scales, strict=True):
        used = (weights != 0.0) & (scales > 0.0)
        # Pairs as complex numbers: sorted many times faster than rows are.
        pairs, copies = np.unique(np.abs(weights[used]) + 1j * scales[used], return_counts=True)
        groups += [(pair.real, int(n), pair.imag) for pair, n in zip(pairs.tolist(), copies, strict=True)]
    return WeightedNoise.of(groups)


def can_merge(design: NodeDesign) -> bool:
    """Return whether a design's laws may be merged.

    Few weights keep a lattice of their own, which a merged law lacks, and so does noise that is mostly 0.
    """
    many = sum(node_counts(design.shape, design.horizon)) >= LEAST_NODES
    return many and min(design.scale_of_part.values()) >= LEAST_SCALE


def merged_laws(design: NodeDesign, starts: Int64Array, stops: Int64Array) -> LawTable:
    """Return the laws of the errors of published ranges [a, b), one a row; of prefixes with a = 0.

    Guarantee: probabilities are those of ``whole_law`` up to each law's ``slack``, which
        intervals are charged with; variances agree to rounding.
    Args: an anticipating design; 0 <= a <= b <= horizon, each of shape (ranges,).
    Cost: O(height * ranges) in numpy, 30 microseconds a range; O(nodes) once a design.
    """
    return _Ranges(design, np.asarray(starts, np.int64), np.asarray(stops, np.int64)).laws()


@dataclass(frozen=True, eq=False)
class Subtrees:
    """Per level, root side first: what a node's whole subtree adds to a law, per unit of its reach.

    ``before`` (parents, branching + 1, FEATURES) sums the features of a parent's first children; ``parts``
    (parents, branching + 1) what it hands to them; ``share`` and ``scales`` (nodes,) are the nodes' own.
    """

    before: tuple[FloatArray, ...]
    parts: tuple[FloatArray, ...]
    share: tuple[FloatArray, ...]
    scales: tuple[FloatArray, ...]


@lru_cache(maxsize=8)
def subtrees_of(design: NodeDesign) -> Subtrees:
    weights, counts = decoder_weights(design), node_counts(design.shape, design.horizon)
    shares: list[FloatArray] = [np.asarray(share * _UNIT) for share in weights.children]
    shares.append(np.zeros(design.horizon))
    features: FloatArray | None = None
    before: list[FloatArray] = []
    for level in range(design.shape.height, 0, -1):
        share = shares[level - 1][:, np.newaxis]
        own = term_features(design.node_scales[level - 1], design.node_variances[level - 1])
        total = own * (1.0 - share) ** WEIGHT_POWERS
        if features is not None:
            total += _children(features, design.branching[level]).sum(axis=1) * share**WEIGHT_POWERS
        features = total
        rows = _children(features, design.branching[level - 1] if level > 1 else counts[0])
        before.append(np.zeros((len(rows), rows.shape[1] + 1, FEATURES)))
        np.cumsum(rows, axis=1, out=before[-1][:, 1:])
    parts: list[FloatArray] = [np.zeros((1, counts[0] + 1))]
    for handed in weights.parts:
        parts.append(np.pad(handed * _UNIT, ((0, 0), (1, 0))))
    return Subtrees(tuple(before[::-1]), tuple(parts), tuple(shares), design.node_scales)


def _children(features: FloatArray, k: int) -> FloatArray:
    return np.stack([by_parent(column, k) for column in features.T], axis=2)


@dataclass
class _Paths:
    """The node of each range on one level that one of its ends cuts; ``cut`` where there is one."""

    node: Int64Array
    cut: BoolArray
    alpha: FloatArray
    passed: FloatArray


class _Ranges:
    """All ranges at once: alphas from the leaves up, reaches from the top down."""

    def __init__(self, design: NodeDesign, starts: Int64Array, stops: Int64Array) -> None:
        self.design, self.starts, self.stops = design, starts, stops
        self.subtrees = subtrees_of(design)
        self.features = np.zeros((len(starts), FEATURES))
        self.columns: list[tuple[FloatArray, FloatArray, FloatArray]] = []

    def laws(self) -> LawTable:
        levels = self._from_below()
        nothing = np.zeros(len(self.starts))
        top = np.zeros(len(self.starts), np.int64)
        parents = [_Paths(top, np.ones(len(top), np.bool_), nothing, nothing)]
        for level in self.design.shape.levels:
            for parent in parents:
                self._add_whole_children(level, parent)
            if level < self.design.shape.height:
                parents = [self._descend(level, path, parents) for path in levels[level - 1]]
        return merged(LawTable.of_columns(self.columns, len(self.starts)), self.features)

    def _from_below(self) -> list[list[_Paths]]:
        """Return every inner level's paths, root side first."""
        height, below, levels = self.design.shape.height, list[_Paths](), list[list[_Paths]]()
        for level in range(height - 1, 0, -1):
            width = self.design.shape.widths[level]
            paths: list[_Paths] = []
            for edge in (self.starts, self.stops):
                cut = (edge % width > 0) & (edge < self.design.horizon)
                node = np.where(cut, edge // width, 0)
                for other in paths:
                    cut = cut & ~(other.cut & (other.node == node))
                if not cut.any():  # prefixes have one end inside the tree
                    continue
                alpha = self._alpha(level, node, below)
                paths.append(_Paths(node, cut, alpha, np.zeros_like(alpha)))
            levels.append(paths)
            below = paths
        return levels[::-1]

    def _alpha(self, level: int, node: Int64Array, below: list[_Paths]) -> FloatArray:
        k, parts = self.design.branching[level], self.subtrees.parts[level]
        low, high, _, _ = self._edges(level + 1, node * k, k)
        alpha = parts[node, high] - parts[node, low]
        for path in below:
            mine = path.cut & (path.node // k == node)
            child = np.where(mine, path.node - node * k, 0)
            alpha = alpha + np.where(mine, (parts[node, child + 1] - parts[node, child]) * path.alpha, 0.0)
        return np.asarray(alpha)

    def _edges(self, level: int, first: Int64Array, k: int) -> tuple[Int64Array, ...]:
        """Return among a parent's children: [low, high) whole in the range; [0, left), [right, k) outside."""
        width = self.design.shape.widths[level]
        left, low = self.starts // width, -(-self.starts // width)
        right = -(-self.stops // width)
        high = np.where(self.stops == self.design.horizon, right, self.stops // width)
        low, high, left, right = (np.clip(edge - first, 0, k) for edge in (low, high, left, right))
        return low, np.maximum(high, low), left, np.maximum(right, left)

    def _add_whole_children(self, level: int, parent: _Paths) -> None:
        before = self.subtrees.before[level - 1]
        k = before.shape[1] - 1
        low, high, left, right = self._edges(level, parent.node * k, k)
        reach = parent.passed - parent.alpha
        if level == self.design.shape.height:
            # Of a short range the noise of its own bins is most: those at its ends keep their terms.
            for leaf, own in ((low, high > low), (high - 1, high > low + 1)):
                scale = self.subtrees.scales[level - 1][np.where(own, parent.node * k + leaf, 0)]
                self._keep(own & parent.cut, 1.0 + reach, scale)
            low, high = np.minimum(low + 1, high), np.maximum(high - 1, np.minimum(low + 1, high))
        inside = before[parent.node, high] - before[parent.node, low]
        outside = before[parent.node, left] + (before[parent.node, k] - before[parent.node, right])
        reach = reach[:, np.newaxis]
        added = inside * (1.0 + reach) ** WEIGHT_POWERS + outside * reach**WEIGHT_POWERS
        self.features += np.where(parent.cut[:, np.newaxis], added, 0.0)

    def _keep(self, used: BoolArray, weights: FloatArray, scales: FloatArray) -> None:
        """Add terms of their own."""
        used = used & (scales > 0)
        column = np.where(used, np.abs(weights), 0.0), used.astype(np.float64), np.where(used, scales, 1.0)
        self.columns.append(column)

    def _descend(self, level: int, path: _Paths, parents: list[_Paths]) -> _Paths:
        """Add a cut node's own noise, and return the path with what reaches its children."""
        k = self.design.branching[level - 1]
        reach = path.alpha.copy()
        if level > 1:
            for parent in parents:
                mine = parent.cut & (path.node // k == parent.node)
                reach += np.where(mine, parent.passed - parent.alpha, 0.0)
        share = self.subtrees.share[level - 1][path.node]
        scale = self.subtrees.scales[level - 1][path.node]
        self._keep(path.cut, (1.0 - share) * reach, scale)
        return _Paths(path.node, path.cut, path.alpha, share * reach)
