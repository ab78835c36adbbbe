"""Readers see an announced change of settings before it holds, and from a whole minute on."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, expect

from stream_app.api import announced
from stream_app.api.announced import Announced
from stream_app.core.arrival import Arrival, ArrivalChange
from stream_app.core.instants import format_instant
from tests.models.memory import MemoryStore
from tests.patience import eventually
from tests.stream_app.api.browsing import Backstage, opened
from tests.stream_app.api.client import Api, api_at
from tests.stream_app.published import FIRST_BIN, HOUR_US, Published

EDGE = FIRST_BIN + 64
CHANGE = ArrivalChange(EDGE, Arrival(10_000_000, 24, "drop"), Arrival(5_000_000, 24, "next_bin"))
WORDS = "grace 5 s instead of 10 s; late events: next_bin instead of drop"


@pytest.mark.browser
def test_a_change_is_shown_until_its_epoch_begins(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announced, "SHOWN_EVERY_S", 0.1)
    behind = Backstage()
    try:
        stream = behind.stream([40] * 5)
        address = behind.start()

        def told() -> Any:
            with urlopen(f"{address}/v1/streams/departures") as answer:
                return json.load(answer).get("announced")

        with opened(browser, f"{address}/streams/departures") as page:
            assert told() is None
            behind.run(behind.store.announce(stream.name, 0, None, CHANGE))
            said = {"start": format_instant(EDGE * HOUR_US), "changes": WORDS}
            eventually(lambda: told() == said, "the change is not shown")
            page.reload()
            expect(page.locator("#succession")).to_contain_text(f"on: {WORDS}.")
            behind.run(behind.store.announce(stream.name, 0, CHANGE, None))
            eventually(lambda: told() is None, "the change is still shown")
    finally:
        behind.close()


def test_no_reader_learns_when_a_worker_announced_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000_000_000.0 - 1_000_000_000 % 60 + 7
    monkeypatch.setattr("stream_app.api.announced.time.time", lambda: now_s)
    shown = Announced()
    assert shown.shown(None) is None
    assert shown.shown(CHANGE) is None
    now_s += 52.9
    assert shown.shown(CHANGE) is None
    now_s += 0.1
    assert shown.shown(CHANGE) == CHANGE
    assert shown.shown(None) == CHANGE
    now_s += 60
    assert shown.shown(None) is None


def test_no_reader_learns_when_a_worker_opened_a_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a start takes follows the machine and the logs: readers see whole minutes."""
    now_s = EDGE * 3_600 - 300.0 + 7
    monkeypatch.setattr("stream_app.api.announced.time.time", lambda: now_s)

    async def told(api: Api) -> tuple[Any, ...]:
        await api.refresh()
        about = [(await api.client.get(f"/v1/{path}")).text for path in ("streams", "streams/departures")]
        newer = (await api.client.get("/v1/streams/departures@2")).status_code
        return (*about, await api.json("privacy"), dict(api.app.state.replicas.ledgers), newer)

    async def run() -> None:
        nonlocal now_s
        store = MemoryStore()
        stream = Published(store, epoch_bins=64)
        await stream.open()
        await stream.close([40] * 5)
        async with api_at(stream) as api:
            before = await told(api)
            following = Published(
                store, "departures@2", first_bin=EDGE, epsilon="2", successor_of="departures"
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
            now_s = EDGE * 3_600 + 3_607.0
            await following.close([30])
            async with api_at(stream) as started_again:
                assert (await told(started_again))[-1] == 200, "its rows are visible"

    asyncio.run(run())
