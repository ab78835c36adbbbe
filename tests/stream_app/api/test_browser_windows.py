"""The panel of tumbling windows in headless Chromium, and streams with bins of calendar days."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.stream_app.api.browsing import Backstage, asked, in_address, opened, panel, table, whole
from tests.stream_app.published_axes import PublishedWindows, delays

pytestmark = pytest.mark.browser

DAY_US = 86_400_000_000
FIRST_DAY = 15_760  # 2013-02-24: clocks change in Paris on 31 March
DAYS = [100 + day - 60 * (day % 7 > 4) for day in range(70)]


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Serve streams with all kinds of windows, and a stream of calendar days."""
    behind = Backstage()
    sorts: dict[str, dict[str, Any]] = {
        "known": {"mechanism": "hb"},
        "adaptive": {"mechanism": "dawa"},
        "sorted": {"mechanism": "sorted_isotonic", "over_keys": True},
        "loads": {"mechanism": "identity", "over_keys": True},
    }
    for name, options in sorts.items():
        stream = PublishedWindows(behind.store, name=name, epoch_bins=96, buckets=20, **options)
        behind.fill(stream, delays(stream, 80))
    days = {"first_bin": FIRST_DAY, "bin_us": DAY_US, "timezone": "Europe/Paris"}
    behind.stream(DAYS, epoch_bins=128, **days)
    yield behind.start() + "/streams/"
    behind.close()


def numbers(cells: list[str]) -> list[int]:
    """Return the columns of counts in the table: both curves with their bands."""
    return [whole(cells[column]) for column in (1, 2, 3, 5, 6, 7)]


def test_last_window_has_its_band_and_reader_chooses_others(browser: Browser, site: str) -> None:
    with opened(browser, site + "known") as page:
        answer = asked(page, "window?key=UA&q=0.5&q=0.9")
        rows = table(page, "windows")
        assert len(rows) == 20
        for row, at in zip(rows, range(20), strict=True):
            count, low, high, total, least, most = numbers(row)
            assert (count, total) == (round(answer["count"][at]), round(answer["cumulative"][at]))
            assert low <= answer["count_lower"][at] <= answer["count_upper"][at] <= high
            assert least <= answer["lower"][at] <= answer["upper"][at] <= most
        expect(page.locator("#windows-title")).to_have_text("Histogram of delay, UA, in a window")
        expect(page.locator("#windows .about")).to_contain_text("by the mechanism hb. It costs ε = 0.8 of")
        expect(page.locator("#windows .note")).to_contain_text("holds all counts of its curve at once")
        which = page.locator("#windows-which")
        expect(which).to_contain_text("3 Jan 2013 UTC")
        expect(which).to_contain_text(re.compile(r"median [\d.-]+ \(.* to .*\), 90 % below"))
        later, earlier = (page.get_by_role("button", name=name) for name in ("Later", "Earlier"))
        expect(later).to_be_disabled()
        for day in (2, 1):
            earlier.focus()
            page.keyboard.press("Enter")
            expect(which).to_contain_text(f"{day} Jan 2013 UTC")
        expect(earlier).to_be_disabled()
        expect(page.get_by_role("button", name="Last", exact=True)).to_be_focused()  # focus is not lost
        in_address(page, "ending=2013-01-02T00")
        page.locator("#windows-key").select_option("B6")
        expect(page.locator("#windows-title")).to_contain_text("B6")
        first = asked(page, "window?key=B6&end=2013-01-02T00:00:00Z")
        assert numbers(table(page, "windows")[3])[0] == round(first["count"][3])
        page.reload()
        panel(page, "windows")
        expect(which).to_contain_text("1 Jan 2013 UTC")
        expect(page.locator("#windows-title")).to_contain_text("B6")
        # Another range of time shows its own last window.
        page.locator("#exact summary").click()
        page.locator("#exact-from").fill("2013-01-01T00:00:00")
        page.locator("#exact-to").fill("2013-01-03T10:00:00")
        page.get_by_role("button", name="Show").click()
        panel(page, "windows")
        expect(which).to_contain_text("2 Jan 2013 UTC")


def test_both_curves_work_with_the_keyboard_and_are_saved(
    browser: Browser, site: str, tmp_path: Path
) -> None:
    with opened(browser, site + "known?of=DL") as page:
        answer = asked(page, "window?key=DL")
        panel(page, "windows")
        page.locator("#windows-chart").focus()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        low = re.escape(f"-22.5 to -15: {round(answer['count'][1])}, between ")
        expect(page.locator("#spoken")).to_have_text(re.compile(low))
        page.locator("#windows-curve").select_option("Cumulative")
        expect(page.locator("#windows-chart")).to_be_hidden()
        expect(page.locator("#windows-cumulative-chart")).to_have_attribute("data-points", "20")
        page.locator("#windows-cumulative-chart").focus()
        page.keyboard.press("End")
        last = re.escape(f"up to 120: {round(answer['cumulative'][-1])}, between ")
        expect(page.locator("#spoken")).to_have_text(re.compile(last))
        in_address(page, "curve=cumulative")
        for form in ("CSV", "JSON", "PNG"):
            with page.expect_download() as download:
                panel(page, "windows").get_by_role("button", name=f"as {form}").click()
            download.value.save_as(tmp_path / form)
        saved = list(csv.DictReader((tmp_path / "CSV").read_text().splitlines()))
        assert [float(row["count"]) for row in saved] == answer["count"]
        assert [float(row["upper"]) for row in saved] == answer["upper"]
        assert json.loads((tmp_path / "JSON").read_text())["mechanism"] == "hb"
        assert (tmp_path / "PNG").read_bytes().startswith(b"\x89PNG")


def test_window_with_unknown_errors_draws_none_and_says_so(browser: Browser, site: str) -> None:
    for name in ("adaptive", "sorted"):
        with opened(browser, site + name) as page:
            rows = table(page, "windows")
            assert {row[column] for row in rows for column in (2, 3, 4, 6, 7)} == {"not known"}
            expect(page.locator("#windows .note")).to_contain_text("so no error is stated")
            assert "to" not in page.locator("#windows-which").inner_text().split("UTC")[1]
            assert "(" not in page.locator("#windows-readout").inner_text()
    with opened(browser, site + "sorted") as page:
        counts = [whole(row[1]) for row in table(page, "windows")]
        assert counts == sorted(counts)
        assert table(page, "windows")[1][0] == "rank 2"
    with opened(browser, site + "loads") as page:
        assert [row[0] for row in table(page, "windows")] == ["UA", "B6", "EV", "DL", "other"]
        expect(page.locator("#windows-curve")).to_be_hidden()  # keys have no order, so no cumulative count
        page.locator("#windows-chart").focus()
        page.keyboard.press("Home")
        expect(page.locator("#spoken")).to_have_text(re.compile(r"^UA: [\d,]+, between"))


def test_new_windows_appear_on_an_open_page(browser: Browser, backstage: Backstage) -> None:
    stream = PublishedWindows(backstage.store, epoch_bins=48, window_bins=12, buckets=10, mechanism="dawa")
    cells = delays(stream, 24)
    backstage.fill(stream, cells[:5])
    with opened(browser, backstage.start() + "/streams/windows", expect_errors=True) as page:
        found, which = page.locator("#windows"), page.locator("#windows-which")
        found.scroll_into_view_if_needed()
        expect(found.locator(".urgent")).to_have_text(re.compile("no window is complete yet"))
        for start, stop, said in ((5, 12, "00:00–12:00"), (12, 24, "12:00–24:00")):
            backstage.run(stream.close_cells(cells[start:stop]))
            expect(which).to_contain_text(f"1 Jan 2013, {said} UTC")
            expect(found).not_to_have_class(re.compile("failed"))
        page.get_by_role("button", name="Earlier").click()
        expect(which).to_contain_text("00:00–12:00")
        backstage.run(stream.close_cells(cells[:12]))  # a chosen window stays
        expect(page.get_by_role("button", name="Later")).to_be_enabled()
        expect(found).to_have_attribute("data-seq", "36")
        expect(which).to_contain_text("1 Jan 2013, 00:00–12:00")


def test_panels_of_calendar_days_show_rate_and_week_before(browser: Browser, site: str) -> None:
    """Clocks change within the range, so the time a week before is not 168 hours before."""
    with opened(browser, site + "departures?from=2013-03-28T23:00:00Z&to=2013-04-03T22:00:00Z") as page:
        panel(page, "bins")
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", "6")
        page.get_by_label("Week before").check()
        expect(page.locator("#difference")).to_be_visible()
        edges = [
            ("2013-03-28T23:00:00Z", "2013-04-03T22:00:00Z"),
            ("2013-03-21T23:00:00Z", "2013-03-27T23:00:00Z"),
        ]
        asks = [f"count?confidence=0.975&start={start}&end={end}" for start, end in edges]
        week = [asked(page, path) for path in asks]
        said = page.locator("#difference").inner_text()
        assert said.startswith(f"{round(week[0]['value']):,} events here, {round(week[1]['value']):,} in")
        before = asked(page, f"series?kind=bin&start={edges[1][0]}&end={edges[1][1]}")["value"]
        assert [whole(row[4]) for row in table(page, "bins")] == [round(value) for value in before[::-1]]
        panel(page, "rate")
        page.locator("#rate-window").select_option("1 week")
        expect(page.locator("#rate-title")).to_have_text("Events per day, average of the last week")
        rate = asked(page, f"series?kind=window&window=7&end={edges[0][1]}")
        rows = table(page, "rate")
        assert float(rows[0][1]) == pytest.approx(rate["value"][-1] / 7, rel=0.01)
        assert float(rows[0][4]) == pytest.approx(rate["stderr"][-1] / 7, rel=0.01)
        assert len(rows) == 6
        expect(page.locator("#rate .note")).to_contain_text("calendar day of Europe/Paris")


def test_dragged_range_of_calendar_days_ends_at_midnights(browser: Browser, site: str) -> None:
    with opened(browser, site + "departures") as page:
        panel(page, "bins")
        plot = page.locator("#bins-chart .u-over").bounding_box()
        assert plot is not None
        page.mouse.move(plot["x"] + plot["width"] * 20.4 / 70, plot["y"] + 40)
        page.mouse.down()
        page.mouse.move(plot["x"] + plot["width"] * 40.6 / 70, plot["y"] + 60, steps=4)
        page.mouse.up()
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", "21")
        in_address(page, "from=2013-03-15T23%3A00%3A00Z&to=2013-04-05T22%3A00%3A00Z")
        panel(page, "running")
