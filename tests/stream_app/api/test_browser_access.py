"""axe-core finds no serious accessibility fault on any page, and every control works with the keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from stream_app.core.alerts.rules import Rule, parse_condition
from tests.stream_app.api.browsing import Backstage, fits, opened, panel
from tests.stream_app.published_axes import PublishedAxes, delays
from tests.stream_app.published_sums import PublishedSums, sales_of
from tests.stream_app.published_windows import PublishedWindows

pytestmark = [pytest.mark.browser, pytest.mark.slow]

AXE = Path(__file__).parents[2] / "vendor" / "axe-core" / "axe.min.js"
GRAVE = ("serious", "critical", "moderate")
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}
PAGES = (
    *("/", "/streams/departures?compare=1&range=7+days", "/streams/delays", "/streams/windows", "/docs"),
    "/streams/sales",
    "/streams/sales?show=mean&key=FR&key=DE",
)


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Serve streams with alerts, keys and values, and a stream that is not private."""
    behind = Backstage()
    rules = [
        Rule("busy", text := "sum(departures, 1h) > 100", parse_condition(text)),
        Rule("soon", text := "sum(departures, 2h) > 99", parse_condition(text), for_us=10**13),
    ]
    stream = behind.stream([40] * 24 * 20, epoch_bins=24 * 30)
    watcher = behind.watch(rules)
    behind.run(stream.close([400, 300]))
    behind.run(watcher.look())
    behind.stream([4] * 30, name="plain", epsilon="1000000000")
    product = PublishedAxes(behind.store, epoch_bins=72, buckets=20)
    behind.run(product.open())
    behind.run(product.close_cells(delays(product, 72)))
    windows = PublishedWindows(behind.store, epoch_bins=24, window_bins=12, buckets=20)
    behind.run(windows.open())
    behind.run(windows.close_cells(delays(windows, 24)))
    sales = PublishedSums(behind.store, source="shop", epoch_bins=24)
    behind.run(sales.open())
    behind.run(sales.close_cells(sales_of(sales, 24)[0]))
    yield behind.start()
    behind.close()


def faults(page: Page) -> list[str]:
    """Return the serious faults that axe-core finds, one line for each."""
    page.evaluate(AXE.read_text() + "; undefined")
    found: dict[str, Any] = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert len(found["passes"]) > 10
    return [
        f"{fault['impact']} {fault['id']}: {node['html'][:160]} | {node['failureSummary'][:300]}"
        for fault in found["violations"]
        if fault["impact"] in GRAVE
        for node in fault["nodes"][:3]
    ]


def show_everything(page: Page) -> None:
    """Scroll to every panel, wait until it is drawn, and open every part that can be opened."""
    for section in page.locator("#panels > section").all():
        section.scroll_into_view_if_needed()
        expect(section).to_have_attribute("data-seq", re.compile(r"\d"))
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


@pytest.mark.parametrize("look", LOOKS)
def test_no_page_has_a_serious_accessibility_fault(browser: Browser, site: str, look: str) -> None:
    found = []
    for path in PAGES:
        with opened(browser, site + path, **LOOKS[look]) as page:
            page.locator("article, #panels > section, .docs .card").first.wait_for()
            show_everything(page)
            found += [f"{path} {line}" for line in faults(page)]
            fits(page)
    assert found == []


def test_axe_finds_faults_that_were_made_on_purpose(browser: Browser, site: str) -> None:
    with opened(browser, site) as page:
        page.locator("article").first.wait_for()
        assert faults(page) == []
        page.evaluate(
            """() => {
              document.documentElement.removeAttribute("lang");
              document.querySelector(".interval").style.color = "#ccc";
              document.querySelector(".interval").style.background = "#fff";
            }"""
        )
        assert {line.split(":")[0] for line in faults(page)} == {
            "serious html-has-lang",
            "serious color-contrast",
        }


def test_every_control_works_with_the_keyboard(browser: Browser, site: str) -> None:
    with opened(browser, site) as page:
        page.locator("article").first.wait_for()
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        for _ in range(2):
            page.keyboard.press("Tab")
        expect(page.locator("#theme")).to_be_focused()
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="delays")).to_be_focused()
        page.keyboard.press("Enter")
        panel(page, "bins")
        page.locator("#bins-chart").focus()
        page.keyboard.press("Home")
        expect(page.locator("#spoken")).to_contain_text("1 Jan 2013, 00:00–01:00: ")
        page.locator("#exact summary").press("Enter")
        page.locator("#exact-to").fill("2013-01-02T00:00:00")
        page.locator("#exact-to").press("Enter")
        panel(page, "bins")
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", "24")
        page.locator("#bins-chart").press("Escape")
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", "72")
