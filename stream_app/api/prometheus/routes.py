"""/api/v1: the part of Prometheus' HTTP API that Grafana needs to chart released history."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby, islice
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from stream_app.api.admission.access import may_read
from stream_app.api.admission.work import QUICK_US, check_work
from stream_app.api.prometheus.bin_samples import (
    KEY_METRICS,
    METRICS,
    BinSeries,
    bin_at,
    reading_us,
    selected,
    values_of,
)
from stream_app.api.prometheus.promql import PromQLError, Selector, parse, parse_selector
from stream_app.api.replica import Replicas
from stream_app.api.replies import long_turn
from stream_app.api.schemas import MAX_POINTS
from stream_app.core.instants import format_instant, parse_instant
from stream_app.core.query import StreamView

router = APIRouter(prefix="/api/v1", include_in_schema=False)

MOST_VALUES = 4 * MAX_POINTS  # in one answer, over all series
MOST_SELECTORS = 16  # in one question about labels
_QUICK_LABELS = 2_000  # comparisons that take milliseconds
_OWN_LABELS = 16  # of a stream, beside its keys
_WRITTEN_AT_ONCE = 500  # values
_PARTS = json.JSONEncoder(separators=(",", ":"), indent=None)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w|y)?", flags=re.ASCII)
_SECONDS = {"ms": 1e-3, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000}
BOTH = ["GET", "POST"]  # Grafana sends its queries as POST forms

Parameters = Sequence[tuple[str, str]]
Samples = Sequence[tuple[int, float]]  # microseconds since 1970, and the value
Answer = Callable[[list[StreamView], Parameters], Any]


@dataclass(frozen=True)
class Reading:
    """The values to read for a query.

    Args: kind of result; wanted, the series; times_us and the step between them; shown, formats the samples
        of one series.
    """

    kind: str
    wanted: Sequence[BinSeries]
    times_us: Sequence[int]
    step_us: int
    shown: Callable[[Mapping[str, str], Samples], dict[str, Any]]


@router.api_route("/query", methods=BOTH)
async def query(request: Request) -> Response:
    """Values of series at one time."""
    return await _answered(request, _instant)


@router.api_route("/query_range", methods=BOTH)
async def query_range(request: Request) -> Response:
    """Values of series at start, start + step, ... up to end."""
    return await _answered(request, _range)


@router.api_route("/series", methods=BOTH)
async def series(request: Request) -> Response:
    """Labels of the series that match any of the selectors."""
    return await _answered(
        request,
        lambda views, asked: [
            one.labels
            for one in _listed(views, [parse_selector(text) for name, text in asked if name == "match[]"])
        ],
    )


@router.api_route("/labels", methods=BOTH)
async def labels(request: Request) -> Response:
    """Names of labels."""
    return await _answered(
        request, lambda views, asked: sorted({name for one in _matched(views, asked) for name in one.labels})
    )


@router.get("/label/{name}/values")
async def label_values(request: Request, name: str) -> Response:
    """Values of one label."""
    return await _answered(
        request,
        lambda views, asked: sorted(
            {one.labels[name] for one in _matched(views, asked) if name in one.labels}
        ),
    )


@router.get("/metadata")
async def metadata(request: Request) -> Response:
    """Descriptions of the metrics. All are gauges: a noisy count may fall, so ``rate()`` does not apply."""
    return await _answered(
        request,
        lambda _views, _asked: {
            name: [{"type": "gauge", "help": text, "unit": ""}]
            for name, (_, _, text) in (METRICS | KEY_METRICS).items()
        },
    )


@router.get("/status/buildinfo")
async def buildinfo(request: Request) -> Response:
    """The version of the API, from which Grafana derives the supported features."""
    return await _answered(
        request,
        lambda _views, _asked: {
            "version": "2.24.0",  # of the interface, before rules and exemplars were part of it
            "application": "private-counts",
            "revision": version("private-counts"),
            "branch": "",
            "buildUser": "",
            "buildDate": "",
            "goVersion": "",
        },
    )


@router.get("/rows")
async def rows(request: Request) -> Response:
    """Flat JSON rows for Grafana's Infinity data source: parameters as in query_range, one row per value."""
    try:
        found = await _computed(request, _range)
    except ValueError as refusal:
        return _refused(str(refusal))
    flat = [
        {"time": format_instant(round(float(at) * 1e6)), **one["metric"], "value": float(value)}
        for one in found["result"]
        for at, value in one["values"]
    ]
    return await _written(request, flat)


@router.api_route("/{path:path}", methods=BOTH)
async def not_answered(path: str) -> Response:
    """Refuse all other paths of the API."""
    known = (
        "query, query_range, series, labels, label/NAME/values, metadata, status/buildinfo, rows, rows/keys, "
        "rows/cdf, rows/quantile"
    )
    return _refused(f"/api/v1/{path} is not answered here; known: {known}", 404)


async def _answered(request: Request, answer: Answer) -> Response:
    """Return the result of ``answer`` for the streams, or a one-line error."""
    try:
        data = await _computed(request, answer)
    except ValueError as refusal:
        return _refused(str(refusal))
    return await _written(request, {"status": "success", "data": data})


def _refused(line: str, status: int = 400) -> JSONResponse:
    return JSONResponse({"status": "error", "errorType": "bad_data", "error": line}, status)


async def _written(request: Request, content: Any) -> Response:
    """Return an answer as JSON; a large one is written in a thread."""
    if _size(content) <= _WRITTEN_AT_ONCE:
        return JSONResponse(content)
    async with long_turn(request):
        text = await run_in_threadpool(written_in_parts, content)
    return Response(text, media_type="application/json")


def _size(content: Any) -> int:
    """Return the number of values in the lists that may be long."""
    data = content["data"] if isinstance(content, dict) else content
    result = data["result"] if isinstance(data, dict) and "result" in data else data
    if isinstance(data, dict) and data.get("resultType") == "matrix":
        return sum(len(one["values"]) for one in result)
    return len(result)


def written_in_parts(content: Any) -> bytes:
    """Return JSON, encoded in parts, because nothing else runs in this process while one part is encoded."""
    return "".join(_PARTS.iterencode(content)).encode()


async def _computed(request: Request, answer: Answer) -> Any:
    """Compute an answer: at once if it takes milliseconds, else in threads, one stream at a time.

    A slow stream does not delay the others.
    Raises: ValueError, one line.
    """
    replicas: Replicas = request.app.state.replicas
    asked = await _parameters(request)
    readable = [one for name, one in sorted(replicas.by_name.items()) if may_read(request, name)]
    busy = {id(one.view): one.busy for one in readable}
    views = [one.view for one in readable if one.view is not None]
    if _labels_compared(views, asked) <= _QUICK_LABELS:
        found = answer(views, asked)
    else:
        async with long_turn(request):
            found = await run_in_threadpool(
                answer, views, asked
            )  # reads declarations only, nothing that grows
    if not isinstance(found, Reading):
        return found
    result: list[dict[str, Any]] = []
    parts = [(view, list(of_view)) for view, of_view in groupby(found.wanted, lambda one: one.view)]
    us = sum(reading_us(view, wanted, len(found.times_us)) for view, wanted in parts)
    check_work(us, "query", "this", "ask for fewer series, a longer step or a shorter range")
    if us <= QUICK_US:
        return {
            "resultType": found.kind,
            "result": [one for view, wanted in parts for one in _samples_of(found, view, wanted)],
        }
    async with long_turn(request):
        for view, wanted in parts:
            async with busy[id(view)]:
                result += await run_in_threadpool(_samples_of, found, view, wanted)
    return {"resultType": found.kind, "result": result}


async def _parameters(request: Request) -> Parameters:
    """Return the query's parameters. Raises: PromQLError for too many selectors."""
    asked = list(request.query_params.multi_items())
    if request.method == "POST":
        body = await request.body()
        asked += parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
    selectors = sum(name == "match[]" for name, _ in asked)
    if selectors > MOST_SELECTORS:
        raise PromQLError(
            f"match[]: {selectors} selectors; at most {MOST_SELECTORS} are taken at once, ask several times"
        )
    return asked


def _labels_compared(views: Sequence[StreamView], asked: Parameters) -> int:
    """Return an estimate of the number of comparisons of labels with selectors."""
    keys = (one.strategy.axes.keys for one in views)
    labels = sum(_OWN_LABELS + (0 if one is None else len(one.labels)) for one in keys)
    return labels * max(1, sum(name == "match[]" for name, _ in asked))


def _samples_of(reading: Reading, view: StreamView, wanted: Sequence[BinSeries]) -> list[dict[str, Any]]:
    """Read the requested series of a view at once, without series that have no sample."""
    at_times = [(at, bin_at(view, at, reading.step_us)) for at in reading.times_us]
    bins = [(at, bin) for at, bin in at_times if bin is not None]
    found = []
    for one, values in zip(wanted, values_of(view, wanted, sorted({bin for _, bin in bins})), strict=True):
        samples = [(at, values[bin]) for at, bin in bins if bin in values]
        if samples:
            found.append(reading.shown(one.labels, samples))
    return found


def _instant(views: list[StreamView], asked: Parameters) -> dict[str, Any] | Reading:
    given = dict(asked)
    found = parse(_required(given, "query"))
    time_us = _time("time", given.get("time"), _now_us())
    if isinstance(found, float):
        return {"resultType": "scalar", "result": [time_us / 1e6, str(found)]}

    return Reading("vector", _listed(views, [found]), [time_us], 0, _point)


def _range(views: list[StreamView], asked: Parameters) -> dict[str, Any] | Reading:
    given = dict(asked)
    found = parse(_required(given, "query"))
    start_us, end_us = (_time(name, _required(given, name), 0) for name in ("start", "end"))
    step_us = _step_us(_required(given, "step"))
    if end_us < start_us:
        raise PromQLError("end: it is before start; exchange them")
    points = (end_us - start_us) // step_us + 1
    if points > MAX_POINTS:
        raise PromQLError(
            f"step: {points:,} points a series; at most {MAX_POINTS:,} are given, ask for a longer step"
        )
    times = [start_us + number * step_us for number in range(points)]
    if isinstance(found, float):
        return {"resultType": "matrix", "result": [_line({}, [(at, found) for at in times])]}
    wanted = _listed(views, [found])
    if len(wanted) * points > MOST_VALUES:
        raise PromQLError(
            f"query: {len(wanted)} series of {points:,} points; at most {MOST_VALUES:,} values are given "
            "at once, name a stream and a metric"
        )
    return Reading("matrix", wanted, times, step_us, _line)


def _point(labels: Mapping[str, str], samples: Samples) -> dict[str, Any]:
    [(at, value)] = samples
    return {"metric": labels, "value": [at / 1e6, str(value)]}


def _line(labels: Mapping[str, str], samples: Samples) -> dict[str, Any]:
    return {"metric": labels, "values": [[at / 1e6, str(value)] for at, value in samples]}


def _matched(views: list[StreamView], asked: Parameters) -> Iterator[BinSeries]:
    return selected(views, [parse_selector(text) for name, text in asked if name == "match[]"])


def _listed(views: list[StreamView], selectors: Sequence[Selector]) -> list[BinSeries]:
    """Return the requested series. Raises: PromQLError if there are too many for one answer."""
    found = list(islice(selected(views, selectors), MOST_VALUES + 1))
    if len(found) > MOST_VALUES:
        raise PromQLError(
            f"query: more than {MOST_VALUES:,} series; no more are given at once, name a stream and a metric"
        )
    return found


def _required(given: Mapping[str, str], name: str) -> str:
    if not given.get(name):
        raise PromQLError(f"{name}: it is missing; add it")
    return given[name]


def _time(name: str, text: str | None, default_us: int) -> int:
    if not text:
        return default_us
    try:
        return parse_instant(text)
    except ValueError as failure:
        raise PromQLError(f"{name}: {failure}") from None


def _step_us(text: str) -> int:
    match = _DURATION.fullmatch(text)
    asked_us = float(match[1]) * _SECONDS[match[2] or "s"] * 1e6 if match else 0.0
    step_us = round(asked_us) if math.isfinite(asked_us) else 0
    if step_us <= 0:
        raise PromQLError(f"step: {text!r} is not a length of time; write seconds, or for example 5m")
    return step_us


def _now_us() -> int:
    return int(datetime.now(UTC).timestamp() * 1e6)
