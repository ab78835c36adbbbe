"""Every surface of a capped stream says what it counts, in the same words."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from click.testing import CliRunner

from stream_app.client import Client
from stream_app.core.bounding import PerUser
from stream_app.core.meaning import meaning_of
from stream_app.core.where import OneOf
from stream_app.shell.commands import main
from tests.models.memory import MemoryStore
from tests.stream_app.api.client import Api, api_at, with_api
from tests.stream_app.client.test_client import running
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
    assert detail["counted"] == "counted events (at most 50 per user and epoch, the first ones)"
    text = (await api.get("series", format="csv")).text.splitlines()
    assert text[0].endswith(",private,meaning")
    assert "Counts at most 50 events" in text[1]
    [overview] = (await api.json("/v1/overview"))["streams"]
    assert overview["meaning"] == meaning.counts


@with_api(COUNTS, **CAPPED)
async def test_privacy_names_the_neighbours_of_users(api: Api) -> None:
    stated = await api.json("privacy")
    assert stated["neighbouring"] == "differ by all events of one user, which are there or not"


@with_api(COUNTS, **CAPPED)
async def test_rows_and_metrics_say_what_is_counted(api: Api) -> None:
    counts = meaning_of(api.stream.strategy.declared).counts
    [(_, row)] = await api.store.reader().rows("departures", 0, 1)
    assert json.loads(row)["meaning"] == counts
    metrics = (await api.get("/metrics")).text
    what = "Estimated events since the stream's first bin"
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


def test_ranges_of_users_are_labelled_within_and_over_epochs() -> None:
    async def inside() -> None:
        async with api_at(await users_of_two_epochs()) as api:
            within = await api.json("count", start=hour(1), end=hour(3))
            over = await api.json("count", start=hour(1), end=hour(6))
            assert within["counted"] == "users first seen in this range, which is within one epoch"
            assert over["counted"] == "users first seen in this range, once in each of its 2 epochs"
            assert (await api.json(""))["counted"] == over["counted"]

    asyncio.run(inside())


def test_client_and_command_line_say_what_is_counted() -> None:
    async def run() -> None:
        async with running(await users_of_two_epochs()) as url:
            await asyncio.to_thread(asked, url)

    def asked(url: str) -> None:
        counts = meaning_of(Published(MemoryStore(), **USERS).strategy.declared).counts
        with Client(url) as client:
            found = client.count("departures")
            assert found.counted == "users first seen in this range, once in each of its 2 epochs"
            assert found.meaning == client.series("departures").meaning == counts
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
        assert watched.stderr.strip() == counts
        assert len(watched.stdout.splitlines()) == 2

    asyncio.run(run())
