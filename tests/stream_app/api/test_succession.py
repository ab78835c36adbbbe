"""Readers see where a stream ends and which stream goes on, if their key opens both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from stream_app.api.admission.access import AccessRules
from stream_app.core.answers.labels import AllLabels
from stream_app.core.boards import Board, Line, Panel, Show
from stream_app.core.instants import format_instant
from stream_app.core.segments.endings import ENDED
from stream_app.ports.access import ApiKey, digest_of
from tests.patience import eventually
from tests.stream_app.api.browsing import Backstage, drawn_from_now_on, opened
from tests.stream_app.api.browsing import eventually as eventually_on
from tests.stream_app.published import FIRST_BIN, HOUR_US, Published
from tests.stream_app.published_axes import PublishedKeys

EDGE = FIRST_BIN + 10
EDGE_TEXT, BEGIN_TEXT = (format_instant(bin * HOUR_US) for bin in (EDGE, FIRST_BIN))
LABELS = AllLabels(ends={"departures": EDGE * HOUR_US})
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
    found.run(later.open())
    found.run(later.close([30] * 5))
    yield found
    found.close()


def told(address: str, stream: str, key: str = "", what: str = "") -> dict[str, Any]:
    """Return what the service says of a stream."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with urlopen(Request(f"{address}/v1/streams/{stream}{what}", headers=headers)) as answer:
        return dict(json.load(answer))


def test_a_stream_names_the_one_before_and_after_it(behind: Backstage) -> None:
    address = behind.start()
    old, new = told(address, "departures"), told(address, "later")
    assert (old["successor"], old["ends"], old["next_release"]) == ("later", EDGE_TEXT, None)
    assert (new["successor_of"], new["start"], new["ends"]) == ("departures", BEGIN_TEXT, None)
    assert "successor" not in new
    assert "history" not in old
    assert told(address, "later", what="/privacy")["source_epsilon"] == "2"


def test_a_successor_answers_with_the_history_before_its_edge(behind: Backstage) -> None:
    address = behind.start()
    old = told(address, "departures", what="/count")
    alone = told(address, "later", what=f"/count?start={EDGE_TEXT}")
    both = told(address, "later", what="/count")
    assert (both["start"], both["end"], both["seq"]) == (BEGIN_TEXT, alone["end"], alone["seq"])
    assert both["value"] == pytest.approx(old["value"] + alone["value"])
    assert both["stderr"] ** 2 == pytest.approx(old["stderr"] ** 2 + alone["stderr"] ** 2)
    detail, [entry] = told(address, "later"), told_of(address, "/v1/overview", "later")
    for found in (detail, entry, *told_of(address, "/v1/streams", "later")):
        assert found["running"]["value"] == pytest.approx(both["value"])
    part: dict[str, Any] = {"stream": "departures", "start": BEGIN_TEXT, "end": EDGE_TEXT}
    part |= {"bin": "1 hour", "bin_seconds": 3_600.0, "timezone": None, "in_total": True}
    assert detail["history"] == [part | {"bins_released": 10, "epochs_released": 1}]
    assert [(one["start"], one["bins_released"]) for one in detail["epochs"]] == [(EDGE_TEXT, 5)]
    [mark] = detail["annotations"]
    assert (mark["start"], mark["end"]) == (EDGE_TEXT, None)
    assert mark["text"] == "departures ends, and later goes on: epsilon 1 until then, 2 from then on."
    bins = told(address, "later", what="/series?kind=bin")
    assert bins["value"][:10] == told(address, "departures", what="/series?kind=bin")["value"]
    assert len(bins["value"]) == 15
    assert told(address, "later", what="/preview?epsilon=0.5")["half_width"]
    assert len(told(address, "later", what="/nodes?level=1")["values"]) <= 5


def told_of(address: str, path: str, stream: str, key: str = "") -> list[dict[str, Any]]:
    """Return what a list of streams says of one."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with urlopen(Request(address + path, headers=headers)) as answer:
        return [one for one in json.load(answer)["streams"] if one["stream"] == stream]


def test_a_stream_with_an_announced_end_is_live_until_then(behind: Backstage) -> None:
    behind.stream([40] * 5, name="ending", source="elsewhere")
    found = told(behind.start(labels=AllLabels(ends={"ending": EDGE * HOUR_US})), "ending")
    assert found["ends"] == EDGE_TEXT
    assert found["next_release"] is not None


def test_a_stream_that_has_ended_says_so_without_its_configuration(behind: Backstage) -> None:
    over = behind.stream([40] * 5, name="over", source="elsewhere")
    address = behind.start()
    assert told(address, "over")["ends"] is None
    state = behind.run(behind.store.load(over.name))
    assert state is not None
    behind.run(behind.store.end_epoch(over.name, state.epoch.epoch, state.seq, ENDED))
    eventually(lambda: told(address, "over")["ends"] is not None, "no end is told")
    found = told(address, "over")
    assert (found["ends"], found["next_release"]) == (format_instant((FIRST_BIN + 5) * HOUR_US), None)


def test_a_key_shows_no_name_of_a_stream_that_it_does_not_open(behind: Backstage) -> None:
    address = behind.start(AccessRules(keys=KEYS), LABELS)
    for _ in range(2):  # the second answer comes from memory
        assert told(address, "later", "k-all")["successor_of"] == "departures"
        assert "departures" not in json.dumps(told(address, "later", "k-new"))
        old = told(address, "departures", "k-old")
        assert "later" not in json.dumps(old)
        assert old["ends"] == EDGE_TEXT
        assert told(address, "departures", "k-all")["successor"] == "later"


def test_a_key_sees_a_successor_from_its_edge_unless_it_opens_the_stream_before(behind: Backstage) -> None:
    address = behind.start(AccessRules(keys=KEYS), LABELS)
    for _ in range(2):  # the second answers come from memory
        for key, begin, bins in (("k-all", BEGIN_TEXT, 15), ("k-new", EDGE_TEXT, 5)):
            assert told(address, "later", key, "/count")["start"] == begin
            assert len(told(address, "later", key, "/series?kind=bin")["value"]) == bins
            assert told(address, "later", key)["start"] == begin
            [entry] = told_of(address, "/v1/overview", "later", key)
            count = told(address, "later", key, "/count")
            assert entry["running"]["value"] == pytest.approx(count["value"])
        with pytest.raises(HTTPError) as refused:
            told(address, "later", "k-new", f"/count?start={BEGIN_TEXT}")
        assert "departures" not in refused.value.read().decode()
    tags = {tag_of(address, key) for key in ("k-all", "k-new")}
    assert len(tags) == 2
    assert not any("departures" in tag for tag in (tag_of(address, "k-new"),))


def test_a_key_sees_a_chain_of_three_from_the_first_stream_in_a_row_that_it_opens(
    behind: Backstage,
) -> None:
    last = Published(behind.store, name="last", first_bin=EDGE + 5, successor_of="later")
    behind.run(last.open())
    behind.run(last.close([20] * 3))
    two = ApiKey("two", digest_of("k-two"), frozenset({"later", "last"}))
    ends = ApiKey("ends", digest_of("k-ends"), frozenset({"departures", "last"}))
    address = behind.start(AccessRules(keys=(*KEYS, two, ends)))
    begins = {key: told(address, "last", key, "/count")["start"] for key in ("k-all", "k-two", "k-ends")}
    edges = [format_instant(bin * HOUR_US) for bin in (FIRST_BIN, EDGE, EDGE + 5)]
    assert list(begins.values()) == edges
    history = told(address, "last", "k-all")["history"]
    assert [(one["stream"], one["bins_released"]) for one in history] == [("departures", 10), ("later", 5)]
    assert len(told(address, "last", "k-all")["annotations"]) == 2


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
    address = behind.start()
    both = [
        told(address, one, what=f"/count?key=UA&start={at}")
        for one, at in (("old", BEGIN_TEXT), ("new", EDGE_TEXT))
    ]
    one = told(address, "new", what="/count?key=UA")
    assert (one["start"], one["unmeasured"]) == (BEGIN_TEXT, [])
    assert one["value"] == pytest.approx(sum(part["value"] for part in both))
    assert one["stderr"] ** 2 == pytest.approx(sum(part["stderr"] ** 2 for part in both))
    assert len(told(address, "new", what="/series?kind=bin&key=UA")["value"]) == 15
    for key in ("", "&key=B6"):
        assert told(address, "new", what=f"/count?confidence=0.9{key}")["start"] == EDGE_TEXT
        found = told(address, "new", what=f"/count?start={BEGIN_TEXT}{key}")
        assert found["unmeasured"] == [{"start": BEGIN_TEXT, "end": EDGE_TEXT}]
        series = told(address, "new", what=f"/series?kind=bin&start={BEGIN_TEXT}{key}")
        assert len(series["value"]) == 5
        assert "10 points are left out: not all of their bins were counted." in series["note"]
        with pytest.raises(HTTPError) as refused:
            told(address, "new", what=f"/count?start={BEGIN_TEXT}&end={EDGE_TEXT}{key}")
        assert refused.value.code == 400
        line = json.load(refused.value)["error"]
        assert f"another list of keys was counted in the bins from {BEGIN_TEXT} to {EDGE_TEXT}" in line
    detail = told(address, "new")
    assert (detail["start"], detail["history"][0]["in_total"]) == (EDGE_TEXT, False)
    [mark] = detail["annotations"]
    assert "the list of keys changes (with B6, without DL)." in mark["text"]
    assert len(told(address, "new", what="/keys?step=1")["start"]) == 5
    assert told(address, "new", what="/preview?epsilon=0.5&key=UA")["half_width"]


def test_a_key_of_both_lists_begins_at_the_edge_for_readers_of_the_new_stream(behind: Backstage) -> None:
    carriers(behind)
    address = behind.start(AccessRules(keys=(ApiKey("new", digest_of("k-new"), frozenset({"new"})),)))
    assert told(address, "new", "k-new", "/count?key=UA")["start"] == EDGE_TEXT
    with pytest.raises(HTTPError) as refused:
        told(address, "new", "k-new", f"/count?key=UA&start={BEGIN_TEXT}")
    assert "old" not in json.load(refused.value)["error"]


def test_a_key_of_a_board_adds_up_only_what_its_panels_ask_of_both(behind: Backstage) -> None:
    boards = {}
    shows: dict[str, Show] = {"same": "number", "other": "alerts"}
    for name, show in shows.items():
        panels = (Panel("new", "number", (Line("later"),)), Panel("old", show, (Line("departures"),)))
        boards[name] = Board(name, name, panels)
    keys = [ApiKey(name, digest_of(f"k-{name}"), None, frozenset({name})) for name in boards]
    address = behind.start(AccessRules(keys=tuple(keys), boards=boards))
    assert told(address, "later", "k-same", "/count")["start"] == BEGIN_TEXT
    assert told(address, "later", "k-other", "/count")["start"] == EDGE_TEXT


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


def tag_of(address: str, key: str) -> str:
    """Return the tag of an answer about the successor."""
    with urlopen(
        Request(f"{address}/v1/streams/later/count", headers={"Authorization": f"Bearer {key}"})
    ) as one:
        return str(one.headers["ETag"])


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
        count = told(address, "later", what="/count")["value"]
        expect(page.locator("#value")).to_have_text(f"{round(count):,}")
        page.locator("#bins").scroll_into_view_if_needed()
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", "15")
        drawn_from_now_on(page)
        page.locator("#theme").click()
        eventually_on(page, lambda: "1" in page.evaluate("window.drawnIn('bins')"))
