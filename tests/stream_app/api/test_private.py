"""Every answer states at once whether a stream is private, as the ledger of its source says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stream_app.api.replicas import Replicas
from stream_app.api.sse import follow
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import Rule
from stream_app.core.alerts.states import State
from stream_app.loops.alert_watch import AlertWatcher
from stream_app.ports import OperatorError
from tests.models.memory import MemoryStore
from tests.models.memory_alerts import MemoryAlertStore
from tests.stream_app.api.client import EXACT, Api, api_at, released
from tests.stream_app.published import Published

pytestmark = pytest.mark.slow

PATHS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("", {}),
    ("count", {}),
    ("series", {}),
    ("nodes", {}),
    ("privacy", {}),
    ("marks", {}),
    ("transitions", {}),
    ("preview", {"epsilon": 1}),
)
# What a later stream over the same source does to the promise about this one.
SIBLINGS = {"the sum protects nobody": "15", "a bare sibling shows the same events": EXACT}


@asynccontextmanager
async def one_of_epsilon_15() -> AsyncIterator[tuple[Api, MemoryStore]]:
    store = MemoryStore()
    stream = await released([5] * 12, store, epsilon="15")
    async with api_at(stream) as api:
        yield api, store


async def said(api: Api) -> dict[str, Any]:
    """Return what each address says about the privacy of a stream."""
    found = {path or "stream": (await api.json(path, **query))["private"] for path, query in PATHS}
    for path in ("/v1/streams", "/v1/overview"):
        listed = (await api.json(path))["streams"]
        found[path] = next(one["private"] for one in listed if one["stream"] == "departures")
    csv = (await api.get("series", format="csv")).text.splitlines()
    found["csv"] = csv[1].endswith(",true")
    text = (await api.get("/metrics")).text
    found["/metrics"] = 'private_counts_running{private="true",stream="departures"}' in text
    labels = await api.json("/api/v1/series", **{"match[]": '{stream="departures"}'})
    found["labels"] = {one["private"] for one in labels["data"]} == {"true"}
    event = (await anext(follow(api.replica, 11))).decode()
    found["/events"] = json.loads(event.partition("event: privacy\ndata: ")[2].partition("\n")[0])["private"]
    return found


@pytest.mark.parametrize("epsilon", SIBLINGS.values(), ids=SIBLINGS)
async def test_no_answer_says_private_once_the_ledger_has_a_public_sibling(epsilon: str) -> None:
    async with one_of_epsilon_15() as (api, store):
        assert set((await said(api)).values()) == {True}
        etag = (await api.get("count")).headers["etag"]
        events = follow(api.replica, 12)
        assert b'"private":true' in await anext(events)
        sibling = Published(store, name="sibling", epsilon=epsilon)
        await sibling.open()  # reserved in the ledger, but it has released nothing yet
        await api.refresh()
        assert set((await said(api)).values()) == {False}
        known = await api.get("count", headers={"If-None-Match": etag})
        assert (known.status_code, known.json()["private"]) == (200, False)
        await api.stream.close([1])
        await api.refresh()
        told = await anext(events)
        assert told.index(b'event: privacy\ndata: {"stream":"departures","private":false}') < told.index(
            b"event: release"
        )
        # A row's bytes are fixed at its release. It says only what its stream was configured to do.
        [(_, row)] = await store.reader().rows("departures", 12, 1)
        assert "private" not in json.loads(row)
        assert json.loads(row)["not_private"] is False


async def test_statement_includes_a_sibling_before_its_rows_are_shown() -> None:
    async with one_of_epsilon_15() as (api, store):
        await released([7], store, name="bare", epsilon=EXACT)
        reader = store.reader()
        shown: list[bool] = []
        own = reader.rows

        async def rows(stream: str, after: int, limit: int) -> Any:
            if stream == "bare":
                shown.append(api.app.state.replicas.by_name["bare"].seq > 0)
            return await own(stream, after, limit)

        api.app.state.replicas.reader.rows = rows
        await api.refresh()
        assert shown == [False]
        assert (await api.json("count"))["private"] is False


async def test_alert_states_privacy_as_of_when_it_is_sent_and_asked_for() -> None:
    async with one_of_epsilon_15() as (api, store):
        text = "count(departures) > 1"
        alerts = MemoryAlertStore()
        watcher = AlertWatcher([Rule("busy", text, parse_condition(text))], store.reader(), alerts)
        await watcher.look()
        await api.stream.close([50])
        await watcher.look()
        states, _ = await alerts.load()
        api.app.state.replicas.alerts = {name: State.from_json(text) for name, text in states.items()}
        [alert] = (await api.json("/v1/alerts"))["alerts"]
        assert alert["private"] is True
        await Published(store, name="bare", epsilon=EXACT).open()
        await api.app.state.replicas.stated(api.stream.source)
        [alert] = (await api.json("/v1/alerts"))["alerts"]
        assert alert["private"] is False
        resolving = AlertWatcher([], store.reader(), alerts)
        await resolving.look()
        other = AlertWatcher([Rule("again", text, parse_condition(text))], store.reader(), alerts)
        await other.look()
        await api.stream.close([50])
        await other.look()
        told = [json.loads(text) for _, text in await alerts.transitions("", 10)]
        assert [(one["rule"], one["private"]) for one in told if one["kind"] == "firing"] == [
            ("busy", True),
            ("again", False),
        ]


async def test_statement_keeps_epochs_that_the_ledger_has_lost() -> None:
    """In a cluster the ledger is on another node than its streams; that node alone may be lost."""

    async with one_of_epsilon_15() as (api, store):
        before = await api.json("privacy")
        assert [row["epoch"] for row in before["ledger"]] == [0]
        store.ledgers.clear()
        await api.refresh()
        assert await api.json("privacy") == before
        async with api_at(api.stream) as started_again:
            assert await started_again.json("privacy") == before
        sibling = Published(store, name="sibling", epsilon="15")
        await sibling.open()  # the ledger has this stream's entry only
        await api.refresh()
        after = await api.json("privacy")
        assert {row["stream"] for row in after["ledger"]} == {"departures", "sibling"}
        assert (after["source_epsilon"], after["private"]) == ("30", False)


@asynccontextmanager
async def two_of_epsilon_15() -> AsyncIterator[tuple[Api, MemoryStore]]:
    """Yield an application over two streams that protect nobody together, and their store."""
    async with one_of_epsilon_15() as (api, store):
        await released([1] * 3, store, name="sibling", epsilon="15")
        await api.refresh()
        yield api, store


@pytest.mark.parametrize("news", [True, False], ids=["news", "refresh"])
async def test_no_row_is_shown_as_private_after_the_ledger_was_lost(news: bool) -> None:
    async with two_of_epsilon_15() as (api, store):
        before, events = await api.json("privacy"), follow(api.replica, 12)
        assert b'"private":false' in await anext(events)
        store.ledgers.clear()
        await api.stream.close([1])
        await (api.replica.read_news(13) if news else api.replica.refresh())
        assert api.replica.seq == 13
        assert set((await said(api)).values()) == {False}
        after = await api.json("privacy")
        for name in ("ledger", "source_epsilon", "private"):
            assert after[name] == before[name]
        assert b"event: privacy" not in await anext(events)


async def test_first_row_that_a_new_process_shows_counts_epochs_that_the_ledger_has_lost() -> None:
    """The streams are shown one after the other, and the sibling last."""

    async with two_of_epsilon_15() as (_, store):
        store.ledgers.clear()
        reader, shown = store.reader(), list[bool]()
        replicas = Replicas(reader)
        own = reader.tile_rows

        async def tile_rows(stream: str, *place: Any) -> Any:
            if stream == "sibling":
                for _ in range(100):  # turns of the loop, in which the other stream is shown
                    await asyncio.sleep(0)
                assert replicas.by_name["departures"].view is not None
                shown.append(replicas.by_name["departures"].private)
            return await own(stream, *place)

        reader.tile_rows = tile_rows  # type: ignore[method-assign, assignment]
        await replicas.refresh()
        assert set(shown) == {False}


async def test_stream_that_cannot_be_read_does_not_keep_others_from_being_shown() -> None:
    async with two_of_epsilon_15() as (api, store):
        replicas, own = api.app.state.replicas, replicas_reader(api).public_state

        async def public_state(stream: str) -> Any:
            if stream == "sibling":
                raise OperatorError("stream sibling: a newer build wrote it")
            return await own(stream)

        replicas_reader(api).public_state = public_state
        store.ledgers.clear()
        await api.stream.close([1])
        with pytest.raises(OperatorError, match="newer build"):
            await replicas.refresh()
        assert (api.replica.seq, api.replica.private) == (13, False)


def replicas_reader(api: Api) -> Any:
    return api.app.state.replicas.reader


async def test_epoch_that_begins_as_another_stream_goes_is_kept() -> None:
    """As many epochs are known as before, but not the same."""

    async with two_of_epsilon_15() as (api, store):
        for name in ("sibling", "other"):
            store.ledgers.clear()
            if name == "other":
                del store.streams["sibling"]
                other = Published(store, name="other", epsilon="15")
                await other.open()
                store.ledgers.clear()
            await api.refresh()
            told = await api.json("privacy")
            assert {row["stream"] for row in told["ledger"]} == {"departures", name}
            assert told["private"] is False


async def test_alert_counts_epochs_that_the_ledger_has_lost() -> None:
    async with two_of_epsilon_15() as (api, store):
        store.ledgers.clear()
        text, alerts = "count(departures) > 1", MemoryAlertStore()
        watcher = AlertWatcher([Rule("busy", text, parse_condition(text))], store.reader(), alerts)
        await watcher.look()
        await api.stream.close([50])
        await watcher.look()
        [(_, told)] = await alerts.transitions("", 10)
        assert (json.loads(told)["kind"], json.loads(told)["private"]) == ("firing", False)
