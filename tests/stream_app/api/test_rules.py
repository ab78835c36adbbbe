"""Every alert rule is listed, with since when it is watched and what it reads now, in its own unit."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, expect

from stream_app.client import Client
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import QuietHours, Rule
from stream_app.core.alerts.states import State
from stream_app.core.answers.labels import AllLabels, Labels
from stream_app.core.counting.bounding import PerUser
from stream_app.loops.alert_watch import AlertWatcher
from stream_app.shell.commands import main
from stream_app.sinks.alert_targets import alert_of, webhook_body
from stream_app.sinks.alert_topic import cloud_event
from tests.models.memory import MemoryStore
from tests.models.memory_alerts import MemoryAlertStore
from tests.patience import eventually
from tests.stream_app.api.browsing import Backstage, WithAlerts, fits, opened, panel, table
from tests.stream_app.api.client import EXACT, Api, with_api
from tests.stream_app.published import Published

TEXTS = {
    "calm": "sum(departures, 2h) > 1000",
    "busy": "sum(departures, 1h) > 100",
    "pace": "rate(departures, 2h) > 50/m",
    "silent": "no_data(departures, 36500d)",
}
UNKNOWN = "its past begins before the first interval, 2013-01-01T00:00:00Z"


def rules(*names: str, **texts: str) -> list[Rule]:
    """Return rules by name, with the text of above or another one."""
    found = {name: texts.get(name) or TEXTS[name] for name in (*names, *texts)}
    return [Rule(name, text, parse_condition(text)) for name, text in found.items()]


async def watched(api: Api, alerts: MemoryAlertStore, counted: Sequence[Rule]) -> AlertWatcher:
    """Return a watcher that has looked once; the application reads its store."""
    watcher = AlertWatcher(counted, api.store.reader(), alerts)
    await watcher.look()
    api.app.state.replicas.reader = WithAlerts(api.store.reader(), alerts)
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
    assert (found["value_now"], found["missing_now"], found["against"]) == (None, UNKNOWN, None)
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


NEVER_CHANGED = rules(
    "calm", "drop", "pace", drop="count(departures, 1h) < 0.5 * count(departures, 1h, 2h ago)"
)


@pytest.mark.browser
def test_page_lists_rules_that_never_changed(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([40, 50], epsilon=EXACT)
    backstage.watch(NEVER_CHANGED)
    backstage.run(backstage.alerts.acknowledge("webhook 1", "1-0", "pace", "webhooks[0] (status 400)"))
    with opened(browser, backstage.start() + "/streams/departures") as page:
        lines = panel(page, "alerts").locator("li")
        expect(lines).to_have_count(3)
        expect(lines.nth(1)).to_contain_text(f"Cannot be decided: {UNKNOWN}")
        expect(lines.first).to_contain_text("90")
        expect(lines.last).to_contain_text("0.75/m")
        expect(lines.last).to_contain_text("Last notification refused by webhooks[0] (status 400)")
        expect(lines.first).not_to_contain_text("refused")
        calm, drop, pace = table(page, "alerts")
        assert "Never changed; at 1 Jan 2013, 02:00 UTC it read 90" in calm[-1]
        assert "Watched since 1 Jan 2013, 02:00" in calm[-1]
        assert f"Never changed; it cannot be decided now: {UNKNOWN}" in drop[-1]
        assert "it read 0.75/m" in pace[-1]
        assert "Its last notification was refused by webhooks[0] (status 400)." in pace[-1]
        page.set_viewport_size({"width": 390, "height": 844})
        fits(page)
        panel(page, "running")  # a panel out of sight is not read, and shows nothing
        expect(page.locator("#running-chart")).to_be_visible()


def test_terminal_lists_rules_under_the_titles_of_their_streams(backstage: Backstage) -> None:
    backstage.stream([40, 50], epsilon=EXACT)
    url = backstage.start(labels=AllLabels({"departures": Labels("Flights that left")}))
    empty = CliRunner().invoke(main, ["rules", "--url", url])
    assert empty.output.startswith("No rule is watched")
    backstage.watch(NEVER_CHANGED)

    def said(*options: str) -> str:
        return CliRunner().invoke(main, [*options, "--url", url]).output

    for _ in range(100):  # until the service has read the rules
        if "calm" in said("rules"):
            break
    words = " ".join(said("rules").split())
    assert "calm Flights that left inactive 90 (standard error 0) never 2013-01-01T02:00:00Z sum(" in words
    assert "0.75/m" in words
    assert f"drop: not decided now, {UNKNOWN}" in words
    [calm, _, pace] = json.loads(said("rules", "--format", "json"))
    assert (calm["stream"], calm["changed"], calm["value_now"]) == ("departures", None, 90.0)
    assert (pace["unit"], pace["refused"]) == ("/m", [])
    backstage.run(backstage.alerts.acknowledge("webhook 1", "1-0", "pace", "webhooks[0] (status 400)"))
    eventually(lambda: "pace: refused by webhooks[0] (status 400)" in said("rules"), "the refusal is listed")
    assert said("query", "departures").startswith("Flights that left\n90.00")


TEXT = "rate(departures, 6h) > 70/h"
RULE = Rule("busy", TEXT, parse_condition(TEXT))
EVENTS, RATE, NOW = 540, 90.0, 100.0  # in the six hours when it fires; per hour, then and one hour later


def fire(backstage: Backstage) -> dict[str, Any]:
    """Release hours of 60 events, one of 240, which lets the rule fire, and one of 120; return the change."""
    stream = backstage.stream([60] * 6, epsilon=EXACT)
    watcher = backstage.watch([RULE])
    for counts in ([240], [120]):
        backstage.run(stream.close(counts))
        backstage.run(watcher.look())
    [(_, told)] = backstage.run(backstage.alerts.transitions("", 10))
    found: dict[str, Any] = json.loads(told)
    return found


def numbers(words: str) -> Iterator[float]:
    """Yield the numbers of a text, without those of dates and conditions."""
    plain = re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z?", "", words).replace(TEXT, "")
    yield from (float(found) for found in re.findall(r"\d+(?:\.\d+)?", plain.replace(",", "")))


def test_alert_on_a_rate_reports_the_rate_to_every_target(backstage: Backstage) -> None:
    told = fire(backstage)
    assert (told["value"], told["unit"]) == (pytest.approx(RATE), "/h")
    for alert in (alert_of(told, None), webhook_body(told)["alerts"][0]):
        annotations = alert["annotations"]
        assert (annotations["value"], annotations["unit"]) == (f"{RATE:.2f}", "events/h")
    data = cloud_event(told)["data"]
    assert (data["value"], data["unit"]) == (pytest.approx(RATE), "/h")


def test_alert_on_a_rate_of_users_says_that_it_is_of_users(backstage: Backstage) -> None:
    async def inside() -> Any:
        stream = Published(MemoryStore(), epsilon=EXACT, user=PerUser("user", 1), count="users")
        await stream.open()
        watcher = AlertWatcher([RULE], stream.store.reader(), store := MemoryAlertStore())
        await watcher.look()
        await stream.close([90] * 6)
        await watcher.look()
        [(_, told)] = await store.transitions("", 10)
        return json.loads(told)

    told = backstage.run(inside())
    assert alert_of(told, None)["annotations"]["unit"] == "users first seen/h"
    older = {name: value for name, value in told.items() if name != "counted_in"}
    assert alert_of(older, None)["annotations"]["unit"] == "events/h"


def test_api_client_and_terminal_report_the_rate(backstage: Backstage) -> None:
    fire(backstage)
    url = backstage.start()

    def fired() -> Any:
        alerts = backstage.json("/v1/alerts")["alerts"]
        return alerts if alerts and alerts[0]["phase"] == "firing" else None

    [one] = eventually(fired, "the service knows the rule")
    [transition] = backstage.json("departures/transitions")["transitions"]
    with Client(url) as client:
        [rule] = client.alerts()
    terminal = CliRunner(env={"COLUMNS": "200"})
    [saved] = json.loads(terminal.invoke(main, ["rules", "--url", url, "--format", "json"]).output)
    for found in (one, transition, saved):
        assert (found["value"], found["unit"]) == (pytest.approx(RATE), "/h")
    for found in (one, saved):
        assert found["value_now"] == pytest.approx(NOW)
    assert [rule.value, rule.value_now] == pytest.approx([RATE, NOW])
    assert rule.unit == "/h"
    words = terminal.invoke(main, ["rules", "--url", url]).output
    assert "100/h (standard error 0/h)" in words
    assert EVENTS not in set(numbers(words))


@pytest.mark.browser
def test_page_reports_the_rate_in_its_list_its_tables_and_its_file(
    browser: Browser, backstage: Backstage
) -> None:
    fire(backstage)
    with opened(browser, backstage.start() + "/streams/departures") as page:
        line = panel(page, "alerts").locator("li")
        expect(line).to_contain_text("100/h")
        assert "when it read 90/h" in table(page, "alerts")[0][-1]
        words = page.locator("#alerts").inner_text()
        assert "90/h" in words
        assert EVENTS not in set(numbers(words))
        with page.expect_download() as download:
            page.locator("#alerts").get_by_role("button", name="as CSV").click()
        [saved] = csv.DictReader(download.value.path().read_text().splitlines())
        assert float(saved["value"]) == pytest.approx(RATE)
        assert saved["unit"] == "/h"
