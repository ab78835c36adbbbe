"""Answers over HTTP: exact without noise, with clear errors, and computed from visible releases only."""

from __future__ import annotations

import json
import re
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Receive, Scope, Send

from stream_app.api.pages import DASHBOARD
from stream_app.api.plain_questions import PlainQuestions
from tests.stream_app.api.client import EXACT, Api, api_over, with_api
from tests.stream_app.published import FIRST_BIN, Published

pytestmark = pytest.mark.slow

COUNTS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4]
SHAPES = Path(__file__).parent / "shapes.json"


def at(hour: int) -> str:
    """Return the start of a bin as RFC 3339."""
    return f"2013-01-0{1 + hour // 24}T{hour % 24:02d}:00:00Z"


def seconds(hour: int) -> int:
    return (FIRST_BIN + hour) * 3600


@with_api(COUNTS, epsilon=EXACT)
async def test_counts_without_noise_equal_a_recount(api: Api) -> None:
    for start in range(len(COUNTS)):
        for stop in range(start + 1, len(COUNTS) + 1):
            answer = await api.json("count", start=at(start), end=seconds(stop))
            assert answer["value"] == sum(COUNTS[start:stop])
            assert answer["interval"] == [answer["value"], answer["value"]]
            assert (answer["start"], answer["end"], answer["stderr"]) == (at(start), at(stop), 0)


async def by_fastapi(plain: PlainQuestions, scope: Scope, receive: Receive, send: Send) -> None:
    """Pass a request on, however plain it is."""
    await plain.app(scope, receive, send)


@with_api(COUNTS)
async def test_counts_read_before_fastapi_and_by_it_are_the_same_bytes(api: Api) -> None:
    asked = [
        *("", "?", f"?start={at(2)}", f"?end={seconds(5)}", f"?start={at(2)}&end={at(5)}&confidence=0.9"),
        *(f"?start={at(5)}&end={at(2)}", f"?start={at(2)}&start={at(3)}", "?start=", "?start", "?start=%00"),
        *("?confidence=", "?confidence=0.4", "?confidence=nan", "?confidence=high", "?confidence=%200.9%20"),
        *("?confidence=1e-1", "?confidence=0.9&confidence=0.8", "?confidence=9_0e-2", "?Start=1", "?x=1"),
        *("?key=", "?key=a", "?key=a&key=b", "?not_key=a", "?start=2013-01-01T02:00:00%2B00:00", "?end=1e9"),
        *("?start=2013-01-01T02:00:00+00:00", "?start=%ff", f"?start={at(2)};end={at(5)}", "?=1", "?end=-0"),
    ]
    paths = [f"/v1/streams/{name}/count{one}" for name in ("counts", "none", "a%2Fb", "%ff") for one in asked]
    paths[: len(asked)] = [f"/v1/streams/{api.stream.name}/count{one}" for one in asked]
    refused = ("?after=-1", "?after=", "?after=2:", "?x=1", "?after=1&x=1", "?after=1%0A")
    paths += [f"/v1/streams/{api.stream.name}/events{one}" for one in refused] + ["/v1/streams/none/events"]
    answered = []
    for plain in (PlainQuestions.__call__, by_fastapi):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PlainQuestions, "__call__", plain)
            [replica] = api.app.state.replicas.streams.shown()
            replica.answers.clear()
            found = [await api.client.get(path) for path in paths]
            answered.append([(one.status_code, one.headers.multi_items(), one.content) for one in found])
    assert answered[0] == answered[1]
    assert {status for status, _, _ in answered[0]} == {200, 400, 404, 422}


@with_api(COUNTS, epsilon=EXACT)
async def test_series_without_noise_equal_a_recount(api: Api) -> None:
    running = [sum(COUNTS[:t]) for t in range(1, len(COUNTS) + 1)]
    for view in ("unbiased", "first_published", "consistent"):
        got = await api.json("series", view=view)
        assert (got["value"], got["lower"], got["upper"]) == (running, running, running)
        assert got["end"] == [seconds(t) for t in range(1, len(COUNTS) + 1)]
        assert set(got["start"]) == {seconds(0)}
    bins = await api.json("series", kind="bin", step=3, start=at(1))
    assert bins["value"] == [sum(COUNTS[t : t + 3]) for t in range(1, 18, 3)]
    assert (bins["start"][0], bins["end"][0]) == (seconds(1), seconds(4))
    windows = await api.json("series", kind="window", window=6, step=2, end=at(13))
    assert windows["value"] == [sum(COUNTS[t - 6 : t]) for t in range(6, 14, 2)]
    assert (windows["window"], windows["step"], windows["downsampled"]) == (6, 2, False)


@with_api(COUNTS)
async def test_consistent_values_are_whole_rising_and_have_unbiased_intervals(api: Api) -> None:
    unbiased, consistent = [await api.json("series", view=view) for view in ("unbiased", "consistent")]
    values = consistent["value"]
    assert values == sorted(values)
    assert all(value >= 0 and value == int(value) for value in values)
    assert consistent["lower"] == [max(0, lower) for lower in unbiased["lower"]]
    assert consistent["stderr"] == unbiased["stderr"]
    assert consistent["note"].startswith(
        "Values are whole numbers that never fall and add up; they are biased"
    )
    bins = await api.json("series", view="consistent", kind="bin")
    assert list(accumulate(bins["value"])) == values
    for method, of_method in (("top_down", values), ("isotonic", None)):
        chosen = {"view": "consistent", "method": method}
        running = (await api.json("series", **chosen))["value"]
        assert of_method in (None, running)
        assert list(accumulate((await api.json("series", **chosen, kind="bin"))["value"])) == running
    refused = await api.get("series", method="isotonic")
    assert (refused.status_code, refused.json()["parameter"]) == (400, "method")
    assert "view=consistent" in refused.json()["error"]


@with_api(COUNTS)
async def test_count_series_and_summary_agree(api: Api) -> None:
    whole = await api.json("count")
    series = await api.json("series")
    summary = (await api.json("/v1/streams"))["streams"][0]
    for name in ("value", "stderr", "interval", "confidence"):
        assert whole[name] == summary["running"][name]
    # A series adds up bins, a count adds up nodes. Both are the same number, up to rounding of doubles.
    assert series["value"][-1] == pytest.approx(whole["value"], rel=1e-12)
    assert series["stderr"][-1] == pytest.approx(whole["stderr"], rel=1e-12)
    # Many intervals come from one table. A single interval has a separate search.
    assert [series["lower"][-1], series["upper"][-1]] == pytest.approx(whole["interval"], abs=1e-6)
    assert whole["interval"][0] < whole["value"] < whole["interval"][1]
    surer = await api.json("count", confidence=0.999)
    assert surer["value"] == whole["value"]
    assert surer["interval"][0] < whole["interval"][0]


@with_api(COUNTS)
async def test_answers_can_be_recomputed_from_released_nodes(api: Api) -> None:
    import numpy as np

    from dphist.tree.design import TreeDesign
    from dphist.tree.estimate import ReleasedForest

    detail = await api.json("")
    assert TreeDesign.from_json(api.stream.strategy.design.to_json()).branching == tuple(detail["branching"])
    forest = ReleasedForest(api.stream.strategy.design)
    for level in range(1, len(detail["branching"]) + 1):
        page = await api.json("nodes", level=level)
        assert page["nodes_released"] == len(page["values"])
        forest.append_level(level, np.array(page["values"], dtype=np.int64).reshape(-1, 1))
    assert forest.bins == len(COUNTS)
    answer = await api.json("count", start=at(2), end=at(17))
    assert forest.range(2, 17).value == answer["value"]
    second = await api.json("nodes", first=3, limit=2)
    assert second["values"] == (await api.json("nodes"))["values"][3:5]


@with_api(COUNTS)
async def test_errors_name_what_where_and_remedy_in_one_line(api: Api) -> None:
    status, body = await api.error("count", start="2013-01-01T05:30:00Z")
    assert (status, body["parameter"], body["nearest"]) == (400, "start", [at(5), at(6)])
    assert body["error"] == (
        "start: 2013-01-01T05:30:00Z is inside a bin; the nearest edges are "
        "2013-01-01T05:00:00Z and 2013-01-01T06:00:00Z"
    )
    status, body = await api.error("series", end=at(30))
    assert (status, body["nearest"]) == (400, [at(20)])
    assert "outside what is released" in body["error"]
    status, body = await api.error("count", start="yesterday")
    assert (status, body["parameter"]) == (400, "start")
    assert "write RFC 3339" in body["error"]
    status, body = await api.error("count", start=at(5), end=at(5))
    assert (status, body["parameter"]) == (400, "end")
    for query in ({"kind": "window"}, {"kind": "bin", "window": 3}):
        status, body = await api.error("series", **query)
        assert (status, body["parameter"]) == (400, "window")
    for parameter, number in (("level", 9), ("epoch", 4)):
        status, body = await api.error("nodes", **{parameter: number})
        assert (status, body["parameter"]) == (400, parameter)


@with_api(COUNTS)
async def test_unknown_and_malformed_parameters_are_refused(api: Api) -> None:
    for path in ("", "count", "series", "nodes", "privacy", "events", "/v1/streams", "/healthz", "/metrics"):
        status, body = await api.error(path, strat="2013-01-01")
        assert (status, body["parameter"]) == (422, "strat")
        assert "'strat' is not known" in body["error"]
    malformed: list[tuple[str, dict[str, Any]]] = [
        ("count", {"confidence": 1.5}),
        ("count", {"confidence": "high"}),
        ("series", {"step": 0}),
        ("series", {"points": 11_001}),
        ("series", {"kind": "cumulative"}),
        ("series", {"view": "exact"}),
        ("nodes", {"limit": 10_001}),
        ("events", {"after": -1}),
    ]
    for path, query in malformed:
        status, body = await api.error(path, **query)
        (parameter, value), *_ = query.items()
        assert (status, body["parameter"]) == (422, parameter)
        assert str(value) in body["error"]


@with_api(COUNTS)
async def test_errors_name_unknown_streams_and_addresses(api: Api) -> None:
    for path in ("", "/count", "/series", "/nodes", "/privacy", "/events"):
        status, body = await api.error(f"/v1/streams/arrivals{path}")
        assert status == 404
        assert body["error"] == "stream 'arrivals' is not known here; known streams: departures"
    status, body = await api.error("/v2/streams")
    assert (status, body["error"]) == (
        404,
        "/v2/streams is not an address of this service; /docs lists them all",
    )
    assert (await api.client.post("/v1/streams")).status_code == 405


@with_api(COUNTS[:10])
async def test_answer_depends_on_the_seq_only(api: Api) -> None:
    for path in ("", "count", "series", "nodes"):
        first = await api.get(path)
        etag = first.headers["etag"]
        assert etag == '"0:10"'
        assert first.headers["cache-control"] == "no-cache"
        again = await api.get(path, headers={"If-None-Match": f'"1:1", W/{etag}'})
        assert (again.status_code, again.content) == (304, b"")
        assert (await api.get(path, headers={"If-None-Match": '"0:9"'})).content == first.content
    before = (await api.get("count")).content
    await api.stream.close(COUNTS[10:])
    await api.refresh()
    after = await api.get("count", headers={"If-None-Match": '"0:10"'})
    assert (after.status_code, after.headers["etag"]) == (200, '"0:20"')
    assert after.content != before


@with_api(COUNTS[:1])
async def test_a_file_of_a_page_is_the_same_compressed_and_plain_and_sent_once(api: Api) -> None:
    for name in ("stream.js", "style.css", "icon.svg"):
        plain, packed = [
            await api.client.get(f"/dashboard/{name}", headers={"Accept-Encoding": coding})
            for coding in ("identity", "br, gzip;q=0.5")
        ]
        assert plain.content == packed.content == (DASHBOARD / name).read_bytes()
        assert packed.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        for one in (plain, packed):
            assert (one.headers["vary"], one.headers["cache-control"]) == ("Accept-Encoding", "no-cache")
            again = {"Accept-Encoding": "gzip", "If-None-Match": one.headers["etag"]}
            assert (await api.client.get(f"/dashboard/{name}", headers=again)).status_code == 304


ADDRESSES = ("", "count", "series", "nodes", "privacy", "/v1/streams", "/metrics")


async def answer_of(api: Api, path: str) -> bytes:
    """Return an answer without the time since the store was read, which no release decides."""
    return re.sub(rb"(?m)^private_counts_store_age_seconds \S+$", b"", (await api.get(path)).content)


@with_api(COUNTS[:10])
async def test_invisible_releases_change_no_byte_of_an_answer(api: Api) -> None:
    before = [await answer_of(api, path) for path in ADDRESSES]
    await api.stream.close([1000] * 5, show=False)
    await api.refresh()
    assert [await answer_of(api, path) for path in ADDRESSES] == before
    await api.stream.show(seq=12)
    await api.refresh()
    assert (await api.json("count"))["released_until"] == at(12)
    assert len((await api.json("nodes"))["values"]) == 12


@with_api(COUNTS, epsilon=EXACT)
async def test_every_answer_of_a_public_stream_says_not_private(api: Api) -> None:
    for path in ("", "count", "series", "nodes", "privacy"):
        assert (await api.json(path))["private"] is False
    privacy = await api.json("privacy")
    assert privacy["protected"] == []
    assert "protects nobody" in privacy["promise"]
    assert privacy["max_odds_factor"] is None
    assert 'private="false"' in (await api.get("/metrics")).text


async def test_privacy_adds_up_over_the_source() -> None:
    async with api_over(COUNTS) as api:
        other = Published(api.store, name="departures by day", epsilon="0.5", epoch_bins=4)
        await other.open()
        alien = Published(api.store, name="elsewhere", source="other.ndjson", epsilon="3")
        await alien.open()
        await api.refresh()
        privacy = await api.json("privacy")
        assert (privacy["epsilon"], privacy["source_epsilon"]) == ("1", "1.5")
        assert privacy["max_odds_factor"] == pytest.approx(4.4816890703)
        assert privacy["source_delta"] is None
        assert privacy["composed"] == {"epsilon": "1.5", "delta": "1e-6"}
        assert "adds nothing" in privacy["next_epoch"]
        assert [row["stream"] for row in privacy["ledger"]] == ["departures", "departures by day"]
        assert [row["end_reason"] for row in privacy["ledger"]] == [None, None]
        assert "e^1.5" in privacy["promise"]
        names = [one["stream"] for one in (await api.json("/v1/streams"))["streams"]]
        assert names == ["departures", "departures by day", "elsewhere"]
        assert privacy["private"] is True
        bare = Published(api.store, name="not private", epsilon="1000")
        await bare.open()
        await api.refresh()
        privacy = await api.json("privacy")
        assert (privacy["private"], privacy["protected"]) == (False, [])


@with_api()
async def test_answers_before_the_first_release(api: Api) -> None:
    summary = await api.json("")
    assert (summary["running"], summary["released_until"], summary["seq"]) == (None, None, 0)
    assert summary["start"] == at(0)
    for path in ("count", "series"):
        status, body = await api.error(path)
        assert status == 400
        assert "nothing is released yet" in body["error"]
    assert (await api.json("nodes"))["values"] == []
    assert "private_counts_running{" not in (await api.get("/metrics")).text


@pytest.mark.slow
@with_api([1] * 300, epoch_bins=300)
async def test_long_series_are_downsampled_and_say_so(api: Api) -> None:
    series = await api.json("series", kind="bin", points=100)
    assert (len(series["value"]), series["points_available"], series["downsampled"]) == (100, 300, True)
    assert series["note"].startswith("300 points are shortened to 100")
    full = await api.json("series", kind="bin")
    assert max(series["value"]) == max(full["value"])
    assert min(series["value"]) == min(full["value"])


@with_api(COUNTS)
async def test_inner_intervals_of_a_series_are_those_of_their_confidence(api: Api) -> None:
    inner = (await api.json("series", kind="bin", inner=True))["inner"]
    for half, confidence in zip(inner, (0.8, 0.5), strict=True):
        narrower = await api.json("series", kind="bin", confidence=confidence)
        assert "inner" not in narrower
        assert [v + h for v, h in zip(narrower["value"], half, strict=True)] == narrower["upper"]


@with_api(COUNTS)
async def test_metrics_equal_released_values(api: Api) -> None:
    response = await api.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        sample.name: (sample.labels, sample.value)
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }
    count = await api.json("count")
    assert samples["private_counts_running"] == ({"stream": "departures", "private": "true"}, count["value"])
    assert samples["private_counts_running_lower"][1] == count["interval"][0]
    assert samples["private_counts_running_upper"][1] == count["interval"][1]
    assert samples["private_counts_released_until_seconds"][1] == seconds(20)
    assert samples["private_counts_released_bins"][1] == 20
    assert all(name.startswith("private_counts_") for name in samples)


def shape(value: Any) -> Any:
    """Return the names and types of an answer's fields."""
    if isinstance(value, dict):
        return {name: shape(field) for name, field in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}[type(value)]


@with_api(COUNTS, epoch_bins=20)
async def test_field_names_and_types_of_answers_do_not_change(api: Api) -> None:
    """Clients depend on these names. If you change them on purpose, change shapes.json too."""
    found = {path or "stream": shape(await api.json(path)) for path in (*ADDRESSES[:6], "/healthz")}
    rows = await api.store.reader().rows("departures", 19, 1)
    found["event"] = shape(json.loads(rows[0][1]))
    assert found == json.loads(SHAPES.read_text())
