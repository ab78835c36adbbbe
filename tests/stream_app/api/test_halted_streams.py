"""Readers see that a fault has stopped a stream, from a whole minute on."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, expect

from stream_app.api import announced
from stream_app.api.announced import Announced
from tests.patience import eventually
from tests.stream_app.api.browsing import Backstage, opened


@pytest.mark.browser
def test_a_stream_that_a_fault_has_stopped_is_marked(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announced, "SHOWN_EVERY_S", 0.1)
    behind = Backstage()
    try:
        stream = behind.stream([40] * 5)
        address = behind.start()

        def halted() -> Any:
            with urlopen(f"{address}/v1/streams/departures") as answer:
                return json.load(answer).get("halted")

        with opened(browser, f"{address}/streams/departures") as page:
            assert not page.locator("#stream-state", has_text="Stopped by a fault").is_visible()
            behind.run(behind.store.mark_halted(stream.name, True))
            eventually(halted, "the fault is not shown")
            page.reload()
            expect(page.locator("#stream-state")).to_have_text("Stopped by a fault")
            expect(page.locator("#state-words")).to_contain_text("keeps this stream from being counted")
            behind.run(behind.store.mark_halted(stream.name, False))
            eventually(lambda: not halted(), "the fault is still shown")
    finally:
        behind.close()


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
