"""Pages fit their window, and show no choice or word that tells a reader nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.stream_app.api.browsing import Backstage, drawn_from_now_on, eventually, opened, panel

pytestmark = pytest.mark.browser

CLOSER = "?from=2013-01-01T01:00:00Z&to=2013-01-02T02:00:00Z"


def beyond_the_window(page: Page, selector: str) -> list[str]:
    """Return the texts of the elements of which a part is left or right of the window, or cut off."""
    found: list[str] = page.evaluate(
        """selector => [...document.querySelectorAll(selector)].filter((one) => {
          const { left, right, width } = one.getBoundingClientRect();
          const fits = (box) => left >= box.left - 0.5 && right <= box.right + 0.5;
          const clips = (host) => getComputedStyle(host).overflowX !== "visible";
          const hosts = [];
          for (let host = one.parentElement; host; host = host.parentElement) hosts.push(host);
          const boxes = hosts.filter(clips).map((host) => host.getBoundingClientRect());
          boxes.push({ left: 0, right: document.documentElement.clientWidth });
          return width && !boxes.every(fits);
        }).map((one) => one.textContent.trim())""",
        selector,
    )
    return found


@pytest.mark.parametrize("width", [390, 730, 800, 1280])
def test_every_choice_and_popover_is_inside_the_window(
    browser: Browser, backstage: Backstage, width: int
) -> None:
    backstage.stream([50] * 60)
    address = backstage.start() + "/streams/departures" + CLOSER
    with opened(browser, address, viewport={"width": width, "height": 900}) as page:
        expect(page.locator("#ranges input[value=closer]")).to_be_checked()
        assert beyond_the_window(page, ".segments label") == []
        for box, opened_by in (("#view-words", "#view-help summary"), ("#exact-form", "#exact summary")):
            page.locator(opened_by).press("Enter")
            expect(page.locator(box)).to_be_visible()
            assert beyond_the_window(page, box) == []
            page.locator(opened_by).press("Escape")
            expect(page.locator(box)).to_be_hidden()
        page.locator("#exact summary").press("Enter")
        page.set_viewport_size({"width": 360, "height": 700})
        eventually(page, partial(_fits, page, 360))


def _fits(page: Page, width: int) -> bool:
    cut_off = beyond_the_window(page, ".segments label, #exact-form")
    return not cut_off and bool(page.evaluate("document.documentElement.scrollWidth") == width)


@pytest.mark.parametrize("release", ["anticipating", "causal"])
def test_first_published_is_offered_only_where_values_are_revised(
    browser: Browser, backstage: Backstage, release: Any
) -> None:
    backstage.stream([50] * 8, release=release)
    with opened(browser, backstage.start() + "/streams/departures?view=first_published") as page:
        panel(page, "running")
        choice = page.get_by_label("First", exact=True)
        if release == "causal":
            expect(choice).to_be_checked()
        else:  # old addresses still show the values, which are those of the other view
            expect(choice).to_be_hidden()
            expect(page.get_by_label("Best", exact=True)).to_be_checked()
            expect(page.get_by_label("Whole", exact=True)).to_be_visible()


def test_axes_of_counts_per_time_begin_at_zero(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([500 + hour % 7 for hour in range(60)], epsilon="4")
    with opened(browser, backstage.start() + "/streams/departures") as page:
        for name in ("rate", "bins", "preview"):
            panel(page, name)
        drawn_from_now_on(page)
        page.locator("#theme").click()  # draws all charts again
        for name in ("rate", "bins", "preview"):
            eventually(page, partial(_has_tick_at_zero, page, name))


def _has_tick_at_zero(page: Page, name: str) -> bool:
    return bool("0" in page.evaluate(f"window.drawnIn('{name}')"))


def test_readout_says_of_how_many_noisy_counts_a_number_is_made(
    browser: Browser, backstage: Backstage
) -> None:
    backstage.stream([50] * 8)
    with opened(browser, backstage.start() + "/streams/departures") as page:
        panel(page, "running")
        expect(page.locator("#running-readout")).to_have_attribute("title", "From 8 released counts")
        panel(page, "running").locator("summary").click()
        expect(page.locator("#running-table")).to_contain_text("Noisy counts used")
        assert "node" not in page.locator("main").inner_text().lower()


@pytest.mark.parametrize("width", [390, 1280])
def test_preview_of_a_long_epsilon_is_not_cut_off(browser: Browser, backstage: Backstage, width: int) -> None:
    backstage.stream([50] * 8, epsilon="1000000000")
    size = {"width": width, "height": 900}
    with opened(browser, backstage.start() + "/streams/departures", viewport=size) as page:
        panel(page, "preview")
        assert page.locator("#preview .questions").evaluate("one => one.scrollWidth - one.clientWidth") <= 0
        page.evaluate(
            """() => {
              window.ends = {};
              const write = CanvasRenderingContext2D.prototype.fillText;
              CanvasRenderingContext2D.prototype.fillText = function (words, x, ...more) {
                window.ends[words] = x + this.measureText(words).width - this.canvas.width;
                return write.call(this, words, x, ...more);
              };
            }"""
        )
        page.locator("#theme").click()  # draws all charts again
        eventually(page, lambda: "ε\u00a01000000000" in page.evaluate("window.ends"))
        assert page.evaluate("window.ends")["ε\u00a01000000000"] <= 0
