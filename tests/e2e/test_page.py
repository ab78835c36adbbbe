"""The pages over the real service: flights are replayed, and every panel follows the releases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from deploy.ports import free_port
from stream_app.state.embedded import EmbeddedRedis
from tests.e2e.flights import START, instant
from tests.e2e.service import Service, answers, get
from tests.stream_app.api.browsing import eventually, opened, panel, photograph

pytestmark = [pytest.mark.redis, pytest.mark.browser, pytest.mark.slow]

HOURS = 20 * 24
DASHBOARD = Path(__file__).parents[2] / "stream_app" / "api" / "dashboard"
# The panels of each page, from top to bottom. Together these are all panels.
PANELS = {
    "delays": ("bins", "running", "rate", "keys", "quantiles", "heat", "cdf", "preview"),
    "departures": ("bins", "running", "rate", "alerts", "preview"),
    "daily": ("bins", "running", "rate", "windows", "preview"),
}


def configuration(flights: Path, port: int, redis: EmbeddedRedis, hours_per_s: int) -> str:
    """Return a configuration with three streams that replay three weeks of flights.

    One alert rule holds from the second day on, another one until about the fourteenth day.
    """
    replay = f"{{from: {instant(0)}, to: {instant(HOURS)}, speed: {3_600 * hours_per_s}}}"
    shared = f"""
    source: {{file: "{flights}", replay: {replay}}}
    time: {{field: scheduled, format: iso8601, bin: 1h, epoch: {HOURS}h}}
    privacy: {{epsilon: 1.0, accept: "measured again"}}"""
    delay = "field: delay_minutes, min: -30, max: 120, buckets: 30"
    return f"""
redis: {{url: "{redis.worker_url}", api_url: "{redis.api_url}", alerts_url: "{redis.alerts_url}"}}
api: {{port: {port}}}
streams:
  departures: {shared}
  delays: {shared}
    keys: {{field: origin, list: [EWR, JFK, LGA], other: false, total: true}}
    value: {{{delay}}}
  daily: {shared}
    keys: {{field: origin, list: [EWR, JFK, LGA], other: false}}
    value: {{{delay}, mode: window, window: 1d, mechanism: hb}}
alerts:
  rules:
    busy: {{when: "sum(departures, 24h) > 500", confidence: 0.99}}
    young: {{when: "count(departures) < 12000", confidence: 0.99}}
"""


def seq_of(page: Page, name: str) -> int:
    """Return the seq of the release that a panel shows."""
    return int(panel(page, name).get_attribute("data-seq") or 0)


def overview_moves(page: Page) -> None:
    """Check that every stream's number on the overview changes to a later release."""
    numbers = page.get_by_test_id("value")
    expect(numbers).to_have_count(len(PANELS))
    before = [int(one.get_attribute("data-seq") or 0) for one in numbers.all()]
    later = """before => [...document.querySelectorAll(".number")]
      .every((one, i) => Number(one.dataset.seq) > before[i])"""
    eventually(page, lambda: bool(page.evaluate(later, before)))


def rule_stands(page: Page, rule: str, words: str) -> None:
    """Check that the panel of alerts shows these words for a rule."""
    one = panel(page, "alerts").get_by_role("listitem").filter(has=page.get_by_text(rule, exact=True))
    expect(one).to_contain_text(re.compile(words))


def window_of(page: Page) -> Any:
    """Return the text of the panel of windows that names the window."""
    panel(page, "windows")
    return page.locator("#windows-which b").first


def last_window_stands(page: Page, port: int) -> None:
    """Check that the panel of windows ends at the replay's last day, with the service's numbers."""
    answer = get(port, "/v1/streams/daily/window", key="EWR")
    expect(page.locator("#windows-chart")).to_have_attribute("data-points", "30")
    which = page.locator("#windows-which")
    day = START + timedelta(hours=HOURS)
    expect(which).to_contain_text(f"{day.day} Jan 2013")
    expect(which).to_contain_text(f"{round(answer['cumulative'][-1]):,} counted events")
    expect(page.get_by_role("button", name="Later")).to_be_disabled()


def walked(page: Page, stream: str, seq: int) -> None:
    """Check that every panel of a stream shows the release ``seq``, and that there are no other panels."""
    for name in PANELS[stream]:
        page.locator(f"#{name}").scroll_into_view_if_needed()  # a panel out of sight asks for nothing
        expect(page.locator(f"#{name}")).to_have_attribute("data-seq", str(seq))
    assert page.locator("#panels > section").evaluate_all("all => all.map((one) => one.id)") == list(
        PANELS[stream]
    )


def all_open(browser: Browser, address: str, left_by: ExitStack) -> dict[str, Page]:
    """Open every stream's page."""
    return {
        stream: left_by.enter_context(opened(browser, f"{address}/streams/{stream}", color_scheme="light"))
        for stream in PANELS
    }


@contextmanager
def worker_at(folder: Path, text: str) -> Iterator[Service]:
    """Run a worker with a configuration; the API and the watcher of alerts go on without one."""
    (folder / "worker.yaml").write_text(text)
    with Service(["worker", "--config", "worker.yaml"], folder) as worker:
        yield worker


def test_every_panel_has_a_page_here() -> None:
    there = {file.stem for file in (DASHBOARD / "panels").glob("*.js")}
    assert there == {name for names in PANELS.values() for name in names}


def test_every_panel_follows_the_flights(tmp_path: Path, flights: Path, browser: Browser) -> None:
    """The replay stands still while pages open, so they may take as long as they want."""
    port = free_port()
    with ExitStack() as run_by:
        redis = run_by.enter_context(EmbeddedRedis(tmp_path / "redis"))
        (tmp_path / "app.yaml").write_text(configuration(flights, port, redis, 1))
        readers = [
            run_by.enter_context(Service([role, "--config", "app.yaml"], tmp_path))
            for role in ("api", "alerts")
        ]
        address = f"http://127.0.0.1:{port}"
        with worker_at(tmp_path, configuration(flights, port, redis, 4)) as worker:
            worker.until_true(
                lambda: answers(port, "/v1/streams/daily/window?key=EWR"), "a window is released"
            )
            with opened(browser, address) as overview:
                overview_moves(overview)
            assert worker.interrupt() == 0
        with ExitStack() as opened_by:
            pages = all_open(browser, address, opened_by)
            rule_stands(pages["departures"], "young", "firing.*Since")
            before = [seq_of(pages[stream], name) for stream, names in PANELS.items() for name in names]
            assert max(before) < HOURS
            window = window_of(pages["daily"]).inner_text()
            assert "Jan 2013" in window
            with worker_at(tmp_path, configuration(flights, port, redis, 20)) as worker:
                expect(window_of(pages["daily"])).not_to_have_text(window)
                rule_stands(pages["departures"], "young", "inactive.*[Rr]esolved")
                assert worker.wait() == 0
            for stream, page in pages.items():  # each page shows what was released meanwhile
                walked(page, stream, HOURS)
                expect(panel(page, "running").locator(".readout").first).to_contain_text(
                    "until 21 Jan 2013, 05:00"
                )
                number = f"{round(get(port, f'/v1/streams/{stream}/count')['value']):,}"
                expect(page.get_by_test_id("value")).to_have_text(number)
                photograph(page, f"flights-{stream}")
            last_window_stands(pages["daily"], port)
            rule_stands(pages["departures"], "busy", "firing.*Since")
            pages["delays"].get_by_role("link", name="All streams").click()
            departures = pages["delays"].get_by_role("article", name="departures")
            expect(departures.get_by_test_id("value")).to_have_attribute("data-seq", str(HOURS))
            phases = {one["rule"]: one["phase"] for one in get(port, "/v1/alerts")["alerts"]}
            assert phases == {"busy": "firing", "young": "inactive"}
            expect(departures.locator(".chip")).to_have_text("1 firing")
            pages["delays"].get_by_role("link", name="delays").click()
            expect(pages["delays"].locator("#stream-name")).to_have_text("delays")
        assert [reader.interrupt() for reader in readers] == [0, 0]
