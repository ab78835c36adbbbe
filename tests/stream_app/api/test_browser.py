"""The live page in headless Chromium: it draws, follows releases, and reconnects.

It requests nothing from other hosts.
"""

from __future__ import annotations

import math
import re
import time
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from stream_app.api.admission.access import AccessRules
from tests.models.memory import MemoryStore
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
from tests.stream_app.published import Published

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


def test_page_draws_charts_and_shows_new_releases(browser: Browser, backstage: Backstage) -> None:
    stream = backstage.stream(day_and_night(24 * 14), epoch_bins=24 * 60)
    with opened(browser, backstage.start() + PAGE) as page:
        shows_seq(page, 24 * 14)
        for chart in ("running-chart", "band-chart", "bins-chart"):
            inked(page, f"#{chart} canvas", 2_000)
        expect(page.locator("#connection")).to_have_text("Connected")
        expect(page.locator("#stream-name")).to_have_text("departures")
        expect(page.locator("#released-until")).to_have_text("15 Jan 2013, 00:00 UTC")
        expect(page.locator("#interval")).to_contain_text("True number of events: between")
        before = page.get_by_test_id("value").inner_text()
        backstage.run(stream.close([500]))
        shows_seq(page, 24 * 14 + 1)
        assert page.get_by_test_id("value").inner_text() != before
        expect(page.locator("#released-until")).to_have_text("15 Jan 2013, 01:00 UTC")


def test_thousands_of_bins_released_together_cause_few_redraws(
    browser: Browser, backstage: Backstage
) -> None:
    stream = backstage.stream([5] * 50, epoch_bins=3000)
    with opened(browser, backstage.start() + PAGE) as page:
        shows_seq(page, 50)
        asked: list[str] = []
        page.on("request", lambda one: asked.append(one.url) if "/series" in one.url else None)
        began_s = time.monotonic()
        for _ in range(20):
            backstage.run(stream.close([5] * 100))
        shows_seq(page, 2050)
        # At most three panels, once a second each, while 2,000 releases arrived.
        assert 2 <= len(asked) <= 6 + 3 * (time.monotonic() - began_s)


def test_a_page_of_a_quiet_stream_sends_few_requests(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([5] * 50)
    with opened(browser, backstage.start() + PAGE) as page:
        shows_seq(page, 50)
        asked: list[str] = []
        page.on("request", lambda one: asked.append(one.url.rpartition("/")[2]))
        for _ in range(20):  # on a busy machine the page's first answers come late
            asked.clear()
            page.wait_for_timeout(4_000)
            if set(asked) <= {"marks", "privacy"}:
                break
        assert set(asked) <= {"marks", "privacy"}
        assert len(asked) <= 4


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
            page.get_by_label("First published").check()
            panel(page, "running")
            panel(page, "bins")
        expect(page.locator("#bins-chart")).to_have_attribute("data-view", "first_published")
        eventually(page, lambda: ink(page, "#bins-chart canvas") != drawn)
        assert band_width(page) > known
        in_address(page, "view=first_published")
        page.reload()
        expect(page.get_by_label("First published")).to_be_checked()


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


def test_page_that_could_not_reach_the_service_as_it_opened_tries_again(
    browser: Browser, backstage: Backstage
) -> None:
    backstage.stream([5] * 50)
    with opened(browser, backstage.start() + PAGE, expect_errors=True) as page:
        lost: list[str] = []

        def lose_the_first(route: Route) -> None:
            if lost:
                route.continue_()
                return
            lost.append(route.request.url)
            route.abort()

        page.route("**/v1/streams/departures", lose_the_first)
        page.reload()
        shows_seq(page, 50)
        expect(page.locator("#connection")).to_have_text("Connected")
        assert lost


def test_a_stream_that_begins_anew_is_followed_from_its_start(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([5] * 50)
    with opened(browser, backstage.start() + PAGE, expect_errors=True) as page:
        shows_seq(page, 50)
        backstage.stop()
        backstage.store = MemoryStore()
        stream = backstage.stream([5] * 3)
        backstage.start()
        shows_seq(page, 3)
        backstage.run(stream.close([5] * 4))
        shows_seq(page, 7)


def test_page_shows_the_privacy_statement(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([5] * 30)
    backstage.stream([3] * 30, name="departures again", epsilon="0.5")
    with opened(browser, backstage.start() + PAGE) as page:
        expect(page.locator("#promise")).to_contain_text("changes the probability")
        expect(page.locator("#privacy-numbers")).to_contain_text("Sum of all streams over its source1.5")
        expect(page.locator("#privacy-numbers")).to_contain_text(
            "The same, composed with a delta1.5 (delta 1e-6)"
        )
        expect(page.locator("#also")).to_contain_text("One more epoch of this stream adds nothing")
        expect(page.locator("#protected li")).to_have_count(3)
        expect(page.locator("#not-protected li")).to_have_count(4)
        expect(page.locator("#not-private")).to_be_hidden()
        page.get_by_text("Ledger").click()
        expect(page.locator("#ledger tbody tr")).to_have_count(2)
        page.get_by_label("Stream").select_option("departures again")
        expect(page.locator("#stream-name")).to_have_text("departures again")
        expect(page.locator("#epsilon")).to_have_text("ε = 0.5 per epoch")
        in_address(page, "/streams/departures%20again")


def test_a_page_marks_a_stream_that_is_not_private(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([5] * 30, epsilon="1000000000")
    with opened(browser, backstage.start() + PAGE) as page:
        expect(page.locator("#not-private")).to_contain_text("not private")
        expect(page.get_by_test_id("value")).to_have_text("150")


def test_page_of_a_stream_without_releases(browser: Browser, backstage: Backstage) -> None:
    stream = Published(backstage.store)
    backstage.run(stream.open())
    with opened(browser, backstage.start() + PAGE) as page:
        expect(page.locator("#interval")).to_contain_text("Nothing is released yet")
        backstage.run(stream.close([5, 5]))
        shows_seq(page, 2)


def test_page_shows_everything_after_requests_were_limited(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([40] * 200, epoch_bins=256)
    # The limit is so low that a page is refused even on a slow machine, because it asks several questions at
    # once.
    address = backstage.start(AccessRules(requests_per_s=1)) + PAGE
    with opened(browser, address, expect_errors=True) as page:
        refused: list[str] = []
        page.on("response", lambda one: refused.append(one.url) if one.status == 429 else None)
        for name in ("running", "bins", "rate", "preview"):
            page.locator(f"#{name}").scroll_into_view_if_needed()
            expect(page.locator(f"#{name}")).to_have_attribute("data-seq", "200")
        assert refused
        assert not [one for one in refused if "/v1/" not in one]


def test_page_of_a_stream_of_calendar_days(browser: Browser, backstage: Backstage) -> None:
    """Days differ in length, so the panels use them as days and not as hours."""
    day_us, first = 86_400_000_000, 15_706  # 2013-01-01
    backstage.stream([40] * 90, bin_us=day_us, first_bin=first, timezone="America/New_York", epoch_bins=128)
    with opened(browser, backstage.start() + PAGE) as page:
        shows_seq(page, 90)
        expect(page.locator("#bins-title")).to_have_text("Events per day")
        expect(page.locator("#released-until")).to_have_text("the end of 31 Mar 2013")
        expect(page.locator("#panels > section#rate")).to_have_count(1)
        page.locator("#preview").scroll_into_view_if_needed()
        expect(page.locator("#preview-chart")).to_have_attribute("data-points", "90")
        expect(page.get_by_label("Compare with the week before")).to_be_disabled()


def test_docs_page_lists_every_address(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([5] * 30)
    with opened(browser, backstage.start() + "/docs") as page:
        described = httpx.get(page.url.replace("/docs", "/openapi.json"), timeout=60).json()["paths"]
        assert "/v1/streams/{stream}/series" in described
        expect(page.locator(".card")).to_have_count(sum(len(path) for path in described.values()))
        for path in described:
            expect(page.locator("#operations")).to_contain_text(path)


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


def test_page_warns_when_its_source_stops_being_private(browser: Browser, backstage: Backstage) -> None:
    stream = backstage.stream([5] * 10)
    with opened(browser, backstage.start() + PAGE) as page:
        expect(page.get_by_test_id("value")).to_have_attribute("data-seq", "10")
        expect(page.locator("#not-private")).to_be_hidden()
        bare = Published(backstage.store, name="bare", epsilon="1000000000")
        backstage.run(bare.open())
        backstage.run(stream.close([1]))
        expect(page.locator("#not-private")).to_contain_text("These values are not private")
