"""Laws of many published ranges at once on level-uniform trees, in O(height^2) a range.

``node_laws.whole_law`` walks over all nodes. Here nodes are grouped: all complete nodes of a level decode
alike, so only three paths down the tree have nodes of their own, those to the bins at the range's two ends
and to the epoch's last bin, whose nodes the horizon may cut off. Every other node is a complete child of a
path node, wholly inside or outside the range, and so is all that is below it:

    alpha(v) = the part of v's correction that lands in the range = sum over children of part(c) alpha(c)
    reach(c) = alpha(c) - alpha(v) + share(v) reach(v),   weight of v's own noise = (1 - share(v)) reach(v)

with the decoder's whole weights for part and share, so that the laws are exactly those of what is published.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dphist.noise import Int64Array
from dphist.tree.decoder import WEIGHT_BITS, DecoderWeights, decoder_weights
from dphist.tree.design import TreeDesign
from dphist.tree.epoch_nodes import node_counts
from dphist.tree.law import LawTable
from dphist.tree.node_design import NodeDesign
from dphist.tree.node_laws import can_merge, merged_laws, whole_law

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Column = tuple[FloatArray, FloatArray, float]  # weights, copies, scale

_UNIT = 2.0**-WEIGHT_BITS


def published_laws(design: TreeDesign | NodeDesign, starts: Int64Array, stops: Int64Array) -> LawTable:
    """Return the exact laws of the errors of published ranges [a, b), one a row; of prefixes with a = 0.

    Guarantee: as ``published_error.published_law``, the same laws up to the order of summation.
    Args: an anticipating design; 0 <= a <= b <= horizon, each of shape (ranges,).
    Cost: O(height^2 * ranges), in numpy; the decoder's weights, O(horizon), once a design. With a share per
        node as ``node_laws.merged_laws``; O(nodes) a range where nodes are few.
    """
    if isinstance(design, NodeDesign):
        if can_merge(design):
            return merged_laws(design, starts, stops)
        return LawTable.of(
            [whole_law(design, a, b) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
        )
    columns = [column for column in _Walk(design, starts, stops).columns() if column[1].any()]
    return LawTable.of_uniform_columns(columns, len(starts))


def published_groups(design: TreeDesign, a: int, b: int) -> Iterator[tuple[float, int, float]]:
    """Yield the law of the error of one published range [a, b) as (weight, copies, scale).

    Args, Guarantee: as ``published_laws``; one range is quicker without columns.
    Cost: O(height^2), some 100 microseconds.
    """
    counts = node_counts(design.shape, design.horizon)
    yield from _Range(design, a, b).below(0, range(counts[0]), 0.0, 0.0)


class _Range:
    """One range [a, b): walks down through the nodes that it, or the horizon, cuts."""

    def __init__(self, design: TreeDesign, a: int, b: int) -> None:
        self.design, self.a, self.b = design, a, b
        self.weights = decoder_weights(design)
        self.below_complete = _all_unfolded(design)
        self.alphas: dict[tuple[int, int], float] = {}

    def below(
        self, level: int, children: range, alpha: float, passed: float
    ) -> Iterator[tuple[float, int, float]]:
        """Yield the groups of a node's children and of all below them."""
        width = self.design.shape.widths[level + 1]
        complete = range(children.start, min(children.stop, self.design.horizon // width))
        inside = _clipped(range(-(-self.a // width), self.b // width), complete)
        cut = {edge // width for edge in (self.a, self.b) if edge % width} | set(children) - set(complete)
        cut &= set(children)
        outside = len(complete) - len(inside) - sum(child in complete for child in cut)
        for copies, part in ((len(inside), 1.0), (outside, 0.0)):
            if copies:
                reach = part - alpha + passed
                for scale, weight, nodes in self.below_complete[level]:
                    yield reach * weight, copies * nodes, scale
        for child in sorted(cut):
            part = self.alpha(level + 1, child)
            yield from self._cut(level + 1, child, part, part - alpha + passed)

    def _cut(self, level: int, node: int, alpha: float, reach: float) -> Iterator[tuple[float, int, float]]:
        passed = reach * (int(self.weights.children[level - 1][node]) * _UNIT)
        yield reach - passed, 1, self.below_complete[level - 1][0][0]
        yield from self.below(level, self._children(level, node), alpha, passed)

    def _children(self, level: int, node: int) -> range:
        k, width = self.design.branching[level], self.design.shape.widths[level + 1]
        return range(node * k, min((node + 1) * k, -(-self.design.horizon // width)))

    def alpha(self, level: int, node: int) -> float:
        """Return the part of a node's correction that lands in the range."""
        if (level, node) not in self.alphas:
            self.alphas[level, node] = self._alpha(level, node)
        return self.alphas[level, node]

    def _alpha(self, level: int, node: int) -> float:
        width = self.design.shape.widths[level]
        start, stop = node * width, min((node + 1) * width, self.design.horizon)
        if self.a <= start and stop <= self.b:
            return 1.0
        if self.b <= start or stop <= self.a:
            return 0.0
        children, parts = self._children(level, node), self.weights.parts[level - 1][node]
        width = self.design.shape.widths[level + 1]
        inside = _clipped(range(-(-self.a // width), self.b // width), children)
        handed = [0, *parts[: len(children)].tolist()]
        first = children.start
        alpha = (handed[inside.stop - first] - handed[inside.start - first]) * _UNIT if inside else 0.0
        for child in {edge // width for edge in (self.a, self.b) if edge % width} & set(children):
            own = (handed[child - first + 1] - handed[child - first]) * _UNIT
            alpha += own * self.alpha(level + 1, child)
        return alpha


def _clipped(wanted: range, given: range) -> range:
    return range(max(wanted.start, given.start), min(wanted.stop, given.stop))


class _Path(NamedTuple):
    """A node for each range on one level; ``fresh`` where no earlier path has the same node."""

    node: Int64Array
    alpha: FloatArray
    fresh: BoolArray


class _Walk:
    """All ranges' paths, level by level; ``paths[i]`` holds those of level i + 1."""

    def __init__(self, design: TreeDesign, starts: Int64Array, stops: Int64Array) -> None:
        self.design = design
        self.weights: DecoderWeights = decoder_weights(design)
        self.counts = node_counts(design.shape, design.horizon)
        self.below_complete = _all_unfolded(design)
        self.starts, self.stops = np.asarray(starts, np.int64), np.asarray(stops, np.int64)
        last = design.horizon - 1
        # Where nothing begins inside the tree, and nothing is cut off, there is no such path.
        bins = [np.minimum(self.starts, last)] if self.starts.any() else []
        bins.append(np.minimum(self.stops, last))
        if any(design.horizon % width for width in design.shape.widths[1:]):
            bins.append(np.full_like(self.stops, last))
        self.paths = self._from_below(bins)

    def inside(self, level: int) -> tuple[Int64Array, Int64Array]:
        """Return the first complete node of a level in the range, and the one after the last."""
        width = self.design.shape.widths[level]
        return -(-self.starts // width), self.stops // width

    def _from_below(self, bins: Sequence[Int64Array]) -> list[list[_Path]]:
        """Return every level's paths, root side first: ``alpha`` from the leaves up."""
        levels: list[list[_Path]] = []
        for level in reversed(self.design.shape.levels):
            indices = [bin // self.design.shape.widths[level] for bin in bins]
            below = levels[-1] if levels else None
            paths: list[_Path] = []
            for index in indices:
                fresh = np.ones(len(index), np.bool_)
                for path in paths:
                    fresh &= path.node != index
                paths.append(_Path(index, self._alpha(level, index, below), fresh))
            levels.append(paths)
        return levels[::-1]

    def _alpha(self, level: int, index: Int64Array, below: Sequence[_Path] | None) -> FloatArray:
        if below is None:
            return ((index >= self.starts) & (index < self.stops)).astype(np.float64)
        first, stop = self.inside(level + 1)
        alpha = self._parts(level, index, np.maximum(stop, first)) - self._parts(level, index, first)
        for path in below:
            # Whole children are counted already; the others are cut by the range, or by the horizon.
            mine = path.fresh & (path.node // self.design.branching[level] == index)
            mine &= (path.node < first) | (path.node >= stop)
            own = self._parts(level, index, path.node + 1) - self._parts(level, index, path.node)
            alpha = alpha + np.where(mine, own * path.alpha, 0.0)
        return alpha

    def _parts(self, level: int, index: Int64Array, child: Int64Array) -> FloatArray:
        """Return what a node hands to its children before ``child`` (an index on the level below)."""
        parts, k = self.weights.parts[level - 1], self.design.branching[level]
        before = np.clip(child - index * k, 0, k)
        return np.where(before > 0, parts[index, before - 1] * _UNIT, 0.0)

    def columns(self) -> Iterator[Column]:
        """Yield groups of nodes with equal weights, from the top down."""
        nothing = np.zeros(len(self.stops))
        top = _Path(np.zeros_like(self.stops), nothing, np.ones(len(self.stops), np.bool_))
        parents, passed = [top], [nothing]
        for level in self.design.shape.levels:
            paths = self.paths[level - 1]
            for parent, handed in zip(parents, passed, strict=True):
                yield from self._children(level, parent, handed)
            reaches = []
            for place, path in enumerate(paths):
                own = min(place, len(parents) - 1)
                reaches.append(path.alpha - parents[own].alpha + passed[own])
            yield from self._own(level, paths, reaches)
            if level < self.design.shape.height:
                share = self.weights.children[level - 1]
                passed = [
                    reach * (share[path.node] * _UNIT) for path, reach in zip(paths, reaches, strict=True)
                ]
                parents = paths

    def _own(self, level: int, paths: Sequence[_Path], reaches: Sequence[FloatArray]) -> Iterator[Column]:
        scale = float(self.design.scales[level - 1])
        for path, reach in zip(paths, reaches, strict=True):
            weight = reach
            if level < self.design.shape.height:
                weight = reach - reach * (self.weights.children[level - 1][path.node] * _UNIT)
            yield weight, path.fresh.astype(np.float64), scale

    def _children(self, level: int, parent: _Path, passed: FloatArray) -> Iterator[Column]:
        """Yield the children of a path node that are on no path, and all nodes below them."""
        k = self.design.branching[level - 1] if level > 1 else self.counts[0]
        first = parent.node * k
        stop = np.minimum(first + k, self.counts[level - 1])
        low, high = (np.clip(edge, first, stop) for edge in self.inside(level))
        inside = np.maximum(high - low, 0)
        outside = stop - first - inside
        for path in self.paths[level - 1]:
            mine = path.fresh & (path.node >= first) & (path.node < stop)
            whole = mine & (path.node >= low) & (path.node < high)
            inside, outside = inside - whole, outside - (mine & ~whole)
        for number, alpha in ((inside, 1.0), (outside, 0.0)):
            copies = np.where(parent.fresh, number, 0).astype(np.float64)
            if copies.any():
                reach = alpha - parent.alpha + passed
                for scale, weight, nodes in self.below_complete[level - 1]:
                    yield reach * weight, copies * nodes, scale


@lru_cache(maxsize=64)
def _all_unfolded(design: TreeDesign) -> tuple[tuple[tuple[float, float, int], ...], ...]:
    """Write what reaches a complete node of each level as (scale, weight, nodes) over its subtree's noise."""
    weights, scales = decoder_weights(design), [float(scale) for scale in design.scales]
    levels = []
    for level in design.shape.levels:
        rows, passed, nodes = [], 1.0, 1
        for below in range(level, design.shape.height):
            share = float(weights.children[below - 1][0]) * _UNIT
            rows.append((scales[below - 1], passed - passed * share, nodes))
            passed, nodes = passed * share, nodes * design.branching[below]
        levels.append((*rows, (scales[-1], passed, nodes)))
    return tuple(levels)
