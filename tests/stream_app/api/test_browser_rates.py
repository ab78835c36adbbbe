"""An alert on a rate reports the rate in the unit of its condition, in every output."""

from __future__ import annotations

import asyncio
import csv
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, expect

from stream_app.client import Client
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import Rule
from stream_app.core.counting.bounding import PerUser
from stream_app.loops.alert_watch import AlertWatcher
from stream_app.shell.commands import main
from stream_app.sinks.alert_targets import alert_of, webhook_body
from stream_app.sinks.alert_topic import cloud_event
from tests.models.memory import MemoryStore
from tests.models.memory_alerts import MemoryAlertStore
from tests.patience import eventually
from tests.stream_app.api.browsing import Backstage, opened, panel, table
from tests.stream_app.api.client import EXACT
from tests.stream_app.published import Published

pytestmark = pytest.mark.browser

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
    backstage.start()
    assert (told["value"], told["unit"]) == (pytest.approx(RATE), "/h")
    for alert in (alert_of(told, None), webhook_body(told)["alerts"][0]):
        annotations = alert["annotations"]
        assert (annotations["value"], annotations["unit"]) == (f"{RATE:.2f}", "events/h")
    data = cloud_event(told)["data"]
    assert (data["value"], data["unit"]) == (pytest.approx(RATE), "/h")


def test_alert_on_a_rate_of_users_says_that_it_is_of_users() -> None:
    async def inside() -> Any:
        stream = Published(MemoryStore(), epsilon=EXACT, user=PerUser("user", 1), count="users")
        await stream.open()
        watcher = AlertWatcher([RULE], stream.store.reader(), store := MemoryAlertStore())
        await watcher.look()
        await stream.close([90] * 6)
        await watcher.look()
        [(_, told)] = await store.transitions("", 10)
        return json.loads(told)

    told = asyncio.run(inside())
    assert alert_of(told, None)["annotations"]["unit"] == "users first seen/h"
    older = {name: value for name, value in told.items() if name != "counted_in"}
    assert alert_of(older, None)["annotations"]["unit"] == "events/h"


def test_api_client_and_terminal_report_the_rate(backstage: Backstage) -> None:
    fire(backstage)
    url = backstage.start()

    def listed() -> Any:
        alerts = httpx.get(f"{url}/v1/alerts", verify=False).json()["alerts"]
        return alerts if alerts and alerts[0]["phase"] == "firing" else None

    [one] = eventually(listed, "the service knows the rule")
    [transition] = httpx.get(f"{url}/v1/streams/departures/transitions", verify=False).json()["transitions"]
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


def test_page_reports_the_rate_in_its_list_its_tables_and_its_file(
    browser: Browser, backstage: Backstage
) -> None:
    fire(backstage)
    with opened(browser, backstage.start() + "/streams/departures") as page:
        line = panel(page, "alerts").locator("li")
        expect(line).to_contain_text("when it read 90/h")
        expect(line).to_contain_text("now reads 100/h")
        table(page, "alerts")
        words = page.locator("#alerts").inner_text()
        assert "90/h" in words
        assert EVENTS not in set(numbers(words))
        with page.expect_download() as download:
            page.locator("#alerts").get_by_role("button", name="as CSV").click()
        [saved] = csv.DictReader(download.value.path().read_text().splitlines())
        assert float(saved["value"]) == pytest.approx(RATE)
        assert saved["unit"] == "/h"
