"""Every alert rule is listed, with since when it is watched and what it reads now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import QuietHours, Rule
from stream_app.core.alerts.states import State
from stream_app.loops.alert_watch import AlertWatcher
from tests.models.memory import MemoryStore
from tests.models.memory_alerts import MemoryAlertStore
from tests.stream_app.api.browsing import WithAlerts
from tests.stream_app.api.client import EXACT, Api, with_api
from tests.stream_app.published import Published

TEXTS = {
    "calm": "sum(departures, 2h) > 1000",
    "busy": "sum(departures, 1h) > 100",
    "pace": "rate(departures, 2h) > 50/m",
    "silent": "no_data(departures, 36500d)",
}


def rules(*names: str, **texts: str) -> list[Rule]:
    """Return rules by name, with the text of above or another one."""
    found = {name: texts.get(name, TEXTS[name]) for name in (*names, *texts)}
    return [Rule(name, text, parse_condition(text)) for name, text in found.items()]


async def watched(api: Api, alerts: MemoryAlertStore, counted: Sequence[Rule]) -> AlertWatcher:
    """Return a watcher that has looked once; the application reads its store."""
    watcher = AlertWatcher(counted, api.store.reader(), alerts)
    await watcher.look()
    api.app.state.replicas._reader = WithAlerts(api.store.reader(), alerts)
    await api.refresh()
    return watcher


async def listed(api: Api) -> dict[str, dict[str, Any]]:
    await api.refresh()
    return {one["rule"]: one for one in (await api.json("/v1/alerts"))["alerts"]}


@with_api([40, 50], epsilon=EXACT)
async def test_rule_that_never_changed_is_listed_with_what_it_reads_now(api: Api) -> None:
    watcher = await watched(api, MemoryAlertStore(), rules(*TEXTS))
    found = await listed(api)
    assert set(found) == set(TEXTS)
    for name in TEXTS:
        one = found[name]
        assert (one["phase"], one["changed"], one["value"]) == ("inactive", None, None)
        assert one["watched"] == one["since"] == "2013-01-01T02:00:00Z"
    reads = {name: one["value_now"] for name, one in found.items()}
    assert reads == {"calm": 90.0, "busy": 50.0, "pace": pytest.approx(0.75), "silent": None}
    assert found["pace"]["unit"] == "/m"
    await api.stream.close([200])
    await watcher.look()
    found = await listed(api)
    assert (found["busy"]["phase"], found["busy"]["value"]) == ("firing", 200.0)
    assert (found["busy"]["changed"], found["busy"]["watched"]) == (
        "2013-01-01T03:00:00Z",
        "2013-01-01T02:00:00Z",
    )
    assert (found["calm"]["changed"], found["calm"]["value_now"]) == (None, 250.0)
    assert "private_counts_alert_firing" in (await api.get("/metrics")).text


@with_api([40, 50], epsilon=EXACT)
async def test_a_rule_says_which_target_refused_its_last_notification(api: Api) -> None:
    alerts = MemoryAlertStore()
    await watched(api, alerts, rules("calm", "busy"))
    await alerts.acknowledge("webhook 1234", "1-0", "busy", "webhooks[0] (status 400)")
    found = await listed(api)
    assert (found["busy"]["refused"], found["calm"]["refused"]) == (["webhooks[0] (status 400)"], [])
    marks = {one["rule"]: one["refused"] for one in (await api.json("marks"))["alerts"]}
    assert marks == {"busy": ["webhooks[0] (status 400)"], "calm": []}


@with_api([40, 50], epsilon=EXACT)
async def test_beginning_of_a_watch_is_no_change(api: Api) -> None:
    alerts = MemoryAlertStore()
    watcher = await watched(api, alerts, rules("calm", "busy"))
    await api.stream.close([60])
    await watcher.look()
    await api.refresh()
    assert (await api.json("transitions"))["transitions"] == []
    assert await alerts.transitions("", 10) == []
    marks = {one["rule"]: one for one in (await api.json("marks"))["alerts"]}
    assert (marks["calm"]["changed"], marks["calm"]["value_now"]) == (None, 110.0)
    assert marks["calm"]["watched"] == 1_357_005_600  # 2013-01-01T02:00:00Z


@with_api([40, 50], epsilon=EXACT)
async def test_removed_and_edited_rules_are_not_listed_as_watched(api: Api) -> None:
    alerts = MemoryAlertStore()
    await watched(api, alerts, rules("calm", "busy", "silent"))
    edited = "sum(departures, 1h) > 7"
    await api.stream.close([60])
    await watched(api, alerts, rules("busy", calm=edited))
    found = await listed(api)
    assert set(found) == {"busy", "calm"}
    assert found["busy"]["watched"] == "2013-01-01T02:00:00Z"  # a restart changes nothing
    assert found["calm"]["condition"] == edited
    assert found["calm"]["phase"] == "firing"
    states, _ = await alerts.load()
    assert State.from_json(states["silent"]).last is None


@with_api([40, 50], epsilon=EXACT)
async def test_pending_rule_says_when_it_fires(api: Api) -> None:
    [busy] = rules(busy="sum(departures, 1h) > 55")
    watcher = await watched(api, MemoryAlertStore(), [replace(busy, for_us=2 * 3_600_000_000)])
    for phase, fires in (
        ("pending", "2013-01-01T05:00:00Z"),
        ("pending", "2013-01-01T05:00:00Z"),
        ("firing", None),
    ):
        await api.stream.close([60])
        await watcher.look()
        found = (await listed(api))["busy"]
        assert (found["phase"], found["fires"]) == (phase, fires)
        [mark] = (await api.json("marks"))["alerts"]
        assert (mark["fires"] is None) == (fires is None)


@with_api([40] * 4, epsilon=EXACT)
async def test_rule_without_enough_bins_reads_nothing(api: Api) -> None:
    await watched(api, MemoryAlertStore(), rules(calm="sum(departures, 1000h) > 5"))
    assert (await listed(api))["calm"]["value_now"] is None


@with_api([40, 50], epsilon=EXACT)
async def test_rule_against_the_past_is_listed_with_both_counts_or_with_what_is_missing(api: Api) -> None:
    drop = "sum(departures, 1h) < 0.5 * sum(departures, 1h, 2h ago)"
    [known] = rules(calm=drop)
    night = QuietHours(1_320, 360)
    watcher = await watched(api, MemoryAlertStore(), [known, replace(known, name="night", quiet=night)])
    found = (await listed(api))["calm"]
    line = "its past begins before the first interval, 2013-01-01T00:00:00Z"
    assert (found["value_now"], found["missing_now"], found["against"]) == (None, line, None)
    await api.stream.close([19])
    await watcher.look()
    found = await listed(api)
    for one in (found["calm"], (await api.json("marks"))["alerts"][0]):
        assert (one["phase"], one["value"], one["against"]) == ("firing", 19.0, 20.0)
        assert (one["value_now"], one["against_now"], one["missing_now"]) == (19.0, 20.0, "")
    assert (found["night"]["phase"], found["night"]["quiet"]) == ("inactive", "22:00-06:00 UTC")
    [told] = (await api.json("transitions"))["transitions"]
    assert (told["value"], told["against"]) == (19.0, 20.0)
    marks = {one["rule"]: one for one in (await api.json("marks"))["alerts"]}
    assert (marks["calm"]["threshold"], marks["calm"]["threshold_events"]) == (None, None)


async def test_rules_of_a_stream_without_releases_are_listed_after_the_first_one() -> None:
    stream, alerts = Published(MemoryStore(), epsilon=EXACT), MemoryAlertStore()
    await stream.open()
    watcher = AlertWatcher(rules("calm"), stream.store.reader(), alerts)
    await watcher.look()
    assert (await alerts.load())[0] == {}
    await stream.close([5])
    await watcher.look()
    await watcher.look()
    assert set((await alerts.load())[0]) == {"calm"}
