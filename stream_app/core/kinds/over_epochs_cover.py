"""Nodes over epochs as readers see them: the ranges of epochs that they count, and their errors.

A range of complete epochs is covered by the largest released nodes within it; the remaining epochs use their
own totals. A node's estimate is pooled with the estimates of its children, so it is never worse than their
sum. It uses nothing outside the range, so it is independent of all other parts of an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.epochs.levels import EpochLevels
from dphist.laws.law import LawTable
from dphist.tree.estimate import Estimate
from dphist.tree.forest_laws import RangeErrors
from dphist.units import UNITS_PER_COUNT
from stream_app.core.kinds.epoch import EpochView
from stream_app.core.kinds.tables import OVER_EPOCHS


class EpochNode(NamedTuple):
    """A released node over epochs.

    Args: level, from 0; first, the place of the node's first epoch; epochs, how many epochs it counts; units,
        its estimate, shape (1,), in units of 2^-16.
    """

    level: int
    first: int
    epochs: int
    units: Int64Array

    @property
    def value(self) -> float:
        """The estimate in counts."""
        return float(self.units[0]) / UNITS_PER_COUNT


class Covers(NamedTuple):
    """The nodes that cover ranges: range i is covered by ``nodes[of[i]]``; equal covers are stored once."""

    nodes: list[tuple[EpochNode, ...]]
    of: Int64Array


class EpochCovers:
    """The released nodes over the epochs of a stream, looked up by the ranges that they cover.

    Epochs are identified by their places in the list of all epochs. Call ``grow`` first.
    """

    def __init__(self, design: EpochLevels) -> None:
        self.design = design
        self._first_bins = np.zeros(0, np.int64)
        self._nodes: dict[tuple[int, int], EpochNode] = {}
        self._settled = 0  # epochs whose nodes are all added

    def grow(self, epochs: Sequence[EpochView]) -> EpochCovers:
        """Add the nodes of epochs that are new since the last call; return this object."""
        self._first_bins = np.array([epoch.record.first_bin for epoch in epochs], np.int64)
        for place in range(self._settled, len(epochs)):
            for row in epochs[place].rows(OVER_EPOCHS):  # one, if the epoch is complete
                self._add(epochs, place, row)
        self._settled = max(0, len(epochs) - 1)
        return self

    def _add(self, epochs: Sequence[EpochView], last: int, row: Int64Array) -> None:
        """Add the nodes that an epoch completes, pooled with the nodes below them."""
        for level in self.design.completed(int(row[0])):
            width, k = self.design.widths[level], self.design.branching[level]
            first, below = last + 1 - width, width // k
            if level:
                children = sum(self._nodes[level - 1, first + n * below].units for n in range(k))
            else:
                children = sum(epochs[first + n].published[-1] for n in range(k))
            units = self.design.pooled(level, row[level + 1 : level + 2], np.asarray(children))
            self._nodes[level, first] = EpochNode(level, first, width, units)

    def _covering(self, first: int, stop: int) -> Iterator[EpochNode]:
        """Yield the largest nodes within the epochs from one place to another, in order."""
        levels = range(len(self.design.widths) - 1, -1, -1)
        while first < stop:
            begun = (node for level in levels if (node := self._nodes.get((level, first))))
            node = next((node for node in begun if first + node.epochs <= stop), None)
            if node is not None:
                yield node
            first += 1 if node is None else node.epochs

    def covers(self, starts: Int64Array, stops: Int64Array) -> Covers:
        """Return the nodes within ranges of absolute bins [a, b), shape (points,)."""
        first = np.searchsorted(self._first_bins, starts, side="left")
        stop = np.searchsorted(self._first_bins + self.design.epoch.horizon, stops, side="right")
        places, of = np.unique(first * (len(self._first_bins) + 1) + stop, return_inverse=True)
        pairs = (divmod(place, len(self._first_bins) + 1) for place in places.tolist())
        return Covers([tuple(self._covering(*pair)) for pair in pairs], of)

    def gains(self, covers: Covers, totals: FloatArray) -> FloatArray:
        """Return, per range, how much the nodes shift the sum of epoch totals, in counts.

        Args: totals, the running sum of the epochs' counts before each epoch and after the last: (epochs +
            1,).
        """
        gains = [
            sum(node.value - (totals[node.first + node.epochs] - totals[node.first]) for node in nodes)
            for nodes in covers.nodes
        ]
        return np.array(gains, np.float64)[covers.of]

    def digits(self, covers: Covers) -> Int64Array:
        """Return how many nodes of each level each range uses, shape (ranges, levels)."""
        digits = np.zeros((len(covers.nodes), len(self.design.branching)), np.int64)
        for row, nodes in zip(digits, covers.nodes, strict=True):
            for node in nodes:
                row[node.level] += 1
        return digits[covers.of]

    def errors(self, digits: Int64Array) -> RangeErrors:
        """Return the errors of the nodes that each range uses. Args: digits, as ``digits`` returns them."""
        columns, roundings = [], np.zeros(len(digits))
        for (law, units), nodes in zip(self.design.node_laws, digits.T, strict=True):
            columns += [(np.full(len(nodes), w), n * nodes.astype(np.float64), s) for w, n, s in law.groups]
            roundings += nodes * units / UNITS_PER_COUNT
        return RangeErrors(LawTable.of_uniform_columns(columns, len(digits)), roundings)

    def estimate(self, node: EpochNode) -> Estimate:
        """Return a node's count, with the exact law of its error."""
        law, units = self.design.node_laws[node.level]
        return Estimate(node.value, law.variance, law, units / UNITS_PER_COUNT)
