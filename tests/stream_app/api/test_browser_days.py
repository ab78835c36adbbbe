"""Calendar days on pages: bins of days, days of the time zone that a reader chooses, and files in UTC."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import Rule
from stream_app.core.answers.labels import AllLabels, Labels
from stream_app.core.counting.bins import Binning
from tests.stream_app.api.browsing import (
    Backstage,
    drawn_from_now_on,
    eventually,
    in_address,
    opened,
    panel,
    table,
    whole,
)
from tests.stream_app.api.client import EXACT
from tests.stream_app.api.test_local_days import OF_2026, YEAR_END
from tests.stream_app.published import FIRST_BIN
from tests.stream_app.published_axes import PublishedAxes, PublishedWindows, delays

pytestmark = pytest.mark.browser

DAY_US = 86_400_000_000
FIRST_DAY = 15_760  # 2013-02-24: clocks change in Paris on 31 March
LAST = "4 May 2013"
PARIS: dict[str, Any] = {"first_bin": FIRST_DAY, "bin_us": DAY_US, "timezone": "Europe/Paris"}
WEEK = "?from=2013-03-28T23:00:00Z&to=2013-04-03T22:00:00Z"


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Serve 70 days of Paris: counts with an alert, keys and a value, windows of a week; also hours."""
    behind = Backstage()
    stream = behind.stream([100] * 60, epoch_bins=128, **PARIS)
    text = "sum(departures, 1d) > 200"
    watcher = behind.watch([Rule("busy", text, parse_condition(text))])
    behind.run(stream.close([100, 400, 100]))
    behind.run(watcher.look())
    behind.run(stream.close([100] * 7))
    axes = PublishedAxes(behind.store, epsilon="2", epoch_bins=84, buckets=10, **PARIS)
    behind.fill(axes, delays(axes, 70))
    windows = PublishedWindows(behind.store, epoch_bins=84, buckets=10, window_bins=7, **PARIS)
    behind.fill(windows, delays(windows, 70))
    counts = [hour % 7 for hour in range(1_300)]  # clocks change in Paris on 31 March 2013
    behind.stream(counts, name="hours", source="hours", epoch_bins=2048, first_bin=FIRST_BIN + 59 * 24)
    of_2026: dict[str, Any] = {"epoch_bins": 4_096, "first_bin": YEAR_END, "epsilon": EXACT}
    behind.stream(OF_2026, name="visits", source="visits", **of_2026)
    yield behind.start()
    behind.close()


def everything_read(page: Page) -> str:
    """Open every table, and return all texts of the page, including texts for screen readers."""
    for section in page.locator("#panels > section").all():
        panel(page, str(section.get_attribute("id")))
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    expect(page.locator("details.numbers table").first).to_be_visible()
    labels = page.evaluate(
        "[...document.querySelectorAll('[aria-label]')].map((one) => one.ariaLabel).join('\\n')"
    )
    return f"{page.locator('body').inner_text()}\n{labels}"


def test_pages_of_day_bins_show_no_time_of_day(browser: Browser, site: str) -> None:
    with opened(browser, f"{site}/streams/delays") as page:
        panel(page, "running")
        expect(page.locator("#panels > section")).to_have_count(8)
        read = everything_read(page)
        assert not re.findall(r".*(?:UTC|\b[0-2]\d:\d\d).*", read)  # the odds 50:50 are no time
        assert f"until the end of {LAST}" in read
        assert [row[0] for row in table(page, "quantiles")[:2]] == [f"29 Apr – {LAST}", "22–28 Apr 2013"]
        expect(page.locator("#cdf .tools")).to_have_text(f"24 Feb – {LAST}")
        page.locator("#heat-chart").focus()
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#spoken")).to_have_text(re.compile(rf"^{LAST}, below -"))
    with opened(browser, site) as page:
        card = page.get_by_role("article", name="departures", exact=True)
        expect(card).to_contain_text("Counted per day of Europe/Paris, ε = 1 per epoch")
        expect(card).to_contain_text("Last day")
        expect(card).to_contain_text(f"Until the end of {LAST}, next overdue")
        expect(card.locator("canvas")).to_have_attribute(
            "aria-label", re.compile(rf"^The last 60 bins until the end of {LAST}: from")
        )


def test_page_shows_a_day_as_its_date(browser: Browser, site: str) -> None:
    with opened(browser, f"{site}/streams/departures") as page:
        rows = table(page, "bins")
        expect(page.locator("#stream-about")).to_have_text(
            "Events of flights.ndjson since 24 Feb 2013, per day of Europe/Paris"
        )
        expect(page.locator("#how")).to_contain_text("A range includes its first and its last day.")
        expect(page.locator("#released-until")).to_have_text(f"the end of {LAST}")
        expect(page.locator("#bins-released")).to_have_text("70 × 1 day")
        expect(page.locator("#bins th").first).to_have_text("When (whole days of Europe/Paris)")
        assert [row[0] for row in rows[:5]] == [LAST, "3 May 2013", "2 May 2013", "1 May 2013", "30 Apr 2013"]
        assert [(row[0], row[-1]) for row in rows if row[-1]] == [
            ("27 Apr 2013", "busy resolved at the end of 27 Apr 2013"),
            ("26 Apr 2013", "busy firing at the end of 26 Apr 2013"),
        ]
        assert table(page, "running")[0][0] == f"until the end of {LAST}"
        expect(panel(page, "alerts").locator("li")).to_contain_text(
            "Fired at the end of 26 Apr 2013; resolved at the end of 27 Apr 2013"
        )
        assert table(page, "alerts")[1][2] == "the end of 27 Apr 2013"
        panel(page, "bins")
        page.locator("#bins-chart").focus()
        page.keyboard.press("Home")
        expect(page.locator("#spoken")).to_have_text(re.compile(r"^24 Feb 2013: \d+, between"))
        expect(page.locator("#bins-readout")).to_have_text(re.compile(r"^24 Feb 2013 "))


def test_page_shows_a_window_as_a_range_of_days(browser: Browser, site: str) -> None:
    with opened(browser, f"{site}/streams/windows") as page:
        panel(page, "windows")
        expect(page.locator("#windows-which")).to_have_text(re.compile(rf"^28 Apr – {LAST}: "))
        page.get_by_role("button", name="Earlier").click()
        expect(page.locator("#windows-which")).to_have_text(re.compile("^21–27 Apr 2013: "))
        in_address(page, "ending=2013-04-27T22%3A00%3A00Z")


def test_reader_chooses_dates_and_files_hold_utc(browser: Browser, site: str, tmp_path: Path) -> None:
    """The page shows times in the stream's zone, but the address and saved files keep UTC."""
    with opened(browser, f"{site}/streams/departures") as page:
        panel(page, "bins")
        drawn_from_now_on(page)
        page.locator("#exact summary").click()
        expect(page.get_by_label("Last day")).to_have_value("2013-05-04")
        page.get_by_label("First day").fill("2013-03-29")
        page.get_by_label("Last day").fill("2013-04-03")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("#ranges label").last).to_have_text("29 Mar – 3 Apr 2013")
        panel(page, "bins")
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", "6")
        eventually(page, lambda: page.url.endswith(WEEK.replace(":", "%3A")))
        for form in ("CSV", "JSON", "PNG"):
            with page.expect_download() as download:
                panel(page, "bins").get_by_role("button", name=f"as {form}").click()
            download.value.save_as(tmp_path / form)
        rows = list(csv.DictReader((tmp_path / "CSV").read_text().splitlines()))
        assert (rows[0]["start"], rows[-1]["end"]) == ("2013-03-28T23:00:00.000Z", "2013-04-03T22:00:00.000Z")
        saved = json.loads((tmp_path / "JSON").read_text())
        midnights = [Binning(DAY_US, "Europe/Paris").start_us(FIRST_DAY + 33 + day) / 1e6 for day in range(6)]
        assert saved["start"] == midnights
        drawn = page.evaluate("window.drawn")
        assert {"29 Mar", "30 Mar", "31 Mar", "1 Apr", "2 Apr", "3 Apr", "4 Apr", "2013"} <= set(drawn)
        said = "29 Mar – 3 Apr 2013, whole days of Europe/Paris, released until the end of 4 May 2013."
        assert f"{said} ε\u00a0=\u00a01 per epoch." in drawn
        assert not [words for words in drawn if ":00" in words or "UTC" in words]
        page.reload()
        expect(page.locator("#ranges label").last).to_have_text("29 Mar – 3 Apr 2013")


def days_of(page: Page, zone: str) -> list[float]:
    """Return the service's counts of the whole days of a zone."""
    path = f"/v1/streams/hours/series?kind=bin&days=1&timezone={zone}"
    found: list[float] = page.evaluate("path => fetch(path).then((answer) => answer.json())", path)["value"]
    return found


def test_days_of_the_chosen_zone_are_counted_exactly_over_hours(browser: Browser, site: str) -> None:
    with opened(browser, site + "/streams/hours?tz=Europe/Paris") as page:
        rows = table(page, "bins")[::-1]
        expect(page.locator("#bins-title")).to_have_text("Events per day")
        expect(page.locator("#bins th").first).to_have_text("When (Europe/Paris)")
        assert rows[0][0] == "2 Mar 2013"
        assert rows[29][0] == "31 Mar 2013"  # 23 hours
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


def test_choice_of_zone_is_in_the_address_and_on_other_pages(browser: Browser, site: str) -> None:
    with opened(browser, site + "/streams/hours", timezone_id="Europe/Paris") as page:
        expect(page.locator("#released-until")).to_contain_text("UTC")  # old addresses show what they did
        page.get_by_label("Times").select_option("Europe/Paris")
        expect(page.locator("#released-until")).to_have_text("24 Apr 2013, 06:00 Europe/Paris")
        expect(page.locator("#stream-about")).to_contain_text("Europe/Paris")
        eventually(page, lambda: page.url.endswith("tz=Europe%2FParis"))
        page.goto(site)
        expect(page.get_by_role("article", name="hours")).to_contain_text("06:00 Europe/Paris")
        page.goto(site + "/streams/hours?tz=UTC")  # an address goes before what the browser remembers
        expect(page.locator("#released-until")).to_have_text("24 Apr 2013, 04:00 UTC")
        page.goto(site + "/streams/hours")
        expect(page.locator("#released-until")).to_contain_text("Europe/Paris")


def test_zone_whose_days_begin_inside_bins_shows_days_of_utc_and_says_so(browser: Browser, site: str) -> None:
    with opened(browser, site + "/streams/hours?tz=Asia/Kolkata") as page:
        rows = table(page, "bins")[::-1]
        assert rows[0][0] == "1 Mar 2013, 05:30 – 2 Mar 2013, 05:30"
        assert [whole(row[1]) for row in rows] == [round(value) for value in days_of(page, "UTC")]
        expect(page.locator("#utc-days")).to_have_text(
            "Days and weeks on charts are those of UTC, because days of Asia/Kolkata begin inside a bin."
        )


def test_hour_that_clocks_show_twice_has_its_offset(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([5] * 12, first_bin=FIRST_BIN + 298 * 24 + 20)  # 2013-10-26T20:00Z
    labels = AllLabels(others=Labels(timezone="Europe/Paris"))
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


def test_bars_of_calendar_months_are_whole_months_of_the_zone(browser: Browser, site: str) -> None:
    with opened(browser, f"{site}/streams/visits?tz=Europe/Paris&bars=month") as page:
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
