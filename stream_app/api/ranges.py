"""Fields that all answers about a stream share: its release, and the range of time."""

from __future__ import annotations

from stream_app.api.schemas import RangeQuery
from stream_app.core.answered import QueryError
from stream_app.core.instants import format_instant, parse_instant
from stream_app.core.kinds.tables import Span
from stream_app.core.query import StreamView


def released(view: StreamView) -> dict[str, object]:
    """Return the fields that every answer about a stream carries."""
    until_us = view.released_until_us
    return {
        "stream": view.strategy.stream,
        "private": view.private,
        "released_until": None if until_us is None else format_instant(until_us),
        "seq": view.visible_seq,
    }


def span_of(view: StreamView, query: RangeQuery) -> Span:
    """Return the range of bins of a query. Raises: QueryError."""
    return view.bins_between(parsed_time("start", query.start), parsed_time("end", query.end))


def parsed_time(parameter: str, text: str | None) -> int | None:
    """Return an instant in microseconds. Raises: QueryError."""
    try:
        return None if text is None else parse_instant(text)
    except ValueError as error:
        raise QueryError(f"{parameter}: {error}", parameter) from None


def edges_of(view: StreamView, span: Span) -> dict[str, object]:
    """Return the start and the end of a range of bins, as text."""
    return {"start": edge(view, span.start), "end": edge(view, span.stop)}


def edge(view: StreamView, bin: int) -> str:
    """Return the start of a bin, as text."""
    return format_instant(view.binning.start_us(bin))
