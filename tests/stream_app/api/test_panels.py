"""The addresses that only the pages use agree with the public addresses and with exact counts."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from dphist.tree.design import Release
from stream_app.api.answers.keys import check_numbers
from stream_app.api.answers.preview import replanned
from stream_app.api.answers.slices import origin_of, slices_between
from stream_app.api.overview import Glances
from stream_app.api.schemas import MOST_SLICES, SlicesQuery
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import Rule
from stream_app.core.alerts.states import State, evaluate
from stream_app.core.answers.answered import QueryError
from stream_app.core.counting.bins import Binning
from stream_app.core.kinds.tables import Span
from stream_app.loops import alert_watch
from stream_app.loops.alert_watch import AlertWatcher
from tests.models.memory import MemoryStore
from tests.models.memory_alerts import MemoryAlertStore
from tests.stream_app.api.browsing import WithAlerts
from tests.stream_app.api.client import EXACT, Api, api_at, api_over, released, with_api
from tests.stream_app.product_stream import view_of
from tests.stream_app.published import Published
from tests.stream_app.published_axes import PublishedAxes, delays

pytestmark = pytest.mark.slow

COUNTS = [(7 * hour) % 23 for hour in range(100)]


@asynccontextmanager
async def api_over_axes(bins: int = 48, **options: Any) -> AsyncIterator[tuple[Api, np.ndarray]]:
    """Yield the application over a stream with keys and values, and the stream's exact cells."""
    stream = PublishedAxes(MemoryStore(), **({"epoch_bins": 64, "buckets": 20} | options))
    await stream.open()
    cells = delays(stream, bins)
    await stream.close_cells(cells)
    async with api_at(stream) as api:
        yield api, cells


def start_of(hour: int) -> int:
    """Return the start of an hour of these streams, in seconds since 1970."""
    return (376_944 + hour) * 3600


@with_api(COUNTS, epoch_bins=128)
async def test_overview_equals_the_stream_summary(api: Api) -> None:
    (glance,) = (await api.json("/v1/overview"))["streams"]
    stream, bins = await api.json(""), await api.json("series", kind="bin", start=start_of(40))
    assert glance["running"] == stream["running"]
    assert glance["seq"] == 100
    for column in ("end", "value", "lower", "upper"):
        assert glance["sparkline"][column] == bins[column]
    assert glance["next_release"] == "2013-01-05T05:00:01Z"  # after the end of the next bin, without grace
    assert (glance["firing"], glance["pending"]) == ([], [])


@with_api([40] * 10, epoch_bins=16)
async def test_overview_sends_changes_and_removed_streams(api: Api) -> None:
    glances: Glances = api.app.state.glances
    events = glances.follow(lambda stream: stream != "hidden")
    assert (await anext(events)).startswith(b"retry: ")
    first = await anext(events)
    assert first.count(b"event: stream") == 1
    assert b'"seq":10' in first
    hidden = Published(api.store, name="hidden", source="other")
    await hidden.open()
    await api.stream.close([40] * 2)
    await api.refresh()
    changed = await anext(events)
    assert b'"seq":12' in changed
    assert b"hidden" not in changed
    del api.app.state.replicas.by_name["departures"]
    assert await anext(events) == b"event: gone\ndata: departures\n\n"
    api.app.state.replicas.close()
    with pytest.raises(StopAsyncIteration):
        await anext(events)


@with_api([40] * 48, epoch_bins=64, epsilon=EXACT)
async def test_alerts_are_in_the_overview_and_in_the_marks(api: Api) -> None:
    texts = {
        "busy": "sum(departures, 6h) > 200",
        "slow": "rate(departures, 12h) < 50/h",
        "full": "count(departures) > 1e6",
    }
    rules = [Rule(name, text, parse_condition(text)) for name, text in texts.items()]
    view = await view_of(api.store, "departures")
    outcome = evaluate(rules, {}, view, now_us=5)
    assert set(outcome.states) == {"busy", "slow"}
    api.app.state.replicas.alerts = outcome.states
    (glance,) = (await api.json("/v1/overview"))["streams"]
    assert glance["firing"] == ["busy", "slow"]
    busy, slow = (await api.json("marks"))["alerts"]
    assert (busy["window_bins"], busy["threshold_events"], busy["comparison"]) == (6, 200.0, ">")
    assert (slow["window_bins"], slow["threshold_events"], slow["comparison"]) == (12, 600.0, "<")
    assert (busy["changed"], busy["kind"], busy["value"]) == (start_of(48), "firing", 240.0)
    # A rule that only a newer version can read is shown by its text alone.
    later = json.loads(outcome.states["busy"].to_json())
    later["last"]["condition"] = "skew(departures, 7d) > 0.1"
    api.app.state.replicas.alerts = {"later": State(**later)}
    (mark,) = (await api.json("marks"))["alerts"]
    assert (mark["measure"], mark["threshold_events"], mark["phase"]) == ("skew", None, "firing")


@with_api([40] * 8, epoch_bins=64, epsilon=EXACT)
async def test_transitions_lists_exactly_the_visible_ones(api: Api) -> None:
    text = "sum(departures, 1h) > 100"
    alerts = MemoryAlertStore()
    watcher = AlertWatcher([Rule("busy", text, parse_condition(text))], api.store.reader(), alerts)
    await watcher.look()
    replicas = api.app.state.replicas
    replicas.reader = WithAlerts(api.store.reader(), alerts)
    for count in (200, 40, 300, 300, 40):
        await api.stream.close([count])
        await watcher.look()
    await api.refresh()
    found = await api.json("transitions")
    told = [(one["kind"], one["seq"], one["at"]) for one in found["transitions"]]
    assert told == [
        ("firing", 9, start_of(9)),
        ("resolved", 10, start_of(10)),
        ("firing", 11, start_of(11)),
        ("resolved", 13, start_of(13)),
    ]
    assert found["transitions"][2]["value"] == 300.0
    assert set(found["transitions"][0]) == {
        *("rule", "kind", "condition", "at", "seq", "value", "stderr", "against", "unit", "meaning")
    }
    # A store that an older version wrote has no list of transitions, only each rule's last transition.
    replicas.transitions.clear()
    assert [one["seq"] for one in (await api.json("transitions"))["transitions"]] == [13]
    # Transitions of rows that the replica has not read yet are not shown.
    ahead = [
        json.dumps(json.loads(one) | {"seq": 14}).encode() for one in alerts.transitions_of("departures")
    ]
    replicas.transitions["departures"] = tuple(ahead)
    assert [one["seq"] for one in (await api.json("transitions"))["transitions"]] == [13]


@pytest.mark.parametrize("releases_a_step", [1, 3, 20])
def test_transitions_depend_on_releases_only(releases_a_step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher with another clock, speed and batch size stores the same bytes for readers."""

    async def run(step: int, now_us: int) -> list[bytes]:
        monkeypatch.setattr(alert_watch, "RELEASES_A_STEP", step)
        monkeypatch.setattr(alert_watch, "own_clock_us", lambda: now_us)
        stream, alerts = Published(MemoryStore(), epsilon="0.5"), MemoryAlertStore()
        await stream.open()
        texts = ["sum(departures, 1h) > 10", "rate(departures, 3h) < 3/h", "count(departures) > 90"]
        rules = [Rule(text[:4], text, parse_condition(text), for_us=0) for text in texts]
        watcher = AlertWatcher(rules, stream.store.reader(), alerts)
        await watcher.look()
        for hour in range(40):
            await stream.close([(13 * hour) % 29], show=(hour + 1) % step == 0 or hour == 39)
            await watcher.look()
        return alerts.transitions_of("departures")

    first = asyncio.run(run(1, 10**15))
    assert len(first) > 10
    assert asyncio.run(run(releases_a_step, 2 * 10**15 + 7)) == first


async def test_keys_agree_with_counts_and_series_of_each_key() -> None:
    async with api_over_axes(epsilon="1") as (api, _cells):
        found = await api.json("keys", step=12, limit=3)
        assert (len(found["keys"]), found["keys_available"]) == (3, 5)
        assert "2 keys" in found["note"]
        values = [one["value"] for one in found["keys"]]
        assert values == sorted(values, reverse=True)
        for one in found["keys"]:
            count = await api.json("count", key=one["key"])
            assert one["value"] == pytest.approx(count["value"])
            assert one["interval"] == pytest.approx(count["interval"])
            series = await api.json("series", key=one["key"], kind="bin", step=12)
            assert one["counts"] == pytest.approx(series["value"])
            assert one["lower"] == pytest.approx(series["lower"], abs=1e-6)
            assert one["upper"] == pytest.approx(series["upper"], abs=1e-6)
        left_out = await api.json("keys", step=48, limit=48)
        assert min(values) >= max(one["value"] for one in left_out["keys"][3:])


async def test_heat_without_noise_is_the_exact_table() -> None:
    async with api_over_axes(epsilon=EXACT) as (api, cells):
        found = await api.json("heat", step=8, rows=10)
        exact = cells.sum(axis=1).reshape(6, 8, 10, 2).sum(axis=(1, 3))
        assert np.rint(found["counts"]).astype(int).tolist() == exact.tolist()
        assert found["edges"] == [-30.0 + 15 * row for row in range(11)]
        assert found["start"] == [start_of(8 * place) for place in range(6)]
        of_key = await api.json("heat", step=48, rows=7, key="B6")
        assert found["counts"] != of_key["counts"]
        joined = np.add.reduceat(cells[:, 1].sum(axis=0), range(0, 20, 3))
        assert np.rint(of_key["counts"][0]).astype(int).tolist() == joined.tolist()
        assert len(of_key["edges"]) == 8


async def test_heat_and_cumulative_counts_have_equal_errors() -> None:
    async with api_over_axes(epsilon="1") as (api, _cells):
        found = await api.json("heat", step=48, rows=2)
        cdf = await api.json("cdf")
        assert found["counts"][0][0] == pytest.approx(cdf["value"][9])
        assert found["stderr"][0][0] == pytest.approx(cdf["stderr"][9])


async def test_running_cdfs_without_noise_are_exact() -> None:
    async with api_over_axes(epsilon=EXACT) as (api, cells):
        found = await api.json("cdfs", step=5, start=start_of(2), key="B6")
        exact = cells[2:, 1].cumsum(axis=0).cumsum(axis=1)
        assert found["counts"] == [*exact[4::5].tolist(), exact[-1].tolist()]
        assert found["end"] == [*(start_of(7 + 5 * place) for place in range(9)), start_of(48)]
        assert found["upto"] == (await api.json("cdf"))["upto"]
        assert (found["start"], found["key"]) == ("2013-01-01T02:00:00Z", "B6")


async def test_running_cdfs_rise_over_value_and_time() -> None:
    async with api_over_axes(epsilon="0.1") as (api, _cells):
        found = await api.json("cdfs", step=4)
        counts = np.array(found["counts"])
        ends = [start_of(4 * place + 4) for place in range(12)]
        each = [await api.json("cdf", end=end) for end in ends]
        alone = np.array([one["consistent"] for one in each])
        assert (np.diff(alone, axis=0) < 0).any()  # otherwise the test shows nothing
        assert (np.diff(counts, axis=0) >= 0).all()
        assert (np.diff(counts, axis=1) >= 0).all()
        for place in range(12):
            highest, lowest = alone[: place + 1].max(axis=0), alone[place:].min(axis=0)
            assert counts[place].tolist() == ((highest + lowest) // 2).tolist()
        assert np.allclose(found["stderr"], [one["stderr"] for one in each])


async def test_quantiles_over_time_equal_those_of_each_slice() -> None:
    async with api_over_axes(epsilon="1") as (api, _cells):
        found = await api.json("quantiles", step=24, q=[0.5, 0.9], key="UA")
        assert [one["q"] for one in found["quantiles"]] == [0.5, 0.9]
        for place in range(2):
            edges = {"start": start_of(24 * place), "end": start_of(24 * place + 24)}
            alone = await api.json("quantile", q=[0.5, 0.9], key="UA", **edges)
            for mine, theirs in zip(found["quantiles"], alone["quantiles"], strict=True):
                assert mine["value"][place] == theirs["value"]
                assert [mine["lower"][place], mine["upper"][place]] == theirs["interval"]


@pytest.mark.parametrize("release", ["causal", "anticipating"])
async def test_preview_at_the_streams_epsilon_equals_its_errors(release: str) -> None:
    async with api_over(COUNTS, epoch_bins=128, release=release) as api:
        found = await api.json("preview", epsilon=1.0, step=10)
        assert found["preview_half_width"] == found["half_width"]
        series = await api.json("series", kind="bin", step=10)
        assert found["value"] == pytest.approx(series["value"])
        halves = (np.array(series["upper"]) - series["lower"]) / 2
        # An answer's interval includes the rounding of published values. A preview's does not.
        assert found["half_width"] == pytest.approx(halves.tolist(), abs=1e-3)
        for one in found["questions"]:
            assert one["half_width"] == one["preview_half_width"]


@pytest.mark.parametrize("release", ["causal", "anticipating"])
async def test_preview_equals_the_errors_of_a_stream_with_that_epsilon(release: Release) -> None:
    async with api_over(COUNTS, epoch_bins=128, release=release) as api:
        await released(COUNTS, api.store, name="other", epsilon="0.3", epoch_bins=128, release=release)
        await api.refresh()
        found = await api.json("preview", epsilon=0.3, step=10)
        series = await api.json("/v1/streams/other/series", kind="bin", step=10)
        halves = (np.array(series["upper"]) - series["lower"]) / 2
        assert found["preview_half_width"] == pytest.approx(halves.tolist(), abs=1e-3)
        assert min(found["preview_half_width"]) > max(found["half_width"])


def test_preview_without_a_plan_is_refused() -> None:
    stream = Published(MemoryStore(), epoch_bins=64, release="anticipating")
    assert replanned(stream.strategy, 2.0).epsilon == 2
    with pytest.raises(QueryError, match="epsilon: 1e-15 has no plan here"):
        replanned(stream.strategy, 1e-15)


async def test_preview_of_a_key_has_the_errors_of_that_key() -> None:
    async with api_over_axes(epsilon="1") as (api, _cells):
        for query in ({}, {"key": "DL"}):
            found = await api.json("preview", epsilon=1.0, step=12, **query)
            series = await api.json("series", kind="bin", step=12, **query)
            halves = (np.array(series["upper"]) - series["lower"]) / 2
            assert found["half_width"] == pytest.approx(halves.tolist(), abs=1e-3)
            assert found["preview_half_width"] == found["half_width"]


@with_api(COUNTS, epoch_bins=128)
async def test_refusals_name_the_parameter(api: Api) -> None:
    asked: tuple[tuple[str, dict[str, float], str], ...] = (
        ("keys", {}, "no keys"),
        ("heat", {}, "no value"),
        ("cdfs", {}, "no value"),
        ("quantiles", {"q": 0.5}, "no value"),
        ("preview", {"epsilon": 0}, "epsilon"),
        ("preview", {"epsilon": 0.5, "step": 101}, "longer than the range"),
        ("marks", {"x": 1}, "x"),
    )
    for path, query, words in asked:
        status, body = await api.error(path, **query)
        assert status in (400, 422), (path, body)
        assert words in body["error"], (path, body)


@with_api([5] * 300, epoch_bins=512)
async def test_number_of_slices_is_limited(api: Api) -> None:
    status, body = await api.error("preview", epsilon=0.5, step=2)
    assert status in (400, 422)
    assert "write 3 or more" in body["error"]
    assert len((await api.json("preview", epsilon=0.5, step=3))["value"]) == 100
    assert (await api.error("preview", epsilon=0.5, step=1))[0] == 400


@pytest.mark.parametrize(("hours", "bins"), [(120, 1), (121, 2), (241, 3)])
async def test_slices_without_a_step_are_the_shortest_allowed(hours: int, bins: int) -> None:
    async with api_over_axes(256, epoch_bins=256, buckets=4) as (api, _cells):
        whole = {"start": start_of(0), "end": start_of(hours)}
        for path, more in (
            ("keys", {}),
            ("heat", {}),
            ("quantiles", {"q": 0.5}),
            ("cdfs", {}),
            ("preview", {"epsilon": 0.5}),
        ):
            plain = await api.json(path, **whole, **more)
            assert len(plain["end"]) == -(-hours // bins) <= 120, path
            assert plain == await api.json(path, step=bins, **whole, **more)


_SLICED: list[tuple[dict[str, Any], list[int], list[int]]] = [
    ({"step": 7}, [7, 7, 7, 7, 7, 7, 6], [6]),
    ({"step": 24}, [24, 24], []),
    ({"step": 47}, [47, 1], [1]),
    ({"step": 48}, [48], []),
    ({"step": 5, "start": 3, "end": 21}, [5, 5, 5, 3], [3]),
    ({"step": 5, "start": 3, "end": 21, "aligned": True}, [3, 5, 5, 5], [0]),
    ({"step": 60, "aligned": True}, [36, 12], [0, 1]),
    ({"step": 24, "aligned": True}, [24, 24], []),
    ({"days": 1}, [24, 24], []),
    ({"days": 1, "start": 5, "end": 30}, [19, 6], [0, 1]),
    ({"days": 1, "timezone": "Europe/Paris"}, [23, 24, 1], [0, 2]),
    ({"days": 1, "timezone": "America/New_York"}, [5, 24, 19], [0, 2]),
    ({"months": 1}, [48], [0]),
    ({"months": 1, "timezone": "America/New_York"}, [5, 43], [0, 1]),
    ({"days": 7, "week_start": "wednesday"}, [24, 24], [0, 1]),
    ({"days": 7}, [48], [0]),
    ({}, [1] * 48, []),
]


async def test_slices_add_up_to_the_value_and_say_which_are_partial() -> None:
    async with api_over_axes(epsilon=EXACT) as (api, cells):
        for query, sizes, partial in _SLICED:
            span = {name: start_of(query[name]) for name in ("start", "end") if name in query}
            found = await api.json("keys", **query | span)
            hours = np.subtract(found["end"], found["start"]) / 3600
            assert hours.tolist() == sizes, query
            assert [at for at, one in enumerate(found["partial"]) if one] == partial, query
            assert ("shorter" in found["note"]) == (bool(partial) and len(sizes) > 1)
            start, end = query.get("start", 0), query.get("end", 48)
            assert found["over"] == {"start": _rfc(start), "end": _rfc(end), "unmeasured": []}
            values = [one["value"] for one in found["keys"]]
            assert values == sorted(cells[start:end].sum(axis=(0, 2)).tolist(), reverse=True)
            assert all(sum(one["counts"]) == one["value"] for one in found["keys"])


def test_number_of_counts_of_keys_is_limited() -> None:
    check_numbers(1_666, 60)
    with pytest.raises(
        QueryError, match=r"limit: 1,667 keys in 60 slices; .* write 1,666 or less, or a longer"
    ):
        check_numbers(1_667, 60)


def _rfc(hour: int) -> str:
    return f"2013-01-{1 + hour // 24:02}T{hour % 24:02}:00:00Z"


async def test_slices_with_unmeasured_bins_are_left_out() -> None:
    stream = await released([5] * 16, epoch_bins=16)
    await stream.open(1, first_bin=stream.first_bin + 24)
    await stream.close([5] * 8)
    async with api_at(stream) as api:
        found = await api.json("preview", epsilon=0.5, step=8)
        assert found["start"] == [start_of(place) for place in (0, 8, 24)]
        gap = {"start": start_of(16), "end": start_of(24)}
        status, refused = await api.error("preview", epsilon=0.5, step=4, **gap)
        assert (status, "no slice between them was measured" in refused["error"]) == (400, True)


def test_aligned_slices_cover_any_range() -> None:
    for start, stop, step in itertools.product(range(5), range(6, 12), (1, 2, 3, 20)):
        found = slices_between(Span(start, stop), SlicesQuery(step=step, aligned=True))
        assert (found[0].start, found[-1].stop) == (start, stop)
        assert all(one.stop == other.start for one, other in itertools.pairwise(found))
        assert all(one.start % step == 0 for one in found[1:])
        assert max(one.stop - one.start for one in found) <= step
    for bins in (119, 120, 121, 5_000, 123_457):
        assert len(slices_between(Span(7, 7 + bins), SlicesQuery(aligned=True))) <= MOST_SLICES


def test_aligned_weeks_begin_on_mondays_if_a_bin_begins_there() -> None:
    hours, days = Binning(3_600_000_000), Binning(86_400_000_000)
    for bins, weeks in ((hours, 1), (hours, 4), (days, 1)):
        query = SlicesQuery(step=weeks * 7 * 86_400_000_000 // bins.bin_us, aligned=True)
        span = Span(bins.bin_of([1_356_998_400_000_000])[0], bins.bin_of([1_388_534_400_000_000])[0])
        found = slices_between(span, query, origin_of(bins, span, query))
        mondays = [datetime.fromtimestamp(bins.start_us(one.start) / 1e6, UTC) for one in found[1:]]
        assert {(at.weekday(), at.hour) for at in mondays} == {(0, 0)}
    half_weeks = Binning(302_400_000_000)  # no bin begins on a Monday at midnight
    assert origin_of(half_weeks, Span(4_500, 4_600), SlicesQuery(step=2, aligned=True)) == 0
