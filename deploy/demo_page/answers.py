"""The service's answers to every question that the demo page can ask, in compact columns.

The page's numbers are those of the functions behind the HTTP API. Counts over time are exact; those of
distributions are rounded to a thousandth, quantiles to a hundredth of a minute, and errors up to four digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deploy.demo_page.columns import packed, packed_errors
from deploy.demo_page.deployments import LABELS, ZONE
from dphist.arrays import FloatArray, Int64Array
from dphist.units import UNITS_PER_COUNT
from stream_app.api import schemas
from stream_app.api.answers import counts, slices, statements, streams, values
from stream_app.api.replicas import Replicas
from stream_app.core.answers.query import StreamView
from stream_app.ports.reader import PublicReader

NONE = float(np.iinfo(np.int16).min)  # a quantile without an estimate
# What a point of the chart of bins may count, as in ranges.js: bins, or days of New York.
GROUPS: dict[str, dict[str, Any]] = {
    "1h": {"step": 1},
    "3h": {"step": 3},
    "1d": {"days": 1, "timezone": ZONE},
    "7d": {"days": 7, "timezone": ZONE},
    "28d": {"days": 28, "timezone": ZONE},
}
PARTS = (30 * 24, 7 * 24)  # hours of the ranges that the page offers
QUANTILES = [0.5, 0.9]
_ARRAYS = {
    *("start", "end", "value", "stderr", "lower", "upper", "inner"),
    *("nodes", "quantiles", "upto", "consistent"),
}


async def answers_of(reader: PublicReader) -> dict[str, Any]:
    """Return what the page needs of one deployment: texts as JSON, and numbers as packed columns."""
    replicas = Replicas(reader, LABELS)
    await replicas.refresh()
    departures, delays = (replicas.by_name[name].view for name in ("departures", "delays"))
    assert departures is not None
    assert delays is not None
    ledger = replicas.ledgers[departures.strategy.source]
    return {
        "departures": {
            "detail": streams.detail(departures, 1_000_000).model_dump(mode="json"),
            "privacy": statements.privacy(departures, ledger).model_dump(mode="json"),
            **_running(departures),
            "groups": {name: _group(departures, question) for name, question in GROUPS.items()},
            "parts": _parts(departures),
        },
        "delays": {
            "detail": streams.detail(delays, 1_000_000).model_dump(mode="json"),
            **_distributions(delays),
        },
    }


def _running(view: StreamView) -> dict[str, Any]:
    found = counts.series(view, schemas.SeriesQuery(kind="running", inner=True))
    published = np.asarray(found.value) * UNITS_PER_COUNT
    assert np.array_equal(published, np.round(published))
    return {
        "template": _texts(found),
        "published": packed(published, order=1),
        **_errors(found),
    }


def _group(view: StreamView, question: dict[str, Any]) -> dict[str, Any]:
    """Return the errors of a series over groups of bins; the values follow from the running counts.

    The page computes them as the differences of two running counts; this checks that the service does too.
    """
    found = counts.series(view, schemas.SeriesQuery(kind="bin", inner=True, **question))
    running = np.concatenate([[0.0], counts.series(view, schemas.SeriesQuery(kind="running")).value])
    edges = [_bins_after_start(view, instants) for instants in (found.start, found.end)]
    assert np.array_equal(running[edges[1]] - running[edges[0]], found.value)
    return {
        "template": _texts(found),
        "start": packed(edges[0], order=1),
        "end": packed(edges[1], order=1),
        **_errors(found),
    }


def _parts(view: StreamView) -> dict[str, str]:
    """Return the errors of the counts of the last hours before the end of each day."""
    days = counts.series(view, schemas.SeriesQuery(kind="bin", **GROUPS["1d"])).end
    columns = {}
    for hours in PARTS:
        starts = [max(end - hours * 3600, days[0] - 86400) for end in days]
        found = [
            counts.count(view, schemas.CountQuery(start=f"{start:.0f}", end=f"{end:.0f}"))
            for start, end in zip(starts, days, strict=True)
        ]
        columns[f"stderr {hours}"] = packed_errors([one.stderr for one in found], order=1)
        columns[f"half {hours}"] = packed_errors([one.interval[1] - one.value for one in found], order=1)
    return columns


def _distributions(view: StreamView) -> dict[str, Any]:
    """Return quantiles of every week, and the distribution from the start to the end of every week."""
    weeks = schemas.QuantileSlicesQuery(days=7, timezone=ZONE, q=QUANTILES)
    by_week = slices.quantile_slices(view, weeks)
    columns = [_minutes(column) for one in by_week.quantiles for column in (one.value, one.lower, one.upper)]
    upto_week = [values.cdf(view, schemas.CdfQuery(end=str(int(end)))) for end in by_week.end]
    value, lower, upper = (
        np.array([getattr(one, name) for one in upto_week]).T for name in ("value", "lower", "upper")
    )
    return {
        "quantiles": {
            "template": _texts(by_week),
            "q": QUANTILES,
            "start": by_week.start,
            "end": by_week.end,
            "columns": packed(np.concatenate(columns), decimals=2),
        },
        "cdfs": {  # of each bucket, those of all weeks
            "template": _texts(upto_week[0]),
            "upto": upto_week[0].upto,
            "value": packed(value.ravel(), decimals=3, order=1),
            "consistent": packed(np.array([one.consistent for one in upto_week]).T.ravel(), order=1),
            "stderr": packed_errors(np.array([one.stderr for one in upto_week]).T.ravel(), order=1),
            "below": packed_errors((value - lower).ravel(), order=1),
            "above": packed_errors((upper - value).ravel(), order=1),
        },
    }


def _errors(found: schemas.SeriesAnswer) -> dict[str, str]:
    """Return the columns of a series' errors. Half an interval's width is the same on both sides."""
    value = np.asarray(found.value)
    halves = np.maximum(np.asarray(found.upper) - value, value - np.asarray(found.lower))
    assert found.inner is not None
    drawn = {
        f"inner{level}": packed_errors(one, 1, 3) for level, one in zip((80, 50), found.inner, strict=True)
    }
    return {"stderr": packed_errors(found.stderr, order=2), "half": packed_errors(halves, order=1), **drawn}


def _bins_after_start(view: StreamView, instants: list[float]) -> Int64Array:
    bins = view.binning.bin_of(np.round(np.asarray(instants) * 1e6).astype(np.int64))
    return np.asarray(bins) - view.span.start


def _minutes(column: Sequence[float | None]) -> FloatArray:
    return np.array([NONE if one is None else one for one in column])


def _texts(answer: Any) -> dict[str, Any]:
    """Return an answer without its arrays."""
    said: dict[str, Any] = answer.model_dump(mode="json", exclude=_ARRAYS)
    return said
