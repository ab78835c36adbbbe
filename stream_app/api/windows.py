"""Answers about tumbling windows: a window's histogram, its cumulative counts and quantiles. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dphist.consistency.trellis import consistent_cdf
from dphist.product.answers import Cdf
from dphist.windows.design import WindowDesign
from dphist.windows.error import WindowError, window_error
from stream_app.api.admission.apart import Apart
from stream_app.api.distribution import in_values
from stream_app.api.ranges import edge, edges_of, parsed_time, released
from stream_app.api.schemas import WindowsAnswer
from stream_app.api.window_schemas import WindowAnswer, WindowQuantile, WindowQuery
from stream_app.core.answered import QueryError
from stream_app.core.cells import Buckets
from stream_app.core.ledger import in_words
from stream_app.core.query import StreamView
from stream_app.core.window_view import Window, window_ending, window_until, windows_of

_ErrorKey = tuple[str, int, Fraction, float, tuple[tuple[str, Any], ...]]
Calibrated = dict[_ErrorKey, WindowError | None]
# Cache of computations that take seconds: per design of a stream and confidence (schemas.BANDS).
_errors: Calibrated = {}

_KNOWN = "The error does not depend on the data. Each band holds all counts of its curve at once."
_UNKNOWN = "The error of this mechanism depends on the data, so no error is stated."


def described(view: StreamView) -> WindowsAnswer | None:
    """Return the description of a stream's windows; None if it has none."""
    design = view.strategy.kind.windows
    if design is None:
        return None
    keys, buckets = view.declared.keys, view.declared.value
    return WindowsAnswer(
        mechanism=design.mechanism,
        options=dict(design.options),
        bins=design.bins,
        epsilon=in_words(design.epsilon),
        histograms=design.histograms,
        keys=None if keys is None or design.histograms == 1 else list(keys.labels),
        value_field=None if buckets is None else buckets.field,
        buckets=design.buckets,
    )


def check(view: StreamView, query: WindowQuery) -> None:
    """Check quickly that a question has an answer. Raises: QueryError."""
    _asked(view, query)
    design = windows_of(view)
    _histogram(view, design, query.key)
    _check_quantiles(view, design, query.q)


def is_calibrated(view: StreamView, query: WindowQuery) -> bool:
    """Return whether the errors that an answer needs are cached."""
    return _error_key(view, query) in _errors


async def calibrate(view: StreamView, query: WindowQuery, apart: Apart) -> None:
    """Compute and cache the errors that an answer needs, which takes seconds the first time."""
    await apart.fill(_errors, window_error, _error_key(view, query))


def calibrated(view: StreamView, query: WindowQuery) -> Calibrated:
    """Return the errors that an answer needs, after ``calibrate`` has returned."""
    key = _error_key(view, query)
    return {key: _errors[key]} if key in _errors else {}


def window(view: StreamView, query: WindowQuery, calibrated: Calibrated) -> WindowAnswer:
    """Return one window of one key. Raises: QueryError."""
    check(view, query)
    found = _asked(view, query)
    design = windows_of(view)
    key, buckets = _error_key(view, query), view.strategy.declared.cells.buckets
    if key not in calibrated:
        raise QueryError("the stream has begun again with other windows; ask again", "stream")
    error = calibrated[key]
    counts = found.counts[_histogram(view, design, query.key)]
    cumulative = counts.cumsum()
    band = None
    if error is not None:
        band = Cdf(cumulative, error.cumulative_stderr, error.reach, query.confidence)
    keys, by_value = view.strategy.declared.cells.keys, buckets is not None and design.attributed
    by_key = buckets is None and keys is not None and design.attributed
    whole = consistent_cdf(cumulative, max(0, round(float(cumulative[-1]))))
    return WindowAnswer.model_validate(
        released(view)
        | edges_of(view, found.span)
        | {
            "key": query.key,
            "mechanism": design.mechanism,
            "epsilon": in_words(design.epsilon),
            "confidence": query.confidence,
            "earlier": None if found.earlier is None else edge(view, found.earlier),
            "later": None if found.later is None else edge(view, found.later),
            "windows": found.available,
            "sorted": not design.attributed,
            "low": float(buckets.edges[0]) if buckets is not None and by_value else None,
            "upto": buckets.edges[1:].tolist() if buckets is not None and by_value else None,
            "keys": list(keys.labels) if by_key and keys is not None else None,
            "count": counts.tolist(),
            "stderr": None if error is None else error.bucket_stderr.tolist(),
            "count_lower": None if error is None else np.maximum(counts - error.bucket_reach, 0.0).tolist(),
            "count_upper": None if error is None else np.maximum(counts + error.bucket_reach, 0.0).tolist(),
            "cumulative": cumulative.tolist(),
            "lower": None if band is None else band.lower.tolist(),
            "upper": None if band is None else band.upper.tolist(),
            "consistent": whole.tolist(),
            "quantiles": _quantiles(buckets, cumulative, band, query),
            "note": _UNKNOWN if error is None else _KNOWN,
        }
    )


def _asked(view: StreamView, query: WindowQuery) -> Window:
    if query.until is None:
        return window_ending(view, parsed_time("end", query.end))
    if query.end is not None:
        raise QueryError("until: say until or end, not both", "until")
    until_us = parsed_time("until", query.until)
    assert until_us is not None
    return window_until(view, until_us)


def _error_key(view: StreamView, query: WindowQuery) -> _ErrorKey:
    design = windows_of(view)
    return design.mechanism, design.buckets, design.epsilon, query.confidence, design.arguments


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


def _check_quantiles(view: StreamView, design: WindowDesign, asked: Sequence[float]) -> None:
    if asked and (view.strategy.declared.cells.buckets is None or not design.attributed):
        raise QueryError("q: quantiles are of a value, and these counts are not by value; leave q out", "q")
    if not all(0.0 < q < 1.0 for q in asked):
        raise QueryError("q: every quantile is above 0 and below 1; write for example q=0.5&q=0.95", "q")


def _quantiles(
    buckets: Buckets | None,
    cumulative: np.ndarray[tuple[int], np.dtype[np.float64]],
    band: Cdf | None,
    query: WindowQuery,
) -> list[WindowQuantile]:
    """Return quantiles of the value, with intervals from the band if there is one."""
    if buckets is None:
        return []
    if band is not None:
        found = [in_values(band, band.quantile(q), buckets) for q in query.q]
        return [WindowQuantile(q=one.q, value=one.value, interval=one.interval) for one in found]
    nothing = np.zeros_like(cumulative)
    alone = Cdf(cumulative, nothing, nothing, query.confidence)
    points = [in_values(alone, alone.quantile(q), buckets) for q in query.q]
    return [WindowQuantile(q=one.q, value=one.value, interval=None) for one in points]
