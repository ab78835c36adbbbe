"""A stream with a total says everywhere what is left of it, and since when nothing is counted."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from stream_app.core.answers.labels import AllLabels, Labels
from stream_app.core.budget import Left, Total, left
from stream_app.core.counting.bounding import PerUser
from stream_app.core.records import LedgerEntry
from tests.models.memory import MemoryStore
from tests.stream_app.api.browsing import Backstage, fits, opened
from tests.stream_app.api.client import asking, released

pytestmark = pytest.mark.slow

ANN = PerUser("name", 3)
DAY_US = 86_400_000_000
BINS = 24


def entry(stream: str, epoch: int, unit: str = "user", until_us: int | None = None) -> LedgerEntry:
    start_us = epoch * DAY_US
    return LedgerEntry(
        "file:a",
        stream,
        epoch,
        start_us,
        start_us + DAY_US,
        "1",
        unit,
        stream,
        until_us=until_us,
        user="name",
    )


@pytest.mark.parametrize(
    ("entries", "total", "expected"),
    [
        ([entry("a", 0)], Total(Fraction(4)), Left(3, 4 * DAY_US)),
        ([entry("a", 0)], Total(Fraction(1)), Left(0, DAY_US, is_spent=True)),
        # Two streams take turns: the last epoch that fits is the other stream's.
        ([entry("a", 0), entry("b", 0)], Total(Fraction(4)), Left(1, 2 * DAY_US)),
        ([entry("a", 0), entry("b", 0)], Total(Fraction(5)), Left(2, 3 * DAY_US)),
        ([entry("b", 0), entry("a", 1)], Total(Fraction(3)), Left(0, 2 * DAY_US)),
        ([entry("a", 0), entry("b", 0)], Total(Fraction(5), per="stream"), Left(4, 5 * DAY_US)),
        ([entry("a", 0, "event")], Total(Fraction(1)), Left(None, DAY_US)),
        ([entry("a", 0, until_us=3 * DAY_US)], Total(Fraction(9)), Left(2, 3 * DAY_US)),
        ([entry("a", 0, until_us=DAY_US)], Total(Fraction(9)), None),
        ([entry("b", 0)], Total(Fraction(9)), None),
        ([entry("a", 0)], Total(Fraction(4), Fraction(1, 10**6)), Left(3, 4 * DAY_US)),
    ],
)
def test_epochs_left_are_counted_as_if_all_streams_go_on(
    entries: list[LedgerEntry], total: Total, expected: Left | None
) -> None:
    assert left(total, entries, "a") == expected


def test_a_delta_lets_many_small_epochs_cost_less_than_their_sum() -> None:
    small = [LedgerEntry("file:a", "a", 0, 0, DAY_US, "1/100", "user", "a")]
    pure, composed = (left(Total(Fraction(1), delta), small, "a") for delta in (None, Fraction(1, 10**6)))
    assert pure is not None
    assert composed is not None
    assert (pure.epochs, composed.epochs) == (99, 561)


def test_what_is_left_is_said_in_words() -> None:
    total = Total(Fraction(10), Fraction(1, 10**6))
    words = Left(4, 5 * DAY_US).sentence(total)
    assert words == (
        "Within the total of (epsilon 10, delta 1e-6) for the source, 4 epochs may follow, until "
        "1970-01-06T00:00:00Z."
    )
    spent = Left(0, DAY_US, is_spent=True).sentence(Total(Fraction(1), per="stream"))
    assert spent == (
        "Nothing is counted from 1970-01-02T00:00:00Z on: one more epoch would exceed the total of epsilon 1 "
        "for the stream."
    )


async def ask(store: MemoryStore, total: Total, *paths: str) -> list[Any]:
    async with asking(store, labels=AllLabels({"departures": Labels(total=total)})) as (_, client):
        replies = [await client.get(path) for path in paths]
    return [reply.json() if "json" in reply.headers["content-type"] else reply.text for reply in replies]


async def test_answers_and_metrics_say_what_is_left() -> None:
    stream = await released([3] * BINS, user=ANN, epoch_bins=BINS)
    paths = ("/v1/streams/departures/privacy", "/v1/streams/departures", "/metrics")
    privacy, detail, metrics = await ask(stream.store, Total(Fraction(3)), *paths)
    assert (privacy["total"]["epochs_left"], privacy["total"]["spent"]) == (2, False)
    assert detail["next_release"] is not None
    assert 'private_counts_epochs_left{private="true",stream="departures"} 2.0' in metrics
    privacy, detail, metrics = await ask(stream.store, Total(Fraction(1)), *paths)
    assert privacy["total"]["spent"] is True
    assert privacy["total"]["sentence"].startswith(f"Nothing is counted from {privacy['total']['until']} on")
    assert (detail["next_release"], detail["ends"]) == (None, privacy["total"]["until"])
    assert 'private_counts_epochs_left{private="true",stream="departures"} 0.0' in metrics


@pytest.mark.browser
def test_page_says_since_when_nothing_is_counted(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([5] * BINS, user=ANN, epoch_bins=BINS)
    labels = AllLabels({"departures": Labels(total=Total(Fraction(1), Fraction(1, 10**6)))})
    phone = {"width": 390, "height": 844}
    with opened(browser, backstage.start(labels=labels) + "/streams/departures", viewport=phone) as page:
        expect(page.locator("#spent")).to_contain_text("Nothing is counted from")
        expect(page.locator("#stream-state")).to_have_text("Complete")
        expect(page.locator("#privacy-numbers")).to_contain_text("Epochs left0")
        fits(page)


@pytest.mark.browser
def test_page_says_how_many_epochs_are_left(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([5] * BINS, user=ANN, epoch_bins=BINS)
    labels = AllLabels({"departures": Labels(total=Total(Fraction(5)))})
    with opened(browser, backstage.start(labels=labels) + "/streams/departures") as page:
        expect(page.locator("#also")).to_contain_text("4 epochs may follow, until")
        expect(page.locator("#also")).to_contain_text("One more epoch of this stream makes epsilon 2.")
        expect(page.locator("#spent")).to_be_hidden()
