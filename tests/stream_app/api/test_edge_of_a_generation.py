"""What readers see of a generation before its first release, and after its first epoch has left."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from stream_app.core.instants import format_instant
from stream_app.core.records import History
from tests.patience import eventually
from tests.stream_app.api.browsing import Backstage, opened
from tests.stream_app.api.test_generations import (
    EDGE,
    EDGE_TEXT,
    SENTENCE,
    announcing_at_once,
    asked,
    following,
    status,
)
from tests.stream_app.published import HOUR_US


def test_a_mark_before_its_edge_says_what_will_change(monkeypatch: pytest.MonkeyPatch) -> None:
    with announcing_at_once(monkeypatch) as behind:
        behind.stream([40] * 5)  # half of the bins before the edge
        behind.store.streams["departures"].history = History(retired_us=EDGE * HOUR_US)
        following(behind)
        address = behind.start()
        eventually(lambda: status(address, "/v1/streams/departures@2") == 200, "it is not open")
        coming = asked(address, "/v1/streams/departures@2")
        assert [(mark["start"], mark["text"]) for mark in coming["annotations"]] == [(EDGE_TEXT, SENTENCE)]


@pytest.mark.browser
def test_a_generation_keeps_its_beginning_when_its_first_epoch_leaves(browser: Browser) -> None:
    behind = Backstage()
    try:
        behind.stream([40] * 10)
        later = following(behind, epoch_bins=4)
        behind.run(later.close([30] * 4))
        later.change("7")
        behind.run(later.open(1, EDGE + 4))
        behind.run(later.close([30] * 2))
        assert behind.run(behind.store.trim("departures@2", (EDGE + 4) * HOUR_US)) == 1
        address = behind.start()
        kept = asked(address, "/v1/streams/departures")
        starts = kept["generation_start"], kept["kept_from"]
        assert starts == (EDGE_TEXT, format_instant((EDGE + 4) * HOUR_US))
        assert kept["changes"] == "departures goes on as generation 2 with other settings."
        with opened(browser, f"{address}/streams/departures") as page:
            expect(page.locator("#succession")).to_contain_text(
                "Events before it began are counted by departures@1."
            )
    finally:
        behind.close()


@pytest.mark.browser
def test_a_coming_generation_is_announced(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    with announcing_at_once(monkeypatch) as behind:
        behind.stream([40] * 5)  # half of the bins before the edge
        following(behind)
        address = behind.start()
        eventually(lambda: "successor_changes" in asked(address, "/v1/streams/departures"), "no announcement")
        assert asked(address, "/v1/streams/departures")["successor_changes"] == SENTENCE
        assert asked(address, "/v1/streams/departures@2")["changes"] == SENTENCE
        with opened(browser, f"{address}/streams/departures") as page:
            expect(page.locator("#succession")).to_contain_text(f"are counted by departures@2. {SENTENCE}")
            page.goto(f"{address}/streams/departures@2")
            expect(page.locator("#succession")).to_contain_text(SENTENCE)
