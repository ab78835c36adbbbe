"""A reader chooses the time zone of a page: its clock, its days over hourly bins, and its addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from stream_app.core.answers.labels import AllLabels
from tests.stream_app.api.browsing import Backstage, eventually, in_address, opened, panel, table, whole
from tests.stream_app.api.client import EXACT
from tests.stream_app.api.test_local_days import OF_2026, YEAR_END
from tests.stream_app.published import FIRST_BIN

pytestmark = pytest.mark.browser

MARCH_1 = FIRST_BIN + 59 * 24  # clocks change in Paris on 31 March 2013
HOURS = 1300


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve 1,300 hours around a change of clocks; return the page's address."""
    behind = Backstage()
    behind.stream([hour % 7 for hour in range(HOURS)], epoch_bins=2048, first_bin=MARCH_1)
    yield behind.start() + "/streams/departures"
    behind.close()


def days_of(page: Page, zone: str) -> list[float]:
    """Return the service's counts of the whole days of a zone."""
    path = f"/v1/streams/departures/series?kind=bin&days=1&timezone={zone}"
    found: list[float] = page.evaluate("path => fetch(path).then((answer) => answer.json())", path)["value"]
    return found


def test_days_of_the_chosen_zone_are_counted_exactly_over_hours(browser: Browser, address: str) -> None:
    with opened(browser, address + "?tz=Europe/Paris") as page:
        rows = table(page, "bins")[::-1]
        expect(page.locator("#bins-title")).to_have_text("Events per day")
        expect(page.locator("#bins th").first).to_have_text("When (Europe/Paris)")
        assert rows[0][0] == "2 Mar 2013 – 3 Mar 2013"
        assert rows[29][0] == "31 Mar 2013 – 1 Apr 2013"  # 23 hours
        assert [whole(row[1]) for row in rows] == [round(value) for value in days_of(page, "Europe/Paris")]
        expect(page.locator("#stream-about")).to_contain_text("since 1 Mar 2013, 01:00 Europe/Paris")
        expect(page.locator("#released-until")).to_have_text("24 Apr 2013, 06:00 Europe/Paris")
        expect(page.locator("#bins .note")).to_contain_text("Not drawn")
        expect(page.locator("#utc-days")).to_be_empty()
        page.locator("#exact summary").click()
        expect(page.get_by_label("From (Europe/Paris)")).to_have_value(re.compile("2013-03-01T01:00"))
        page.get_by_label("From (Europe/Paris)").fill("2013-03-31T00:00:00")
        page.get_by_label("To (Europe/Paris)").fill("2013-03-31T04:00:00")
        page.get_by_role("button", name="Show").click()
        panel(page, "bins")
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", "3")  # no hour from 2 to 3
        in_address(page, "from=2013-03-30T23%3A00%3A00Z&to=2013-03-31T02%3A00%3A00Z")
        in_address(page, "tz=Europe%2FParis")


def test_choice_of_zone_is_in_the_address_and_on_other_pages(browser: Browser, address: str) -> None:
    with opened(browser, address, timezone_id="Europe/Paris") as page:
        expect(page.locator("#released-until")).to_contain_text("UTC")  # old addresses show what they did
        page.get_by_label("Times").select_option("Europe/Paris")
        expect(page.locator("#released-until")).to_have_text("24 Apr 2013, 06:00 Europe/Paris")
        expect(page.locator("#stream-about")).to_contain_text("Europe/Paris")
        eventually(page, lambda: page.url.endswith("tz=Europe%2FParis"))
        page.goto(address.rsplit("/", 2)[0])
        expect(page.get_by_role("article", name="departures")).to_contain_text("06:00 Europe/Paris")
        page.goto(address + "?tz=UTC")  # an address goes before what the browser remembers
        expect(page.locator("#released-until")).to_have_text("24 Apr 2013, 04:00 UTC")
        page.goto(address)
        expect(page.locator("#released-until")).to_contain_text("Europe/Paris")


def test_zone_whose_days_begin_inside_bins_shows_days_of_utc_and_says_so(
    browser: Browser, address: str
) -> None:
    with opened(browser, address + "?tz=Asia/Kolkata") as page:
        rows = table(page, "bins")[::-1]
        assert rows[0][0] == "1 Mar 2013, 05:30 – 2 Mar 2013, 05:30"
        assert [whole(row[1]) for row in rows] == [round(value) for value in days_of(page, "UTC")]
        expect(page.locator("#utc-days")).to_have_text(
            "Days and weeks on charts are those of UTC, because days of Asia/Kolkata begin inside a bin."
        )


def test_hour_that_clocks_show_twice_has_its_offset(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([5] * 12, first_bin=FIRST_BIN + 298 * 24 + 20)  # 2013-10-26T20:00Z
    labels = AllLabels(timezone="Europe/Paris")
    with opened(browser, backstage.start(labels=labels) + "/streams/departures") as page:
        times = [row[0] for row in table(page, "bins")[::-1]]
        assert times[3:7] == [
            "27 Oct 2013, 01:00–02:00 (UTC+2)",
            "27 Oct 2013, 02:00 (UTC+2)–02:00 (UTC+1)",
            "27 Oct 2013, 02:00 (UTC+1)–03:00",
            "27 Oct 2013, 03:00–04:00",
        ]
        expect(page.locator("#released-until")).to_have_text("27 Oct 2013, 09:00 Europe/Paris")
        in_address(page, "tz=", is_there=False)


def test_bars_of_calendar_months_are_whole_months_of_the_zone(browser: Browser) -> None:
    behind = Backstage()
    behind.stream(OF_2026, name="visits", epoch_bins=4_096, first_bin=YEAR_END, epsilon=EXACT)
    site = behind.start() + "/streams/visits"
    with opened(browser, f"{site}?tz=Europe/Paris&bars=month") as page:
        assert [whole(row[1]) for row in table(page, "bins")] == [120, 93, 56, 31]
        expect(page.locator("#bins h2")).to_have_text("Events per month")
        expect(page.locator("#bins .note")).not_to_contain_text("left out")
        page.locator("#bars").select_option("quarter")
        expect(page.locator("#bins h2")).to_have_text("Events per quarter")
        assert [whole(row[1]) for row in table(page, "bins")] == [180]
        expect(page.locator("#bins .note")).to_contain_text("it is only a part of 3 months")
        page.locator("#bars").select_option("year")
        expect(page.locator("#bins .note")).to_contain_text("it is only a part of 12 months")
        in_address(page, "bars=year")
        page.locator("#bars").select_option("week")
        assert [whole(row[1]) for row in table(page, "bins")][-2:] == [7, 7]
    behind.close()
