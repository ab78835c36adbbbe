"""/api/v1: the part of Prometheus' HTTP API that Grafana needs to chart released history."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, TypeVar, get_args
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from stream_app.api.admission.work import check_work
from stream_app.api.prometheus import samples
from stream_app.api.prometheus.metrics import KEY_METRICS, METRICS, Of, metrics_of, with_words, words_of
from stream_app.api.prometheus.promql import PromQLError, Selector, length_us, parse
from stream_app.api.prometheus.samples import MOST_VALUES, Selection
from stream_app.api.replica import StreamReplica
from stream_app.api.replies import computed
from stream_app.api.routes import all_replicas, readable
from stream_app.api.schemas import MAX_POINTS
from stream_app.core.instants import parse_instant

router = APIRouter(prefix="/api/v1", include_in_schema=False)

MOST_SELECTORS = 16  # in one question about labels
BOTH = ["GET", "POST"]  # Grafana sends its queries as POST forms

T = TypeVar("T")
Parameters = Sequence[tuple[str, str]]


@router.api_route("/query", methods=BOTH)
async def query(request: Request) -> Response:
    """Values of series at one time."""
    try:
        given = dict(await _parameters(request))
        found, time_us = parse(_required(given, "query")), _time("time", given.get("time"), _now_us())
        if isinstance(found, float):
            return _success({"resultType": "scalar", "result": [time_us / 1e6, str(found)]})
        return await _read(request, Selection("vector", found, range(time_us, time_us + 1), 0))
    except ValueError as refusal:
        return _refused(str(refusal))


@router.api_route("/query_range", methods=BOTH)
async def query_range(request: Request) -> Response:
    """Values of series at start, start + step, ... up to end."""
    try:
        given = dict(await _parameters(request))
        found, (times, step_us) = parse(_required(given, "query")), _times(given)
        if isinstance(found, Selector):
            return await _read(request, Selection("matrix", found, times, step_us))
        items = [samples.shown("matrix", {}, [(at, found) for at in times])]
        return _success({"resultType": "matrix", "result": items})
    except ValueError as refusal:
        return _refused(str(refusal))


@router.api_route("/series", methods=BOTH)
async def series(request: Request) -> Response:
    """Labels of the series that match any of the selectors."""
    try:
        parts = await _of_matched(request, samples.labels_of)
        _check_series(sum(found for found, _ in parts))
    except ValueError as refusal:
        return _refused(str(refusal))
    return _joined(b'{"status":"success","data":%b}', [labels for _, labels in parts])


@router.api_route("/labels", methods=BOTH)
async def labels(request: Request) -> Response:
    """Names of labels."""
    return await _united(request, samples.label_names)


@router.get("/label/{name}/values")
async def label_values(request: Request, name: str) -> Response:
    """Values of one label."""
    return await _united(request, samples.label_values, name)


@router.get("/metadata")
async def metadata(request: Request) -> Response:
    """Descriptions of the metrics. All are gauges: a noisy count may fall, so ``rate()`` does not apply."""
    views = {one.view.name: one.view for one in readable(request) if one.view is not None}
    shown = {name: one for name, one in (METRICS | KEY_METRICS).items() if one.of == "count"}
    for view in views.values():
        shown |= metrics_of(view, METRICS | KEY_METRICS)
    words = {of: {stream: words_of(view, of) for stream, view in views.items()} for of in get_args(Of)}
    return _success(
        {
            name: [{"type": "gauge", "help": with_words(one.help, words[one.of]), "unit": ""}]
            for name, one in shown.items()
        }
    )


@router.get("/status/buildinfo")
async def buildinfo(_request: Request) -> Response:
    """The version of the API, from which Grafana derives the supported features."""
    return _success(
        {
            "version": "2.24.0",  # of the interface, before rules and exemplars were part of it
            "application": "private-counts",
            "revision": version("private-counts"),
            "branch": "",
            "buildUser": "",
            "buildDate": "",
            "goVersion": "",
        }
    )


@router.api_route("/{path:path}", methods=BOTH)
async def not_answered(path: str) -> Response:
    """Refuse all other paths of the API."""
    known = "query, query_range, series, labels, label/NAME/values, metadata, status/buildinfo"
    return _refused(f"/api/v1/{path} is not answered here; known: {known}", 404)


def _success(data: Any) -> JSONResponse:
    return JSONResponse({"status": "success", "data": data})


def _joined(answer: bytes, parts: Sequence[bytes]) -> Response:
    """Return ``answer`` with a list at its ``%b``. Args: parts, each stream's items of the list, as JSON."""
    items = b"[" + b",".join(part for part in parts if part) + b"]"
    return Response(answer % items, media_type="application/json")


def _refused(line: str, status: int = 400) -> JSONResponse:
    return JSONResponse({"status": "error", "errorType": "bad_data", "error": line}, status)


# -- labels ------------------------------------------------------------------------------------------


async def _united(request: Request, part: Callable[..., set[str]], *more: object) -> Response:
    try:
        parts = await _of_matched(request, part, *more)
    except ValueError as refusal:
        return _refused(str(refusal))
    return _success(sorted(set().union(*parts)))


async def _of_matched(request: Request, part: Callable[..., T], *more: object) -> list[T]:
    """Call ``part`` for every readable stream with the request's selectors. Raises: PromQLError."""
    asked = await _parameters(request)
    matching = [text for name, text in asked if name == "match[]"]
    replicas = [one for one, _ in _with_history(request)]
    us = _listing_us(replicas, len(matching))
    return [await computed(request, one, part, matching, *more, us=us) for one in replicas]


def _with_history(request: Request) -> Iterator[tuple[StreamReplica, int | None]]:
    """Yield every generation of the readable streams, and when the samples of the next one begin."""
    return all_replicas(request).streams.with_history(readable(request))


def _listing_us(replicas: Iterable[StreamReplica], selectors: int) -> float:
    """Return an estimate of the work to compare all labels of streams with selectors."""
    return sum(samples.listing_us(one.view, selectors) for one in replicas if one.view is not None)


def _check_series(found: int) -> None:
    if found > MOST_VALUES:
        raise PromQLError(
            f"query: more than {MOST_VALUES:,} series; no more are given at once, name a stream and a metric"
        )


# -- values ------------------------------------------------------------------------------------------


async def _read(request: Request, reading: Selection) -> Response:
    """Answer a reading, one stream after the other. Raises: ValueError."""
    parts = list(_parts(_with_history(request), reading))
    listing_us = _listing_us((replica for replica, _ in parts), 1)
    extents = [await computed(request, replica, samples.extent, own, us=listing_us) for replica, own in parts]
    found = sum(one.series for one in extents)
    _check_series(found)
    values = sum(one.series * len(own.times_us) for one, (_, own) in zip(extents, parts, strict=True))
    if values > MOST_VALUES:
        raise PromQLError(
            f"query: {found} series of {len(reading.times_us):,} points; at most {MOST_VALUES:,} values are "
            "given at once, name a stream and a metric"
        )
    us = sum(one.us for one in extents)
    check_work(us, "query", "ask for fewer series, a longer step or a shorter range")
    answered = [
        await computed(request, replica, samples.samples, own, us=us)
        for (replica, own), one in zip(parts, extents, strict=True)
        if one.series
    ]
    kind = reading.shape.encode()
    return _joined(b'{"status":"success","data":{"resultType":"' + kind + b'","result":%b}}', answered)


def _parts(
    generations: Iterable[tuple[StreamReplica, int | None]], reading: Selection
) -> Iterator[tuple[StreamReplica, Selection]]:
    """Yield the times to read from each generation: each time from one only, as a sum counts it once.

    Args: generations, those of a stream in order, each with the first sample of the next one.
    """
    begin = 0
    for replica, until_us in generations:
        times = reading.times_us
        end = len(times) if until_us is None else bisect_left(times, until_us)
        if begin < end:
            yield replica, replace(reading, times_us=times[begin:end])
        begin = 0 if until_us is None else max(begin, end)


# -- parameters --------------------------------------------------------------------------------------


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


def _times(given: Mapping[str, str]) -> tuple[range, int]:
    """Return start, start + step, ... up to end, and the step, in microseconds. Raises: PromQLError."""
    start_us, end_us = (_time(name, _required(given, name), 0) for name in ("start", "end"))
    step_us = length_us("step", _required(given, "step"))
    if end_us < start_us:
        raise PromQLError("end: it is before start; exchange them")
    times = range(start_us, end_us + 1, step_us)
    if len(times) > MAX_POINTS:
        raise PromQLError(
            f"step: {len(times):,} points a series; at most {MAX_POINTS:,} are given, ask for a longer step"
        )
    return times, step_us


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


def _now_us() -> int:
    return int(datetime.now(UTC).timestamp() * 1e6)
