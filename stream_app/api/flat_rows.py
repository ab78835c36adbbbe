"""/api/v1/rows/...: flat JSON rows of keys, distributions and quantiles for Grafana's Infinity data source.

Each row is one key, bucket or quantile with its error. ``/api/v1/rows`` has such rows for series.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from pydantic import RootModel

from dphist.product.columns import key_counts
from stream_app.api.answers import values
from stream_app.api.answers.ranges import gaps_column, meaning_column, span_of, unmeasured_in
from stream_app.api.replies import answered
from stream_app.api.routes import replica_of
from stream_app.api.schemas import CdfAnswer, CdfQuery, CountQuery, QuantileQuery, QuantilesAnswer
from stream_app.core.answers.answered import declared_keys
from stream_app.core.answers.asked_keys import label_values
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.whole import whole_estimate
from stream_app.core.meaning import meaning_of

router = APIRouter(prefix="/api/v1/rows", include_in_schema=False)

Rows = RootModel[list[dict[str, Any]]]


class KeyRows(CountQuery):
    """All keys of a stream over a range."""

    stream: str


class CdfRows(CdfQuery):
    """The distribution of a stream's value over a range."""

    stream: str


class QuantileRows(QuantileQuery):
    """Quantiles of a stream's value over a range."""

    stream: str


@router.get("/keys")
async def keys(request: Request, query: Annotated[KeyRows, Query()]) -> Response:
    """One row per key: events from start to end."""
    return await answered(request, replica_of(request, query.stream), key_rows, query)


@router.get("/cdf")
async def cdf(request: Request, query: Annotated[CdfRows, Query()]) -> Response:
    """One row per bucket: events below its end, with the band."""
    return await answered(request, replica_of(request, query.stream), cdf_rows, query)


@router.get("/quantile")
async def quantile(request: Request, query: Annotated[QuantileRows, Query()]) -> Response:
    """One row per quantile."""
    return await answered(request, replica_of(request, query.stream), quantile_rows, query)


def key_rows(view: StreamView, query: KeyRows) -> Rows:
    """Return every key's count. Raises: QueryError for a stream without keys."""
    declared, view = declared_keys(view.strategy, "ask for its count"), view.of_one_list()
    wanted = view.place_of(query.keys_asked)
    shown = range(len(declared.labels)) if wanted is None else np.atleast_1d(wanted).tolist()
    span = span_of(view, query)
    counts = whole_estimate(key_counts(view.cells(span)))
    interval = counts.interval(query.confidence)
    columns = (np.asarray(part) for part in (counts.value, interval.lower, interval.upper))
    rows = list(zip(declared.labels, *(column.tolist() for column in columns), strict=True))
    words = meaning_column(meaning_of(view.declared).counts) | gaps_column(unmeasured_in(view, span))
    return Rows(
        [
            {"stream": query.stream, "key": key, "value": value, "stderr": counts.stderr}
            | {"lower": lower, "upper": upper, "private": view.private, **label_values(declared, place)}
            | words
            for place, (key, value, lower, upper) in ((place, rows[place]) for place in shown)
        ]
    )


def _common(stream: str, found: CdfAnswer | QuantilesAnswer) -> dict[str, Any]:
    """Return the columns that are the same in all rows of an answer."""
    own = {"stream": stream, "key": found.key, "private": found.private}
    return own | meaning_column(found.meaning) | gaps_column(found.unmeasured)


def cdf_rows(view: StreamView, query: CdfRows) -> Rows:
    """Return the distribution by bucket. Raises: QueryError for a stream without a value."""
    found = values.cdf(view, query)
    names = ("upto", "value", "stderr", "lower", "upper", "consistent")
    columns = zip(*(getattr(found, name) for name in names), strict=True)
    common = _common(query.stream, found)
    return Rows([common | dict(zip(names, row, strict=True)) for row in columns])


def quantile_rows(view: StreamView, query: QuantileRows) -> Rows:
    """Return one row per quantile. Raises: QueryError for a stream without a value."""
    found = values.quantiles(view, query)
    common = _common(query.stream, found)
    return Rows(
        [
            common | {"q": one.q, "value": one.value, "lower": one.interval[0], "upper": one.interval[1]}
            for one in found.quantiles
        ]
    )
