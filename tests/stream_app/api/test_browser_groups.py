"""A reader chooses several keys on a page: with pointer, keyboard and phone, among 5 or 1,000 keys."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from tests.stream_app.api.browsing import (
    Backstage,
    asked,
    eventually,
    fits,
    in_address,
    opened,
    panel,
    table,
    whole,
)
from tests.stream_app.published_axes import PublishedAxes, delays

pytestmark = pytest.mark.browser

HOURS = 48
MANY = tuple(f"shop-{number:04}" for number in range(999))


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Serve departures of five carriers, and sales of 1,000 shops."""
    behind = Backstage()
    stream = PublishedAxes(behind.store, epsilon="2", epoch_bins=HOURS, buckets=10)
    behind.run(stream.open())
    behind.run(stream.close_cells(delays(stream, HOURS)))
    shops = PublishedAxes(
        behind.store, name="shops", source="b", epsilon="2", epoch_bins=4, carriers=MANY, buckets=2
    )
    behind.run(shops.open())
    behind.run(shops.close_cells(np.full((4, 1000, 2), 3, np.int64)))
    yield behind.start() + "/streams/"
    behind.close()


def test_chosen_keys_are_counted_together_in_every_panel(browser: Browser, site: str) -> None:
    with opened(browser, site + "delays") as page:
        page.locator("#key-picker summary").click()
        page.get_by_label("B6", exact=True).check()
        page.get_by_label("UA", exact=True).check()
        expect(page.locator("#stream-name")).to_have_text("delays · B6 + UA")  # in the order of the choice
        expect(page.locator("#key-chosen")).to_have_text("B6 + UA")
        eventually(page, lambda: page.url.endswith("?key=B6&key=UA"))
        both = asked(page, "count?key=UA&key=B6")
        expect(page.get_by_test_id("value")).to_have_text(f"{round(both['value']):,}")
        events = "True number of events with a number in delay"
        expect(page.locator("#interval")).to_contain_text(f"{events} for B6 + UA")
        page.keyboard.press("Escape")
        expect(page.locator("#key-picker summary")).to_be_focused()
        bins = asked(page, "series?kind=bin&key=UA&key=B6")
        assert [whole(row[1]) for row in table(page, "bins")] == [round(one) for one in bins["value"]][::-1]
        for name in ("running", "rate", "quantiles", "heat", "cdf", "preview"):
            panel(page, name)
        pressed = panel(page, "keys").locator("button[aria-pressed=true]")
        expect(pressed).to_have_count(2)
        address = page.url
        page.goto("about:blank")
        page.goto(address)  # as somebody who gets the address
        expect(page.locator("#stream-name")).to_have_text("delays · B6 + UA")
        expect(page.get_by_test_id("value")).to_have_text(f"{round(both['value']):,}")
        page.locator("#key-picker summary").click()
        page.get_by_role("button", name="All keys").click()
        expect(page.locator("#stream-name")).to_have_text("delays")
        in_address(page, "key=", is_there=False)


def test_keys_of_a_saved_file_are_in_its_name(browser: Browser, site: str) -> None:
    with opened(browser, site + "delays?key=UA&key=B6") as page:
        panel(page, "bins")
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save Counted events per hour as CSV").click()
        assert saved.value.suggested_filename == "delays-UA-B6-bins.csv"


def test_keyboard_chooses_among_a_thousand_keys_by_searching(browser: Browser, site: str) -> None:
    with opened(browser, site + "shops") as page:
        expect(page.locator("#key-picker")).to_be_visible()
        page.locator("#key-picker summary").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_label("Search keys")).to_be_focused()
        expect(page.locator("#key-note")).to_have_text("The first 200 of 1,000 keys; search for the others.")
        page.keyboard.type("0777")
        expect(page.locator("#key-note")).to_have_text("1 of 1,000 keys.")
        page.keyboard.press("Enter")
        expect(page.locator("#stream-name")).to_have_text("shops · shop-0777")
        page.get_by_label("Search keys").fill("shop-088")
        expect(page.locator("#key-note")).to_have_text("10 of 1,000 keys.")
        for _ in range(3):
            page.keyboard.press("Tab")
            page.keyboard.press("Space")
        expect(page.locator("#stream-name")).to_have_text("shops · shop-0777 + shop-0880 + 2 more")
        eventually(page, lambda: page.url.count("key=") == 4)
        expect(page.locator("#interval")).to_contain_text("for shop-0777 + shop-0880 + shop-0881 + shop-0882")
        page.get_by_label("Search keys").fill("nothing")
        expect(page.locator("#key-note")).to_have_text("No key has this in its name.")


def test_box_of_keys_fits_on_a_phone(browser: Browser, site: str) -> None:
    phone = {"width": 390, "height": 844}
    with opened(browser, site + "shops", viewport=phone, has_touch=True, color_scheme="dark") as page:
        page.locator("#key-picker summary").tap()
        page.get_by_label("shop-0003").tap()
        expect(page.locator("#stream-name")).to_have_text("shops · shop-0003")
        box = page.locator(".key-box").bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 390
        fits(page)


def test_ctrl_click_on_a_chart_of_a_key_adds_it(browser: Browser, site: str) -> None:
    with opened(browser, site + "delays") as page:
        panel(page, "keys").get_by_role("button", name="B6").click()
        expect(page.locator("#stream-name")).to_have_text("delays · B6")
        panel(page, "keys").get_by_role("button", name="EV").click(modifiers=["Control"])
        expect(page.locator("#stream-name")).to_have_text("delays · B6 + EV")
