"""Compute the API's answers about sums and means. Pure functions."""

from __future__ import annotations

from typing import Any

from stream_app.api import schemas
from stream_app.api.answers.ranges import (
    OWN_POINT,
    about_keys,
    calendar_answered,
    edges_s,
    ends_left_out,
    estimated,
    measured_of,
    points_answered,
    points_left_out,
    ranges_of,
    released,
    span_of,
)
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import declared_sum, mean_over, means_over, sum_of, sums_over
from stream_app.core.meaning import OfAmounts, amounts_in_words, meaning_of_amounts


def total(view: StreamView, query: schemas.CountQuery) -> schemas.SumAnswer:
    """Answer the sum of a range. Raises: QueryError."""
    amounts, span = described(view), span_of(view, query)
    found = estimated(sum_of(view, span, query.keys_asked), query.confidence)
    return schemas.SumAnswer(
        **released_amounts(view, query, "sum"), amounts=amounts, **measured_of(view, span), **found
    )


def mean(view: StreamView, query: schemas.CountQuery) -> schemas.MeanAnswer:
    """Answer the mean of a range. Raises: QueryError."""
    amounts, span = described(view), span_of(view, query)
    found = mean_over(view, span, query.keys_asked, query.confidence)
    return schemas.MeanAnswer(
        **released_amounts(view, query, "mean"),
        amounts=amounts,
        **measured_of(view, span),
        value=found.value,
        interval=(found.lower, found.upper),
        confidence=query.confidence,
    )


def total_series(view: StreamView, query: schemas.SeriesQuery) -> schemas.SumSeriesAnswer:
    """Return sums as a series. Raises: QueryError, also for whole numbers, which only counts have."""
    amounts = described(view)
    if query.view == "consistent" or query.method is not None:
        raise QueryError("view: sums are never made consistent; leave out view and method", "view")
    if query.view != "unbiased" and not all(one.keys_as_first_published for one in view.kinds):
        raise QueryError("view: only the count is kept as first published; leave out view", "view")
    span = span_of(view, query)
    ranges = ranges_of(view, query, span)
    found = sums_over(view, query.kind, *ranges, query.keys_asked, query.view, query.points)
    left_out = ends_left_out(view, query, span, ranges)
    answered = points_answered(view, query, found, left_out) | released_amounts(view, query, "sum")
    return schemas.SumSeriesAnswer(amounts=amounts, **answered)


def means(view: StreamView, query: schemas.MeanSeriesQuery) -> schemas.MeanSeriesAnswer:
    """Return means as a series. Raises: QueryError."""
    amounts, span = described(view), span_of(view, query)
    ranges = ranges_of(view, query, span)
    found = means_over(view, query.kind, *ranges, query.keys_asked, query.confidence, query.points)
    fewer = len(found.spans) + found.unmeasured < found.available
    note = " ".join(
        [*ends_left_out(view, query, span, ranges), *points_left_out(found.unmeasured), OWN_POINT]
    )
    if fewer:
        note = f"{found.available:,} points are shortened to {len(found.spans):,}, evenly spaced. {note}"
    return schemas.MeanSeriesAnswer(
        **released_amounts(view, query, "mean"),
        **query.model_dump(include={"kind", "step", "window", "confidence"}),
        **edges_s(view, found.spans),
        **calendar_answered(view, query),
        amounts=amounts,
        value=[one.value for one in found.means],
        lower=[one.lower for one in found.means],
        upper=[one.upper for one in found.means],
        points_available=found.available,
        downsampled=fewer,
        note=note,
    )


def released_amounts(view: StreamView, query: schemas.RangeQuery, of: OfAmounts) -> dict[str, Any]:
    """Return the fields that every answer carries; the words are about amounts, not about events."""
    meaning = meaning_of_amounts(view.declared, of)
    words = {"meaning": meaning.counts, "intervals": meaning.intervals}
    said = {**released(view), **words, "counted": amounts_in_words(view.declared, of)}
    return said | about_keys(view, query, meaning)


def described(view: StreamView) -> schemas.SummedField:
    """Return the amount that a stream adds up. Raises: QueryError if it adds up nothing."""
    amounts = declared_sum(view)
    return schemas.SummedField(
        field=amounts.field,
        min=float(amounts.low),
        max=float(amounts.high),
        unit=float(amounts.unit),
    )
