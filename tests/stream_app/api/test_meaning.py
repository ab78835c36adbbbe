"""Every surface of a capped stream says what it counts, in the same words."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from click.testing import CliRunner

from stream_app.client import Client
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import Rule
from stream_app.core.alerts.states import evaluate, for_readers
from stream_app.core.counting.bounding import PerUser
from stream_app.core.counting.where import OneOf
from stream_app.core.meaning import meaning_of
from stream_app.shell.commands import main
from stream_app.sinks.alert_targets import alert_of
from stream_app.sinks.alert_topic import cloud_event
from tests.models.memory import MemoryStore
from tests.stream_app.api.client import Api, api_at, with_api
from tests.stream_app.client.test_client import running
from tests.stream_app.core.test_alert_states import view_of
from tests.stream_app.published import FIRST_BIN, HOUR_US, Published

FRENCH: dict[str, Any] = {"where": OneOf("country", ("FR", "MC")), "epoch_bins": 4}
CAPPED: dict[str, Any] = {"user": PerUser("visitor", 50), "epoch_bins": 4}
USERS: dict[str, Any] = {"user": PerUser("visitor", 1), "count": "users", "epoch_bins": 4}
COUNTS = [5, 6, 7]


def hour(bin: int) -> int:
    """Return the start of a bin, counted from the first, in seconds since 1970."""
    return (FIRST_BIN + bin) * HOUR_US // 1_000_000


@with_api(COUNTS, **CAPPED)
async def test_every_answer_about_a_capped_stream_says_what_it_counts(api: Api) -> None:
    meaning = meaning_of(api.stream.strategy.declared)
    for path in ("", "count", "series", "nodes", "privacy"):
        answer = await api.json(path)
        assert (answer["meaning"], answer["intervals"]) == (meaning.counts, meaning.intervals), path
    detail = await api.json("")
    assert detail["warning"] == meaning.warning
    assert detail["counted"] == "counted events (at most 50 per user and epoch, earliest bins first)"
    text = (await api.get("series", format="csv")).text.splitlines()
    assert text[0].endswith(",private,meaning")
    assert "Counts at most 50 events" in text[1]
    [overview] = (await api.json("/v1/overview"))["streams"]
    assert overview["meaning"] == meaning.counts


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
    assert together["next_epoch"].startswith("One more epoch of this stream makes epsilon 2 as a sum")
    assert [any(unit in line for line in together["protected"]) for unit in ("one user", "one event")] == [
        True,
        True,
    ]
    assert (await api.json("/v1/streams/by event/privacy"))["own_promise"] == ""


@with_api(COUNTS, **CAPPED)
async def test_rows_and_metrics_say_what_is_counted(api: Api) -> None:
    counts = meaning_of(api.stream.strategy.declared).counts
    [(_, row)] = await api.store.reader().rows("departures", 0, 1)
    assert json.loads(row)["meaning"] == counts
    metrics = (await api.get("/metrics")).text
    what = "Estimated events since the first bin of this generation that is kept"
    said = counts.replace('"', '\\"')
    assert f"# HELP private_counts_running {what}. Stream departures: " in metrics
    assert counts in metrics or said in metrics
    [described] = (await api.json("/api/v1/metadata"))["data"]["private_counts_bin"]
    assert counts in described["help"]


@with_api(COUNTS, **FRENCH)
async def test_every_surface_of_a_stream_with_a_condition_says_the_condition(api: Api) -> None:
    events = "events where country is one of FR, MC"
    for path in ("", "count", "series", "nodes", "privacy"):
        assert (await api.json(path))["meaning"] == f"Counts {events}.", path
    detail, count = await api.json(""), await api.json("count")
    assert detail["counted"] == count["counted"] == events
    assert detail["warning"] == f"Counts {events}."
    assert detail["where"] == "country is one of FR, MC"
    [(_, row)] = await api.store.reader().rows("departures", 0, 1)
    assert json.loads(row)["meaning"] == f"Counts {events}."
    assert f"Stream departures: Counts {events}." in (await api.get("/metrics")).text
    assert f"Counts {events}." in (await api.get("series", format="csv")).text


@with_api(COUNTS)
async def test_stream_of_all_events_adds_no_words(api: Api) -> None:
    [(_, row)] = await api.store.reader().rows("departures", 0, 1)
    assert "meaning" not in json.loads(row)
    assert (await api.get("series", format="csv")).text.splitlines()[0].endswith(",private")
    assert "Stream departures" not in (await api.get("/metrics")).text
    assert (await api.json(""))["warning"] == ""


async def users_of_two_epochs() -> Published:
    """Return a stream that counts users, with one whole epoch and a part of the next."""
    stream = Published(MemoryStore(), **USERS)
    await stream.open()
    await stream.close([5, 6, 7, 8])
    await stream.open(1, FIRST_BIN + 4)
    await stream.close([9, 10])
    return stream


def test_users_of_this_epoch_are_a_number_of_their_own_beside_the_sum_over_epochs() -> None:
    async def inside() -> None:
        stream = await users_of_two_epochs()
        async with api_at(stream) as api:
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
            rows = await stream.store.reader().rows("departures", 0, 10)
            assert json.loads(rows[-1][1])["counted"] == began

    asyncio.run(inside())


@with_api(COUNTS, **CAPPED)
async def test_stream_of_events_has_no_number_of_users(api: Api) -> None:
    assert (await api.json(""))["this_epoch"] is None
    assert "epoch_users" not in (await api.get("/metrics")).text


async def test_alert_says_what_its_value_counts() -> None:
    stream = Published(MemoryStore(), epsilon="1000", **{**CAPPED, **FRENCH})
    await stream.open()
    await stream.close([50, 60])
    rule = Rule("busy", "sum(departures, 1h) > 5", parse_condition("sum(departures, 1h) > 5"))
    [told] = evaluate([rule], {}, await view_of(stream), now_us=7).transitions
    words = meaning_of(stream.strategy.declared).counts
    assert told["meaning"] == for_readers(told)["meaning"] == words
    assert alert_of(told, None)["annotations"]["meaning"] == words
    assert cloud_event(told)["data"]["meaning"] == words
    older = {name: value for name, value in told.items() if name != "meaning"}
    assert "meaning" not in alert_of(older, None)["annotations"]
    assert cloud_event(older)["data"]["meaning"] == ""


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
        line = CliRunner().invoke(main, ["query", "departures", "--url", url]).output
        assert "Counts each user once per epoch" in line
        assert "This number is of users first seen in this range, once in each of its 2 epochs." in line
        table = CliRunner().invoke(main, ["query", "departures", "--url", url, "--series", "bin"]).output
        assert "once per epoch" in table
        form = ["--series", "bin", "--format", "csv"]
        rows = CliRunner().invoke(main, ["query", "departures", "--url", url, *form]).output.splitlines()
        assert rows[0].endswith(",meaning,intervals")
        follow = ["watch", "departures", "--url", url, "--after", "0", "--releases", "2"]
        watched = CliRunner().invoke(main, follow)
        assert counts in watched.stderr
        assert "Each line" in watched.stderr or "Running numbers are since" in watched.stderr
        assert len(watched.stdout.splitlines()) == 2

    async with running(await users_of_two_epochs()) as url:
        await asyncio.to_thread(asked, url)
