"""Answers over absolute time, computed from released values only.

A ``StreamView`` holds the visible part of one stream: for each epoch the released nodes and the running
counts as first published. Epochs have independent noise. So for a range over several epochs values and
variances add up, and the law is that of the sum. Counts are over all cells of a bin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from itertools import chain

import numpy as np

from dphist.arrays import BoolArray, FloatArray, Int64Array
from dphist.product.columns import ColumnSum, KeyPlaces, column_sum
from dphist.product.forest import RangeSum
from dphist.tree.estimate import Estimate
from dphist.tree.forest_laws import RangeErrors
from stream_app.core.answers.answered import (
    Missing,
    QueryError,
    SeriesPoints,
    downsampled,
    whole_estimate,
    whole_points,
)
from stream_app.core.answers.asked_keys import AskedKeys
from stream_app.core.answers.asked_ranges import bin_at_edge, gaps_in, nothing_measured, other_keys_then
from stream_app.core.answers.consistent import Method, consistent_running
from stream_app.core.answers.joined_history import (
    Part,
    added,
    bins_in,
    columns_of,
    joined_bins,
    places_after,
    same_columns,
    showing,
    with_one_list,
)
from stream_app.core.answers.labels import UNLABELLED
from stream_app.core.answers.steps import point_ranges
from stream_app.core.answers.visible_epochs import VisibleEpochs
from stream_app.core.budget import Left
from stream_app.core.kinds.epoch import EpochCovers, EpochView, running_over
from stream_app.core.kinds.errors import Errors, sums_of_nodes
from stream_app.core.kinds.tables import PUBLISHED, SeriesKind, SeriesView, Span
from stream_app.core.promise import Statement
from stream_app.core.records import PublicState
from stream_app.core.segments.names import asked_names

KEPT_SUMS = 32  # cached views of single keys and other sums, each with its own running counts


class StreamView(VisibleEpochs):
    """The visible part of one stream, and every answer that is computed from it."""

    def __init__(self, strategy: bytes, earlier: tuple[bytes, ...] = ()) -> None:
        super().__init__(strategy, earlier)
        self._running: dict[tuple[SeriesKind, SeriesView], FloatArray] = {}
        self._covers: dict[str, EpochCovers | None] = {}  # by the hash of the strategy
        self._consistent: dict[Method, Int64Array] = {}
        self._showing: dict[tuple[ColumnSum, AskedKeys | None], StreamView] = {}
        self.before: tuple[StreamView, ...] = ()  # the earlier streams of this history, oldest first
        self._alone: StreamView | None = None  # this stream without the earlier ones; None: this view
        self._others: tuple[Part, ...] = ()  # earlier streams with another list of keys, oldest first
        self._following: dict[object, StreamView] = {}
        self.sums: dict[object, ColumnSum] = {}  # weighted sums of columns, cached by the callers
        self._counts = True  # whether true values are whole numbers
        self.statement: Statement | None = None  # the source's privacy promise; None: not known yet
        self.labels = UNLABELLED
        self.left: Left | None = None  # what the stream's total still allows; None: it has no total

    def extend(self, state: PublicState, blocks: Iterable[tuple[Missing, Int64Array]]) -> None:
        """Append the missing rows, and drop cached results that were computed without them."""
        before = self.strategy
        super().extend(state, blocks)
        if self.strategy is not before:  # keys were found: columns are others
            self.sums.clear()
        self._running.clear()
        self._consistent.clear()
        self._showing.clear()
        self._following.clear()
        for _, run in self.runs:
            if run and (over := self._covers.get(run[0].record.strategy_hash)) is not None:
                over.grow(run)

    # -- the promise --------------------------------------------------------------------------------

    @property
    def private(self) -> bool:
        """Return whether the known total epsilon of the source still protects anybody.

        The answer may become False later: another stream over the same events may begin.
        """
        own = self.declared.privacy.private and (self.statement is None or self.statement.private)
        return own and all(one.private for one in self.before)

    # -- one history --------------------------------------------------------------------------------

    @property
    def own(self) -> StreamView:
        """Return this stream without the streams before it."""
        return self._alone or self

    def following(self, before: tuple[StreamView, ...]) -> StreamView:
        """Return one history: this stream's epochs after those of other streams, oldest first; cached.

        Every answer over it has the exact error, because the noise of all epochs is independent. Streams with
        another list of keys take part only in counts of keys that they have, too (``of_key``).
        Args: before, as ``succession.continued`` returns it; empty for this view.
        """
        if not before:
            return self
        asked = tuple((one, one.trimmed) for one in before)  # they have ended: only retention changes them
        found = self._following.get(asked)
        if found is None:
            found = self._following[asked] = copy(self)
            found.before, found._alone, found._following = before, self, {}
            found.binning, shifts = joined_bins((*before, self))
            names = asked_names([one.strategy.stream for one in (*before, self)])
            parts = [Part.of(*one) for one in zip(names, before, shifts, strict=False)]
            alike = [one for one in parts if same_columns(one.strategy, self.strategy)]
            found._others = tuple(one for one in parts if not same_columns(one.strategy, self.strategy))
            same = (one for one in (*before, self) if same_columns(one.strategy, self.strategy))
            found.trimmed = next(same).trimmed
            found._texts = tuple(chain.from_iterable(one._texts for one in (*before, self)))
            found.epochs = [*chain(*(one.epochs for one in alike)), *self.epochs]
            found._running, found._consistent, found._showing, found._covers = {}, {}, {}, {}
        found.statement, found.labels, found.left = self.statement, self.labels, self.left
        return found

    # -- keys ---------------------------------------------------------------------------------------

    def of_key(self, key: str | AskedKeys | None) -> StreamView:
        """Return this view for some keys of the list: all its counts are for them together (None: for all).

        It has the epochs of every stream in this history whose list holds all of these keys.
        Raises: as ``place_of``.
        """
        place = self.place_of(key)
        if place is None:
            return self
        axes = self.strategy.kind.axes
        assert axes is not None  # otherwise no key has a place
        asked = key if isinstance(key, AskedKeys) else None
        return self.showing(column_sum(axes, place), counts=True, place=place, asked=asked)

    def showing(
        self,
        columns: ColumnSum,
        counts: bool = False,
        place: KeyPlaces | None = None,
        asked: AskedKeys | None = None,
    ) -> StreamView:
        """Return this view with a weighted sum of columns as its count, for example one key's; cached.

        Args: columns, the same object again for the same sum; counts, whether it counts events, so that true
            values are whole numbers; place and asked, of its keys, for epochs of other lists; None: of all.
        """
        own = self._showing.get((columns, asked))
        if own is None:
            own = copy(self)
            own.epochs = list(showing(self.epochs, self._texts, self.strategy, columns, place, asked))
            if self._others and place is not None and counts:
                own.epochs += chain(*(part.showing(self.strategy, columns, place) for part in self._others))
                own.epochs.sort(key=lambda epoch: epoch.record.first_bin)
            own._running, own._consistent, own._counts = {}, {}, counts
            if len(self._showing) >= KEPT_SUMS:
                self._showing.clear()
            self._showing[columns, asked] = own
        own.statement = self.statement
        return own

    def of_one_list(self) -> StreamView:
        """Return this view with the epochs that show the keys of the last one; earlier ones found others."""
        last = self.epochs[-1].record.names if self.epochs else ()
        if all(epoch.record.names == last for epoch in self.epochs):
            return self
        own = copy(self)
        own.epochs = [epoch for epoch in self.epochs if epoch.record.names == last]
        own._running, own._consistent, own._showing, own._covers = {}, {}, {}, {}
        return own

    def place_of(self, key: str | AskedKeys | None) -> KeyPlaces | None:
        """Return the place of a key in the list, or the places of several.

        Raises: QueryError for a key that is not on the list, or is named twice.
        """
        return None if key is None else places_after(self._others, self.strategy, key)

    def cells(self, span: Span | None = None) -> RangeSum:
        """Return the counts of all cells over the measured bins of a range of visible bins; None: over all.

        Raises: QueryError if none of the bins was measured, or the stream has no keys and values.
        """
        if self.strategy.kind.axes is None:
            raise QueryError("this stream has no values; configure value", "stream")
        if span is not None:
            self._check_some_measured(span)
        parts = (self if span else self.of_one_list()).parts(span or self.span)
        return RangeSum.joined(axes.range(part) for axes, part in with_one_list(self, parts))

    def counts_of_keys(self, span: Span) -> Estimate:
        """Return the events of every key in the measured part of a range: values (keys,), one law for each.

        Errors add up epoch by epoch, as for one key, so no error depends on how many keys are asked for.
        Cost: O(columns) for each epoch that the range only partly covers, O(keys) for each whole epoch.
        """
        parts = [axes.of_keys(part) for axes, part in with_one_list(self, self.parts(span))]
        return whole_estimate(
            parts[0] if len(parts) == 1 else added(sum(part.value for part in parts), parts)
        )

    # -- time ---------------------------------------------------------------------------------------

    def bins_between(self, start_us: int | None, end_us: int | None) -> Span:
        """Return the bins from start to end; None means the first or the last visible edge.

        A time before this view's first bin is valid if a stream before this one measured it: for other keys.

        Raises: QueryError, naming the nearest edges, for a time that is not the edge of a visible bin.
        """
        if self.released_until_us is None:
            raise QueryError("nothing is released yet: the first bin is still open; ask again later", "end")
        first, (start, stop) = self._reach.start, self.span
        released_us = (self.binning.start_us(first), self.released_until_us)
        trimmed = (*self.before, self)[0].trimmed
        if start_us is not None:
            start = bin_at_edge(self.binning, released_us, start_us, "start", trimmed)
        if end_us is not None:
            stop = bin_at_edge(self.binning, released_us, end_us, "end", trimmed)
            start = first if start_us is None and stop <= start else start
        if start >= stop:
            raise QueryError("end: it has to be later than start", "end")
        return Span(start, stop)

    # -- answers ------------------------------------------------------------------------------------

    def count(self, span: Span) -> Estimate:
        """Return the best current estimate of the number of events in the measured bins of a range.

        ``unmeasured`` returns the other bins of the range; the estimate holds none of their events.
        Guarantee: within each epoch the best linear unbiased estimate; for whole epochs the nodes over
            epochs, if the stream has them. Variance and law are exact.
        Raises: QueryError if none of the bins was measured.
        """
        self._check_some_measured(span)
        return self._joined(self._estimates(span, "unbiased"))

    def unmeasured(self, span: Span) -> list[Span]:
        """Return the parts of a range of visible bins that no epoch of this view measured, in order."""
        return gaps_in(span, (epoch.span for epoch in self.epochs))

    @property
    def _reach(self) -> Span:
        """The bins that readers may ask about: of this view, and of all streams before it."""
        starts = [epoch.span.start for part in self._others for epoch in part.epochs if epoch.bins]
        return Span(min([self.span.start, *starts]), self.span.stop)

    def _check_some_measured(self, span: Span) -> None:
        if any(True for _ in self.parts(span)):
            return
        gap = next(one for one in self.unmeasured(self._reach) if one.start <= span.start < one.stop)
        for part in self._others:
            if not gaps_in(span, (epoch.span for epoch in part.epochs)) == [span]:
                raise other_keys_then(self.binning, gap, part.asked_as)
        raise nothing_measured(self.binning, gap)

    def running(self, view: SeriesView = "unbiased", stop: int | None = None) -> Estimate:
        """Return the number of events from the stream's first bin to the edge ``stop`` (None: the last)."""
        span = Span(self.span.start, self.span.stop if stop is None else stop)
        return self._joined(self._estimates(span, view))

    def series(
        self,
        kind: SeriesKind,
        span: Span,
        step: int = 1,
        window: int = 1,
        view: SeriesView = "unbiased",
        points: int = 11_000,
    ) -> SeriesPoints:
        """Return a series over a range, with at most ``points`` points.

        ``running`` counts from the stream's first bin to every step-th edge. ``bin`` counts groups of
        ``step`` bins and leaves out a last group that is not full. ``window`` counts the last ``window`` bins
        at every step-th edge. In the first published view, bins and windows are sums of the bins' own nodes.
        Cost: O(bins) in numpy, and O(height^2) for each returned point.
        """
        starts, stops = point_ranges(self.binning, kind, span, step, window, self.span.start)
        return self.over_ranges(kind, view, starts, stops, points)

    def over_ranges(
        self, kind: SeriesKind, view: SeriesView, starts: Int64Array, stops: Int64Array, points: int
    ) -> SeriesPoints:
        """Return the points of those ranges that were wholly measured, at most ``points`` of them.

        Args: starts, stops, half-open ranges of visible bins, as ``point_ranges`` returns them for the kind.
        """
        available = len(stops)
        # A running count needs only the end of a measured bin: bins that no epoch measured count nothing.
        keep = self._measured(stops - 1 if kind == "running" else starts, stops)
        starts, stops = starts[keep], stops[keep]
        running = self._running_values(kind, view)
        values = running[self._measured_before(stops)] - running[self._measured_before(starts)]
        runs = list[tuple[Errors, Sequence[EpochView], EpochCovers | None]]()
        for kind_of, epochs in self.runs:
            errors = kind_of.errors(view, columns_of(epochs))
            of_nodes = kind != "running" and errors.leaf is not None
            over = None if of_nodes else self.over(epochs)
            runs.append((errors, epochs, over))
            if over is not None:
                edges = np.array([*(epoch.span.start for epoch in epochs), epochs[-1].span.stop])
                totals = running[self._measured_before(edges)]
                values = values + over.gains(over.covers(starts, stops), totals)
        shown = downsampled(values, points)
        starts, ends = starts[shown], stops[shown]
        spans = [Span(*edges) for edges in zip(starts.tolist(), ends.tolist(), strict=True)]
        laws, roundings = RangeErrors.added(
            [
                sums_of_nodes(errors.leaf, bins_in(epochs, starts, ends))
                if kind != "running" and errors.leaf is not None
                else errors.points(epochs, starts, ends, over)
                for errors, epochs, over in runs
            ]
        )
        found = SeriesPoints(spans, values[shown], laws, roundings, available, available - len(stops))
        return whole_points(found) if self._counts else found

    def over(self, epochs: Sequence[EpochView]) -> EpochCovers | None:
        """Return the nodes over the epochs of one strategy; None if it has no levels over epochs."""
        if not epochs:
            return None
        record = epochs[0].record
        if record.strategy_hash not in self._covers:
            covers = self.kind_of(record).new_covers()
            self._covers[record.strategy_hash] = covers and covers.grow(epochs)
        return self._covers[record.strategy_hash]

    def _estimates(self, span: Span, view: SeriesView) -> Iterable[Estimate]:
        """Yield independent estimates of a range's parts: nodes over epochs, then the remaining parts."""
        counted = set[EpochView]()
        for _, epochs in self.runs:
            if (over := self.over(epochs)) is not None:
                [nodes] = over.covers(np.array([span.start]), np.array([span.stop])).nodes
                yield from map(over.estimate, nodes)
                for node in nodes:
                    counted.update(epochs[node.first : node.first + node.epochs])
        for epoch, part in self.parts(span):
            if epoch not in counted:
                yield epoch.estimate(part, view)

    def parts(self, span: Span) -> Iterable[tuple[EpochView, Span]]:
        """Yield each epoch in a range with its part of the range."""
        for epoch in self.epochs:
            part = epoch.within(span)
            if part.start < part.stop:
                yield epoch, part

    def _joined(self, estimates: Iterable[Estimate]) -> Estimate:
        """Return the sum of independent estimates, each over all its cells."""
        parts, axes = list(estimates), self.strategy.kind.axes
        width = 1 if axes else self.strategy.kind.tables[PUBLISHED]
        if width == 1 and len(parts) == 1 and isinstance(parts[0].value, float):
            found = parts[0]
        else:
            found = added(float(sum(np.sum(part.value) for part in parts)), parts, width)
        return whole_estimate(found) if self._counts else found

    def _running_values(self, kind: SeriesKind, view: SeriesView) -> FloatArray:
        """Return the running count at every measured edge, shape (measured bins + 1,)."""
        key: tuple[SeriesKind, SeriesView] = ("running" if kind == "running" else "bin", view)
        if key not in self._running:
            self._running[key] = running_over(self.epochs, lambda epoch: epoch.running_values(*key))
        return self._running[key]

    def _measured_before(self, edges: Int64Array) -> Int64Array:
        """Return the number of measured bins before each edge."""
        counts = np.zeros(len(edges), dtype=np.int64)
        for epoch in self.epochs:
            counts += np.clip(edges - epoch.record.first_bin, 0, epoch.bins)
        return counts

    def _measured(self, starts: Int64Array, stops: Int64Array) -> BoolArray:
        return np.asarray(self._measured_before(stops) - self._measured_before(starts) == stops - starts)

    def consistent(self, starts: Int64Array, stops: Int64Array, method: Method = "top_down") -> Int64Array:
        """Return counts of ranges of visible bins as whole numbers that are not negative and add up.

        Guarantee: post-processing of released values (``consistent.py``). All answers of one method at one
            release are differences of the same whole running counts.
        """
        if method not in self._consistent:
            values = self._running_values("running", "unbiased")
            self._consistent[method] = consistent_running(self.kind_of, self.epochs, values, method)
        running = self._consistent[method]
        return np.asarray(running[self._measured_before(stops)] - running[self._measured_before(starts)])
