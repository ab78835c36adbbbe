"""The live page in headless Chromium: six walks, which every run of the tests takes.

It requests nothing from other hosts.
"""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.stream_app.api.browsing import (
    Backstage,
    eventually,
    fits,
    in_address,
    ink,
    inked,
    opened,
    panel,
)

pytestmark = pytest.mark.browser

PAGE = "/streams/departures"


def day_and_night(bins: int) -> list[int]:
    """Return hourly counts that are high by day and 0 at night."""
    return [max(0, round(40 * math.sin((hour % 24 - 5) / 19 * math.pi))) for hour in range(bins)]


def shows_seq(page: Page, seq: int) -> None:
    """Wait until the number and the charts show the release ``seq``."""
    expect(page.get_by_test_id("value")).to_have_attribute("data-seq", str(seq))
    for chart in ("running-chart", "band-chart", "bins-chart"):
        page.locator(f"#{chart}").scroll_into_view_if_needed()  # panels out of sight are not read
        expect(page.locator(f"#{chart}")).to_have_attribute("data-seq", str(seq))


MOST_BYTES = 250_000


def test_an_empty_cache_is_filled_with_few_bytes(browser: Browser, backstage: Backstage) -> None:
    backstage.stream(day_and_night(24 * 365), epoch_bins=24 * 366)
    address, received = backstage.start(), list[int]()

    def listen(page: Page) -> None:
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        session.on("Network.dataReceived", lambda event: received.append(event["encodedDataLength"]))

    for path in ("", PAGE, "/boards", "/docs"):
        received.clear()
        with opened(browser, address + path, before=listen) as page:
            page.wait_for_load_state("networkidle" if path in {"/docs", "/boards"} else "load")
            if path == PAGE:
                shows_seq(page, 24 * 365)
        assert 10_000 < sum(received) < MOST_BYTES, path


def test_page_draws_charts_and_shows_new_releases(browser: Browser, backstage: Backstage) -> None:
    stream = backstage.stream(day_and_night(24 * 14), epoch_bins=24 * 60)
    with opened(browser, backstage.start() + PAGE) as page:
        shows_seq(page, 24 * 14)
        for chart in ("running-chart", "band-chart", "bins-chart"):
            inked(page, f"#{chart} canvas", 2_000)
        expect(page.locator("#connection")).to_have_text("Connected")
        expect(page.locator("#stream-name")).to_have_text("departures")
        expect(page.locator("#released-until")).to_have_text("15 Jan 2013, 00:00 UTC")
        expect(page.locator("#interval")).to_contain_text("True number of events: ")
        before = page.get_by_test_id("value").inner_text()
        backstage.run(stream.close([500]))
        shows_seq(page, 24 * 14 + 1)
        assert page.get_by_test_id("value").inner_text() != before
        expect(page.locator("#released-until")).to_have_text("15 Jan 2013, 01:00 UTC")


def band_width(page: Page) -> int:
    """Return the sum of the widths of all intervals in the table of bins."""
    rows = page.locator("#bins-table tbody tr").all_inner_texts()
    edges = [[int(cell.replace(",", "")) for cell in row.split("\t")[2:4]] for row in rows]
    return sum(upper - lower for lower, upper in edges)


def test_first_published_values_have_wider_bands_than_current_estimates(
    browser: Browser, backstage: Backstage
) -> None:
    backstage.stream(day_and_night(24 * 14), epoch_bins=24 * 14, branching=(6, 7, 8))
    with opened(browser, backstage.start() + PAGE) as page:
        shows_seq(page, 24 * 14)
        page.locator("#bins summary").click()
        expect(page.locator("#bins-table tbody tr")).to_have_count(60)
        drawn, known = inked(page, "#bins-chart canvas"), band_width(page)
        with page.expect_response(lambda one: "view=first_published" in one.url and "kind=bin" in one.url):
            page.get_by_label("First", exact=True).check()
            panel(page, "running")
            panel(page, "bins")
        expect(page.locator("#bins-chart")).to_have_attribute("data-view", "first_published")
        eventually(page, lambda: ink(page, "#bins-chart canvas") != drawn)
        assert band_width(page) > known
        in_address(page, "view=first_published")
        page.reload()
        expect(page.get_by_label("First", exact=True)).to_be_checked()


def test_reader_chooses_ranges_and_zooms(browser: Browser, backstage: Backstage) -> None:
    backstage.stream(day_and_night(24 * 40), epoch_bins=24 * 60)
    with opened(browser, backstage.start() + PAGE) as page:
        shows_seq(page, 24 * 40)
        expect(page.locator("#ranges label")).to_have_text(["All", "30 days", "7 days", "24 hours"])
        page.get_by_label("7 days").check()
        panel(page, "bins")
        expect(page.locator("#bins-title")).to_have_text("Events per hour")
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", "168")
        page.locator("#bins-chart").scroll_into_view_if_needed()
        plot = page.locator("#bins-chart .u-over").bounding_box()
        assert plot is not None
        page.mouse.move(plot["x"] + plot["width"] * 0.25, plot["y"] + 40)
        page.mouse.down()
        page.mouse.move(plot["x"] + plot["width"] * 0.75, plot["y"] + 60, steps=4)
        page.mouse.up()
        expect(page.locator("#ranges input[value=closer]")).to_be_checked()
        in_address(page, "from=2013-")
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", re.compile(r"^8\d$"))
        page.locator("#running-chart").focus()
        page.keyboard.press("End")
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#spoken")).to_contain_text("between")
        page.keyboard.press("Escape")
        panel(page, "bins")
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", "168")
        page.locator("#running summary").click()
        expect(page.locator("#running-table tbody tr")).to_have_count(60)


def test_page_shows_a_lost_connection_and_resumes(browser: Browser, backstage: Backstage) -> None:
    stream = backstage.stream([5] * 50)
    with opened(browser, backstage.start() + PAGE, expect_errors=True) as page:
        shows_seq(page, 50)
        backstage.stop()
        expect(page.locator("#connection")).to_have_text("Reconnecting")
        backstage.run(stream.close([5] * 10))
        backstage.start()
        expect(page.locator("#connection")).to_have_text("Connected")
        shows_seq(page, 60)


def test_page_shows_the_privacy_statement(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([5] * 30)
    backstage.stream([3] * 30, name="departures again", epsilon="0.5")
    with opened(browser, backstage.start() + PAGE) as page:
        expect(page.locator("#promise")).to_contain_text("changes the probability")
        expect(page.locator("#privacy-numbers")).to_contain_text("All streams over this source together1.5")
        # Composed, two streams cost as much as their sum, so the page does not say it again.
        expect(page.locator("#privacy-numbers")).not_to_contain_text("accept a delta")
        expect(page.locator("#also")).to_contain_text("One more epoch of this stream adds nothing")
        expect(page.locator("#protected li")).to_have_count(3)
        expect(page.locator("#not-protected li")).to_have_count(4)
        expect(page.locator("#not-private")).to_be_hidden()
        page.locator("#to-privacy").click()
        page.get_by_text("Ledger").click()
        expect(page.locator("#ledger tbody tr")).to_have_count(2)
        page.get_by_label("Stream").select_option("departures again")
        expect(page.locator("#stream-name")).to_have_text("departures again")
        expect(page.locator("#epsilon")).to_have_text("ε = 0.5 per epoch of 64 hours")
        in_address(page, "/streams/departures%20again")


LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}, "device_scale_factor": 2},
}


@pytest.mark.parametrize("look", LOOKS)
def test_the_page_fits_in_each_theme_and_size(browser: Browser, backstage: Backstage, look: str) -> None:
    backstage.stream(day_and_night(24 * 30), epoch_bins=24 * 60)
    with opened(browser, backstage.start() + PAGE, **LOOKS[look]) as page:
        shows_seq(page, 24 * 30)
        fits(page)
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.locator("#theme").click()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != paper
        page.reload()
        shows_seq(page, 24 * 30)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != paper
