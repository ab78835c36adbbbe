"""Streams with bins of calendar days in headless Chromium: the page shows dates, and files hold UTC."""

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
from stream_app.core.counting.bins import Binning
from tests.stream_app.api.browsing import (
    Backstage,
    drawn_from_now_on,
    eventually,
    in_address,
    opened,
    panel,
    table,
)
from tests.stream_app.published_axes import PublishedAxes, PublishedWindows, delays

pytestmark = pytest.mark.browser

DAY_US = 86_400_000_000
FIRST_DAY = 15_760  # 2013-02-24: clocks change in Paris on 31 March
LAST = "4 May 2013"
PARIS: dict[str, Any] = {"first_bin": FIRST_DAY, "bin_us": DAY_US, "timezone": "Europe/Paris"}
WEEK = "?from=2013-03-28T23:00:00Z&to=2013-04-03T22:00:00Z"


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Serve 70 days of the time zone of Paris: counts with an alert, keys and a value, windows of a week."""
    behind = Backstage()
    stream = behind.stream([100] * 60, epoch_bins=128, **PARIS)
    text = "sum(departures, 1d) > 200"
    watcher = behind.watch([Rule("busy", text, parse_condition(text))])
    behind.run(stream.close([100, 400, 100]))
    behind.run(watcher.look())
    behind.run(stream.close([100] * 7))
    axes = PublishedAxes(behind.store, epsilon="2", epoch_bins=84, buckets=10, **PARIS)
    behind.run(axes.open())
    behind.run(axes.close_cells(delays(axes, 70)))
    windows = PublishedWindows(behind.store, epoch_bins=84, buckets=10, window_bins=7, **PARIS)
    behind.run(windows.open())
    behind.run(windows.close_cells(delays(windows, 70)))
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
        assert not re.findall(r".*(?:UTC|\d\d:\d\d).*", read)
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
            "Events of flights.ndjson since 24 Feb 2013, counted per day of Europe/Paris; "
            "a range includes its first and its last day"
        )
        expect(page.locator("#released-until")).to_have_text(f"the end of {LAST}")
        expect(page.locator("#bins-released")).to_have_text("70 of 1 day")
        expect(page.locator("#bins th").first).to_have_text("When (whole days of Europe/Paris)")
        assert [row[0] for row in rows[:5]] == [LAST, "3 May 2013", "2 May 2013", "1 May 2013", "30 Apr 2013"]
        assert [(row[0], row[-1]) for row in rows if row[-1]] == [
            ("27 Apr 2013", "busy resolved at the end of 27 Apr 2013"),
            ("26 Apr 2013", "busy firing at the end of 26 Apr 2013"),
        ]
        assert table(page, "running")[0][0] == f"until the end of {LAST}"
        expect(panel(page, "alerts").locator("li")).to_contain_text(
            "Resolved at the end of 27 Apr 2013, when it read 104"
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
        assert f"{said} ε = 1 per epoch." in drawn
        assert not [words for words in drawn if ":00" in words or "UTC" in words]
        page.reload()
        expect(page.locator("#ranges label").last).to_have_text("29 Mar – 3 Apr 2013")
