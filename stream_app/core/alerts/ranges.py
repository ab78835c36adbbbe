"""The sums of released columns that alert conditions ask for, each with its exact law.

A condition on a quantile or a share is the sign of a weighted sum of counts. The q-quantile lies above x if
q times the number of all events exceeds the number of events below x. The share of events below x exceeds p
if their number exceeds p times the number of all events. The mean of the amounts exceeds t if their sum
exceeds t times the number of events. So such rules need no band and no approximation: the sum has an exact
law.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dphist.arrays import Int64Array
from dphist.laws.law import NORMAL
from dphist.product.answers import Distance, Histogram, ks_distance, ks_estimate
from dphist.product.columns import ColumnSum
from dphist.product.design import ColumnDesign
from dphist.product.forest import RangeSum
from dphist.tree.estimate import Estimate
from stream_app.core.alerts.conditions import OF_AMOUNTS, OF_VALUES, Condition, Reference
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.asked_keys import AskedKeys, KeyNameError
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.steps import JoinedBinning
from stream_app.core.answers.sums import mean_over
from stream_app.core.answers.weighted import weighted_count
from stream_app.core.counting.cells import Amounts, Buckets, Cells
from stream_app.core.instants import format_instant
from stream_app.core.kinds.tables import Span

Places = tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class AskedSum:
    """A sum over a range of time that a condition asks for; equal questions are answered once.

    Args:
        bins: the number of last bins, None for all since the stream's first.
        keys: places in the list, None for all.
        below: how many buckets lie below the condition's point, None for a count of events; for amounts, the
            column of the low end.
        of_all, of_below: the weights of all events and of the events below the point.
        reference: the range that ks, or a rule against the past, compares with.
        factor: of the past in a rule against it, 0 for other rules.
    """

    bins: int | None
    keys: Places = None
    below: int | None = None
    of_all: float = 1.0
    of_below: float = 0.0
    reference: Span | None = None
    factor: float = 0.0

    @property
    def over_cells(self) -> bool:
        return self.keys is not None or self.below is not None


def of_value(condition: Condition, question: AskedSum, buckets: Buckets, point: float | None) -> AskedSum:
    """Return the sum whose sign says whether a quantile or a share is past a threshold.

    Raises: ValueError for a point that is not an edge between two buckets.
    """
    threshold, level = condition.threshold if point is None else point, condition.level
    assert threshold is not None
    assert level is not None
    if condition.measure == "quantile":
        return replace(question, below=edge_of(buckets, threshold), of_all=level, of_below=-1.0)
    return replace(question, below=edge_of(buckets, level), of_all=-threshold, of_below=1.0)


def of_amounts(condition: Condition, question: AskedSum, amounts: Amounts, point: float | None) -> AskedSum:
    """Return the total, or the sum whose sign says whether the mean is past a threshold."""
    low, high, past = float(amounts.low), float(amounts.high), 0.0
    if condition.measure == "mean":
        threshold = condition.threshold if point is None else point
        assert threshold is not None
        past = threshold
    return replace(question, below=1, of_all=high - past, of_below=low - high)


def edge_of(buckets: Buckets, point: float) -> int:
    """Return how many buckets lie below a point. Raises: ValueError for a point that is not an inner edge.

    >>> from fractions import Fraction
    >>> edge_of(Buckets("v", Fraction(0), Fraction(1), 10), 0.3)
    3
    """
    edges = buckets.edges
    nearest = int(np.abs(edges - point).argmin())
    step = float(edges[1] - edges[0])
    if 0 < nearest < buckets.count and abs(float(edges[nearest]) - point) <= 1e-9 * step:
        return nearest
    inner = edges[1:-1]
    near = " and ".join(f"{edge:g}" for edge in np.sort(inner[np.abs(inner - point).argsort()[:2]]))
    raise ValueError(f"{point:g} is not an edge between two buckets; the nearest are {near}")


def places_of(condition: Condition, cells: Cells) -> Places:
    """Return the places of a condition's keys; None for all together, empty if one is not on the list."""
    if not condition.keys:
        return None
    if cells.keys is None:
        return ()
    try:
        places = AskedKeys(condition.keys, condition.without).places(cells.keys)
    except KeyNameError:
        return ()
    return (places,) if isinstance(places, int) else places


class Ranges:
    """Answers the rules' questions about one view; each sum is computed once.

    Args: history, the view with its earlier segments, if it has any. Only rules against the past read them.
    """

    def __init__(self, history: StreamView) -> None:
        self.history, self.view = history, history.own
        view = self.view
        self.span = view.span
        self._cells: dict[Span | None, RangeSum] = {}
        self._estimates: dict[AskedSum, Estimate] = {}
        self._laws: dict[tuple[object, ...], Estimate] = {}
        self._histograms: dict[tuple[Span | None, Places], Histogram] = {}

    def question(self, condition: Condition, point: float | None = None) -> AskedSum | None:
        """Return a condition's question now; None if the stream cannot answer it, or not yet.

        A rule is written for the configured settings. Before these begin, the stream may have other bins,
        keys or buckets, which cannot answer it.
        Args: point, replaces the threshold of a quantile, a share or a comparison with the past.
        Raises: QueryError for a past that is not known.
        """
        past = condition.reference
        lengths_us = (condition.window_us, past and past.ago_us, past and past.length_us)
        if any(length_us % self.view.binning.bin_us for length_us in lengths_us if length_us):
            return None
        bins = None if condition.window_us is None else condition.window_us // self.view.binning.bin_us
        cells, (first, stop) = self.view.strategy.axes, self.span
        keys = places_of(condition, cells)
        of_cells = keys is not None or condition.measure in OF_VALUES | OF_AMOUNTS
        in_windows = of_cells and self.view.strategy.kind.axes is None
        if keys == () or in_windows or stop == first or (bins is not None and stop - bins < first):
            return None
        question, buckets = AskedSum(bins, keys), cells.buckets
        if condition.against_past:
            factor = condition.threshold if point is None else point
            assert factor is not None
            question = replace(question, reference=self._past(condition), factor=factor)
        if condition.measure in OF_AMOUNTS:
            return of_amounts(condition, question, cells.amounts, point) if cells.amounts else None
        if condition.measure not in OF_VALUES:
            return question
        if buckets is None:
            return None
        if condition.measure != "ks":
            try:
                return of_value(condition, question, buckets, point)
            except ValueError:
                return None  # the released buckets lack the rule's point; the configured ones have it
        reference = self._reference(condition)
        return None if reference is None else replace(question, below=0, reference=reference)

    def _reference(self, condition: Condition) -> Span | None:
        """Return the bins that a distribution is compared with; None if not all of them are released."""
        reference, binning, (first, stop) = condition.reference, self.view.binning, self.span
        assert reference is not None
        if reference.from_us is not None and reference.to_us is not None:
            span = Span(*binning.bin_of([reference.from_us, reference.to_us]).tolist())
        else:
            span = self._earlier(reference)
        return span if first <= span.start < span.stop <= stop else None

    def _past(self, condition: Condition) -> Span:
        """Return the bins with which the window is compared. Raises: QueryError if they are not known."""
        binning, reference = self.history.binning, condition.reference
        assert reference is not None
        span = self._earlier(reference)
        over = Span(span.start, self.span.stop)
        earlier = binning.touched(over) if isinstance(binning, JoinedBinning) else []
        if any(piece.binning != self.view.binning for piece, _ in earlier):
            raise QueryError("its past had bins of another length", "start")
        return span

    def _earlier(self, reference: Reference) -> Span:
        bin_us = self.view.binning.bin_us
        end = self.span.stop - reference.ago_us // bin_us
        return Span(end - reference.length_us // bin_us, end)

    def value(self, question: AskedSum) -> float:
        """Return the estimated sum; its error is left out where it costs extra. Raises: QueryError."""
        if question.factor or not question.over_cells or self._lists_differ(question):
            return float(self.estimate(question).value)
        return self._columns(question).value_of(self._cells_of(self._span(question)))

    def estimate(self, question: AskedSum) -> Estimate:
        """Return the sum with its exact law. Raises: QueryError."""
        if question not in self._estimates:
            self._estimates[question] = self._estimate(question)
        return self._estimates[question]

    def _estimate(self, question: AskedSum) -> Estimate:
        span, view = self._span(question), self.view
        if question.factor:
            assert span is not None  # only windows are compared with their past
            return self._over_times(question, [(span, 1.0), (question.reference or span, -question.factor)])
        if self._lists_differ(question):
            columns, is_count = self._columns(question), question.below is None
            view = view.showing(columns, counts=is_count, place=question.keys)
        elif question.over_cells:
            return self._over_cells(question, span)
        return view.running() if span is None else view.count(_measured(view, span))

    def _over_times(self, question: AskedSum, ranges: list[tuple[Span, float]]) -> Estimate:
        """Return a weighted sum of a question's counts of different times, with its exact law."""
        view = self.history
        if question.over_cells:
            view = view.showing(self._columns(question), question.below is None, question.keys)
        for span, _ in ranges:
            if span.start < view.span.start:
                begins, kept = format_instant(view.binning.start_us(view.span.start)), " that is kept"
                line = f"its past begins before the first interval{kept * bool(view.trimmed)}, {begins}"
                raise QueryError(line, "start")
            _measured(view, span)
        found = weighted_count(view, ranges)
        if len({scale == NORMAL for _, _, scale in found.law.groups}) > 1:
            raise QueryError("its past has noise of another kind: no exact law is known", "start")
        return found

    def past(self, condition: Condition, question: AskedSum) -> float | None:
        """Return the estimate of the past with which a rule compares its window, times the factor.

        Raises: QueryError if the rule cannot be decided.
        """
        if not question.factor or question.reference is None:
            return None
        self.estimate(question)
        return float(self._over_times(question, [(question.reference, question.factor)]).value)

    def _lists_differ(self, question: AskedSum) -> bool:
        """Return whether the question is about cells, and not all epochs show the same keys."""
        return question.over_cells and self.view.of_one_list() is not self.view

    def distance(self, question: AskedSum) -> float:
        """Return the estimated distance between two distributions. Raises: QueryError."""
        return ks_estimate(*self._two(question))

    def certain_distance(self, question: AskedSum, confidence: float) -> Distance:
        """Return a lower and an upper bound on the distance.

        Only one of the bounds can mislead a rule, but both hold at once, so rules are safer than asked.
        """
        return ks_distance(*self._two(question), confidence)

    def shown(self, condition: Condition, question: AskedSum) -> tuple[float | None, float | None]:
        """Return the condition's value in its own unit, and the standard error where there is one."""
        if condition.measure == "ks":
            return self.distance(question), None
        if question.below is None or condition.measure == "total":
            estimate = self.estimate(replace(question, reference=None, factor=0.0))
            return condition.in_unit(float(estimate.value)), condition.in_unit(estimate.stderr)
        if condition.measure == "mean":
            return self._mean(condition, question), None
        counts = self._histogram(self._span(question), question.keys).estimated()
        if not counts[-1]:
            return None, None
        if condition.measure == "cdf":
            return int(counts[question.below - 1]) / int(counts[-1]), None
        buckets, level = self.view.strategy.axes.buckets, condition.level
        assert buckets is not None
        assert level is not None
        return _quantile(counts, level, buckets), None

    def reach(self, condition: Condition, question: AskedSum) -> float | None:
        """Return half the width of the 95 % interval of the shown value; None without an error."""
        if condition.measure == "ks" or (question.below is not None and condition.measure != "total"):
            return None
        interval = self.estimate(replace(question, reference=None, factor=0.0)).interval()
        return condition.in_unit(float(interval.upper - interval.lower) / 2)

    def _over_cells(self, question: AskedSum, span: Span | None) -> Estimate:
        """Return a sum of columns with its law, which depends on how many keys there are, the rest apart."""
        total, columns = self._cells_of(span), self._columns(question)
        keys, rest = question.keys, total.design.keys.keys
        many = None if keys is None else (len(keys), rest in keys)
        kind = (span, many, question.below, question.of_all, question.of_below)
        if kind not in self._laws:
            self._laws[kind] = columns.of_range(total)
        return replace(self._laws[kind], value=columns.value_of(total))

    def _columns(self, question: AskedSum) -> ColumnSum:
        asked = replace(question, bins=None, reference=None, factor=0.0)
        if asked not in self.view.sums:
            product = self.view.strategy.kind.axes
            assert product is not None  # otherwise the stream has neither keys nor values
            self.view.sums[asked] = columns_of(product, asked)
        return self.view.sums[asked]

    def _mean(self, condition: Condition, question: AskedSum) -> float | None:
        asked = AskedKeys(condition.keys, condition.without) if condition.keys else None
        span = self._span(question)
        return mean_over(self.view, self.span if span is None else _measured(self.view, span), asked).value

    def _two(self, question: AskedSum) -> tuple[Histogram, Histogram]:
        now = self._histogram(self._span(question), question.keys)
        return now, self._histogram(question.reference, question.keys)

    def _histogram(self, span: Span | None, keys: Places) -> Histogram:
        if (span, keys) not in self._histograms:
            self._histograms[span, keys] = Histogram.of(self._cells_of(span), keys)
        return self._histograms[span, keys]

    def _cells_of(self, span: Span | None) -> RangeSum:
        if span not in self._cells:
            self._cells[span] = self.view.cells(None if span is None else _measured(self.view, span))
        return self._cells[span]

    def _span(self, question: AskedSum) -> Span | None:
        stop = self.span.stop
        return None if question.bins is None else Span(stop - question.bins, stop)


def _measured(view: StreamView, span: Span) -> Span:
    """Return a range that was measured whole: a rule reads no gap as a time without events.

    Raises: QueryError.
    """
    if view.unmeasured(span):
        raise QueryError("a part of its window was never measured", "start")
    return span


def _quantile(counts: Int64Array, level: float, buckets: Buckets) -> float:
    """Return a quantile of consistent cumulative counts, by linear interpolation within its bucket."""
    wanted = level * int(counts[-1])
    place = int(np.argmax(counts >= wanted))
    below = int(counts[place - 1]) if place else 0
    start, end = buckets.edges[place : place + 2].tolist()
    return float(start + (wanted - below) / (int(counts[place]) - below) * (end - start))


def columns_asked(condition: Condition, product: ColumnDesign, cells: Cells) -> ColumnSum:
    """Return the sum of columns that a condition asks for; it is the same for every range of time."""
    question = AskedSum(None, places_of(condition, cells))
    if cells.amounts and condition.measure in OF_AMOUNTS:
        question = of_amounts(condition, question, cells.amounts, None)
    elif condition.measure in ("quantile", "cdf"):
        assert cells.buckets is not None
        question = of_value(condition, question, cells.buckets, None)
    return columns_of(product, question)


def columns_of(product: ColumnDesign, question: AskedSum) -> ColumnSum:
    if question.below is None:
        return ColumnSum(product, question.keys)
    weights = np.full(product.values.buckets, question.of_all)
    weights[: question.below] += question.of_below
    return ColumnSum(product, question.keys, weights)
