"""Rules of the pages' scripts as functions: tables of cases, all in one page that loads the modules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from deploy.demo_page.bundle import PAGE, build
from stream_app.core.counting.bins import Binning
from stream_app.core.instants import format_instant
from stream_app.shell.terminal import days_in_words
from tests.stream_app.api.browsing import Backstage, opened

pytestmark = pytest.mark.browser

NOW = 1_700_000_000  # 14 November 2023, by the service's clock
DAY_US = 86_400_000_000
# Zones in west and east; midnights that are skipped or come twice; a skipped day (Apia, 30 December 2011).
ZONES = ("Europe/Paris", "Australia/Lord_Howe", "America/Sao_Paulo", "America/Havana", "Pacific/Apia")


@pytest.fixture(scope="module")
def runner(browser: Browser) -> Iterator[Page]:
    """Yield a page of the service, which may load the modules of all its pages."""
    behind = Backstage()
    with opened(browser, behind.start() + "/docs") as page:
        yield page
    behind.close()


def ago(seconds: int) -> str:
    return format_instant((NOW - seconds) * 1_000_000)


def said(next_s: int | None = None, until_s: int | None = 60, **more: Any) -> dict[str, Any]:
    """Return what the service says of a stream of minutes. Args: seconds before now."""
    times = {"released_until": until_s, "next_release": next_s}
    told = {name: None if one is None else ago(one) for name, one in times.items()}
    return {"bin_seconds": 60, "ends": None} | told | more


# What the service says; for how long the page has watched, and since the last release (None: it saw none).
STREAM_STATES: tuple[tuple[dict[str, Any], int, int | None, str, str], ...] = (
    (said(-60), 5, None, "live", "Live"),
    (said(60), 5, None, "live", "Live"),  # a release takes some seconds after its bin has closed
    (said(61), 5, None, "late", "Late by 1 min 1 s"),
    (said(599), 99, None, "late", "Late by 9 min 59 s"),
    (said(600), 9, None, "late", "Late by 10 min 0 s"),  # too short a watch
    (said(600), 10, None, "stopped", "Stopped: overdue by 10 min 0 s"),
    (said(10_799, bin_seconds=3_600), 99, None, "late", "Late by 2 h 59 min"),
    (said(10_800, bin_seconds=3_600), 99, None, "stopped", "Stopped: overdue by 3 h 0 min"),
    (said(86_399, bin_seconds=None), 99, None, "late", "Late by 23 h 59 min"),  # calendar days
    (said(86_400, bin_seconds=None), 99, None, "stopped", "Stopped: overdue by 24 h 0 min"),
    (said(172_799), 99, None, "stopped", "Stopped: overdue by 47 h 59 min"),
    (said(172_800), 99, None, "stopped", "Stopped: overdue since 12 Nov 2023"),
    (said(172_800), 9, None, "late", "Late since 12 Nov 2023"),
    (said(7_200), 99, 29, "late", "Catching up: 2 h 0 min behind"),
    (said(7_200), 99, 30, "stopped", "Stopped: overdue by 2 h 0 min"),
    (said(-2_100, None), 5, None, "waiting", "First release in 35 min 0 s"),
    (said(0, None), 5, None, "waiting", "First release any moment"),
    (said(700, None), 99, None, "stopped", "Stopped: overdue by 11 min 40 s"),
    (said(None, None), 5, None, "waiting", "Not begun"),
    (said(-60, halted=True), 5, None, "halted", "Stopped by a fault"),
    (said(None, 60, ends=ago(0)), 59, None, "replaying", "Replaying"),
    (said(None, 60, ends=ago(0)), 60, None, "replaying", "Replay not complete"),
    (said(None, 60, ends=ago(0)), 600, 5, "replaying", "Replaying"),
    (said(None, 60, ends=ago(60)), 600, None, "complete", "Complete"),
    (said(9_000, retired=ago(0)), 99, None, "complete", "Retired on 14 Nov 2023"),
    (said(9_000, imported=ago(86_400)), 99, None, "complete", "History, imported on 13 Nov 2023"),
    (said(9_000, retired=ago(0), imported=ago(9)), 99, None, "complete", "Retired on 14 Nov 2023"),
)


@pytest.mark.parametrize("connected", [True, False])
def test_state_of_a_stream_is_what_the_service_says_and_the_page_has_seen(
    runner: Page, connected: bool
) -> None:
    found = runner.evaluate(
        """async ([cases, now, connected]) => {
          const { stateOf, Watched } = await import("/dashboard/stream_state.js");
          return cases.map(([said, watching, moved]) => {
            const watched = new Watched(now - watching);
            if (moved !== null) watched.moved = now - moved;
            const { state, text } = stateOf(said, now, watched, connected);
            return [state, text];
          });
        }""",
        [[case[:3] for case in STREAM_STATES], NOW, connected],
    )
    quiet = ["quiet", ""]  # without a connection nobody knows whether it stopped
    expected = [
        [state, text] if connected or state == "complete" else quiet for *_, state, text in STREAM_STATES
    ]
    assert found == expected


def test_page_and_service_agree_on_midnights(runner: Page) -> None:
    """The days are from 2009 to 2015. Some zones skip or repeat a midnight, and Apia skipped a whole day."""
    found = runner.evaluate(
        """async (zones) => {
          const { binsOf } = await import("/dashboard/bins.js");
          const days = Array.from({ length: 2000 }, (_, i) => 14600 + i);
          return zones.map((timezone) => {
            const bins = binsOf({ bin_seconds: null, timezone });
            const start = (day) => bins.start(day);
            return days.map((day) => [start(day), bins.of(start(day)), bins.of(start(day + 1) - 1)]);
          });
        }""",
        ZONES,
    )
    days = np.arange(14600, 14600 + 2000)
    for zone, answers in zip(ZONES, found, strict=True):
        binning, table_of = Binning(DAY_US, zone), np.array(answers)
        starts = [binning.start_us(day) // 10**6 for day in days.tolist()]
        assert table_of[:, 0].tolist() == starts, zone
        empty = np.diff([*starts, binning.start_us(int(days[-1]) + 1) // 10**6]) == 0
        assert (table_of[~empty, 1] == days[~empty]).all(), zone
        assert (table_of[~empty, 2] == days[~empty]).all(), zone


@pytest.mark.parametrize(
    ("zone", "start", "end", "span_s", "words"),
    [
        ("UTC", "2013-04-01T00:00:00Z", "2013-04-02T00:00:00Z", 3_600, "1 Apr 2013"),
        ("UTC", "2013-04-01T00:00:00Z", "2013-04-12T00:00:00Z", 3_600, "1–11 Apr 2013"),
        ("UTC", "2012-12-31T00:00:00Z", "2013-01-02T00:00:00Z", 86_400, "31 Dec 2012 – 1 Jan 2013"),
        ("UTC", "2013-04-01T00:00:00Z", "2013-04-01T05:00:00Z", 86_400, "1 Apr 2013, 00:00–05:00"),
        ("UTC", "2013-04-01T23:00:00Z", "2013-04-02T00:00:00Z", 3_600, "1 Apr 2013, 23:00–24:00"),
        ("UTC", "2013-04-01T23:59:59Z", "2013-04-02T00:00:00Z", 1, "1 Apr 2013, 23:59:59–24:00:00"),
        (
            "UTC",
            "2013-04-01T23:00:00Z",
            "2013-04-02T01:00:00Z",
            3_600,
            "1 Apr 2013, 23:00 – 2 Apr 2013, 01:00",
        ),
        ("Europe/Paris", "2013-03-30T23:00:00Z", "2013-03-31T22:00:00Z", 3_600, "31 Mar 2013"),  # 23 hours
        ("Europe/Paris", "2013-04-01T00:00:00Z", "2013-04-01T22:00:00Z", 3_600, "1 Apr 2013, 02:00–24:00"),
    ],
)
def test_a_range_names_whole_days_only_and_each_day_once(
    runner: Page, zone: str, start: str, end: str, span_s: int, words: str
) -> None:
    found = runner.evaluate(
        """async ([zone, start, end, spanSeconds]) => {
          const { seconds, timesOf } = await import("/dashboard/times.js");
          const times = timesOf({ bin_seconds: 3600, timezone: null, bin: "1 hour" }, zone);
          return times.period(seconds(start), seconds(end), spanSeconds);
        }""",
        [zone, start, end, span_s],
    )
    assert found == words


def test_page_and_calendar_agree_on_days_of_every_zone(runner: Page) -> None:
    """Ranges, the date form and ticks agree with Python's calendar over years of clock changes."""
    spans = [1, 2, 7, 30, 365, 2]
    firsts = list(range(15_000, 16_400, 7)) + list(range(15_336, 15_341))
    ranges = [(first, first + spans[at % len(spans)]) for at, first in enumerate(firsts)]
    found = runner.evaluate(
        """async ([zones, ranges]) => {
          const { timesOf } = await import("/dashboard/times.js");
          return zones.map((timezone) => {
            const times = timesOf({ bin_seconds: null, timezone, bin: "" });
            const start = (day) => times.bins.start(day);
            return {
              ranges: ranges.map(([first, stop]) => {
                const form = times.toForm({ start: start(first), end: start(stop) });
                const back = times.fromForm(...form);
                return [times.period(start(first), start(stop)), ...form, back.start, back.end];
              }),
              ticks: [1, 30, 365].map((days) => {
                const at = times.axis.splits(null, 0, start(15100), start(16500), days * 86400);
                return [at, times.axis.values(null, at, 0, 0, days * 86400)];
              }),
            };
          });
        }""",
        [ZONES, ranges],
    )
    for zone, told in zip(ZONES, found, strict=True):
        binning = Binning(DAY_US, zone)
        for (first, stop), (words, *form, start, end) in zip(ranges, told["ranges"], strict=True):
            edges = [binning.start_us(day) for day in (first, stop)]
            expected = days_in_words(format_instant(edges[0]), format_instant(edges[1]), zone)
            assert words == expected, (zone, first, stop)
            if 15_338 not in (first, stop - 1) or zone != "Pacific/Apia":
                assert form == [str(day_of(day)) for day in (first, stop - 1)]
                assert [start * 10**6, end * 10**6] == edges
        days = [day for day in range(15_100, 16_501) if zone != "Pacific/Apia" or day != 15_338]
        wanted = [
            days,
            [day for day in days if day_of(day).day == 1],
            [day for day in days if day_of(day).timetuple().tm_yday == 1],
        ]
        for expected_days, (at, labels) in zip(wanted, told["ticks"], strict=True):
            assert at == [binning.start_us(day) // 10**6 for day in expected_days], zone
            assert len(labels) == len(at)
        years = [label for label in told["ticks"][1][1] if "\n" in label]
        assert [year[-4:] for year in years] == ["2011", "2012", "2013", "2014", "2015"]
        assert all(later.startswith("Jan") for _, later in pairwise(years))


def day_of(day: int) -> date:
    """Return the date of a day since 1970."""
    return date(1970, 1, 1) + timedelta(days=day)


WEEKS = """async () => {
  const load = (name) => import(`/dashboard/${name}.js`);
  const names = ["ranges", "boards/lines", "bins"];
  const [{ snapRange }, { Group }, { binsOf }] = await Promise.all(names.map(load));
  const year = { start: 1356998400, end: 1388534400 }, week = 7 * 86400;
  const of = (value) => ({ value });
  const begin = (common, lengths) => lengths.map((length) => {
    const bins = binsOf({ bin_seconds: length, timezone: null });
    const line = { bins, binSeconds: length, whole: () => year };
    const group = Object.create(Group.prototype, { common: of(common), domain: of(() => year) });
    return group.wholeSteps(line, week / common).start;
  });
  return [
    [...[week, 4 * week].map((step) => snapRange(year, step, 3600, 0).start), ...begin(3600, [900, 3600])],
    [snapRange(year, week, week, 0).start, ...begin(week, [3600, week])],
  ];
}"""


STRIP = """async () => {
  const { Strip } = await import("/dashboard/chart_marks.js");
  const strip = new Strip(2, 0, 100);
  const take = (x) => strip.take(x, [{ words: "long", width: 40 }, { words: "short", width: 15 }]);
  return [90, 48, 30, 55, 10, 47].map(take).map((place) => place && [place.words, place.row, place.from]);
}"""


def test_a_name_above_a_chart_covers_no_other_name_and_no_line_of_a_mark(runner: Page) -> None:
    """Names find the first row, a higher one, a short form, or no room."""
    assert runner.evaluate(STRIP) == [
        ["long", 0, 50],  # left of its mark, because the strip ends
        ["long", 1, 48],  # the higher row
        ["short", 0, 30],
        None,  # its line would cross the first name
        ["short", 0, 10],
        None,
    ]


def test_the_demo_page_is_made_from_the_pages_of_today() -> None:
    """If this fails, run ``make demo-page`` and commit what it changes."""
    for name, text in build().items():
        assert (PAGE / name).read_text(encoding="utf-8") == text, f"make demo-page would change {name}"


def test_weeks_of_bins_begin_on_mondays_on_pages_and_boards(runner: Page) -> None:
    mondays, bins = runner.evaluate(WEEKS)
    assert {(at - 4 * 86400) % (7 * 86400) for at in mondays} == {0}
    assert {at % (7 * 86400) for at in bins} == {0}  # bins of a week are what they are
