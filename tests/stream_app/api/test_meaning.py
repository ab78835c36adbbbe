"""Every surface says which events a stream counts: capped ones, those of a condition, users."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import structs

from stream_app.client import Client
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import Rule
from stream_app.core.alerts.states import evaluate, for_readers
from stream_app.core.counting.bounding import PerUser
from stream_app.core.counting.cells import Buckets
from stream_app.core.counting.keys import KeyList
from stream_app.core.counting.where import OneOf
from stream_app.core.declaration import Declaration
from stream_app.core.meaning import meaning_of
from stream_app.ports.access import Scrapes
from stream_app.shell.commands import main
from stream_app.sinks.alert_targets import alert_of
from stream_app.sinks.alert_topic import cloud_event
from tests.models.memory import MemoryStore
from tests.stream_app.api.client import Api, api_at, fill, released, with_api
from tests.stream_app.client.test_client import running
from tests.stream_app.product_stream import view_of
from tests.stream_app.published import FIRST_BIN, HOUR_US, Published
from tests.stream_app.published_axes import PublishedAxes, PublishedSums, delays, sales_of

pytestmark = pytest.mark.slow

CAPPED: dict[str, Any] = {"user": PerUser("visitor", 50), "epoch_bins": 4}
FRENCH: dict[str, Any] = {"where": OneOf("country", ("FR", "MC")), "epoch_bins": 4}
USERS: dict[str, Any] = {"user": PerUser("visitor", 1), "count": "users", "epoch_bins": 4}
COUNTS = [5, 6, 7]


@dataclass
class ListedAxes(PublishedAxes):
    """Departures of the listed carriers only."""

    def axes(self) -> tuple[KeyList, Buckets]:
        """Return keys without ``other``."""
        keys = KeyList("carrier", (*self.carriers, "AA"), False, False)
        return keys, Buckets("delay", Fraction(self.low), Fraction(self.high), self.buckets)


def plain(**options: Any) -> Callable[[], Awaitable[Published]]:
    """Return how to make a stream without keys and values."""
    return lambda: released(COUNTS, epsilon="1000", **options)


def of_departures(kind: type[PublishedAxes]) -> Callable[[], Awaitable[Published]]:
    """Return how to make a stream whose events need a number, and perhaps a listed key."""

    async def make() -> Published:
        stream = kind(MemoryStore(), epsilon="1000", buckets=4)
        await fill(stream, delays(stream, 3))
        return stream

    return make


async def sales() -> Published:
    """Return a stream that adds up an amount."""
    stream = PublishedSums(MemoryStore(), epsilon="1000")
    await fill(stream, sales_of(stream, 3)[0])
    return stream


# How to make a stream; what it counts, and what a number of it is of.
CAP = "at most 50 events per user and epoch, earliest bins first"
STREAMS: dict[str, tuple[Callable[[], Awaitable[Published]], str, str]] = {
    "capped": (
        plain(**CAPPED),
        f'Counts {CAP}. The field "visitor" names the user; events without one do not count.',
        "counted events (at most 50 per user and epoch, earliest bins first)",
    ),
    "where": (plain(**FRENCH), "", "events where country is one of FR, MC"),
    "value": (of_departures(PublishedAxes), "", "events with a number in delay"),
    "list": (of_departures(ListedAxes), "", "events with a number in delay, whose carrier is listed"),
    "sum": (sales, "", "events with a number in amount"),
}
every_stream = pytest.mark.parametrize(
    ("make", "counts", "events"),
    [(make, counts or f"Counts {events}.", events) for make, counts, events in STREAMS.values()],
    ids=STREAMS,
)


@every_stream
async def test_api_rows_metrics_and_files_say_which_events_count(
    make: Callable[[], Awaitable[Published]], counts: str, events: str
) -> None:
    async with api_at(await make()) as api:
        meaning, name = meaning_of(api.stream.strategy.declared), api.stream.name
        of_keys = api.view.declared.keys is not None
        for path in ("", "count", "series", "nodes", "privacy", *["keys"] * of_keys):
            answer = await api.json(path)
            assert (answer["meaning"], answer["intervals"]) == (counts, meaning.intervals), path
        detail, count = await api.json(""), await api.json("count")
        assert detail["counted"] == count["counted"] == events
        assert (detail["noun"], detail["warning"]) == ("counted events", meaning.warning)
        assert detail["warning"].startswith(counts)
        [card] = (await api.json("/v1/overview"))["streams"]
        assert (card["meaning"], card["counted"]) == (counts, events)
        rows = await api.store.reader().rows(name, 0, 9)
        assert {json.loads(row)["meaning"] for _, row in rows} == {counts}
        api.app.state.scrapes = Scrapes(keys_of=frozenset({name}))
        metrics = (await api.get("/metrics")).text.splitlines()
        for gauge in ("running", "running_lower", "running_upper", "running_stderr", "key_running"):
            said = [line for line in metrics if line.startswith(f"# HELP private_counts_{gauge} ")]
            assert len(said) == (of_keys or gauge != "key_running")
            assert all(line.endswith(f"Stream {name}: {counts}") for line in said), gauge
        [described] = (await api.json("/api/v1/metadata"))["data"]["private_counts_bin"]
        assert counts in described["help"]
        for row in csv.DictReader(io.StringIO((await api.get("series", format="csv")).text)):
            assert row["meaning"] == counts


@every_stream
async def test_alerts_and_webhooks_say_which_events_count(
    make: Callable[[], Awaitable[Published]], counts: str, events: str
) -> None:
    stream = await make()
    text = f"count({stream.name}) > 5"
    rule, view = Rule("busy", text, parse_condition(text)), await view_of(stream.store, stream.name)
    [told] = evaluate([rule], {}, view, 7).transitions
    assert told["meaning"] == for_readers(told)["meaning"] == counts
    assert alert_of(told, None)["annotations"]["meaning"] == counts
    assert cloud_event(told)["data"]["meaning"] == counts
    older = {name: value for name, value in told.items() if name != "meaning"}
    assert "meaning" not in alert_of(older, None)["annotations"]
    assert cloud_event(older)["data"]["meaning"] == ""


def said(url: str, command: str, *asked: str, stream: str = "departures") -> Any:
    """Return what a command about a stream prints."""
    return CliRunner().invoke(main, [command, stream, "--url", url, *asked])


@pytest.mark.parametrize("name", ["value", "list", "sum"])
async def test_command_line_says_which_events_count(name: str) -> None:
    make, _, events = STREAMS[name]

    def ask(url: str) -> None:
        counts = f"Counts {events}."
        one = said(url, "query", stream=stream.name).output
        assert counts in one
        assert one.count(events) == 1
        table = said(url, "query", "--series", "bin", stream=stream.name).output
        assert counts in " ".join(table.split())
        text = said(url, "query", "--series", "bin", "--format", "csv", stream=stream.name).output
        assert {row["meaning"] for row in csv.DictReader(io.StringIO(text))} == {counts}
        assert counts in said(url, "watch", "--after", "0", "--releases", "1", stream=stream.name).stderr

    stream = await make()
    async with running(stream) as url:
        await asyncio.to_thread(ask, url)


@with_api(COUNTS, **FRENCH)
async def test_a_condition_is_said_in_words(api: Api) -> None:
    assert (await api.json(""))["where"] == "country is one of FR, MC"


def hour(bin: int) -> int:
    """Return the start of a bin, counted from the first, in seconds since 1970."""
    return (FIRST_BIN + bin) * HOUR_US // 1_000_000


@with_api(COUNTS, **CAPPED)
async def test_privacy_names_the_neighbours_of_users(api: Api) -> None:
    stated = await api.json("privacy")
    assert stated["neighbouring"] == "a log, and the same log without all events of one user"


@with_api(COUNTS, **USERS)
async def test_promise_to_users_is_stated_beside_that_of_streams_that_protect_events(api: Api) -> None:
    alone = await api.json("privacy")
    assert "all events of any one user of flights.ndjson" in alone["promise"]
    assert alone["own_promise"] == ""
    await Published(api.store, name="by event", epsilon="0.5").open()
    await api.refresh()
    together = await api.json("privacy")
    assert together["promise"].startswith("Whether or not any one event of flights.ndjson exists")
    assert together["promise"].endswith("e^2.5 (about 12).")  # twice 1, because of the cap, and 1/2
    assert together["own_promise"] == (
        "Whether or not all events of any one user of flights.ndjson exist changes the probability of "
        "anything that this stream shows by at most a factor e^1 (about 2.7)."
    )
    assert together["next_epoch"] == "One more epoch of this stream makes epsilon 2."
    for unit in ("one user", "one event"):
        assert any(unit in line for line in together["protected"]), unit
    assert (await api.json("/v1/streams/by event/privacy"))["own_promise"] == ""


@with_api(COUNTS)
async def test_stream_of_all_events_adds_no_words(api: Api) -> None:
    [(_, row)] = await api.store.reader().rows("departures", 0, 1)
    assert "meaning" not in json.loads(row)
    assert (await api.get("series", format="csv")).text.splitlines()[0].endswith(",private")
    assert "Stream departures" not in (await api.get("/metrics")).text
    assert (await api.json(""))["warning"] == ""


async def users_of_two_epochs() -> Published:
    """Return a stream that counts users, with one whole epoch and a part of the next."""
    stream = await released([5, 6, 7, 8], **USERS)
    await stream.open(1, FIRST_BIN + 4)
    await stream.close([9, 10])
    return stream


class OfSite(Published):
    """A stream over an access log."""

    def declared(self, **axes: Any) -> Declaration:
        """Return what the stream declares."""
        found = super().declared(**axes)
        return structs.replace(found, source=structs.replace(found.source, format="combined"))


async def test_an_access_log_protects_a_day_and_its_epochs_do_not_add_up() -> None:
    stream = OfSite(MemoryStore(), user=PerUser("visitor", 3), epoch_bins=24)
    await fill(stream, [5] * 24)
    await stream.open(1, FIRST_BIN + 24)
    await stream.close([9])
    async with api_at(stream) as api:
        stated, detail = await api.json("privacy"), await api.json("")
        assert (stated["per"], stated["source_epsilon"]) == ("UTC day", "1")
        assert "any one user of flights.ndjson within any one UTC day" in stated["promise"]
        assert stated["next_epoch"].startswith("One more epoch of this stream adds nothing")
        assert "epsilon_so_far" not in detail


async def test_users_of_this_epoch_are_a_number_of_their_own_beside_the_sum_over_epochs() -> None:
    async with api_at(await users_of_two_epochs()) as api:
        began = "users first seen since 2013-01-01T04:00:00Z, each counted once"
        summary, metrics = await api.json(""), (await api.get("/metrics")).text
        inside = await api.json("count", start=hour(4), end=hour(6))
        now = summary["this_epoch"]
        assert (now["counted"], now["start"]) == (began, "2013-01-01T04:00:00Z")
        assert (now["value"], now["interval"]) == (inside["value"], inside["interval"])
        assert summary["running"]["value"] != now["value"]
        assert 'private_counts_epoch_users{private="true",stream="departures"}' in metrics
        assert f"{now['value']}" in metrics
        [card] = (await api.json("/v1/overview"))["streams"]
        assert card["this_epoch"] == now
        rows = await api.store.reader().rows("departures", 0, 10)
        assert json.loads(rows[-1][1])["counted"] == began


@with_api(COUNTS, **CAPPED)
async def test_stream_of_events_has_no_number_of_users(api: Api) -> None:
    assert (await api.json(""))["this_epoch"] is None
    assert "epoch_users" not in (await api.get("/metrics")).text


async def test_ranges_of_users_are_labelled_within_and_over_epochs() -> None:
    async with api_at(await users_of_two_epochs()) as api:
        within = await api.json("count", start=hour(1), end=hour(3))
        over = await api.json("count", start=hour(1), end=hour(6))
        assert within["counted"] == "users first seen in this range, which is within one epoch"
        assert over["counted"] == "users first seen in this range, once in each of its 2 epochs"
        assert (await api.json(""))["counted"] == over["counted"]


async def test_client_and_command_line_say_what_is_counted() -> None:
    def asked(url: str) -> None:
        counts = meaning_of(Published(MemoryStore(), **USERS).strategy.declared).counts
        with Client(url) as client:
            found = client.count("departures")
            assert found.counted == "users first seen in this range, once in each of its 2 epochs"
            assert found.meaning == client.series("departures").meaning == counts
            told = client.summary("departures")
            assert told.meaning == counts
            assert told.running == found
            assert told.this_epoch is not None
            assert told.this_epoch.counted.startswith("users first seen since 2013-01-01T04:00:00Z")
            assert told.this_epoch.value == client.count("departures", hour(4)).value
        line = said(url, "query").output
        assert "Counts each user once per epoch" in line
        assert "This number is of users first seen in this range, once in each of its 2 epochs." in line
        assert "once per epoch" in said(url, "query", "--series", "bin").output
        rows = said(url, "query", "--series", "bin", "--format", "csv").output.splitlines()
        assert rows[0].endswith(",meaning,intervals")
        watched = said(url, "watch", "--after", "0", "--releases", "2")
        assert counts in watched.stderr
        assert "Each line" in watched.stderr or "Running numbers are since" in watched.stderr
        assert len(watched.stdout.splitlines()) == 2

    async with running(await users_of_two_epochs()) as url:
        await asyncio.to_thread(asked, url)
