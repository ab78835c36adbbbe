"""No reader learns from the ledger that an epoch was reserved before the row before it is visible."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from stream_app.api.announced import Announced
from stream_app.api.sse import follow
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import Rule
from stream_app.loops.alert_watch import AlertWatcher
from stream_app.ports import OperatorError
from tests.models.memory import MemoryStore
from tests.models.memory_alerts import MemoryAlertStore
from tests.stream_app.api.client import EXACT, Api, api_at, released
from tests.stream_app.api.test_private import said
from tests.stream_app.published import FIRST_BIN, Published

BINS = 6
CONDITION = "sum(departures, 1h) > 100"


async def at_its_end(store: MemoryStore, name: str = "departures", **options: Any) -> Published:
    """Return a stream whose first epoch is released, and visible except for its last bin."""
    options |= {"name": name, "epsilon": "15", "epoch_bins": BINS}
    stream = await released([5] * (BINS - 1), store, **options)
    await stream.close([5], show=False)
    return stream


async def open_bare(stream: Published, epoch: int = 1) -> None:
    """Reserve and open the stream's next epoch, which shows every event."""
    stream.change(EXACT)
    await stream.open(epoch, FIRST_BIN + epoch * BINS)


async def shown(api: Api) -> tuple[Any, ...]:
    """Return all that readers see of the ledger."""
    return await api.json("privacy"), await said(api), dict(api.app.state.replicas.ledgers)


@pytest.mark.parametrize("opened", [True, False], ids=["opened", "reserved only"])
async def test_reserved_epoch_shows_nowhere_before_the_row_before_it_is_visible(opened: bool) -> None:
    store = MemoryStore()
    stream = await at_its_end(store)
    async with api_at(stream) as api:
        before, events = await shown(api), follow(api.replica, BINS - 1)
        assert b'"private":true' in await anext(events)
        kept = list(store.streams["departures"].epochs)
        await open_bare(stream)
        if not opened:
            store.streams["departures"].epochs[:] = kept
        await api.refresh()
        assert await shown(api) == before
        async with api_at(stream) as started_again:
            assert await started_again.json("privacy") == before[0]
        await store.publish("departures", BINS)
        if opened:  # otherwise news alone need not find the entry: nothing was measured under it
            await api.replica.read_news(BINS)
            assert b'"private":false' in await anext(events)
        await api.refresh()
        after = await api.json("privacy")
        assert [row["epoch"] for row in after["ledger"]] == [0, 1]
        assert after["private"] is False
        assert set((await said(api)).values()) == {False}


async def test_epochs_of_many_releases_that_wait_stay_hidden_until_each_is_visible() -> None:
    """A day between publications may hold several epochs."""

    store = MemoryStore()
    stream = await at_its_end(store)
    async with api_at(stream) as api:
        for epoch, epsilon in ((1, "3"), (2, "2")):
            stream.change(epsilon)
            await stream.open(epoch, FIRST_BIN + epoch * BINS)
            await stream.close([1] * BINS, show=False)
        for visible, last in ((BINS, 1), (2 * BINS - 1, 1), (2 * BINS, 2)):
            await api.refresh()
            await store.publish("departures", visible)
            await api.refresh()
            ledger = (await api.json("privacy"))["ledger"]
            assert [row["epoch"] for row in ledger] == list(range(last + 1))


async def test_stream_that_can_no_longer_be_read_counts_with_all_its_entries() -> None:
    store = MemoryStore()
    stream, sibling = await at_its_end(store), await at_its_end(store, "sibling")
    async with api_at(stream) as api:
        ledgers, reader = api.app.state.replicas.ledgers, api.app.state.replicas.reader
        await open_bare(sibling)
        await api.refresh()
        assert len(ledgers["flights.ndjson"]) == 2
        own = reader.public_state

        async def public_state(name: str) -> Any:
            if name == "sibling":
                raise OperatorError("stream sibling: a newer build wrote it")
            return await own(name)

        reader.public_state = public_state
        with pytest.raises(OperatorError, match="newer build"):
            await api.refresh()
        await api.app.state.replicas.stated("flights.ndjson")
        assert len(ledgers["flights.ndjson"]) == 3


@pytest.mark.parametrize("of_group", [False, True], ids=["same source", "group of the log"])
async def test_alert_counts_a_sibling_s_epoch_once_the_row_before_it_is_visible(of_group: bool) -> None:
    """Of a stream over a group, the watched log's ledger alone says that it measures the log."""

    store, alerts = MemoryStore(), MemoryAlertStore()
    stream = Published(store, epsilon="1")
    await stream.open()
    sibling = await released(
        [5] * (BINS - 1),
        store,
        name="sibling",
        epsilon="15",
        epoch_bins=BINS,
        source="group" if of_group else stream.source,
    )
    await sibling.close([5], show=False)
    rule = Rule("busy", CONDITION, parse_condition(CONDITION))
    watcher = AlertWatcher([rule], store.reader(), alerts)
    await stream.close([0])
    await watcher.look()

    async def told(counts: list[int]) -> list[bool]:
        await stream.close(counts)
        await watcher.look()
        return [json.loads(text)["private"] for _, text in await alerts.transitions("", 10)]

    await open_bare(sibling)
    for entry in await store.ledger("group"):
        await store.reserve(replace(entry, source=stream.source))
    assert set(await told([5000, 0])) == {True}
    await store.publish("sibling", BINS)
    assert (await told([5000]))[-1] is False


def test_no_reader_learns_when_a_worker_opened_a_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a start takes follows the machine and the logs: readers see whole minutes."""
    edge = FIRST_BIN + 64
    now_s = edge * 3_600 - 300.0 + 7
    monkeypatch.setattr("stream_app.api.announced.time.time", lambda: now_s)

    async def told(api: Api) -> tuple[Any, ...]:
        await api.refresh()
        about = [(await api.client.get(f"/v1/{path}")).text for path in ("streams", "streams/departures")]
        newer = (await api.client.get("/v1/streams/departures@2")).status_code
        return (*about, await api.json("privacy"), dict(api.app.state.replicas.ledgers), newer)

    async def run() -> None:
        nonlocal now_s
        store = MemoryStore()
        stream = await released([40] * 5, store, epoch_bins=64)
        async with api_at(stream) as api:
            before = await told(api)
            following = Published(
                store, "departures@2", first_bin=edge, epsilon="2", successor_of="departures"
            )
            await following.open()
            assert await told(api) == before
            now_s += 52.9
            assert await told(api) == before
            async with api_at(stream) as started_again:
                assert await told(started_again) == before
            now_s += 0.1
            about = await told(api)
            assert about[-1] == 200
            assert len(api.app.state.replicas.ledgers[stream.strategy.source]) == 2
            assert "departures@2" in about[1]
            now_s = edge * 3_600 + 3_607.0
            await following.close([30])
            async with api_at(stream) as started_again:
                assert (await told(started_again))[-1] == 200, "its rows are visible"

    asyncio.run(run())


def test_no_reader_learns_when_a_worker_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000_000_000.0 - 1_000_000_000 % 60 + 7
    monkeypatch.setattr("stream_app.api.announced.time.time", lambda: now_s)
    shown = Announced(False)
    assert [shown.shown(known) for known in (False, True)] == [False, False]
    now_s += 52.9
    assert not shown.shown(True)
    now_s += 0.1
    assert shown.shown(True)
    assert shown.shown(False)
    now_s += 60
    assert not shown.shown(False)
