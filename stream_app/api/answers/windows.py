"""Answers about tumbling windows: a window's histogram, its cumulative counts and quantiles. Pure."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from dphist.product.answers import Cdf
from dphist.windows.design import WindowDesign
from dphist.windows.error import WindowError
from stream_app.api.answers.ranges import edge, edges_of, parsed_time, released
from stream_app.api.answers.values import check_quantiles, in_values
from stream_app.api.schemas import FIRST_KEYS, WindowAnswer, WindowQuantile, WindowQuery, WindowsAnswer
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.window_view import Window, window_ending, window_until, windows_of
from stream_app.core.counting.cells import Buckets
from stream_app.core.promise import in_words

ErrorKey = tuple[str, int, Fraction, float, tuple[tuple[str, Any], ...]]
Errors = dict[ErrorKey, WindowError | None]
# Cache of errors that take seconds to compute, one for each design of windows and each confidence offered.
known_errors: Errors = {}

_KNOWN = "The error does not depend on the data. Each band holds all counts of its curve at once."
_UNKNOWN = "The error of this mechanism depends on the data, so no error is stated."


def described(view: StreamView) -> WindowsAnswer | None:
    """Return the description of a stream's windows; None if it has none."""
    design = view.strategy.kind.windows
    if design is None:
        return None
    labels, buckets = () if view.declared.keys is None else view.declared.keys.labels, view.declared.value
    return WindowsAnswer(
        mechanism=design.mechanism,
        options=dict(design.options),
        bins=design.bins,
        epsilon=in_words(design.epsilon),
        histograms=design.histograms,
        keys=None if not labels or design.histograms == 1 else len(labels),
        first_keys=[] if design.histograms == 1 else list(labels[:FIRST_KEYS]),
        value_field=None if buckets is None else buckets.field,
        buckets=design.buckets,
    )


def error_key(view: StreamView, query: WindowQuery) -> ErrorKey:
    """Return the arguments of ``window_error`` for a question. Raises: QueryError if it has no answer."""
    _asked(view, query)
    design = windows_of(view)
    _histogram(view, design, query.key)
    if query.q and _buckets(view, design) is None:
        raise QueryError("q: quantiles are of a value, and these counts are not by value; leave q out", "q")
    check_quantiles(query.q)
    return design.mechanism, design.buckets, design.epsilon, query.confidence, design.arguments


def window(view: StreamView, query: WindowQuery, errors: Errors) -> WindowAnswer:
    """Return one window of one key. Args: errors, with an entry at ``error_key``. Raises: QueryError."""
    key = error_key(view, query)
    found = _asked(view, query)
    design = windows_of(view)
    if key not in errors:
        raise QueryError("the stream has begun again with other windows; ask again", "stream")
    error = errors[key]
    counts = found.counts[_histogram(view, design, query.key)]
    cumulative = counts.cumsum()
    band = None
    if error is not None:
        band = Cdf(cumulative, error.cumulative_stderr, error.reach, query.confidence)
    unknown = np.full_like(cumulative, np.inf)
    curve = band or Cdf(cumulative, unknown, unknown, query.confidence)
    buckets = _buckets(view, design)
    keys = view.strategy.declared.cells.keys if design.attributed and buckets is None else None
    return WindowAnswer(
        **released(view),
        **edges_of(view, found.span),
        key=query.key,
        mechanism=design.mechanism,
        epsilon=in_words(design.epsilon),
        confidence=query.confidence,
        earlier=None if found.earlier is None else edge(view, found.earlier),
        later=None if found.later is None else edge(view, found.later),
        windows=found.available,
        sorted=not design.attributed,
        low=None if buckets is None else float(buckets.edges[0]),
        upto=None if buckets is None else buckets.edges[1:].tolist(),
        keys=None if keys is None else list(keys.labels),
        count=counts.tolist(),
        stderr=None if error is None else error.bucket_stderr.tolist(),
        count_lower=None if error is None else np.maximum(counts - error.bucket_reach, 0.0).tolist(),
        count_upper=None if error is None else np.maximum(counts + error.bucket_reach, 0.0).tolist(),
        cumulative=cumulative.tolist(),
        lower=None if band is None else band.lower.tolist(),
        upper=None if band is None else band.upper.tolist(),
        consistent=curve.consistent().tolist(),
        quantiles=_quantiles(buckets, curve, band is not None, query),
        note=_UNKNOWN if error is None else _KNOWN,
    )


def _asked(view: StreamView, query: WindowQuery) -> Window:
    if query.until is None:
        return window_ending(view, parsed_time("end", query.end))
    if query.end is not None:
        raise QueryError("until: say until or end, not both", "until")
    until_us = parsed_time("until", query.until)
    assert until_us is not None
    return window_until(view, until_us)


def _histogram(view: StreamView, design: WindowDesign, key: str | None) -> int:
    """Return the index of the histogram that a question is about."""
    if design.histograms == 1:
        if key is not None:
            raise QueryError("key: a window of this stream holds all keys together; leave key out", "key")
        return 0
    keys = view.strategy.declared.cells.keys
    assert keys is not None
    if key is None or key not in keys.labels:
        known = ", ".join(keys.labels[:10])
        raise QueryError(
            f"key: a window has a histogram for each key; name one, for example of {known}", "key"
        )
    return keys.labels.index(key)


def _buckets(view: StreamView, design: WindowDesign) -> Buckets | None:
    """Return the value's buckets if windows count by bucket; None if they count keys or sort their counts."""
    return view.strategy.declared.cells.buckets if design.attributed else None


def _quantiles(buckets: Buckets | None, cdf: Cdf, known: bool, query: WindowQuery) -> list[WindowQuantile]:
    """Return quantiles of the value, with intervals if the error is known."""
    if buckets is None:
        return []
    found = [in_values(cdf, cdf.quantile(q), buckets) for q in query.q]
    return [
        WindowQuantile(q=one.q, value=one.value, interval=one.interval if known else None) for one in found
    ]
