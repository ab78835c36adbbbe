"""Answers in slices of time: counts by value, cumulative counts and quantiles over time. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dphist.consistency.isotonic import rising_cdfs
from dphist.product.answers import Histogram
from stream_app.api import schemas
from stream_app.api.admission.work import check_work, slices_us
from stream_app.api.answers.ranges import (
    about_keys,
    edge,
    edges_s,
    instants_s,
    released,
    span_of,
)
from stream_app.api.answers.values import buckets_of, check_quantiles, in_values
from stream_app.core.answers.answered import QueryError, whole_estimate
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.steps import DAY_US, MONDAY, Grid
from stream_app.core.counting.bins import Binning
from stream_app.core.counting.cells import Buckets
from stream_app.core.kinds.tables import Span

_MONDAY_US = MONDAY * DAY_US
_RISING = (
    "Whole counts that fall neither over the value nor over time; they are biased, and stderr is that of the "
    "unbiased ones. /cdf has those of one end, with a band."
)


@dataclass(frozen=True)
class Slices:
    """Parts of a range of time. Args: spans; partial, whether each is shorter than a step of the question."""

    spans: Sequence[Span]
    partial: Sequence[bool]

    def measured(self, view: StreamView) -> Slices:
        """Return the slices that were measured whole."""
        kept = [at for at, one in enumerate(self.spans) if not view.unmeasured(one)]
        return Slices([self.spans[at] for at in kept], [self.partial[at] for at in kept])

    def answered(self, view: StreamView) -> dict[str, Any]:
        """Return the fields that name the parts of time for which an answer has numbers."""
        return {**edges_s(view, self.spans), "partial": list(self.partial)}

    @property
    def in_words(self) -> str:
        """Sentences to precede a note: which slices are missing or shorter than the others; empty if none is.

        >>> Slices([Span(2, 3), Span(3, 6), Span(6, 9)], [True, False, False]).in_words
        'The first slice is shorter than the others. '
        >>> Slices([Span(0, 3), Span(6, 9)], [False, False]).in_words
        'Slices that no epoch measured whole are left out. '
        """
        apart = any(one.stop < after.start for one, after in pairwise(self.spans))
        missing = "Slices that no epoch measured whole are left out. " if apart else ""
        ends = [name for name, at in (("first", 0), ("last", -1)) if self.partial[at]]
        if len(self.spans) == 1 or not ends:
            return missing
        verb = "is" if len(ends) == 1 else "are each"
        return f"{missing}The {' and the '.join(ends)} slice {verb} shorter than the others. "


def slices_of(view: StreamView, query: schemas.SlicesQuery) -> Slices:
    """Return the slices of a query's range, except slices that were never measured.

    Raises: QueryError if there are too many or none.
    """
    span = span_of(view, query)
    calendar, grid = query.calendar(view.binning.timezone), Grid.of(view.binning, span)
    if calendar is None:
        slices = _in_steps(grid, query)
    else:
        groups = calendar.groups(view.binning, span, schemas.MOST_SLICES)
        slices = Slices(groups, [not calendar.is_whole(view.binning, one) for one in groups])
    if not slices.spans:
        raise QueryError("step: longer than the range; ask for a shorter step or a longer range", "step")
    if len(slices.spans) > schemas.MOST_SLICES:
        least = _least_step(grid.around, query.aligned, grid.least)
        raise QueryError(f"step: at most {schemas.MOST_SLICES} slices; write {least} or more bins", "step")
    measured = slices.measured(view)
    check_work(slices_us(view, len(measured.spans)), "step", "ask for longer slices, or one /count for all")
    if not measured.spans:
        raise QueryError("start, end: no slice between them was measured whole; ask for others", "start")
    return measured


def _in_steps(grid: Grid, query: schemas.SlicesQuery) -> Slices:
    """Return all slices of a range by its steps. Raises: QueryError for a step that does not fit all bins."""
    step = query.step or _least_step(grid.around, query.aligned, grid.least)
    grid.check_step(step)
    found = slices_between(grid.around, query, origin_of(grid.binning, grid.around, query), grid.least)
    there = np.array(found, np.int64).reshape(-1, 2)
    spans = [Span(*edges) for edges in grid.here(there).tolist()]
    whole = (there[:, 1] - there[:, 0] == step) & grid.has(there).all(axis=1)
    return Slices(spans, (~whole).tolist())


def origin_of(binning: Binning, span: Span, query: schemas.SlicesQuery) -> int:
    """Return a bin at which an aligned slice begins: for weeks the bin of a Monday, if a bin begins there."""
    if binning.timezone:
        return span.start
    step = query.step or _least_step(span, query.aligned)
    is_weeks = step * binning.bin_us % (7 * DAY_US) == 0
    return _MONDAY_US // binning.bin_us if is_weeks and _MONDAY_US % binning.bin_us == 0 else 0


def slices_between(span: Span, query: schemas.SlicesQuery, origin: int = 0, least: int = 1) -> Sequence[Span]:
    """Return all slices of a range, also unmeasured ones; at most a few more than the limit.

    Args: origin, a bin at which an aligned slice begins; least, of which a step is a multiple.
    """
    step = query.step or _least_step(span, query.aligned, least)
    if not query.aligned:
        starts = range(span.start // least * least, span.stop, step)[: schemas.MOST_SLICES + 1]
        shorter = span.stop - span.start < step
        return [] if shorter else [Span(start, min(start + step, span.stop)) for start in starts]
    first = span.start + step - (span.start - origin) % step
    inner = range(first, span.stop, step)[: schemas.MOST_SLICES + 1]
    return [Span(*edges) for edges in pairwise((span.start, *inner, span.stop))]


def _least_step(span: Span, aligned: bool, least: int = 1) -> int:
    """Return the fewest bins of a slice, of multiples of ``least``, that make no more slices than allowed."""
    return -(-(span.stop - span.start) // (schemas.MOST_SLICES - int(aligned or least > 1)) // least) * least


def heat(view: StreamView, query: schemas.HeatQuery) -> schemas.HeatAnswer:
    """Return counts by ranges of the value and slices of time, with the standard error of each."""
    buckets, slices = buckets_of(view), slices_of(view, query)
    place = view.place_of(query.keys_asked)
    edges = _row_edges(buckets, query.rows)
    counts, stderr = [], []
    for one in slices.spans:
        histogram = Histogram.of(view.cells(one), place)
        cells = [whole_estimate(histogram.count(start, stop)) for start, stop in pairwise(edges)]
        counts.append([float(cell.value) for cell in cells])
        stderr.append([cell.stderr for cell in cells])
    joined = len(edges) - 1 < buckets.count
    note = f"Ranges of the value join up to {edges[1]} of {buckets.count} buckets. " if joined else ""
    return schemas.HeatAnswer(
        **released(view) | about_keys(view, query),
        **slices.answered(view),
        edges=[float(buckets.edges[edge]) for edge in edges],
        counts=counts,
        stderr=stderr,
        note=note + slices.in_words + "Counts are unbiased, so some of nearly empty cells are below zero.",
    )


def running_cdfs(view: StreamView, query: schemas.SlicesQuery) -> schemas.CdfsAnswer:
    """Return the distributions from the start of a range to the end of each of its slices.

    Raises: QueryError.
    Cost: O(columns) for each end.
    """
    place, buckets = view.place_of(query.keys_asked), buckets_of(view)
    slices = slices_of(view, query)
    start, ends = slices.spans[0].start, [one.stop for one in slices.spans]
    found = [Histogram.of(view.cells(Span(start, end)), place) for end in ends]
    return schemas.CdfsAnswer(
        **released(view) | about_keys(view, query),
        start=edge(view, start),
        end=instants_s(view, ends),
        upto=buckets.edges[1:].tolist(),
        counts=rising_cdfs(np.array([one.estimated() for one in found])).tolist(),
        stderr=[one.cumulative_stderr.tolist() for one in found],
        note=_RISING,
    )


def quantile_slices(view: StreamView, query: schemas.QuantileSlicesQuery) -> schemas.QuantileSlicesAnswer:
    """Return quantiles in every slice of time, from that slice's band."""
    check_quantiles(query.q)
    buckets, slices = buckets_of(view), slices_of(view, query)
    place = view.place_of(query.keys_asked)
    bands = [Histogram.of(view.cells(one), place).cdf(query.confidence) for one in slices.spans]
    over_time = []
    for q in query.q:
        found = [in_values(band, band.quantile(q), buckets) for band in bands]
        lower, upper = zip(*(one.interval for one in found), strict=True)
        value = [one.value for one in found]
        over_time.append(schemas.QuantileOverTime(q=q, value=value, lower=list(lower), upper=list(upper)))
    return schemas.QuantileSlicesAnswer(
        **released(view) | about_keys(view, query),
        **slices.answered(view),
        confidence=query.confidence,
        low=float(buckets.edges[0]),
        high=float(buckets.edges[-1]),
        quantiles=over_time,
        note=slices.in_words + "In each slice all intervals hold together; over many slices some may not.",
    )


def _row_edges(buckets: Buckets, rows: int) -> list[int]:
    """Divide the buckets into at most ``rows`` equal runs (the last may be shorter); return their edges."""
    joined = -(-buckets.count // rows)
    return [*range(0, buckets.count, joined), buckets.count]
