"""Answers about the value: cumulative counts with a band, and quantiles. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dphist.product.answers import Cdf, Histogram, Quantile
from dphist.product.design import TreeGroup
from stream_app.api import schemas
from stream_app.api.answers.ranges import about_keys, measured_of, released, span_of
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.query import StreamView
from stream_app.core.counting.cells import Buckets
from stream_app.core.counting.keys import KeyList
from stream_app.core.strategy import Strategy


def cdf(view: StreamView, query: schemas.CdfQuery) -> schemas.CdfAnswer:
    """Return the distribution over a range of time. Raises: QueryError."""
    found, buckets, common = _cdf(view, query)
    return schemas.CdfAnswer(
        **common,
        upto=buckets.edges[1:].tolist(),
        value=found.values.tolist(),
        stderr=found.stderr.tolist(),
        lower=found.lower.tolist(),
        upper=found.upper.tolist(),
        consistent=found.consistent().tolist(),
    )


def quantiles(view: StreamView, query: schemas.QuantileQuery) -> schemas.QuantilesAnswer:
    """Return quantiles over a range of time. Raises: QueryError."""
    check_quantiles(query.q)
    found, buckets, common = _cdf(view, query)
    wanted = [in_values(found, found.quantile(q), buckets) for q in query.q]
    return schemas.QuantilesAnswer(**common, quantiles=wanted)


def check_quantiles(asked: Sequence[float]) -> None:
    """Check that quantiles are between 0 and 1. Raises: QueryError."""
    if not all(0.0 < q < 1.0 for q in asked):
        raise QueryError("q: every quantile is above 0 and below 1; write for example q=0.5&q=0.95", "q")


def buckets_of(view: StreamView) -> Buckets:
    """Return the buckets of a stream's value. Raises: QueryError if it has none."""
    buckets = view.strategy.axes.buckets
    if buckets is None:
        raise QueryError("this stream has no value, so no distribution; ask for its count", "stream")
    return buckets


def axes_of(strategy: Strategy) -> schemas.AxesAnswer | None:
    """Return the axes besides time and the meaning of each column; None without axes."""
    axes = strategy.kind.axes
    if axes is None:
        return None
    declared = strategy.declared
    return schemas.AxesAnswer(
        keys=None if declared.keys is None else len(declared.keys.labels),
        first_keys=[] if declared.keys is None else list(declared.keys.labels[: schemas.FIRST_KEYS]),
        key_field=None if declared.keys is None else declared.keys.field or None,
        key_fields=_key_fields(declared.keys),
        edges=None if declared.value is None else declared.value.edges.tolist(),
        value_field=None if declared.value is None else declared.value.field,
        value_branching=list(axes.values.shape.branching),
        value_shares=[str(share) for share in axes.values.shares],
        total_share=str(axes.keys.total_share),
        columns=[
            schemas.ColumnsAnswer(
                total=group.total,
                value_level=group.value_level,
                keys=group.keys,
                nodes=group.nodes,
                first=group.first,
                scales=list(map(float, group.design.scales)) if isinstance(group, TreeGroup) else [],
            )
            for group in axes.groups
        ],
    )


def _key_fields(keys: KeyList | None) -> list[schemas.KeyFieldAnswer] | None:
    if keys is None or not keys.fields:
        return None
    return [schemas.KeyFieldAnswer(field=one.field, values=len(one.values)) for one in keys.fields]


def _cdf(view: StreamView, query: schemas.CdfQuery) -> tuple[Cdf, Buckets, dict[str, Any]]:
    """Return the distribution, its buckets, and the fields that all answers about it share."""
    span, buckets = span_of(view, query), buckets_of(view)
    found = Histogram.of(view.cells(span), view.place_of(query.keys_asked)).cdf(query.confidence)
    common = about_keys(view, query) | {"confidence": query.confidence}
    return found, buckets, released(view) | measured_of(view, span) | common


def in_values(cdf: Cdf, quantile: Quantile, buckets: Buckets) -> schemas.EstimatedQuantile:
    """Return a quantile in units of the value instead of buckets."""
    value = None
    if quantile.bucket is not None:
        counts, place = cdf.consistent(), quantile.bucket
        below = int(counts[place - 1]) if place else 0
        part = (quantile.q * int(counts[-1]) - below) / (int(counts[place]) - below)
        start, end = buckets.edges[place : place + 2].tolist()
        value = start + part * (end - start)
    interval = float(buckets.edges[quantile.first]), float(buckets.edges[quantile.last + 1])
    return schemas.EstimatedQuantile(q=quantile.q, value=value, interval=interval)
