"""The law of one published range on a tree with a share per node: ``node_laws.py``'s walk, in floats.

One range cuts at most two nodes a level. What it needs of all others are rows of one table, picked and
weighted at once at the end.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dphist.tree.law import WeightedNoise
from dphist.tree.merged_noise import FEATURES, WEIGHT_POWERS, merged_one
from dphist.tree.node_design import NodeDesign
from dphist.tree.node_laws import subtrees_of

FloatArray = NDArray[np.float64]


def merged_law(design: NodeDesign, a: int, b: int) -> WeightedNoise:
    """Return the law of the error of one published range [a, b), of a prefix with a = 0.

    Guarantee, Args: as ``node_laws.merged_laws``, the same law up to rounding.
    Cost: O(height), some 0.2 ms; O(nodes) once a design.
    """
    return _Range(design, a, b).law()


class _Table(NamedTuple):
    """``Subtrees.before`` of all levels in one table, (rows, FEATURES), and where each level starts in it."""

    rows: FloatArray
    first: tuple[int, ...]


@lru_cache(maxsize=8)
def _table(design: NodeDesign) -> _Table:
    levels = [before.reshape(-1, FEATURES) for before in subtrees_of(design).before]
    first = np.cumsum([0, *(len(rows) for rows in levels)])
    return _Table(np.concatenate(levels), tuple(first.tolist()))


class _Path(NamedTuple):
    """A node that the range cuts: how much of its correction lands in the range, and what it passes on."""

    node: int
    alpha: float
    passed: float


class _Range:
    """One range: alphas from the leaves up, reaches from the top down."""

    def __init__(self, design: NodeDesign, a: int, b: int) -> None:
        self.design, self.a, self.b = design, a, b
        self.height, self.widths = design.shape.height, design.shape.widths
        self.subtrees, self.table = subtrees_of(design), _table(design)
        self.groups: list[tuple[float, int, float]] = []
        # Rows of the table, each with its sign and the reach of its nodes.
        self.picked: list[tuple[int, float, float]] = []

    def law(self) -> WeightedNoise:
        levels = self._from_below()
        parents = [_Path(0, 0.0, 0.0)]
        for level in range(1, self.height):
            for parent in parents:
                self._add_whole_children(level, parent)
            parents = [self._descend(level, node, alpha, parents) for node, alpha in levels[level - 1]]
        for parent in parents:
            self._add_whole_children(self.height, parent)
        return merged_one(self.groups, self._features())

    def _features(self) -> FloatArray:
        if not self.picked:
            return np.zeros(FEATURES)
        rows, signs, reaches = zip(*self.picked, strict=True)
        powers = np.array(reaches)[:, np.newaxis] ** WEIGHT_POWERS
        return np.asarray(np.array(signs) @ (self.table.rows[list(rows)] * powers))

    def _from_below(self) -> list[list[tuple[int, float]]]:
        """Return every inner level's cut nodes and their alphas, root side first."""
        levels: list[list[tuple[int, float]]] = []
        below: list[tuple[int, float]] = []
        for level in range(self.height - 1, 0, -1):
            width = self.widths[level]
            cut = (edge // width for edge in (self.a, self.b) if edge % width and edge < self.design.horizon)
            below = [(node, self._alpha(level, node, below)) for node in dict.fromkeys(cut)]
            levels.append(below)
        return levels[::-1]

    def _alpha(self, level: int, node: int, below: list[tuple[int, float]]) -> float:
        k, parts = self.design.branching[level], self.subtrees.parts[level]
        low, high, _, _ = self._edges(level + 1, node * k, k)
        alpha = parts.item(node, high) - parts.item(node, low) if high > low else 0.0
        for child, part in below:
            place = child - node * k
            if 0 <= place < k:
                alpha += (parts.item(node, place + 1) - parts.item(node, place)) * part
        return alpha

    def _edges(self, level: int, first: int, k: int) -> tuple[int, int, int, int]:
        """Return among a parent's children: [low, high) whole in the range; [0, left), [right, k) outside."""
        width = self.widths[level]
        left, low, right = self.a // width, -(-self.a // width), -(-self.b // width)
        high = right if self.b == self.design.horizon else self.b // width
        low, high, left, right = (min(max(edge - first, 0), k) for edge in (low, high, left, right))
        return low, max(high, low), left, max(right, left)

    def _add_whole_children(self, level: int, parent: _Path) -> None:
        k = self.subtrees.before[level - 1].shape[1] - 1
        first, reach = parent.node * k, parent.passed - parent.alpha
        low, high, left, right = self._edges(level, first, k)
        if level == self.height:
            # Of a short range the noise of its own bins is most: those at its ends keep their terms.
            for leaf in {low, high - 1} if high > low else ():
                self._keep(1.0 + reach, self.subtrees.scales[level - 1].item(first + leaf))
            low = min(low + 1, high)
            high = max(high - 1, low)
        row = self.table.first[level - 1] + parent.node * (k + 1)
        if high > low:
            self.picked += [(row + high, 1.0, 1.0 + reach), (row + low, -1.0, 1.0 + reach)]
        if reach:
            if left:
                self.picked.append((row + left, 1.0, reach))
            if right < k:
                self.picked += [(row + k, 1.0, reach), (row + right, -1.0, reach)]

    def _keep(self, weight: float, scale: float) -> None:
        """Add a term of its own."""
        if scale > 0:
            self.groups.append((abs(weight), 1, scale))

    def _descend(self, level: int, node: int, alpha: float, parents: list[_Path]) -> _Path:
        """Add a cut node's own noise, and return the path with what reaches its children."""
        k, reach = self.design.branching[level - 1], alpha
        for parent in parents:
            if node // k == parent.node:
                reach += parent.passed - parent.alpha
        share = self.subtrees.share[level - 1].item(node)
        self._keep((1.0 - share) * reach, self.subtrees.scales[level - 1].item(node))
        return _Path(node, alpha, share * reach)
