"""One epoch as readers see it: released nodes, running counts as first published, and their estimates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate, ReleasedForest, live_estimate
from dphist.tree.published_error import published_law, published_rounding
from dphist.tree.upward import UNITS_PER_COUNT
from dphist.window import WindowDesign
from stream_app.core.records import OVER_EPOCHS, ROWS, WINDOWS, EpochRecord, Int64Array
from stream_app.core.strategy import Strategy
from stream_app.core.visible import visible_bins

Float64Array = NDArray[np.float64]
Kind = Literal["running", "bin", "window"]
View = Literal["unbiased", "first_published"]


class Missing(NamedTuple):
    """Visible rows that a view does not have yet: ``rows`` of a level (or of ROWS) from ``first`` on."""

    epoch: int
    level: int
    first: int
    rows: int


class Span(NamedTuple):
    """A range of bins, half-open: absolute, or within one epoch."""

    start: int
    stop: int


class EpochView(ABC):
    """One epoch: its released nodes and its running counts as first published."""

    def __init__(
        self,
        record: EpochRecord,
        design: TreeDesign,
        width: int,
        window: WindowDesign | None = None,
    ) -> None:
        self.record = record
        self.design = design
        self.width = width
        self._window = window
        self._windows = [np.zeros((0, window.cells if window else 0), np.int64)]
        self._published = [np.zeros((0, width), np.int64)]
        self._over_epochs: list[Int64Array] | None = None  # None: not measured
        self._whole: tuple[int, dict[View, Estimate]] = (0, {})

    @staticmethod
    def of(record: EpochRecord, strategy: Strategy) -> EpochView:
        """Return an empty view of an epoch without axes beside time."""
        design, width = strategy.design, strategy.released_width(ROWS)
        view: EpochView
        if design.release == "anticipating":
            view = AnticipatingEpoch(record, design, width, strategy.window)
        else:
            view = CausalEpoch(record, design, width, strategy.window)
        view._over_epochs = None if strategy.over_epochs is None else []
        return view

    @property
    @abstractmethod
    def bins(self) -> int:
        """Return the number of visible bins."""

    @abstractmethod
    def nodes(self, level: int) -> Int64Array:
        """Return the released nodes of a level, shape (nodes, width)."""

    @abstractmethod
    def running_values(self, kind: Kind, view: View) -> Float64Array:
        """Return the running count after each bin, over all cells; its differences are the values of a kind.

        Cost: O(bins * width), in numpy.
        """

    @abstractmethod
    def _append_nodes(self, level: int, values: Int64Array) -> None: ...

    @abstractmethod
    def _estimate(self, part: Span, view: View) -> Estimate: ...

    @property
    def span(self) -> Span:
        """Return the visible bins, absolute."""
        return Span(self.record.first_bin, self.record.first_bin + self.bins)

    @property
    def published(self) -> Int64Array:
        """Return the running counts as first published, shape (bins, width), in units of 2^-16."""
        if len(self._published) > 1:
            self._published = [np.concatenate(self._published)]
        return self._published[0]

    @property
    def windows(self) -> Int64Array:
        """Return the histograms of complete windows, shape (windows, cells), in units of 2^-16."""
        if len(self._windows) > 1:
            self._windows = [np.concatenate(self._windows)]
        return self._windows[0]

    @property
    def over_epochs(self) -> Int64Array | None:
        """Return the row of nodes over epochs that this one completes (``levels_release.py``), if it has."""
        return self._over_epochs[0][0] if self._over_epochs else None

    def missing(self, record: EpochRecord, visible_seq: int) -> Iterable[Missing]:
        """Yield what has to be read to know all that is visible. Args: record, the epoch as it is by then."""
        bins, shape = visible_bins(record, visible_seq), self.design.shape
        have = {level: len(self.nodes(level)) for level in shape.levels} | {ROWS: len(self.published)}
        if self._window is not None:
            have[WINDOWS] = len(self.windows)
        if self._over_epochs is not None:
            have[OVER_EPOCHS] = len(self._over_epochs)
        for level, first in have.items():
            rows = self._rows_after(level, bins) - first
            if rows > 0:
                yield Missing(self.record.epoch, level, first, rows)

    def _rows_after(self, level: int, bins: int) -> int:
        if level == WINDOWS and self._window is not None:
            return bins // self._window.bins
        if level == OVER_EPOCHS:
            return int(bins == self.design.horizon)
        return bins if level == ROWS else self.design.shape.completed_count(bins, level)

    def append(self, level: int, values: Int64Array) -> None:
        """Take the next rows of a level (or of ROWS, or of WINDOWS)."""
        if level == ROWS:
            self._published.append(values)
        elif level == WINDOWS:
            self._windows.append(values)
        elif level == OVER_EPOCHS and self._over_epochs is not None:
            self._over_epochs.append(values)
        else:
            self._append_nodes(level, values)

    def within(self, span: Span) -> Span:
        """Return the part of an absolute range that this epoch measured, in its own bins."""
        first = self.record.first_bin
        start, stop = (min(max(edge - first, 0), self.bins) for edge in span)
        return Span(start, stop)

    def estimate(self, part: Span, view: View) -> Estimate:
        """Return a count within the epoch. As first published it is the running count, so from bin 0 on."""
        if part != (0, self.bins):
            return self._estimate(part, view)
        bins, kept = self._whole
        if bins != self.bins:
            self._whole = (self.bins, kept := {})
        if view not in kept:
            kept[view] = self._estimate(part, view)
        return kept[view]


class CausalEpoch(EpochView):
    """An epoch whose estimates come from complete nodes and grow better as more of them complete."""

    def __init__(
        self, record: EpochRecord, design: TreeDesign, width: int, window: WindowDesign | None = None
    ) -> None:
        super().__init__(record, design, width, window)
        self._forest = ReleasedForest(design, width)

    @property
    def bins(self) -> int:
        """Return the number of visible bins."""
        return self._forest.bins

    def nodes(self, level: int) -> Int64Array:
        """Return the released nodes of a level."""
        return self._forest.nodes(level)

    def running_values(self, kind: Kind, view: View) -> Float64Array:
        """Return the running count after each bin, over all cells."""
        if view == "unbiased":
            values = self._forest.series("running").sum(axis=1)
        elif kind == "running":
            values = self.published.sum(axis=1) / UNITS_PER_COUNT
        else:
            leaves = self._forest.nodes(self.design.shape.height)
            values = np.cumsum(leaves.sum(axis=1))
        return np.asarray(values, dtype=np.float64)

    def _append_nodes(self, level: int, values: Int64Array) -> None:
        self._forest.append_level(level, values)

    def _estimate(self, part: Span, view: View) -> Estimate:
        if view == "unbiased":
            return self._forest.range(part.start, part.stop)
        return live_estimate(self.design, part.stop, self.published[part.stop - 1])


class AnticipatingEpoch(EpochView):
    """An epoch whose published running counts are final: every answer is a difference of two of them."""

    def __init__(
        self,
        record: EpochRecord,
        design: TreeDesign,
        width: int,
        window: WindowDesign | None = None,
    ) -> None:
        super().__init__(record, design, width, window)
        nothing = np.zeros((0, width), np.int64)
        self._nodes = {level: [nothing] for level in design.shape.levels}

    @property
    def bins(self) -> int:
        """Return the number of visible bins."""
        return len(self.published)

    def nodes(self, level: int) -> Int64Array:
        """Return the released nodes of a level."""
        if len(self._nodes[level]) > 1:
            self._nodes[level] = [np.concatenate(self._nodes[level])]
        return self._nodes[level][0]

    def running_values(self, kind: Kind, view: View) -> Float64Array:
        """Return the running count after each bin, over all cells: the same for every kind and view."""
        return np.asarray(self.published.sum(axis=1) / UNITS_PER_COUNT, dtype=np.float64)

    def _append_nodes(self, level: int, values: Int64Array) -> None:
        self._nodes[level].append(values)

    def _estimate(self, part: Span, view: View) -> Estimate:
        units = self.published[part.stop - 1].copy()
        if part.start:
            units -= self.published[part.start - 1]
        counts = np.asarray(units / UNITS_PER_COUNT, dtype=np.float64)
        law = published_law(self.design, part.start, part.stop)
        rounding = published_rounding(self.design, part.start)
        return Estimate(float(counts[0]) if self.width == 1 else counts, law.variance, law, rounding)
