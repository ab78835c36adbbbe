"""On every page "±" means half of a 95 % interval, and the number equals the panel of the chosen view."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from stream_app.core.alerts.rules import Rule, parse_condition
from tests.stream_app.api.browsing import Backstage, opened, panel, table
from tests.stream_app.published_axes import PublishedAxes, delays

pytestmark = pytest.mark.browser

VIEWS = {"As now known": "unbiased", "First published": "first_published", "Consistent": "consistent"}


def last_of_running(page: Page) -> tuple[str, str, str]:
    """Return value and interval of the newest point of the running count."""
    row = table(page, "running")[0]
    return row[1], row[2], row[3]


@pytest.mark.parametrize("label", VIEWS)
def test_number_and_panel_show_the_same_count_in_every_view(
    browser: Browser, backstage: Backstage, label: str
) -> None:
    stream = backstage.stream([30, 40, 50, 5, 0, 0, 12], epsilon="0.2")
    with opened(browser, backstage.start() + "/streams/departures") as page:
        page.get_by_label(label).check()
        for seq in (7, 8):
            expect(page.get_by_test_id("value")).to_have_attribute("data-seq", str(seq))
            panel(page, "running")
            expect(page.locator("#running-chart")).to_have_attribute("data-view", VIEWS[label])
            expect(page.locator("#running-chart")).to_have_attribute("data-seq", str(seq))
            value, lower, upper = last_of_running(page)
            expect(page.get_by_test_id("value")).to_have_text(value)
            expect(page.locator("#interval")).to_contain_text(f"between {lower} and {upper}")
            if seq == 7:
                backstage.run(stream.close([25]))


def test_plus_minus_is_half_of_an_interval_everywhere(browser: Browser, backstage: Backstage) -> None:
    stream = PublishedAxes(backstage.store, epsilon="2", epoch_bins=96, buckets=10)
    backstage.run(stream.open())
    text = "sum(delays, 2h) > 1"
    watcher = backstage.watch([Rule("busy", text, parse_condition(text))])
    backstage.run(stream.close_cells(delays(stream, 96)))
    backstage.run(watcher.look())
    with opened(browser, backstage.start() + "/streams/delays") as page:
        for name in ("alerts", "running", "bins", "rate", "keys", "quantiles", "heat", "cdf", "preview"):
            table(page, name)
        said = page.locator("main").inner_text()
        places = {
            page.evaluate("node => node.closest('section')?.id ?? ''", node)
            for node in page.locator("xpath=//main//*[text()[contains(., '±')]]").element_handles()
        }
        assert places - {""} == {"keys", "running", "preview"}
        assert "± is half the width of such a band" in said
        assert "standard error" in page.locator("#alerts").inner_text()
        keys = page.evaluate("fetch('/v1/streams/delays/keys').then((answer) => answer.json())")["keys"]
        shown = page.locator("#keys .multiple-number").first.inner_text()
        half = float(re.sub(r".*± |,", "", shown))
        lower, upper = keys[0]["interval"]
        assert half == pytest.approx((upper - lower) / 2, rel=0.01)


def test_interval_that_is_not_symmetric_shows_both_ends(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([1, 0, 0, 0, 0], epsilon="0.1")
    with opened(browser, backstage.start() + "/streams/departures?view=consistent") as page:
        panel(page, "running")
        expect(page.locator("#band-readout")).to_contain_text(re.compile(r"−[\d.,]+ to \+[\d.,]+"))


def test_alert_on_a_rate_shows_the_rate_in_the_unit_of_its_condition(
    browser: Browser, backstage: Backstage
) -> None:
    stream = backstage.stream([60] * 12, epsilon="1000000000", epoch_bins=64)
    text = "rate(departures, 6h) > 70/h"
    watcher = backstage.watch([Rule("busy", text, parse_condition(text))])
    backstage.run(stream.close([240] * 6))
    backstage.run(watcher.look())
    with opened(browser, backstage.start() + "/streams/departures") as page:
        expect(panel(page, "alerts").locator("li")).to_contain_text(
            "when it read 90/h"
        )  # not 540, the events of 6 h
