"""The overview in headless Chromium: each stream's count, its error, its last bins, and new releases."""

from __future__ import annotations

import time
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from stream_app.core.answers.labels import AllLabels, Labels
from stream_app.core.counting.bounding import PerUser
from tests.stream_app.api.browsing import Backstage, fits, opened
from tests.stream_app.published import FIRST_BIN, Published
from tests.stream_app.published_axes import PublishedSums, sales_of

pytestmark = pytest.mark.browser

MINUTE_US = 60_000_000


def card(page: Page, stream: str) -> Any:
    """Return a stream's card."""
    return page.get_by_role("article", name=stream, exact=True)


def test_every_stream_shows_its_number_with_its_error(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([40] * 100, epoch_bins=128)
    backstage.stream([3] * 30, name="arrivals", epsilon="0.5")
    backstage.stream([7] * 10, name="plain", epsilon="1000000000")
    with opened(browser, backstage.start()) as page:
        expect(page.locator("article h2")).to_have_text(["arrivals", "departures", "plain"])
        expect(page.locator("#connection")).to_have_text("Connected")
        said = page.evaluate("fetch('/v1/overview').then((answer) => answer.json())")
        running = {one["stream"]: one["running"] for one in said["streams"]}
        for stream, estimate in running.items():
            shown = int(card(page, stream).get_by_test_id("value").inner_text().replace(",", ""))
            assert shown == round(estimate["value"])
            expect(card(page, stream).locator(".interval")).to_contain_text(" to ")
        expect(card(page, "plain")).to_contain_text("Not private")
        # A stream of the same events without noise is shown too.
        expect(card(page, "departures")).to_contain_text("Not private")
        began = card(page, "departures").locator(".what")
        expect(began).to_have_text("Events since 1 Jan 2013, 00:00", timeout=20_000)
        label = card(page, "departures").locator("canvas").get_attribute("aria-label")
        assert "The last 60 bins" in label
        card(page, "departures").get_by_role("link").click()
        expect(page.locator("#stream-name")).to_have_text("departures")


def test_the_overview_follows_streams_and_shows_new_ones(browser: Browser, backstage: Backstage) -> None:
    stream = backstage.stream([40] * 10)
    configured = AllLabels({"departures": Labels(), "arrivals": Labels()})
    with opened(browser, backstage.start(labels=configured)) as page:
        number = card(page, "departures").get_by_test_id("value")
        expect(number).to_have_attribute("data-seq", "10")
        expect(page.locator("#summary")).to_contain_text("1 stream.")
        expect(card(page, "arrivals")).to_contain_text("Its worker prepares it or is down")
        backstage.run(stream.close([40] * 5))
        expect(number).to_have_attribute("data-seq", "15")
        again = Published(backstage.store, name="arrivals", source="other")
        backstage.run(again.open())
        expect(card(page, "arrivals")).to_contain_text("Nothing is released yet")
        backstage.run(again.close([5]))
        expect(card(page, "arrivals").get_by_test_id("value")).to_have_attribute("data-seq", "1")
        expect(page.locator("article h2")).to_have_text(["arrivals", "departures"])


def test_overview_shows_a_lost_connection_and_then_missed_releases(
    browser: Browser, backstage: Backstage
) -> None:
    stream = backstage.stream([40] * 10)
    with opened(browser, backstage.start(), expect_errors=True) as page:
        expect(page.locator("#connection")).to_have_text("Connected")
        backstage.stop()
        expect(page.locator("#connection")).to_have_text("Reconnecting")
        backstage.run(stream.close([40] * 3))
        backstage.start()
        expect(card(page, "departures").get_by_test_id("value")).to_have_attribute("data-seq", "13")
        expect(page.locator("#connection")).to_have_text("Connected")


def test_overview_counts_down_to_the_next_release(browser: Browser, backstage: Backstage) -> None:
    this_minute = time.time_ns() // 1000 // MINUTE_US
    # The next bin ends in half an hour, so its text changes every second.
    backstage.stream([40] * 10, first_bin=this_minute + 20, bin_us=MINUTE_US)
    backstage.stream([40] * 10, name="stopped")
    with opened(browser, backstage.start()) as page:
        expect(card(page, "departures").locator(".next")).to_contain_text("next in")
        before = card(page, "departures").locator(".next").inner_text()
        expect(card(page, "departures").locator(".next")).not_to_have_text(before)
        expect(card(page, "stopped").locator(".next")).to_contain_text("next overdue")


def test_every_stream_shows_the_number_that_describes_it(browser: Browser, backstage: Backstage) -> None:
    users = PerUser("visitor", 1)
    backstage.stream([30, 20], epsilon="1000000000")
    people = backstage.stream(
        [30, 10], name="people", source="b", user=users, count="users", epoch_bins=2, epsilon="1000000000"
    )
    backstage.run(people.open(1, FIRST_BIN + 2))
    backstage.run(people.close([5]))
    sales = PublishedSums(backstage.store, source="c", epoch_bins=24, epsilon="1000000000")
    cells, cents = sales_of(sales, 24)
    backstage.fill(sales, cells)
    total = f"{cents.sum() / 100:,.2f}"
    said = {
        "departures": ("Events", "50", "50 to 50"),
        "people": ("Users first seen since 1 Jan 2013, 02:00", "5", "5 to 5"),
        "sales": ("Total amount", total, f"{total} to {total}"),
    }
    with opened(browser, backstage.start()) as page:
        for stream, (what, value, interval) in said.items():
            expect(card(page, stream).locator(".what")).to_contain_text(what)
            expect(card(page, stream).get_by_test_id("value")).to_have_text(value)
            expect(card(page, stream).locator(".interval")).to_contain_text(interval)
        page.set_viewport_size({"width": 390, "height": 844})
        fits(page)
