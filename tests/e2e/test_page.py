"""The pages over the real service: flights are replayed, and every panel follows their release."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from deploy.ports import free_port
from tests.e2e.flights import instant
from tests.e2e.service import Service, get
from tests.stream_app.api.browsing import launched, opened

pytestmark = [pytest.mark.redis, pytest.mark.browser, pytest.mark.slow]

HOURS = 20 * 24
PANELS = ("running", "bins", "rate", "keys", "quantiles", "heat", "cdf", "preview")


def configuration(flights: Path, port: int) -> str:
    """Return two streams over three weeks of flights that take about twelve seconds."""
    replay = f"{{from: {instant(0)}, to: {instant(HOURS)}, speed: 144000}}"
    shared = f"""
    source: {{file: "{flights}", replay: {replay}}}
    time: {{field: scheduled, format: iso8601, bin: 1h, epoch: {HOURS}h}}
    privacy: {{epsilon: 1.0, accept: "measured again"}}"""
    return f"""
redis: {{url: "embedded:./redis"}}
api: {{port: {port}}}
streams:
  departures: {shared}
  delays: {shared}
    keys: {{field: origin, list: [EWR, JFK, LGA], other: false, total: true}}
    value: {{field: delay_minutes, min: -30, max: 120, buckets: 30}}
alerts:
  rules:
    busy: {{when: "sum(departures, 24h) > 500", confidence: 0.99}}
"""


def seq_of(page: Page, selector: str) -> int:
    """Return the release that something shows."""
    return int(page.locator(selector).get_attribute("data-seq") or 0)


def test_every_panel_follows_the_flights(tmp_path: Path, flights: Path) -> None:
    port = free_port()
    (tmp_path / "app.yaml").write_text(configuration(flights, port))
    with Service(["run", "--config", "app.yaml"], tmp_path) as service, launched() as browser:
        service.until("bins closed")
        address = f"http://127.0.0.1:{port}"
        with opened(browser, address) as page:
            numbers = page.get_by_test_id("value")
            expect(numbers).to_have_count(2)
            before = [int(one.get_attribute("data-seq") or 0) for one in numbers.all()]
            page.wait_for_function(
                """before => [...document.querySelectorAll(".number")]
                  .every((one, i) => Number(one.dataset.seq) > before[i])""",
                arg=before,
            )
            page.get_by_role("link", name="delays").click()
            first = page.locator("#running-chart[data-seq]")
            first.wait_for()
            before_s = seq_of(page, "#running-chart")
            for name in PANELS:
                page.locator(f"#{name}").scroll_into_view_if_needed()
                expect(page.locator(f"#{name}")).to_have_attribute("data-seq", re.compile(r"\d"))
            service.until("the replay is complete")
            for name in PANELS:  # each takes up what was released meanwhile
                page.locator(f"#{name}").scroll_into_view_if_needed()
                expect(page.locator(f"#{name}")).to_have_attribute("data-seq", str(HOURS))
            assert before_s < HOURS
            number = int(page.get_by_test_id("value").inner_text().replace(",", ""))
            assert number == round(get(port, "/v1/streams/delays/count")["value"])
            page.get_by_role("link", name="All streams").click()
            departures = page.get_by_role("article", name="departures")
            expect(departures.get_by_test_id("value")).to_have_attribute("data-seq", str(HOURS))
            (rule,) = get(port, "/v1/alerts")["alerts"]
            assert rule["phase"] == "firing"
            expect(departures.locator(".chip")).to_have_text("1 firing")
        assert service.interrupt() == 0
