"""A browser without JavaScript shows the released numbers as tables."""

from __future__ import annotations

import csv
import io
import math

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.stream_app.api.browsing import Backstage, opened, whole

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def rows(page: Page) -> list[list[str]]:
    """Return the rows of the page's table."""
    found = page.locator("tbody tr")
    expect(found.first).to_be_visible()
    return [row.split("\t") for row in found.all_inner_texts()]


def test_stream_without_javascript_is_a_table_of_the_numbers_of_the_api(
    browser: Browser, backstage: Backstage
) -> None:
    backstage.stream([30, 40, 50, 0, 700] * 50, epoch_bins=256)
    address = backstage.start()
    answer = backstage.reply("departures/series?kind=bin&format=csv").text
    series = list(csv.DictReader(io.StringIO(answer)))
    now = backstage.json("departures/count")
    with opened(browser, f"{address}/streams/departures", java_script_enabled=False) as page:
        shown = rows(page)
        expect(page.locator(".value")).to_have_text(f"{now['value']:,.0f}")
        expect(page.locator("main")).to_contain_text(f"events, since {now['start']}; with 95 % probability")
        page.get_by_text("All streams").click()
        [[title, number, interval]] = rows(page)
        page.get_by_text("departures: events").click()
        assert rows(page) == shown
    lower, upper = now["interval"]
    assert (title, number) == ("departures: events", f"{now['value']:,.0f}")
    assert list(map(whole, interval.split(" to "))) == [math.floor(lower), math.ceil(upper)]
    assert len(shown) == 200
    for (start, value, between), told in zip(shown, reversed(series), strict=False):
        assert start == told["start"]
        assert whole(value) == round(float(told["value"]))
        ends = [math.floor(float(told["lower"])), math.ceil(float(told["upper"]))]
        assert list(map(whole, between.split(" to "))) == ends


def test_tables_say_that_a_stream_protects_nobody_and_escape_names(
    browser: Browser, backstage: Backstage
) -> None:
    backstage.stream([4, 5], name="a<b>", source="plain", epsilon="1000000000")
    address = backstage.start()
    for path in ("/", "/streams/a%3Cb%3E"):
        with opened(browser, address + path, java_script_enabled=False) as page:
            expect(page.locator(".alarm")).to_contain_text("NOT PRIVATE")
            expect(page.locator("main")).to_contain_text("a<b>")
