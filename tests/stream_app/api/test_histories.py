"""Readers see one history over streams that go on from one another, if their key opens all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from stream_app.api.admission.access import AccessRules
from stream_app.core.answers.labels import AllLabels, Labels
from stream_app.core.boards import Board, Line, Panel, Show
from stream_app.core.instants import format_instant
from stream_app.core.segments.endings import ENDED
from stream_app.ports.access import ApiKey, digest_of
from tests.patience import eventually
from tests.stream_app.api.browsing import Backstage, drawn_from_now_on, opened
from tests.stream_app.api.browsing import eventually as eventually_on
from tests.stream_app.published import FIRST_BIN, HOUR_US, Published
from tests.stream_app.published_axes import PublishedKeys

pytestmark = pytest.mark.slow

EDGE = FIRST_BIN + 10
EDGE_TEXT, BEGIN_TEXT = (format_instant(bin * HOUR_US) for bin in (EDGE, FIRST_BIN))
LABELS = AllLabels({"departures": Labels(until_us=EDGE * HOUR_US)})
KEYS = (
    ApiKey("all", digest_of("k-all"), None),
    ApiKey("new", digest_of("k-new"), frozenset({"later"})),
    ApiKey("old", digest_of("k-old"), frozenset({"departures"})),
)


@pytest.fixture
def behind() -> Iterator[Backstage]:
    """Yield a service with a stream that has ended and the one after it."""
    found = Backstage()
    found.stream([40] * 10)
    later = Published(found.store, name="later", epsilon="2", first_bin=EDGE, successor_of="departures")
    found.fill(later, [30] * 5)
    yield found
    found.close()


def test_a_stream_names_the_one_before_and_after_it(behind: Backstage) -> None:
    behind.start()
    old, new = behind.json("departures"), behind.json("later")
    assert (old["successor"], old["ends"], old["next_release"]) == ("later", EDGE_TEXT, None)
    assert (new["successor_of"], new["start"], new["ends"]) == ("departures", BEGIN_TEXT, None)
    assert "successor" not in new
    assert "history" not in old
    assert behind.json("later/privacy")["source_epsilon"] == "2"


def test_a_successor_answers_with_the_history_before_its_edge(behind: Backstage) -> None:
    behind.start()
    old = behind.json("departures/count")
    alone = behind.json(f"later/count?start={EDGE_TEXT}")
    both = behind.json("later/count")
    assert (both["start"], both["end"], both["seq"]) == (BEGIN_TEXT, alone["end"], alone["seq"])
    assert both["value"] == pytest.approx(old["value"] + alone["value"])
    assert both["stderr"] ** 2 == pytest.approx(old["stderr"] ** 2 + alone["stderr"] ** 2)
    detail, [entry] = behind.json("later"), listed(behind, "/v1/overview", "later")
    for found in (detail, entry, *listed(behind, "/v1/streams", "later")):
        assert found["running"]["value"] == pytest.approx(both["value"])
    part: dict[str, Any] = {"stream": "departures", "start": BEGIN_TEXT, "end": EDGE_TEXT}
    part |= {"bin": "1 hour", "bin_seconds": 3_600.0, "timezone": None, "in_total": True}
    assert detail["history"] == [part | {"bins_released": 10, "epochs_released": 1}]
    assert [(one["start"], one["bins_released"]) for one in detail["epochs"]] == [(EDGE_TEXT, 5)]
    [mark] = detail["annotations"]
    assert (mark["start"], mark["end"]) == (EDGE_TEXT, None)
    assert mark["text"] == "departures ends, and later goes on: epsilon 1 until then, 2 from then on."
    bins = behind.json("later/series?kind=bin")
    assert bins["value"][:10] == behind.json("departures/series?kind=bin")["value"]
    assert len(bins["value"]) == 15
    assert behind.json("later/preview?epsilon=0.5")["half_width"]
    assert len(behind.json("later/nodes?level=1")["values"]) <= 5


def listed(behind: Backstage, path: str, stream: str, key: str = "") -> list[dict[str, Any]]:
    """Return what a list of streams says of one."""
    return [one for one in behind.json(path, key)["streams"] if one["stream"] == stream]


def test_a_stream_with_an_announced_end_is_live_until_then(behind: Backstage) -> None:
    behind.stream([40] * 5, name="ending", source="elsewhere")
    behind.start(labels=AllLabels({"ending": Labels(until_us=EDGE * HOUR_US)}))
    found = behind.json("ending")
    assert found["ends"] == EDGE_TEXT
    assert found["next_release"] is not None


def test_a_stream_that_has_ended_says_so_without_its_configuration(behind: Backstage) -> None:
    over = behind.stream([40] * 5, name="over", source="elsewhere")
    behind.start()
    assert behind.json("over")["ends"] is None
    state = behind.run(behind.store.load(over.name))
    assert state is not None
    behind.run(behind.store.end_epoch(over.name, state.epoch.epoch, state.seq, ENDED))
    eventually(lambda: behind.json("over")["ends"] is not None, "no end is told")
    found = behind.json("over")
    assert (found["ends"], found["next_release"]) == (format_instant((FIRST_BIN + 5) * HOUR_US), None)


def test_a_key_shows_no_name_of_a_stream_that_it_does_not_open(behind: Backstage) -> None:
    behind.start(AccessRules(keys=KEYS), LABELS)
    for _ in range(2):  # the second answer comes from memory
        assert behind.json("later", "k-all")["successor_of"] == "departures"
        assert "departures" not in json.dumps(behind.json("later", "k-new"))
        old = behind.json("departures", "k-old")
        assert "later" not in json.dumps(old)
        assert old["ends"] == EDGE_TEXT
        assert behind.json("departures", "k-all")["successor"] == "later"


def test_a_key_sees_a_successor_from_its_edge_unless_it_opens_the_stream_before(behind: Backstage) -> None:
    behind.start(AccessRules(keys=KEYS), LABELS)
    for _ in range(2):  # the second answers come from memory
        for key, begin, bins in (("k-all", BEGIN_TEXT, 15), ("k-new", EDGE_TEXT, 5)):
            assert behind.json("later/count", key)["start"] == begin
            assert len(behind.json("later/series?kind=bin", key)["value"]) == bins
            assert behind.json("later", key)["start"] == begin
            [entry] = listed(behind, "/v1/overview", "later", key)
            count = behind.json("later/count", key)
            assert entry["running"]["value"] == pytest.approx(count["value"])
        assert "departures" not in behind.refusal(f"later/count?start={BEGIN_TEXT}", "k-new")
    tags = {behind.reply("later/count", key).headers["ETag"] for key in ("k-all", "k-new")}
    assert len(tags) == 2
    assert not any("departures" in tag for tag in (behind.reply("later/count", "k-new").headers["ETag"],))


def test_a_key_sees_a_chain_of_three_from_the_first_stream_in_a_row_that_it_opens(
    behind: Backstage,
) -> None:
    last = Published(behind.store, name="last", first_bin=EDGE + 5, successor_of="later")
    behind.fill(last, [20] * 3)
    two = ApiKey("two", digest_of("k-two"), frozenset({"later", "last"}))
    ends = ApiKey("ends", digest_of("k-ends"), frozenset({"departures", "last"}))
    behind.start(AccessRules(keys=(*KEYS, two, ends)))
    begins = {key: behind.json("last/count", key)["start"] for key in ("k-all", "k-two", "k-ends")}
    edges = [format_instant(bin * HOUR_US) for bin in (FIRST_BIN, EDGE, EDGE + 5)]
    assert list(begins.values()) == edges
    history = behind.json("last", "k-all")["history"]
    assert [(one["stream"], one["bins_released"]) for one in history] == [("departures", 10), ("later", 5)]
    assert len(behind.json("last", "k-all")["annotations"]) == 2


def carriers(behind: Backstage) -> None:
    """Release a stream with two keys and the one after it, which has another key in place of one."""
    old = PublishedKeys(behind.store, "old", carriers=("UA", "DL"), source="keyed")
    new = PublishedKeys(
        behind.store, "new", carriers=("UA", "B6"), source="keyed", first_bin=EDGE, successor_of="old"
    )
    old.epoch_bins = 10
    behind.run(old.fill(np.full((10, 2), 40)))
    behind.run(new.fill(np.full((5, 2), 30)))


def test_a_key_of_both_lists_has_one_history_and_the_total_begins_at_the_edge(behind: Backstage) -> None:
    carriers(behind)
    behind.start()
    both = [
        behind.json(f"{one}/count?key=UA&start={at}") for one, at in (("old", BEGIN_TEXT), ("new", EDGE_TEXT))
    ]
    one = behind.json("new/count?key=UA")
    assert (one["start"], one["unmeasured"]) == (BEGIN_TEXT, [])
    assert one["value"] == pytest.approx(sum(part["value"] for part in both))
    assert one["stderr"] ** 2 == pytest.approx(sum(part["stderr"] ** 2 for part in both))
    assert len(behind.json("new/series?kind=bin&key=UA")["value"]) == 15
    for key in ("", "&key=B6"):
        assert behind.json(f"new/count?confidence=0.9{key}")["start"] == EDGE_TEXT
        found = behind.json(f"new/count?start={BEGIN_TEXT}{key}")
        assert found["unmeasured"] == [{"start": BEGIN_TEXT, "end": EDGE_TEXT}]
        series = behind.json(f"new/series?kind=bin&start={BEGIN_TEXT}{key}")
        assert len(series["value"]) == 5
        assert "10 points are left out: not all of their bins were counted." in series["note"]
        line = behind.refusal(f"new/count?start={BEGIN_TEXT}&end={EDGE_TEXT}{key}")
        assert f"another list of keys was counted in the bins from {BEGIN_TEXT} to {EDGE_TEXT}" in line
    detail = behind.json("new")
    assert (detail["start"], detail["history"][0]["in_total"]) == (EDGE_TEXT, False)
    [mark] = detail["annotations"]
    assert "the list of keys changes (with B6, without DL)." in mark["text"]
    assert len(behind.json("new/keys?step=1")["start"]) == 5
    assert behind.json("new/preview?epsilon=0.5&key=UA")["half_width"]


def test_a_key_of_both_lists_begins_at_the_edge_for_readers_of_the_new_stream(behind: Backstage) -> None:
    carriers(behind)
    behind.start(AccessRules(keys=(ApiKey("new", digest_of("k-new"), frozenset({"new"})),)))
    assert behind.json("new/count?key=UA", "k-new")["start"] == EDGE_TEXT
    assert "old" not in behind.refusal(f"new/count?key=UA&start={BEGIN_TEXT}", "k-new")


def test_a_key_of_a_board_adds_up_only_what_its_panels_ask_of_both(behind: Backstage) -> None:
    boards = {}
    shows: dict[str, Show] = {"same": "number", "other": "alerts"}
    for name, show in shows.items():
        panels = (Panel("new", "number", (Line("later"),)), Panel("old", show, (Line("departures"),)))
        boards[name] = Board(name, name, panels)
    keys = [ApiKey(name, digest_of(f"k-{name}"), None, frozenset({name})) for name in boards]
    behind.start(AccessRules(keys=tuple(keys), boards=boards))
    assert behind.json("later/count", "k-same")["start"] == BEGIN_TEXT
    assert behind.json("later/count", "k-other")["start"] == EDGE_TEXT


@pytest.mark.browser
def test_a_page_shows_a_chosen_key_before_the_edge_and_the_total_from_there(
    browser: Browser, behind: Backstage
) -> None:
    carriers(behind)
    address = behind.start()
    with opened(browser, address + "/streams/new?key=UA") as page:
        expect(page.locator("#succession")).to_contain_text("the total and alert rules do not")
        page.locator("#bins").scroll_into_view_if_needed()
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", "15")
        expect(page.locator("#annotations li")).to_contain_text(["the list of keys changes"])
        expect(page.locator("#stream-about")).to_contain_text("since 1 Jan 2013, 00:00")
        expect(page.locator("#unmeasured")).to_be_hidden()
    with opened(browser, address + "/streams/new?key=B6") as page:
        expect(page.locator("#unmeasured")).to_contain_text("Not measured, and in no number here: 1 Jan 2013")
    with opened(browser, address + "/streams/new") as page:
        page.locator("#bins").scroll_into_view_if_needed()
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", "5")
        expect(page.locator("#bins-released")).to_contain_text("5")


@pytest.mark.browser
def test_pages_link_the_stream_before_and_after(browser: Browser, behind: Backstage) -> None:
    address = behind.start(labels=LABELS)
    with opened(browser, address + "/streams/departures") as page:
        expect(page.locator("#stream-state")).to_have_text("Complete")
        expect(page.locator("#succession")).to_contain_text("on are counted by later.")
        page.locator("#succession a").click()
        expect(page.locator("#succession")).to_contain_text("are counted by departures.")
        expect(page.locator("#stream-name")).to_have_text("later")
        expect(page.locator("#succession")).to_contain_text("All counts and charts here include them;")
        expect(page.locator("#annotations li")).to_contain_text(["departures ends, and later goes on"])
        expect(page.locator("#bins-released")).to_contain_text("15")
        count = behind.json("later/count")["value"]
        expect(page.locator("#value")).to_have_text(f"{round(count):,}")
        page.locator("#bins").scroll_into_view_if_needed()
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", "15")
        drawn_from_now_on(page)
        page.locator("#theme").click()
        eventually_on(page, lambda: "1" in page.evaluate("window.drawnIn('bins')"))


NUMBER = re.compile(r"[0-9]+")
DAY, DAY_US = 15_706, 24 * HOUR_US  # 2013-01-01
DAY_EDGE = DAY + 9
BEGIN, AT_EDGE, END = (
    format_instant(hour * HOUR_US) for hour in (24 * DAY, 24 * DAY_EDGE, 24 * DAY_EDGE + 50)
)


@pytest.fixture(scope="module")
def other_bins() -> Iterator[Backstage]:
    """Yield a service with days and the hours after them, and with hours and the days after them."""
    found = Backstage()
    chains = {
        ("days", "then-hours"): ((9, DAY, DAY_US), (50, 24 * DAY_EDGE, HOUR_US)),
        ("hours", "then-days"): ((60, 24 * DAY_EDGE - 60, HOUR_US), (14, DAY_EDGE, DAY_US)),
    }
    for names, facts in chains.items():
        for name, (bins, first, bin_us) in zip(names, facts, strict=True):
            before = None if name == names[0] else names[0]
            stream = Published(
                found.store, name, "1", 64, first, bin_us, source=names[0], successor_of=before
            )
            found.fill(stream, [20] * bins)
    lines = (Line("then-hours"), Line("then-days"))
    panels = (Panel("both", "bins", lines), Panel("running", "running", lines))
    found.start(AccessRules(boards={"both": Board("both", "Both", panels)}))
    yield found
    found.close()


def test_a_range_may_begin_at_any_edge_of_the_bins_that_it_lies_in(other_bins: Backstage) -> None:
    days = other_bins.json("days/count")
    whole = other_bins.json("then-hours/count")
    assert (whole["start"], whole["end"]) == (BEGIN, END)
    late = other_bins.json(f"then-hours/count?start={AT_EDGE}")
    assert whole["value"] == pytest.approx(days["value"] + late["value"])
    assert whole["stderr"] ** 2 == pytest.approx(days["stderr"] ** 2 + late["stderr"] ** 2)
    inside = format_instant((24 * DAY + 5) * HOUR_US)
    assert "is inside a bin; the nearest edges are" in other_bins.refusal(f"then-hours/count?start={inside}")
    [part] = other_bins.json("then-hours")["history"]
    assert (part["bin"], part["bin_seconds"], part["timezone"]) == ("1 day", 86_400.0, None)
    [mark] = other_bins.json("then-hours")["annotations"]
    assert (mark["start"], "bins 1 day until then, 1 hour from then on" in mark["text"]) == (AT_EDGE, True)


def test_a_finer_step_is_refused_with_one_that_fits(other_bins: Backstage) -> None:
    for what in ("/series?kind=bin", "/preview?epsilon=0.5&step=6"):
        assert other_bins.refusal(f"then-hours{what}") == (
            f"step: a bin is 1 day before {AT_EDGE}, and a step must fit; write 24 or begin there or later"
        )
    bins = other_bins.json("then-hours/series?kind=bin&step=24")
    assert len(bins["value"]) == 11
    assert bins["value"][:9] == other_bins.json("days/series?kind=bin")["value"]
    assert f"{format_instant((24 * DAY_EDGE + 48) * HOUR_US)} to {END} is left out" in bins["note"]
    assert len(other_bins.json("then-hours/series?kind=bin&days=1")["value"]) == 11
    assert len(other_bins.json("then-hours/series")["value"]) == 9 + 50
    assert len(other_bins.json("then-days/series?kind=bin")["value"]) == 2 + 14
    preview = other_bins.json("then-hours/preview?epsilon=0.5&aligned=true")
    assert len(preview["half_width"]) == 12


@pytest.mark.browser
@pytest.mark.parametrize(
    ("path", "points"),
    [
        ("/streams/then-hours", "11"),
        ("/streams/then-days", "16"),
        (f"/streams/then-hours?from={BEGIN.replace('T00', 'T07')}&to={AT_EDGE.replace('T00', 'T09')}", "9"),
        ("/streams/then-hours?tz=Europe/Paris", "11"),
    ],
)
def test_all_panels_of_a_page_ask_for_steps_that_fit(
    browser: Browser, other_bins: Backstage, path: str, points: str
) -> None:
    with opened(browser, other_bins.address + path) as page:
        for name in ("bins", "running", "rate", "preview"):
            page.locator(f"#{name}").scroll_into_view_if_needed()
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", points)
        expect(page.locator("#preview-chart")).to_have_attribute("data-points", NUMBER)
        assert page.locator(".failed").count() == 0


@pytest.mark.browser
def test_a_board_asks_for_steps_that_fit_all_its_lines(browser: Browser, other_bins: Backstage) -> None:
    with opened(browser, other_bins.address + "/boards/both") as page:
        eventually_on(page, lambda: page.locator("[data-points]").count() == 2)
        assert page.locator(".failed").count() == 0
