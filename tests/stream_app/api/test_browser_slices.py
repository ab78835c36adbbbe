"""Panels by slices of time cover the range that the page shows, and their totals are of the whole range."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.stream_app.api.browsing import Backstage, opened, panel, table, whole
from tests.stream_app.published_axes import PublishedAxes, delays

pytestmark = pytest.mark.browser

BINS = 15 * 24
# Ten days in slices of three hours or of a day: neither end is at a round time.
RANGE = {"start": "2013-01-02T05:00:00Z", "end": "2013-01-12T16:00:00Z"}
PAGE = f"/streams/delays?from={RANGE['start']}&to={RANGE['end']}"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve two weeks of departures by carrier and delay."""
    behind = Backstage()
    stream = PublishedAxes(behind.store, epsilon="2", epoch_bins=BINS, buckets=10)
    behind.fill(stream, delays(stream, BINS))
    yield behind.start()
    behind.close()


def asked(page: Page, path: str, **query: str) -> Any:
    """Request an answer of the service from within the page."""
    text = "&".join(f"{name}={value}" for name, value in query.items())
    return page.evaluate(
        "path => fetch(path).then((answer) => answer.json())", f"/v1/streams/delays/{path}?{text}"
    )


def test_totals_of_keys_are_of_the_whole_range(browser: Browser, address: str) -> None:
    with opened(browser, address + PAGE) as page:
        shown = {row[0]: whole(row[1]) for row in table(page, "keys")}
        for key, total in shown.items():
            assert total == round(asked(page, "count", key=key, **RANGE)["value"]), key
        expect(page.locator("#keys .note")).to_contain_text(
            "The first and the last slice are each shorter than the others."
        )
        expect(page.locator("#keys .note")).to_contain_text(
            "Small charts leave out slices that are only partial."
        )
        with page.expect_download() as download:
            panel(page, "keys").get_by_role("button", name="as CSV").click()
        rows = list(csv.DictReader(download.value.path().read_text().splitlines()))
        partial = {row["start"] for row in rows if row["partial"] == "true"}
        assert partial == {min(row["start"] for row in rows), max(row["start"] for row in rows)}
        for key, total in shown.items():
            assert round(sum(float(row["value"]) for row in rows if row["key"] == key)) == total


@pytest.mark.parametrize("name", ["keys", "quantiles", "heat", "preview"])
def test_slices_begin_and_end_with_the_range(browser: Browser, address: str, name: str) -> None:
    with opened(browser, address + PAGE) as page:
        with page.expect_response(lambda answer: f"/delays/{name}?" in answer.url) as told:
            panel(page, name)
        answer = told.value.json()
        first, last = (page.evaluate("Date.parse", RANGE[end]) / 1000 for end in ("start", "end"))
        assert (answer["start"][0], answer["end"][-1]) == (first, last)
        assert answer["start"][1:] == answer["end"][:-1]
        assert "shorter than the others" in answer["note"]
        expect(page.locator(f"#{name} .note")).to_contain_text("shorter than the others")


def test_events_per_group_say_what_is_not_shown(browser: Browser, address: str) -> None:
    with opened(browser, address + PAGE, viewport={"width": 390, "height": 844}) as page:
        panel(page, "bins")
        expect(page.locator("#bins .note")).to_contain_text("Not drawn, because shorter than ")
