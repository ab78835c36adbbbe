"""Every page in every state that a reader may meet: for pictures, axe-core and the walks without a mouse.

``States`` serves streams of all kinds. ``STATES`` names what to open, and what to do before and after.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, Page, Route, expect

from stream_app.api.admission.access import AccessRules
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import Rule
from stream_app.core.answers.labels import AllLabels, Labels
from stream_app.core.boards import Board, Line, Panel
from stream_app.core.budget import Total
from stream_app.core.counting.bounding import PerUser
from stream_app.core.counting.where import OneOf
from stream_app.core.records import History
from tests.simulator.memory_sinks import MemoryWitness
from tests.stream_app.api.browsing import Backstage, opened
from tests.stream_app.api.test_browser_keys import PublishedClicks
from tests.stream_app.api.test_gaps import sold
from tests.stream_app.counted import run_replay, settings_of
from tests.stream_app.counted import stream as replayed_stream
from tests.stream_app.found_keys import write_visits
from tests.stream_app.one_source import DeadLetterList
from tests.stream_app.published import Published
from tests.stream_app.published_axes import PublishedAxes, PublishedSums, PublishedWindows, delays, sales_of

MINUTE_US, HOUR_US, DAY_US = 60_000_000, 3_600_000_000, 86_400_000_000
ANN = PerUser("visitor", 50)
LABELS = AllLabels(
    {
        "departures": Labels("Departures from New York"),
        "arrivals": Labels("Arrivals in New York"),
        "spent": Labels(total=Total(Fraction(1), Fraction(1, 10**6))),
    }
)
AIRPORT = Board(
    "airport",
    "Airport",
    (
        Panel("flights", "bins", (Line("departures"),)),
        Panel("sold", "number", (Line("sales"),)),
        Panel("late", "quantiles", (Line("delays"),)),
        Panel("users", "bins", (Line("visitors"),)),
        Panel("both", "running", (Line("delays"), Line("capped"))),
    ),
)
DAY_AND_NIGHT = (2, 1, 0, 0, 1, 9, 31, 44, 48, 47, 45, 46, 44, 47, 49, 52, 51, 49, 44, 38, 29, 17, 9, 4)


def before_now(bin_us: int, bins: int) -> int:
    """Return the first of so many bins, of which the last has just ended."""
    return time.time_ns() // 1000 // bin_us - bins


class States:
    """A service with one stream of every kind and in every state."""

    def __init__(self) -> None:
        self.behind = Backstage()
        self._live()
        self._of_every_kind()
        self._found()
        self._not_live()
        self.address = self.behind.start(AccessRules(boards={"airport": AIRPORT}), LABELS)

    def close(self) -> None:
        """End the service."""
        self.behind.close()

    def _live(self) -> None:
        """Release 20 days of hours until now, with an alert that fires and one that is pending."""
        days, now = 20, time.gmtime().tm_hour
        counts = [DAY_AND_NIGHT[(now + hour) % 24] for hour in range(24 * days)]
        stream = self.behind.stream(
            counts[:-2], epoch_bins=24 * 30, first_bin=before_now(HOUR_US, 24 * days), release="anticipating"
        )
        texts = {"busy": "sum(departures, 1h) > 120", "soon": "sum(departures, 2h) > 250"}
        watcher = self.behind.watch(
            [
                Rule(name, text, parse_condition(text), for_us=6 * HOUR_US * (name == "soon"))
                for name, text in texts.items()
            ]
        )
        self.behind.run(stream.close([240, 200]))
        self.behind.run(watcher.look())

    def _of_every_kind(self) -> None:
        product = PublishedAxes(self.behind.store, source="delays", epoch_bins=72, buckets=20)
        capped = PublishedAxes(
            self.behind.store, name="capped", source="capped", epoch_bins=48, buckets=10, user=ANN
        )
        windows = PublishedWindows(
            self.behind.store, source="windows", epoch_bins=24, window_bins=12, buckets=20
        )
        clicks = PublishedClicks(
            self.behind.store,
            name="clicks",
            source="clicks",
            epoch_bins=24,
            buckets=4,
            carriers=tuple("abcde"),
        )
        for stream in (product, capped, windows, clicks):
            self.behind.fill(stream, delays(stream, stream.epoch_bins))
        sales = PublishedSums(self.behind.store, source="shop", epoch_bins=24)
        self.behind.fill(sales, sales_of(sales, 24)[0])
        users = self.behind.stream(
            [30, 40, 50, 20],
            name="visitors",
            source="visitors",
            user=PerUser("visitor", 1),
            count="users",
            epoch_bins=4,
        )
        self.behind.run(users.open(1, users.first_bin + 4))
        self.behind.run(users.close([35, 25]))
        where = OneOf("country", ("FR", "MC"))
        self.behind.stream([30, 40, 50] * 8, name="french", source="french", where=where)
        self.behind.stream([4] * 30, name="plain", source="plain", epsilon="1000000000")
        days: dict[str, Any] = {"bin_us": DAY_US, "first_bin": 15_706, "timezone": "America/New_York"}
        self.behind.stream(
            [40, 31, 55, 62, 70, 22, 15] * 8, name="daily", source="daily", epoch_bins=64, **days
        )

    def _found(self) -> None:
        """Replay a day of a site whose pages nobody listed, with noise."""
        random, pages = Random(1), ["/", "/pricing", "/blog/", *(f"/blog/{n}" for n in range(1, 30))]
        weights = [1 / (place + 1) for place in range(len(pages))]
        hours = random.choices(range(24), DAY_AND_NIGHT, k=6_000)
        visits = [
            (hour + random.random(), f"visitor {n}", random.choices(pages, weights)[0])
            for n, hour in enumerate(hours)
        ]
        page = {"field": "page", "discover": {"epsilon": 1, "delta": 1e-9}}
        private = {"epsilon": 2, "not_private": False}
        with TemporaryDirectory() as directory:
            write_visits(Path(directory), visits)
            settings = settings_of(
                Path(directory), {"pages": replayed_stream("visits.ndjson", keys=page, privacy=private)}
            )
            replayed = run_replay(
                list(settings.streams),
                settings,
                self.behind.store,
                {"pages": MemoryWitness()},
                DeadLetterList(),
            )
            self.behind.run(replayed)

    def _not_live(self) -> None:
        """Release streams that wait, are late, have stopped, are complete or history."""
        minutes: dict[str, Any] = {"bin_us": MINUTE_US, "epoch_bins": 256}
        soon = Published(
            self.behind.store, name="soon", source="soon", first_bin=before_now(MINUTE_US, -35), **minutes
        )
        self.behind.run(soon.open())
        for name, ago in (("late", 5), ("stopped", 120)):
            first = before_now(MINUTE_US, 60 + ago)
            self.behind.stream([20, 30, 25] * 20, name=name, source=name, first_bin=first, **minutes)
        begin_us = Published(self.behind.store).first_bin * HOUR_US
        for name, hours in (("replayed", 24), ("replaying", 300)):
            ends = (begin_us, begin_us + hours * HOUR_US)
            self.behind.stream(list(DAY_AND_NIGHT), name=name, source=name, replay=ends)
        self.behind.stream([5, 6, 7, 8], name="spent", source="spent", user=ANN, epoch_bins=4)
        self.behind.stream([30, 40, 50], name="retired", source="retired")
        self.behind.store.streams["retired"].history = History(retired_us=1_700_000_000_000_000)
        self.behind.run(sold("2", self.behind.store, name="lossy", source="lossy"))


Act = Callable[[Page], None]


def nothing(_page: Page) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class State:
    """What to open, what to do before, and what to do and wait for after. Args: errors, of the console."""

    path: str
    act: Act = nothing
    before: Act = nothing
    errors: bool = False


def drawn(page: Page) -> None:
    """Scroll to every panel, and wait until it is drawn."""
    page.locator("#panels > section").first.wait_for()
    for section in page.locator("#panels > section").all():
        section.scroll_into_view_if_needed()
        expect(section).to_have_attribute("data-seq", re.compile(r"\d"))
        expect(section).to_have_attribute("aria-busy", "false")
    expect(page.locator("#connection")).to_have_text("Connected")
    expect(page.locator("#promise")).not_to_be_empty()
    page.evaluate("scrollTo(0, 0)")


def board_drawn(page: Page) -> None:
    """Wait until every panel of a board is drawn."""
    expect(page.locator("#panels .panel[data-seq]")).to_have_count(len(AIRPORT.panels))
    expect(page.locator("#connection")).to_have_text("Connected")


def framed_drawn(page: Page) -> None:
    """Wait until the one panel of a frame is drawn."""
    expect(page.locator("#panels .panel[data-seq]")).to_have_count(1)


def seen(selector: str, words: str = "") -> Act:
    """Wait until a part of the page is there, and has some words."""

    def wait(page: Page) -> None:
        expect(page.locator(selector).first).to_contain_text(words)

    return wait


def opens(selector: str) -> Act:
    """Open a part of the page that is drawn."""

    def open_it(page: Page) -> None:
        drawn(page)
        page.locator(f"{selector} > summary").click()

    return open_it


def stopped(page: Page) -> None:
    """Wait until the page is drawn and has watched the stream for long enough to say that it stopped."""
    drawn(page)
    expect(page.locator("#stream-state")).to_contain_text("Stopped")


def all_numbers(page: Page) -> None:
    """Open all tables of numbers, and the ledger."""
    drawn(page)
    page.evaluate(
        "document.querySelectorAll('details.numbers, #privacy').forEach((one) => { one.open = true; })"
    )
    expect(page.locator("#ledger tbody tr").first).to_be_visible()


def answering(pattern: str, answer: Callable[[Route], None]) -> Act:
    """Answer some of the page's requests in place of the service."""

    def prepare(page: Page) -> None:
        page.route(pattern, answer)

    return prepare


_waiting: list[Route] = []  # requests that nobody answers


def unanswered(route: Route) -> None:
    """Let a request wait until the page is left."""
    _waiting.append(route)


def refused(route: Route) -> None:
    """Refuse a question in the words of the service."""
    words = "the range has 1,000,000 bins, more than this question may have; ask for fewer or a larger step"
    route.fulfill(status=400, json={"error": words})


def refused_panel(page: Page) -> None:
    """Wait for a panel whose question was refused."""
    page.locator("#bins").scroll_into_view_if_needed()
    expect(page.locator("#bins .urgent")).to_contain_text("No chart: the range has")


def busy_panel(page: Page) -> None:
    """Wait for a panel whose question had no answer."""
    page.locator("#bins").scroll_into_view_if_needed()
    expect(page.locator("#bins .urgent")).to_contain_text("busy or does not answer")


def lost(page: Page) -> None:
    """Wait until the page says that it has lost its connection."""
    expect(page.locator("#offline")).to_be_visible()


def hang_up(route: Route) -> None:
    """Open an event stream and end it. The browser connects again after a long time only."""
    route.fulfill(content_type="text/event-stream", body="retry: 1000000\n\n")


STATES = {
    "overview": State("/", seen("article.stream .number[data-seq]")),
    "overview-loading": State("/", before=answering("**/v1/**", unanswered), errors=True),
    "overview-unreachable": State(
        "/",
        seen("#connection", "Disconnected"),
        answering("**/v1/**", lambda route: route.abort()),
        errors=True,
    ),
    "stream": State("/streams/departures?range=7+days", drawn),
    "stream-compared": State("/streams/departures?compare=1&range=7+days&view=consistent", drawn),
    "stream-numbers": State("/streams/departures?range=24+hours", all_numbers),
    "stream-exact": State("/streams/departures", opens("#exact")),
    "stream-other-address": State("/streams/departures?view=latest&range=2+years&key=UA", drawn),
    "stream-loading": State("/streams/departures", before=answering("**/v1/**", unanswered), errors=True),
    "stream-panels-loading": State(
        "/streams/departures", seen("#stream-state", "Live"), answering("**/series**", unanswered), True
    ),
    "stream-panel-refused": State(
        "/streams/departures", refused_panel, answering("**/series?kind=bin**", refused), errors=True
    ),
    "stream-panel-busy": State(
        "/streams/departures",
        busy_panel,
        answering("**/series?kind=bin**", lambda route: route.abort()),
        True,
    ),
    "stream-unreachable": State(
        "/streams/departures",
        seen("#connection", "Disconnected"),
        answering("**/v1/**", lambda route: route.abort()),
        True,
    ),
    "stream-disconnected": State("/streams/departures", lost, answering("**/events**", hang_up)),
    "stream-unknown": State("/streams/departuers", seen("#unknown li"), errors=True),
    "keys-and-values": State("/streams/delays", drawn),
    "keys-open": State("/streams/delays?key=UA&key=DL", opens("#key-picker")),
    "found-keys": State("/streams/pages", drawn),
    "fields-open": State("/streams/clicks", opens("#key-picker")),
    "windows": State("/streams/windows", drawn),
    "sum": State("/streams/sales", drawn),
    "mean-of-keys": State("/streams/sales?show=mean&key=FR&key=DE", drawn),
    "users": State("/streams/visitors", drawn),
    "capped": State("/streams/capped", drawn),
    "condition": State("/streams/french", drawn),
    "calendar-days": State("/streams/daily", drawn),
    "not-private": State("/streams/plain", drawn),
    "not-measured": State("/streams/lossy", drawn),
    "first-bin-open": State("/streams/soon", seen("#stream-state", "First release in")),
    "late": State("/streams/late", drawn),
    "stopped": State("/streams/stopped", stopped),
    "complete": State("/streams/replayed", drawn),
    "replaying": State("/streams/replaying", drawn),
    "spent": State("/streams/spent", drawn),
    "retired": State("/streams/retired", drawn),
    "board": State("/boards/airport", board_drawn),
    "board-framed": State("/embed/airport?panel=late", framed_drawn),
    "board-choices": State("/boards", seen("#choose-streams", "delays")),
    "board-unknown": State("/boards/airprt", seen("#panels", "Boards that you can open"), errors=True),
    "api": State("/docs", seen("#operations[data-examples] .example")),
    "stream-as-table": State("/streams/departures?table", seen("tbody tr")),
    "overview-as-table": State("/?table", seen("tbody tr")),
    "no-page": State("/stream/departures", seen("h1"), errors=True),
}
EMPTY = {  # over a service whose streams have not begun
    "overview-empty": State("/", seen("#summary", "No stream")),
    "unknown-empty": State("/streams/departures", seen("#unknown"), errors=True),
    "api-empty": State("/docs", seen("#operations[data-examples] .example")),
}


@contextmanager
def shown(browser: Browser, address: str, state: State, **look: Any) -> Iterator[Page]:
    """Yield a page in a state."""
    with opened(browser, address + state.path, state.errors, state.before, **look) as page:
        state.act(page)
        yield page
        while _waiting:
            _waiting.pop().abort()
