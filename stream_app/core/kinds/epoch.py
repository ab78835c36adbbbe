"""One epoch as readers see it, and nodes over many epochs: visible rows of tables, and estimates from them.

A range of complete epochs is covered by the largest released nodes within it; the remaining epochs use their
own totals. A node's estimate is pooled with the estimates of its children, so it is never worse than their
sum. It uses nothing outside the range, so it is independent of all other parts of an answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.epochs import EpochLevels
from dphist.laws.law import LawTable
from dphist.product.columns import ColumnSum, column_sum, key_counts
from dphist.product.design import ColumnDesign
from dphist.product.forest import ProductForest, RangeSum
from dphist.tree.estimate import Estimate, ReleasedForest
from dphist.tree.forest_laws import RangeErrors
from dphist.units import UNITS_PER_COUNT
from stream_app.core.kinds.tables import (
    OVER_EPOCHS,
    PUBLISHED,
    SeriesKind,
    SeriesView,
    Span,
    TimeDesign,
    node_table,
)
from stream_app.core.records import EpochRecord

Forest = ReleasedForest | ProductForest  # keeps the released nodes of a causal epoch


class EpochView(ABC):
    """One epoch: the visible rows of its tables.

    Args: width, of a row of running counts as first published; forest, None if no nodes are released.
    """

    def __init__(
        self, record: EpochRecord, design: TimeDesign, width: int, forest: Forest | None = None
    ) -> None:
        self.record = record
        self.design = design
        self.width = width
        self._nodes = forest
        levels = range(1, len(forest.counts) + 1) if forest else ()
        self._levels = {node_table(level): level for level in levels}
        self._rows: dict[str, list[Int64Array]] = defaultdict(list)
        self._whole: tuple[int, dict[str, Estimate]] = (0, {})  # the visible bins, and estimates over all

    @abstractmethod
    def running_values(self, kind: SeriesKind, view: SeriesView) -> FloatArray:
        """Return the running count after each bin, over all cells; a series has its differences as values."""

    @abstractmethod
    def _estimate(self, part: Span, view: SeriesView) -> Estimate: ...

    @property
    def over_axes(self) -> AxesEpoch | None:
        return None

    @property
    def bins(self) -> int:
        return len(self.published)

    @property
    def span(self) -> Span:
        """Return the visible bins, absolute."""
        return Span(self.record.first_bin, self.record.first_bin + self.bins)

    def rows(self, table: str) -> Int64Array:
        """Return the visible rows of a table, shape (rows, width)."""
        if self._nodes and table in self._levels:
            return self._nodes.nodes(self._levels[table])
        blocks = self._rows[table]
        if not blocks:
            return np.zeros((0, self.width if table == PUBLISHED else 0), np.int64)
        if len(blocks) > 1:
            blocks[:] = [np.concatenate(blocks)]
        return blocks[0]

    def held(self, table: str) -> int:
        if self._nodes and table in self._levels:
            return self._nodes.counts[self._levels[table] - 1]
        return len(self.rows(table))

    def append(self, table: str, values: Int64Array) -> None:
        if self._nodes and table in self._levels:
            self._nodes.append_level(self._levels[table], values)
        else:
            self._rows[table].append(values)

    @property
    def published(self) -> Int64Array:
        """Return the running counts as first published, shape (bins, width), in units of 2^-16."""
        return self.rows(PUBLISHED)

    def shifted(self, bins: int) -> Self:
        """Return this epoch with later numbers of its bins; it shares the released rows."""
        if not bins:
            return self
        own = copy(self)
        own.record = replace(self.record, first_bin=self.record.first_bin + bins)
        return own

    def within(self, span: Span) -> Span:
        """Return the part of an absolute range that this epoch measured, in bins relative to the epoch."""
        first = self.record.first_bin
        start, stop = (min(max(edge - first, 0), self.bins) for edge in span)
        return Span(start, stop)

    def estimate(self, part: Span, view: SeriesView) -> Estimate:
        """Return a count within the epoch. For the first published view the part must begin at bin 0."""
        return self._kept(part, view, lambda: self._estimate(part, view))

    def _kept(self, part: Span, name: str, compute: Callable[[], Estimate]) -> Estimate:
        """Return an estimate; keep the estimate of the whole epoch until the epoch grows."""
        if part != (0, self.bins):
            return compute()
        bins, kept = self._whole
        if bins != self.bins:
            self._whole = (self.bins, kept := {})
        if name not in kept:
            kept[name] = compute()
        return kept[name]


class AxesEpoch(EpochView):
    """An epoch over keys and values. Its answers are about one sum of columns, for example a key's count."""

    def __init__(
        self,
        record: EpochRecord,
        axes: ColumnDesign,
        time: TimeDesign,
        width: int,
        forest: Forest | None = None,
    ) -> None:
        super().__init__(record, time, width, forest)
        self._axes = axes
        self._sum = column_sum(axes)

    @property
    def shown(self) -> ColumnSum:
        return self._sum

    @property
    def over_axes(self) -> Self:
        return self

    def showing(self, columns: ColumnSum) -> Self:
        """Return this epoch with a sum of columns as its count; it shares the released rows."""
        own = copy(self)
        own._sum, own._whole = columns.over(self._axes), (0, {})
        return own

    @abstractmethod
    def range(self, part: Span) -> RangeSum:
        """Return the counts of all cells over a part of the epoch."""

    def of_keys(self, part: Span) -> Estimate:
        """Return the counts of all keys over a part of the epoch: values (keys,), one law for each."""
        return self._kept(part, "keys", lambda: key_counts(self.range(part)))


def running_over(epochs: Iterable[EpochView], of_epoch: Callable[[EpochView], FloatArray]) -> FloatArray:
    """Return running sums at every measured edge of all epochs, shape (measured bins + 1,).

    Args: of_epoch, returns the running sum within an epoch after each of its bins.
    """
    columns = [np.zeros(1)]
    for epoch in epochs:
        if epoch.bins:
            columns.append(columns[-1][-1] + of_epoch(epoch))
    return np.concatenate(columns)


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
