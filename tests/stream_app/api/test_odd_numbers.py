"""Odd numbers and times in a request are answered or refused in one line, never with status 500."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from stream_app.api.admission.access import LARGEST_BODY_BYTES
from tests.patience import PATIENCE_S
from tests.stream_app.api.client import Api, api_over, with_api
from tests.stream_app.api.test_panels import api_over_axes

ODD = (
    *(
        "nan",
        "inf",
        "-inf",
        "1e400",
        "-1e400",
        "1e-400",
        "9" * 400,
        "-" + "9" * 400,
        "0." + "9" * 400,
        "-1",
        "0",
    ),
    *("", " ", "1e3", "0x10", "1_000", "٣", "²", "true", "1,5", "+1", "1e18", str(2**63), str(2**64 + 1)),
    *(
        "-62135596800",
        "253402300799",
        "253402300800",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
    ),
    *("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2013-01-01T00:00:00+99:99", "00000-01-01T00:00:00Z"),
)
RANGES = {"query": "private_counts_running", "start": "1357009200", "end": "1357016400", "step": "3600"}
# An address, what it needs besides, and the parameters that take a number or a time.
QUESTIONS: tuple[tuple[str, dict[str, str], tuple[str, ...]], ...] = (
    ("count", {}, ("start", "end", "confidence", "key")),
    ("series", {"kind": "running"}, ("start", "end", "confidence", "step", "points")),
    ("series", {"kind": "bin"}, ("step", "points")),
    ("series", {"kind": "window", "step": "1"}, ("window",)),
    ("series", {"kind": "window", "window": "2"}, ("step", "points")),
    ("cdf", {}, ("start", "end", "confidence")),
    ("quantile", {"q": "0.5"}, ("start", "end", "confidence")),
    ("quantile", {}, ("q",)),
    ("nodes", {}, ("epoch", "level", "first", "limit")),
    ("window", {}, ("end", "until", "confidence", "q")),
    ("keys", {}, ("start", "end", "step", "limit", "confidence")),
    ("heat", {}, ("start", "end", "step", "rows")),
    ("quantiles", {"q": "0.5"}, ("start", "end", "step", "confidence")),
    ("quantiles", {}, ("q",)),
    ("preview", {"epsilon": "1"}, ("start", "end", "step", "confidence")),
    ("preview", {"step": "50"}, ("epsilon",)),
    ("/api/v1/query", {"query": "private_counts_running"}, ("time",)),
    ("/api/v1/query", {}, ("query",)),
    ("/api/v1/query_range", RANGES, ("start", "end", "step")),
    ("/api/v1/query_range", RANGES | {"query": "1"}, ("step", "query")),
    ("/api/v1/series", {}, ("match[]", "start", "end")),
)


OF_AXES = {"cdf", "quantile", "keys", "heat", "quantiles", "preview"}
TIMES = {"start", "end", "time", "until"}


def odd_questions(only: Callable[[str, str], bool]) -> Iterator[tuple[str, dict[str, str]]]:
    for path, given, parameters in QUESTIONS:
        for parameter in parameters:
            if only(path, parameter):
                yield from ((path, given | {parameter: odd}) for odd in ODD)


async def ask(api: Api, only: Callable[[str, str], bool] = lambda _path, _parameter: True) -> None:
    """Send every question. None may get status 500; some must be answered, and some refused."""
    statuses: Counter[int] = Counter()
    for path, query in odd_questions(only):
        try:
            response = await api.get(path, **query)
        except Exception as failure:  # this client raises what a server answers with 500
            pytest.fail(f"{path} {query}: {failure!r}")
        assert response.status_code < 500, (path, query, response.text)
        response.json()
        statuses[response.status_code] += 1
    assert statuses[200]
    assert statuses[400] + statuses[422] > 200


@pytest.mark.slow
@with_api([5] * 12)
async def test_odd_numbers_never_cause_a_server_error(api: Api) -> None:
    await ask(api)


@pytest.mark.slow
@with_api([5] * 12, release="anticipating", timezone="America/New_York", bin_us=86_400_000_000)
async def test_odd_times_in_a_zone_never_cause_a_server_error(api: Api) -> None:
    await ask(api, lambda _path, parameter: parameter in TIMES)


@pytest.mark.slow
async def test_odd_numbers_over_keys_and_values_never_cause_a_server_error() -> None:
    async with api_over_axes(12, epoch_bins=16) as (api, _cells):
        await ask(api, lambda path, _parameter: path in OF_AXES)


@with_api([5] * 3)
async def test_each_parameter_with_one_value_is_given_once(api: Api) -> None:
    for path, given, parameters in QUESTIONS:
        if path.startswith("/api/"):
            continue  # Prometheus refuses no parameter
        for name in {*given, *parameters} - {"key", "q"}:  # these two are lists
            status, said = await api.error(path, **given | {name: ["0.5", "1"]})
            assert (status, said["error"]) == (400, f"{name}: it is given 2 times; give it once"), path


@pytest.mark.parametrize("odd", ["nan", "-1", "9" * 400, "1e3", "1.5", " ", str(2**63)])
async def test_last_event_id_must_be_a_whole_number(odd: str) -> None:
    async with api_over([5] * 3) as api, asyncio.timeout(PATIENCE_S):
        for asked in ({"after": odd}, {"headers": {"Last-Event-ID": odd}}):
            response = await api.get("events", **asked)
            assert response.status_code == 422, (asked, response.text)


@with_api([5] * 3)
async def test_too_long_body_is_refused(api: Api) -> None:
    async def chunks(size: int) -> AsyncIterator[bytes]:
        yield b"query=1&x="
        for _ in range(size // 1_000):
            yield b"y" * 1_000

    address, form = "/api/v1/query", {"Content-Type": "application/x-www-form-urlencoded"}
    refused = await api.client.post(address, content=chunks(20_000), headers=form)
    assert "content-length" not in refused.request.headers
    assert refused.status_code == 413
    assert f"{LARGEST_BODY_BYTES:,} bytes" in refused.json()["error"]
    short = await api.client.post(address, content=chunks(5_000), headers=form)
    assert short.json()["data"]["result"][1] == "1.0"
    for length, status in (("20000", 413), ("9" * 5_000, 413), ("-1", 400), ("ten", 400), ("²", 400)):
        sent = [(b"content-length", length.encode())]
        said = await api.client.post(address, content=b"", headers=sent)
        assert said.status_code == status, length
