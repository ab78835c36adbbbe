"""Compute the API's answers about sums and means. Pure functions."""

from __future__ import annotations

from typing import Any

from stream_app.api import schemas
from stream_app.api.ranges import about_keys, edges_of, estimated, released, span_of
from stream_app.api.sum_schemas import MeanAnswer, SumAnswer
from stream_app.core.cells import Amounts
from stream_app.core.meaning import OfAmounts, amounts_in_words, meaning_of_amounts
from stream_app.core.query import StreamView
from stream_app.core.sums import declared_sum, mean_over, sum_of


def total(view: StreamView, query: schemas.CountQuery) -> SumAnswer:
    """Answer the sum of a range. Raises: QueryError."""
    amounts, span = described(declared_sum(view)), span_of(view, query)
    found = estimated(sum_of(view, span, query.keys_asked), query.confidence)
    return SumAnswer(**_released(view, query, "sum"), amounts=amounts, **edges_of(view, span), **found)


def mean(view: StreamView, query: schemas.CountQuery) -> MeanAnswer:
    """Answer the mean of a range. Raises: QueryError."""
    amounts, span = described(declared_sum(view)), span_of(view, query)
    found = mean_over(view, span, query.keys_asked, query.confidence)
    return MeanAnswer(
        **_released(view, query, "mean"),
        amounts=amounts,
        **edges_of(view, span),
        value=found.value,
        interval=(found.lower, found.upper),
        confidence=query.confidence,
    )


def _released(view: StreamView, query: schemas.CountQuery, of: OfAmounts) -> dict[str, Any]:
    """Return the fields that every answer carries; the words are about amounts, not about events."""
    meaning = meaning_of_amounts(view.declared, of)
    words = {"meaning": meaning.counts, "intervals": meaning.intervals}
    said = {**released(view), **words, "counted": amounts_in_words(view.declared, of)}
    return said | about_keys(view, query, meaning)


def described(amounts: Amounts) -> schemas.SummedField:
    """Return what a stream adds up."""
    return schemas.SummedField(
        field=amounts.field, min=float(amounts.low), max=float(amounts.high), unit=float(amounts.unit)
    )
