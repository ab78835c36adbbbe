"""Boards in headless Chromium: panels of several streams, own choices, annotations, a frame with a key."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from stream_app.api.admission.access import AccessRules
from stream_app.api.admission.hosts import Hosts
from stream_app.config import load, load_text
from stream_app.core.answers.labels import AllLabels, Labels
from stream_app.core.boards import Board, Line, Panel
from stream_app.ports.access import ApiKey, digest_of
from tests.stream_app.api.accessibility import faults
from tests.stream_app.api.browsing import (
    Backstage,
    drawn_from_now_on,
    eventually,
    fits,
    opened,
    whole,
)
from tests.stream_app.published import FIRST_BIN, HOUR_US, Published
from tests.stream_app.published_axes import PublishedAxes, delays

pytestmark = pytest.mark.browser

EXAMPLE = load(Path(__file__).parents[3] / "examples" / "board.yaml", {})
(AIRPORT,) = EXAMPLE.boards
EMPTY = (Panel("gone", "bins", (Line("nowhere"),)), Panel("young", "bins", (Line("young"),)))
WALL = replace(AIRPORT, name="wall", panels=(*AIRPORT.panels, *EMPTY))
FRAMED = Board("framed", "Framed", AIRPORT.panels[2:3])
KEY = "k-framed"
DAY_US = 24 * HOUR_US


class Airport(Backstage):
    """A service with the streams of the example; departures releases more when a test wants it to."""

    departures: Published


@pytest.fixture(scope="module")
def site() -> Iterator[Airport]:
    """Serve five streams; visits has bins of 15 minutes, and young has released nothing."""
    behind = Airport()
    departures = behind.departures = behind.stream(
        [40 + hour % 24 for hour in range(24 * 6)], epoch_bins=24 * 30
    )
    watcher = behind.watch(EXAMPLE.alerts.rules)
    behind.run(departures.close([400]))
    behind.run(watcher.look())
    quarter = HOUR_US // 4
    behind.stream(
        [110] * 4 * 24 * 5,
        name="visits",
        source="web",
        bin_us=quarter,
        first_bin=FIRST_BIN * 4,
        epoch_bins=4 * 24 * 30,
    )
    product = PublishedAxes(behind.store, epoch_bins=24 * 7, buckets=20, source="air")
    behind.fill(product, delays(product, 24 * 6))
    behind.run(Published(behind.store, name="young", source="new").open())
    behind.stream(
        [7] * 3, name="daily", source="d", bin_us=DAY_US, first_bin=FIRST_BIN // 24, timezone="Europe/Paris"
    )
    yield behind
    behind.close()


@pytest.fixture(scope="module")
def address(site: Airport) -> str:
    labels = AllLabels({one.name: Labels(one.title, annotations=one.annotations) for one in EXAMPLE.streams})
    return site.start(AccessRules(boards={"wall": WALL}), labels)


def loaded(page: Page, *names: str) -> None:
    """Wait until panels are drawn."""
    for name in names:
        section = page.locator(f"#{name} > section")
        expect(section).to_have_attribute("data-seq", re.compile(r"^\d+$"))
        expect(section).to_have_attribute("aria-busy", "false")


def rows_of(page: Page, name: str) -> list[list[str]]:
    page.locator(f"#{name} details summary").click()
    rows = page.locator(f"#{name} details tbody tr")
    expect(rows.first).to_be_visible()
    return [row.split("\t") for row in rows.all_inner_texts()]


ALL = ("now", "late", "both", "growth", "hours", "spread", "median", "rules")


def test_a_board_shows_its_panels_and_says_why_others_are_empty(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/boards/wall", expect_errors=True) as page:  # 404 for the stream nowhere
        loaded(page, *ALL)
        expect(page.locator("#board-name")).to_have_text("Departures and visits")
        expect(page.locator("#gone")).to_contain_text("There is no stream “nowhere” here. Its name may be")
        expect(page.locator("#young")).to_contain_text(
            "Nothing is released yet: the first bin is still open."
        )
        expect(page.locator("#now .number")).to_have_text(re.compile(r"^1,\d{3}$"))
        expect(page.locator("#now")).to_contain_text("7 Jan 2013, 01:00 UTC")
        expect(page.locator("#both h2")).to_have_text("Events per hour")
        expect(page.locator("#growth .note")).to_contain_text("visits since 1 Jan 2013, 00:00 UTC")
        expect(page.locator("#rules")).to_contain_text("firing")
        expect(page.locator("#both li")).to_contain_text(["Departures from New York", "visits"])
        expect(page.locator("#annotations li")).to_have_text(
            [re.compile("4 Jan 2013, 00:00 UTC: New timetable"), re.compile("Strike")]
        )
        assert page.locator("#annotations a").get_attribute("rel") == "noopener noreferrer"
        expect(page.locator("#meanings")).to_have_text("delays: Counts events with a number in delay.")
        assert page.evaluate(UNFILLED_ROWS) == []
        for options in LOOKS.values():
            page.emulate_media(color_scheme=options["color_scheme"])
            page.set_viewport_size(options["viewport"])
            fits(page)
            assert faults(page) == []
        page.emulate_media(media="print")
        expect(page.locator(".bar")).to_be_hidden()
        page.emulate_media(color_scheme="dark")
        for event, theme in (("beforeprint", "light"), ("afterprint", "dark")):  # no dark charts on paper
            page.evaluate("name => window.dispatchEvent(new Event(name))", event)
            assert page.evaluate("document.documentElement.dataset.theme") == theme


# The tops of those rows of panels that end before the board does.
UNFILLED_ROWS = """() => {
  const right = document.querySelector("#panels").getBoundingClientRect().right;
  const rows = new Map();
  for (const slot of document.querySelectorAll(".slot")) {
    const box = slot.getBoundingClientRect();
    rows.set(box.top, Math.max(rows.get(box.top) ?? 0, box.right));
  }
  return [...rows].filter(([, end]) => end < right - 1).map(([top]) => top);
}"""

LOOKS: dict[str, Any] = {
    "desktop-light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "phone-dark": {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}},
}


def test_streams_with_other_bins_are_compared_per_equal_length_of_time(
    browser: Browser, address: str
) -> None:
    with opened(browser, f"{address}/boards/wall?panel=both") as page:
        loaded(page, "both")
        rows = rows_of(page, "both")
        heads = page.locator("#both details thead th").all_inner_texts()
        assert heads[1::3] == ["Departures from New York: count", "visits: count"]
        of_hour = {row[0]: row for row in rows}
        last = of_hour["7 Jan 2013, 00:00–01:00"]
        assert abs(int(last[1]) - 400) < 60
        assert last[4:7] == ["no value", "", ""]
        both = next(row for row in rows if row[4] != "no value")
        assert both[0] == "5 Jan 2013, 23:00–24:00"
        assert abs(whole(both[4]) - 440) < 200  # four bins of 110
        assert all(int(both[i]) <= int(both[i - 1]) <= int(both[i + 1]) for i in (2, 5))
        with page.expect_download() as saved:
            page.locator("#both").get_by_role("button", name="CSV").click()
        text = Path(saved.value.path()).read_text()
        assert text.startswith("start,end,value (Departures from New York),lower (Departures from New York),")
        assert "2013-01-07T00:00:00.000Z,2013-01-07T01:00:00.000Z," in text
        page.get_by_label("24 hours").check()
        expect(page.locator("#both-bins-chart")).to_have_attribute("data-points", "24")
        expect(page.locator("#both .note")).to_have_text(
            re.compile(r"^visits has nothing in this range\. Time at the")
        )
        assert "range=24+hours" in page.url


def test_an_annotation_is_drawn_in_every_chart_over_time_of_board_and_stream(
    browser: Browser, address: str
) -> None:
    with opened(browser, f"{address}/streams/departures") as page:
        expect(page.locator("#annotations li")).to_contain_text(["New timetable"])
        page.locator("#bins").scroll_into_view_if_needed()
        expect(page.locator("#bins")).to_have_attribute("data-seq", re.compile(r"\d"))
        drawn_from_now_on(page)
        page.locator("#theme").click()
        eventually(page, lambda: "1" in page.evaluate("window.drawnIn('bins')"))


def test_a_release_moves_the_board(browser: Browser, address: str, site: Airport) -> None:
    stream = site.stream([5] * 4, name="ticks", source="ticks")
    described = {"title": "Mine", "panels": [{"show": "number", "streams": ["ticks"]}]}
    with opened(browser, f"{address}/boards#board={quote(json.dumps(described))}") as page:
        loaded(page, "panel-1")
        expect(page.locator("#panel-1 > section")).to_have_attribute("data-seq", "4")
        site.run(stream.close([1_000]))
        expect(page.locator("#panel-1 > section")).to_have_attribute("data-seq", "5")
        expect(page.locator("#panel-1 .number")).to_have_text(re.compile(r"^(9|1,0)\d\d$"))


def test_a_reader_chooses_panels_and_copies_them_as_configuration(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/boards") as page:
        expect(page.locator("#empty")).to_contain_text("No panel is chosen yet.")
        expect(page.locator("#configuration")).to_be_hidden()
        page.get_by_role("button", name="Add panel").click()
        expect(page.locator("#choose-note")).to_have_text("Choose at least one stream.")
        page.get_by_label("Title of the board").fill('Mine: "all" # of it')
        page.locator("#choose-show").select_option("bins")
        page.get_by_role("checkbox", name="Departures from New York").check()
        page.get_by_role("checkbox", name="visits").check()
        page.get_by_role("button", name="Add panel").click()
        loaded(page, "panel-1")
        page.locator("#choose-show").select_option("cdf")
        page.get_by_role("button", name="Add panel").click()
        expect(page.locator("#panel-2")).to_contain_text(
            "Distribution shows one stream. Give each stream its"
        )
        page.get_by_role("button", name="Remove panel 2").click()
        page.get_by_role("checkbox", name="Departures from New York").uncheck()
        page.get_by_role("checkbox", name="visits").uncheck()
        page.get_by_role("checkbox", name="delays").check()
        page.get_by_label("Key, if not all").fill("UA")
        page.get_by_role("button", name="Add panel").click()
        loaded(page, "panel-2")
        page.get_by_role("button", name="Move panel 2 up").click()
        expect(page.locator("#panels > .slot").first).to_have_id("panel-2")
        loaded(page, "panel-2", "panel-1")
        text = page.locator("#configuration").input_value()
        assert faults(page) == []
        page.reload()
        loaded(page, "panel-2", "panel-1")
        expect(page.locator("#configuration")).to_have_value(text)
    streams = EXAMPLE.file.read_text().partition("\nboards:")[0]
    (board,) = load_text(f"{streams}\n{text}", EXAMPLE.file, {}).boards
    assert (board.name, board.title) == ("mine-all-of-it", 'Mine: "all" # of it')
    assert board.panels == (
        Panel("panel-2", "cdf", (Line("delays", "UA"),)),
        Panel("panel-1", "bins", (Line("departures"), Line("visits"))),
    )


def test_an_address_that_describes_no_board_is_said_to_be_none(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/boards#board=%7Bcut", expect_errors=True) as page:
        expect(page.locator("#empty")).to_contain_text("holds no board that can be read")
        page.goto(f"{address}/boards/none")
        expect(page.locator("#board-name")).to_have_text("There is no board “none” here")
        expect(page.locator("#panels a")).to_have_text("Departures and visits")
        lines = (("pie", ["departures"]), ("bins", ["delays/XX"]), ("bins", ["departures", "daily"]))
        old = {"show": "bins", "streams": ["daily"], "range_seconds": 86_400}  # the newest day of the board
        odd = {"panels": [7, *({"show": show, "streams": streams} for show, streams in lines), old]}
        page.goto(f"{address}/boards#board={quote(json.dumps(odd))}")
        expect(page.locator("#panel-1")).to_contain_text("There is no panel “pie”. Known: number, bins,")
        expect(page.locator("#panel-2")).to_contain_text("delays has no key “XX”.")
        expect(page.locator("#panel-3")).to_contain_text(
            "daily have bins of other kinds, so they share no chart."
        )
        expect(page.locator("#panel-4")).to_contain_text(
            "No chart: nothing of daily is released in this range,"
        )
        expect(page.locator("#described")).to_contain_text("whoever made the address chose its panels")
        page.goto(address)
        expect(page.locator("#boards a")).to_have_text(["Departures and visits", "Make a board of your own"])


# ---- in a frame -----------------------------------------------------------------------------------


class _Host(http.server.BaseHTTPRequestHandler):
    """A page of another site that shows a frame; it keeps what its server sees."""

    frame = ""

    def do_GET(self) -> None:
        frame = f'<iframe src="{self.frame}" width="700" height="520"></iframe>'
        body = f"<!doctype html><title>Intranet</title>{frame}"
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def hosted(frame: str) -> Iterator[str]:
    """Serve a page with a frame from another origin."""
    handler = type("Host", (_Host,), {"frame": frame})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def visited(browser: Browser, address: str) -> tuple[Page, list[Any]]:
    """Open a page of another site; return it, and its requests."""
    page = browser.new_context(viewport={"width": 760, "height": 600}).new_page()
    asked: list[Any] = []
    page.on("request", lambda one: asked.append(one))
    page.goto(address)
    return page, asked


def test_a_frame_shows_a_panel_with_a_key_that_no_request_leaks(browser: Browser, site: Airport) -> None:
    site.stop()
    keys = (ApiKey("framed", digest_of(KEY), frozenset(), frozenset({"framed"})),)
    rules = AccessRules(keys=keys, boards={"framed": FRAMED, "wall": WALL}, hosts=Hosts(any_name=True))
    service = site.start(rules)
    frame = f"{service}/embed/framed?panel=both#key={KEY}"
    with hosted(frame) as allowed, hosted(frame) as stranger:
        site.stop()
        rules.boards = {"framed": replace(FRAMED, embed=(allowed,)), "wall": WALL}
        site.start(rules)
        page, asked = visited(browser, allowed)
        inner = page.frame_locator("iframe")
        expect(inner.locator("#both > section")).to_have_attribute("data-seq", re.compile(r"\d"))
        expect(inner.locator("#connection")).to_have_text("Connected")
        expect(inner.locator("a")).to_have_count(0)
        page.screenshot(path=Path(__file__).parents[3] / "artifacts" / "board-framed.png")
        assert all(KEY not in one.url.partition("#")[0] for one in asked)
        assert all(KEY not in one.headers.get("referer", "") for one in asked)
        carried = [one.url for one in asked if one.headers.get("authorization") == f"Bearer {KEY}"]
        assert carried
        assert all(url.startswith(f"{service}/v1/") for url in carried)
        others = page.frames[1].evaluate(
            """async ([key, paths]) => {
              const keyed = { headers: { Authorization: `Bearer ${key}` }, credentials: "omit" };
              return Promise.all(paths.map(async (path) => (await fetch(path, keyed)).status));
            }""",
            [
                KEY,
                [
                    "/v1/boards/wall",
                    "/v1/streams/delays",
                    "/v1/streams",
                    "/metrics",
                    "/v1/streams/visits/nodes",
                ],
            ],
        )
        assert others == [403] * 5
        site.rules.keys = ()  # revoked
        site.run(site.departures.close([1]))  # the next release ends the connection
        expect(inner.locator("#panels")).to_contain_text("It may be misspelled or revoked")
        expect(inner.locator("canvas")).to_have_count(0)
        page.context.close()

        page, asked = visited(browser, stranger)  # a page that the board does not name
        eventually(page, lambda: len(page.frames) == 2 and "chrome-error" in page.frames[1].url)
        assert not [one for one in asked if "/v1/" in one.url]
        page.context.close()
