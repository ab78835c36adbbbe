"""Odd numbers and times in a request are answered or refused in one line, never with status 500."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

import pytest

from stream_app.api.admission.access import LARGEST_BODY_BYTES
from tests.patience import PATIENCE_S
from tests.stream_app.api.client import Api, api_over, with_api
from tests.stream_app.api.test_panels import api_over_axes
from tests.stream_app.api.test_random_requests import KNOWN, VALUES

RANGES = {"query": "private_counts_running", "start": "1357009200", "end": "1357016400", "step": "3600"}
REQUIRED: dict[str, dict[str, str]] = {
    "quantile": {"q": "0.5"},
    "quantiles": {"q": "0.5"},
    "preview": {"epsilon": "1", "step": "50"},
    "/api/v1/query": {"query": "private_counts_running"},
    "/api/v1/query_range": RANGES,
}
BESIDE = {"window": {"kind": "window"}, "method": {"view": "consistent"}, "points": {"kind": "bin"}}
# An address, what it needs, and its parameters.
QUESTIONS = [
    (path, REQUIRED.get(path, {}), names.split())
    for view, names in KNOWN.items()
    for path in [f"/api/v1{view}" if "query" in names else view[1:]]
]
QUESTIONS.append(("/api/v1/series", {}, ["match[]"]))

OF_AXES = {"cdf", "quantile", "keys", "heat", "quantiles", "preview"}
TIMES = {"start", "end", "time", "until"}


def odd_questions(only: Callable[[str, str], bool]) -> Iterator[tuple[str, dict[str, str]]]:
    for path, given, parameters in QUESTIONS:
        for name in filter(partial(only, path), parameters):
            yield from ((path, given | BESIDE.get(name, {}) | {name: odd}) for odd in VALUES[name])


async def ask(api: Api, only: Callable[[str, str], bool] = lambda _path, _parameter: True) -> None:
    """Send every question. None may get status 500; some must be answered, and some refused."""
    statuses: Counter[int] = Counter()
    for path, query in odd_questions(only):
        try:
            response = await api.get(path, **query)
        except Exception as failure:  # this client raises what a server answers with 500
            pytest.fail(f"{path} {query}: {failure!r}")
        assert response.status_code < 500, (path, query, response.text)
        if response.headers["content-type"] == "application/json":
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


async def test_a_bad_value_of_a_list_names_its_parameter() -> None:
    async with api_over_axes(4, epoch_bins=4) as (api, _cells):
        for odd in (["", "0.5"], ["0.5", "half"]):
            status, said = await api.error("quantile", q=odd)
            assert (status, said["parameter"]) == (422, "q")
            assert said["error"].startswith("parameter q=")


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
