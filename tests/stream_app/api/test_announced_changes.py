"""Readers see an announced change of settings before it holds, and from a whole minute on."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, expect

from stream_app.api import announced
from stream_app.api.announced import Announced
from stream_app.core.arrival import Arrival, ArrivalChange
from stream_app.core.instants import format_instant
from tests.patience import eventually
from tests.stream_app.api.browsing import Backstage, opened
from tests.stream_app.published import FIRST_BIN, HOUR_US

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

        def told(what: str = "announced") -> Any:
            with urlopen(f"{address}/v1/streams/departures") as answer:
                return json.load(answer).get(what)

        with opened(browser, f"{address}/streams/departures") as page:
            assert told() is None
            behind.run(behind.store.announce(stream.name, 0, None, CHANGE))
            said = {"start": format_instant(EDGE * HOUR_US), "changes": WORDS}
            eventually(lambda: told() == said, "the change is not shown")
            page.reload()
            expect(page.locator("#succession")).to_contain_text(f"on: {WORDS}.")
            behind.run(behind.store.announce(stream.name, 0, CHANGE, None))
            eventually(lambda: told() is None, "the change is still shown")
            assert not page.locator("#stream-state", has_text="Stopped by a fault").is_visible()
            behind.run(behind.store.mark_halted(stream.name, True))
            eventually(lambda: told("halted"), "the fault is not shown")
            page.reload()
            expect(page.locator("#stream-state")).to_have_text("Stopped by a fault")
            expect(page.locator("#state-words")).to_contain_text("keeps this stream from being counted")
            behind.run(behind.store.mark_halted(stream.name, False))
            eventually(lambda: not told("halted"), "the fault is still shown")
    finally:
        behind.close()


def test_no_reader_learns_when_a_worker_announced_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000_000_000.0 - 1_000_000_000 % 60 + 7
    monkeypatch.setattr("stream_app.api.announced.time.time", lambda: now_s)
    shown = Announced[ArrivalChange | None](None)
    assert shown.shown(None) is None
    assert shown.shown(CHANGE) is None
    now_s += 52.9
    assert shown.shown(CHANGE) is None
    now_s += 0.1
    assert shown.shown(CHANGE) == CHANGE
    assert shown.shown(None) == CHANGE
    now_s += 60
    assert shown.shown(None) is None
