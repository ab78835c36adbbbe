"""Readers know a stream by one name, whichever of its generations answers, and those that come."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, expect

from stream_app.api import announced
from stream_app.api.admission.access import AccessRules
from stream_app.client import Client
from stream_app.core.boards import Board, Line, Panel
from stream_app.core.instants import format_instant
from stream_app.core.records import History
from stream_app.core.segments.endings import ENDED
from stream_app.ports.access import ApiKey, digest_of
from stream_app.shell.commands import main
from tests.patience import PATIENCE_S, eventually
from tests.stream_app.api.browsing import Backstage, opened
from tests.stream_app.published import FIRST_BIN, HOUR_US, Published
from tests.stream_app.published_axes import PublishedKeys

pytestmark = pytest.mark.slow

EDGE = FIRST_BIN + 10
BEGIN_TEXT, EDGE_TEXT = (format_instant(bin * HOUR_US) for bin in (FIRST_BIN, EDGE))
LISTS = ("/v1/streams", "/v1/overview")
SENTENCE = (
    "departures goes on as generation 2: epsilon 1 until then, 2 from then on. "
    "Events from before that arrive later count in its first open bin."
)


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backstage]:
    """Yield a service with a stream whose second generation has released some bins."""
    with announcing_at_once(monkeypatch) as found:
        found.stream([40] * 10)
        found.run(following(found).close([30] * 5))
        yield found


@contextmanager
def announcing_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backstage]:
    """Yield a service that announces a change as soon as it knows it, not at the next minute."""
    monkeypatch.setattr(announced, "SHOWN_EVERY_S", 0.1)
    with Backstage() as found:
        yield found


def following(behind: Backstage, number: int = 2, edge: int = EDGE, **options: Any) -> Published:
    """Return the next generation of the stream, opened."""
    before = "departures" if number == 2 else f"departures@{number - 1}"
    settings: dict[str, Any] = {"epsilon": "2"} | options
    found = Published(
        behind.store, name=f"departures@{number}", first_bin=edge, successor_of=before, **settings
    )
    behind.run(found.open())
    return found


def test_a_name_means_the_newest_generation_with_releases(behind: Backstage) -> None:
    newest = behind.json("departures")
    first, second = (behind.json(f"departures@{number}") for number in (1, 2))
    assert newest == second
    assert {one["stream"] for one in (newest, first, second)} == {"departures"}
    assert (newest["generation"], newest["generation_start"], newest["epsilon"]) == (2, EDGE_TEXT, "2")
    assert newest["changes"] == SENTENCE
    assert (newest["successor_of"], first["successor"]) == ("departures@1", "departures@2")
    assert (first["ends"], first["epsilon"], first["successor_changes"]) == (EDGE_TEXT, "1", SENTENCE)
    assert not {"generation", "changes", "generation_start"} & set(first)
    assert [part["stream"] for part in newest["history"]] == ["departures@1"]
    assert [mark["text"] for mark in newest["annotations"]] == [SENTENCE]
    third = following(behind, 3, EDGE + 5)
    eventually(lambda: behind.reply("departures@3").status_code == 200, "it is not open")
    assert behind.json("departures")["generation"] == 2
    behind.run(third.close([20]))
    eventually(lambda: behind.json("departures")["generation"] == 3, "it is not the newest")
    parts = behind.json("departures")["history"]
    assert [part["stream"] for part in parts] == ["departures@1", "departures@2"]


@pytest.mark.parametrize("name", ["departures@", "departures@0", "departures@3", "departures@02", "other@2"])
def test_no_other_name_means_a_generation(behind: Backstage, name: str) -> None:
    assert behind.reply(name).status_code == 404


def test_lists_have_a_stream_once_under_its_name(behind: Backstage) -> None:
    for path in LISTS:
        [entry] = behind.json(path)["streams"]
        assert (entry["stream"], entry["generation"], entry["title"]) == ("departures", 2, "departures")
        assert (entry["generation_start"], entry["changes"]) == (EDGE_TEXT, SENTENCE)
    assert behind.json("/v1/overview")["preparing"] == []
    text = behind.reply("/metrics").text
    assert text.count("private_counts_released_bins{") == 1
    labels = '{generation="2",private="true",stream="departures"}'
    assert f"private_counts_released_bins{labels} 5.0" in text
    [since_s] = re.findall(rf"running_since_seconds{re.escape(labels)} (.+)\n", text)
    assert float(since_s) == EDGE * 3_600
    assert "@" not in text
    labels = behind.json("/api/v1/series?match[]=private_counts_running")["data"]
    assert [(one["stream"], one.get("generation")) for one in labels] == [
        ("departures", None),
        ("departures", "2"),
    ]
    for path in ("/api/v1/metadata", "/api/v1/label/stream/values"):
        assert "departures@" not in json.dumps(behind.json(path))


def test_grafana_charts_each_generation_until_the_next_one_begins(behind: Backstage) -> None:
    begin_s, first_s, edge_s = (bin * 3_600 for bin in (FIRST_BIN, FIRST_BIN + 1, EDGE + 1))
    ask = f"/api/v1/query_range?start={begin_s}&end={edge_s + 10 * 3_600}&step=600&query=private_counts_"

    def charted(series: str) -> dict[str | None, dict[int, float]]:
        found = behind.json(ask + series)["data"]["result"]
        return {
            one["metric"].get("generation"): {int(at): float(value) for at, value in one["values"]}
            for one in found
        }

    bins, running = charted("bin"), charted("running")
    assert list(bins) == list(running) == [None, "2"]
    assert (min(bins[None]), max(bins[None]), min(bins["2"])) == (first_s, edge_s - 600, edge_s)
    counted = behind.json("departures/series?kind=bin")["value"]
    ends_s = range(first_s, edge_s + 5 * 3_600, 3_600)
    at_ends = [(bins[None] | bins["2"])[at] for at in ends_s]
    assert at_ends == pytest.approx(counted)
    for generation, begin in ((None, BEGIN_TEXT), ("2", EDGE_TEXT)):
        for at in (value for value in ends_s if value in running[generation]):
            path = f"departures/count?start={begin}&end={format_instant(at * 1_000_000)}"
            assert running[generation][at] == pytest.approx(behind.json(path)["value"])
    assert charted('bin{generation=""}') == {None: bins[None]}
    assert charted('bin{generation="2"}') == {"2": bins["2"]}
    instant = behind.json(f"/api/v1/query?time={edge_s}&query=private_counts_bin")["data"]["result"]
    assert [one["metric"]["generation"] for one in instant] == ["2"]


def test_counts_join_the_generations_before(behind: Backstage) -> None:
    both, old = behind.json("departures/count"), behind.json("departures@1/count")
    new = behind.json(f"departures/count?start={EDGE_TEXT}")
    assert (both["start"], both["generation"]) == (BEGIN_TEXT, 2)
    assert both["value"] == pytest.approx(old["value"] + new["value"])
    assert len(behind.json("departures/series?kind=bin")["value"]) == 15


def test_keys_of_a_stream_open_its_generations_and_no_other_key_does(behind: Backstage) -> None:
    behind.stream([1] * 3, name="other", source="elsewhere")
    panel = Panel("one", "bins", (Line("departures"),))
    boards = {"board": Board("board", "Board", (panel,))}
    keys = (
        ApiKey("own", digest_of("k-own"), frozenset({"departures"})),
        ApiKey("other", digest_of("k-other"), frozenset({"other"})),
        ApiKey("board", digest_of("k-board"), None, frozenset({"board"})),
    )
    behind.start(AccessRules(keys=keys, boards=boards))
    paths = ["", "/count", "/series", "/nodes", "/privacy", "/marks"]
    for name in ("departures", "departures@1", "departures@2"):
        for path in paths:
            assert behind.reply(f"{name}{path}", "k-own").status_code == 200, (name, path)
            assert behind.reply(f"{name}{path}", "k-other").status_code == 404, (name, path)
        assert behind.reply(f"{name}/events", "k-other").status_code == 404
        assert behind.reply(f"/v1/changes?stream={name}", "k-own").status_code == 200
    for path in LISTS:
        assert [one["stream"] for one in behind.json(path, "k-other")["streams"]] == ["other"]
        assert [one["stream"] for one in behind.json(path, "k-own")["streams"]] == ["departures"]
    assert behind.reply("departures@2/series?kind=bin", "k-board").status_code == 403
    bins = behind.json("departures/series?kind=bin", "k-board")
    assert len(bins["value"]) == 15  # a panel goes on with the history that its board shows


def test_no_answer_of_one_generation_stands_for_another(behind: Backstage) -> None:
    with Backstage() as first:
        first.stream([40] * 5)  # as many bins in its first epoch as the second generation has
        path = "departures/nodes?level=1"
        tags = {one: one.reply(path).headers["ETag"] for one in (first, behind)}
        assert tags[first] != tags[behind]
        assert behind.reply(path, **{"If-None-Match": tags[behind]}).status_code == 304
        assert behind.reply(path, **{"If-None-Match": tags[first]}).status_code == 200


def test_a_first_generation_is_shown_until_the_next_has_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    with announcing_at_once(monkeypatch) as behind:
        stream = behind.stream([40] * 10)
        tag = json.dumps(behind.json("departures/count"))
        later = following(behind)
        behind.run(behind.store.end_epoch(stream.name, 0, 10, ENDED))
        eventually(lambda: behind.reply("departures@2").status_code == 200, "it is not open")
        eventually(
            lambda: behind.json("departures").get("successor_changes") == SENTENCE, "nothing is announced"
        )
        told = behind.json("departures")
        assert (told["ends"], told["successor"]) == (EDGE_TEXT, "departures@2")
        assert json.dumps(behind.json("departures/count")) == tag
        behind.run(later.close([30]))
        eventually(lambda: behind.json("departures/count").get("generation") == 2, "no answer")


def events(behind: Backstage, path: str, number: int, **headers: str) -> list[dict[str, str]]:
    """Return the next events of a stream of events, each with its fields."""
    found, event = list[dict[str, str]](), dict[str, str]()
    with urlopen(
        Request(f"{behind.address}/v1/streams/{path}", headers=headers), timeout=PATIENCE_S
    ) as answer:
        for line in answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name in ("event", "id", "data"):
                event[name] = value
            elif not name and event:
                found.append(event)
                event = {}
                if len(found) == number:
                    break
    return found


def test_followers_go_on_into_the_next_generation(behind: Backstage) -> None:
    eventually(lambda: behind.json("departures")["changes"] == SENTENCE, "no sentence")
    every = events(behind, "departures/events?after=0", 17)
    rows = [["release"] * 10, ["release"] * 5]
    assert [one["event"] for one in every] == ["privacy", *rows[0], "generation", *rows[1]]
    ids = [one["id"] for one in every if "id" in one]
    assert ids == [*map(str, range(1, 11)), *(f"2:{seq}" for seq in range(1, 6))]
    assert json.loads(every[11]["data"]) == {"stream": "departures", "generation": 2, "changes": SENTENCE}
    for place in (0, 8, 9, 10, 13):
        left, edge = 14 - place, int(place < 10)
        rest = events(behind, "departures/events", 1 + left + edge, **{"Last-Event-ID": ids[place]})
        assert [one["id"] for one in rest if "id" in one] == ids[place + 1 :]
    alone = events(behind, "departures@1/events?after=9", 2)
    assert alone[1]["id"] == "10"
    assert events(behind, "departures/events", 2)[1]["id"] == "2:5"


def test_the_client_follows_every_generation_once(behind: Backstage) -> None:
    address = behind.start()
    with Client(address) as client:
        assert client.streams() == ["departures"]
        summary = client.summary("departures")
        assert (summary.generation, summary.changes, summary.seq) == (2, SENTENCE, 5)
        releases = client.follow("departures", 8)
        first = [next(releases).id for _ in range(3)]
        behind.stop()
        assert behind.start() == address
        assert first + [next(releases).id for _ in range(2)] == ["9", "10", "2:1", "2:2", "2:3"]
        assert [one.id for one in islice(client.follow("departures", "2:3"), 2)] == ["2:4", "2:5"]
        assert next(client.follow("departures@1", 9)).id == "10"
        assert next(client.follow("departures")).id == "2:5"


def test_watch_says_when_other_settings_begin(behind: Backstage) -> None:
    asked = ["watch", "departures", "--url", behind.start(), "--after", "8", "--releases", "3"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.output
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == [
        format_instant((FIRST_BIN + bins) * HOUR_US) for bins in (9, 10, 11)
    ]
    assert f"Running numbers are since {BEGIN_TEXT}, the start of the epoch." in done.stderr
    assert (
        f"An epoch with other settings began at {EDGE_TEXT}: its running numbers start at 0." in done.stderr
    )
    refused = CliRunner().invoke(main, [*asked[:-3], "2:x"])
    assert "2:x is no release; write its number, for example 17, or 2:17" in refused.output


def test_a_key_of_a_board_learns_no_name_of_a_key_at_an_edge() -> None:
    with Backstage() as found:
        for number, carriers in ((1, ("UA", "ZZ")), (2, ("UA", "DL"))):
            stream = PublishedKeys(found.store, name="flights", carriers=carriers, epoch_bins=4)
            if number == 2:
                stream = PublishedKeys(
                    *(found.store, "flights@2"),
                    carriers=carriers,
                    epoch_bins=4,
                    first_bin=FIRST_BIN + 4,
                    successor_of="flights",
                )
            found.run(stream.fill(np.full((4, 2), 5)))
        boards = {"board": Board("board", "Board", (Panel("one", "bins", (Line("flights", "UA"),)),))}
        keys = [
            ApiKey("board", digest_of("k-board"), None, frozenset({"board"})),
            ApiKey("own", digest_of("k-own"), frozenset({"flights"})),
        ]
        found.start(AccessRules(keys=tuple(keys), boards=boards))
        own, of_board = (found.json("flights", key) for key in ("k-own", "k-board"))
        words = "flights goes on as generation 2: the list of keys changes"
        assert own["changes"].startswith(f"{words} (with DL, without ZZ).")
        late = "Events from before that arrive later count in its first open bin."
        rest = "Keys of both lists have one history; the total over all keys begins there."
        assert [one["text"] for one in of_board["annotations"]] == [f"{words}. {late} {rest}"]
        assert not any(name in json.dumps(of_board) for name in ("DL", "ZZ"))
        assert (
            found.refusal("flights/count?key=ZZ", "k-own")
            == "key: 'ZZ' is not on the list of keys any more; ask for it in flights@1"
        )


def test_a_key_that_left_is_asked_for_in_the_generation_that_has_it() -> None:
    """The stream's name alone means its newest generation, also once another name goes on."""
    steps = {"flights": ("UA", "ZZ"), "flights@2": ("UA", "DL"), "trips": ("UA", "DL")}
    with Backstage() as found:
        before = None
        for number, (name, carriers) in enumerate(steps.items()):
            first_bin = FIRST_BIN + 4 * number
            facts: dict[str, Any] = {"carriers": carriers, "first_bin": first_bin, "successor_of": before}
            stream = PublishedKeys(found.store, name, epoch_bins=4, **facts)
            found.run(stream.fill(np.full((4, 2), 5)))
            before = name
        refused = found.refusal("trips/count?key=ZZ")
        assert refused.endswith("not on the list of keys any more; ask for it in flights@1")
        refused = found.refusal(f"trips/count?end={format_instant((FIRST_BIN + 2) * HOUR_US)}")
        assert refused.endswith("or for flights@1")


@pytest.mark.browser
def test_open_pages_go_on_with_the_next_generation(browser: Browser) -> None:
    with Backstage() as found:
        stream = found.stream([40] * 10)
        boards = {"board": Board("board", "Board", (Panel("one", "bins", (Line("departures"),)),))}
        address = found.start(AccessRules(boards=boards))
        with (
            opened(browser, f"{address}/streams/departures") as page,
            opened(browser, f"{address}/boards/board") as board,
        ):
            expect(page.locator("#bins-released")).to_contain_text("10")
            expect(board.locator("#one-bins-chart")).to_have_attribute("data-points", "10")
            later = following(found)
            found.run(found.store.end_epoch(stream.name, 0, 10, ENDED))
            found.run(later.close([30] * 5))
            expect(page.locator("#succession")).to_contain_text("This is generation 2 of the stream, from")
            expect(page.locator("#succession")).to_contain_text("are counted by departures@1.")
            expect(page.locator("#annotations li")).to_contain_text([SENTENCE])
            expect(page.locator("#bins-released")).to_contain_text("15")
            expect(board.locator("#one-bins-chart")).to_have_attribute("data-points", "15")
            expect(board.locator("#annotations li")).to_contain_text([SENTENCE])
            found.run(later.close([30]))  # both pages follow the new generation
            expect(page.locator("#bins-released")).to_contain_text("16")
            expect(board.locator("#one-bins-chart")).to_have_attribute("data-points", "16")
            page.locator("#succession a").click()
            expect(page.locator("#succession")).to_contain_text("are counted by departures@2.")
            expect(page.locator("#bins-released")).to_contain_text("10")
            expect(page.locator("#stream-state")).to_have_text("Complete")


def test_a_mark_before_its_edge_says_what_will_change(monkeypatch: pytest.MonkeyPatch) -> None:
    with announcing_at_once(monkeypatch) as behind:
        behind.stream([40] * 5)  # half of the bins before the edge
        behind.store.streams["departures"].history = History(retired_us=EDGE * HOUR_US)
        following(behind)
        eventually(lambda: behind.reply("departures@2").status_code == 200, "it is not open")
        coming = behind.json("departures@2")
        assert [(mark["start"], mark["text"]) for mark in coming["annotations"]] == [(EDGE_TEXT, SENTENCE)]


@pytest.mark.browser
def test_a_generation_keeps_its_beginning_when_its_first_epoch_leaves(browser: Browser) -> None:
    with Backstage() as behind:
        behind.stream([40] * 10)
        later = following(behind, epoch_bins=4)
        behind.run(later.close([30] * 4))
        later.change("7")
        behind.run(later.open(1, EDGE + 4))
        behind.run(later.close([30] * 2))
        assert behind.run(behind.store.trim("departures@2", (EDGE + 4) * HOUR_US)) == 1
        address = behind.start()
        kept = behind.json("departures")
        starts = kept["generation_start"], kept["kept_from"]
        assert starts == (EDGE_TEXT, format_instant((EDGE + 4) * HOUR_US))
        assert kept["changes"] == "departures goes on as generation 2 with other settings."
        with opened(browser, f"{address}/streams/departures") as page:
            expect(page.locator("#succession")).to_contain_text(
                "Events before it began are counted by departures@1."
            )


@pytest.mark.browser
def test_a_coming_generation_is_announced(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    with announcing_at_once(monkeypatch) as behind:
        behind.stream([40] * 5)  # half of the bins before the edge
        following(behind)
        address = behind.start()
        eventually(lambda: "successor_changes" in behind.json("departures"), "no announcement")
        assert behind.json("departures")["successor_changes"] == SENTENCE
        assert behind.json("departures@2")["changes"] == SENTENCE
        with opened(browser, f"{address}/streams/departures") as page:
            expect(page.locator("#succession")).to_contain_text(f"are counted by departures@2. {SENTENCE}")
            page.goto(f"{address}/streams/departures@2")
            expect(page.locator("#succession")).to_contain_text(SENTENCE)
