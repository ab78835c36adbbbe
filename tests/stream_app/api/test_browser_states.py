"""Pages say whether a stream is live, complete, late or stopped, and help where there is no page."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Browser, expect

from tests.stream_app.api.browsing import Backstage, opened, photograph
from tests.stream_app.published import FIRST_BIN, HOUR_US

pytestmark = pytest.mark.browser

MINUTE_US = 60_000_000
PAGE = "/streams/departures"


def bins_until(ago_s: float, bins: int = 3) -> dict[str, int]:
    """Return options of a stream of minutes whose next bin closed, or closes, so many seconds ago."""
    next_bin = int((time.time() - ago_s) * 1e6) // MINUTE_US
    return {"bin_us": MINUTE_US, "first_bin": next_bin - bins}


@pytest.mark.parametrize(
    ("ago_s", "state"), [(0, "Live"), (300, "Late by"), (7_200, "Stopped: no release for")]
)
def test_page_says_whether_a_stream_is_live_late_or_stopped(
    browser: Browser, backstage: Backstage, ago_s: float, state: str
) -> None:
    backstage.stream([5, 6, 7], **bins_until(ago_s))
    with opened(browser, backstage.start() + PAGE) as page:
        expect(page.locator("#stream-state")).to_contain_text(state)
        expect(page.locator("#connection")).to_have_text("Connected")
        photograph(page, f"state-{ago_s}")
        page.set_viewport_size({"width": 390, "height": 844})
        bar = page.locator("header.bar").bounding_box()
        assert bar is not None
        assert bar["height"] < 90  # one row


def test_page_of_a_finished_replay_says_complete(browser: Browser, backstage: Backstage) -> None:
    start_us = FIRST_BIN * HOUR_US
    stream = backstage.stream([5, 6], replay=(start_us, start_us + 3 * HOUR_US))
    address = backstage.start()
    with opened(browser, address + PAGE) as page:
        expect(page.locator("#stream-state")).to_have_text("Replaying")
        backstage.run(stream.close([7]))
        expect(page.locator("#stream-state")).to_have_text("Complete")
        page.goto(address)
        expect(page.locator("article.stream .next")).to_contain_text("Complete")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_unknown_stream_gets_a_page_that_helps(
    browser: Browser, backstage: Backstage, scheme: str, width: int
) -> None:
    backstage.stream([5, 6, 7])
    options = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
    with opened(browser, backstage.start() + "/streams/departuers", True, **options) as page:
        expect(page.locator("h1")).to_have_text("There is no stream “departuers” here")
        expect(page.locator("#panels")).to_be_hidden()
        photograph(page, f"unknown-{width}-{scheme}")
        page.locator("#unknown").get_by_role("link", name="departures").click()
        expect(page.locator("#stream-name")).to_have_text("departures")
        expect(page.locator("#interval")).to_contain_text("True number")


def test_unknown_address_gets_a_page_in_a_browser(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([5, 6, 7])
    with opened(browser, backstage.start() + "/stream/departures", True) as page:
        expect(page.locator("h1")).to_have_text("There is no page at this address")
        photograph(page, "missing")
        page.get_by_role("link", name="All streams").click()
        expect(page.locator("article.stream")).to_have_count(1)
