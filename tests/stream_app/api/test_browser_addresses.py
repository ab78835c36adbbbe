"""An address that asks for what a stream does not have: the page says what is unknown and what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.stream_app.api.browsing import Backstage, fits, opened
from tests.stream_app.published_axes import PublishedAxes, delays

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Serve a stream with keys and one without, both of three days."""
    behind = Backstage()
    stream = PublishedAxes(behind.store, epsilon="2", epoch_bins=96, buckets=10)
    behind.fill(stream, delays(stream, 72))
    behind.stream([30] * 72, epoch_bins=96, source="other.ndjson")
    yield behind.start() + "/streams/"
    behind.close()


UNKNOWN = {
    "delays?key=ZZ": ("no key “ZZ”. Shown: all keys together.", ["UA", "B6", "EV", "DL", "other"]),
    "delays?key=ZZ&key=UA": ("no key “ZZ”. Shown: UA.", ["UA", "B6", "EV", "DL", "other"]),
    "departures?key=ZZ": ("This stream has no keys, so “ZZ” is unknown. Shown: all events.", []),
    "delays?view=latest": (
        "There is no view “latest”. Shown: the best values.",
        ["Best", "First", "Whole"],
    ),
    "delays?view=first_published&key=UA": ("for the count of all keys together only. Shown: the best", []),
    "delays?range=yesterday": (
        "There is no range “yesterday” for this stream. Shown: all",
        ["all", "24 hours"],
    ),
    "delays?range=15+minutes": ("There is no range “15 minutes” for this stream.", ["all", "24 hours"]),
    "delays?from=2031-01-01T00:00:00Z&to=2031-02-01T00:00:00Z": (
        "Nothing is released from 2031-01-01T00:00:00Z to 2031-02-01T00:00:00Z. Shown: 1–3 Jan 2013",
        ["All of it"],
    ),
    "delays?from=soon": ("From “soon” to “” is no range of time. Shown: 1–3 Jan 2013", ["All of it"]),
    "delays?show=median": ("This stream has no “median” to show. Shown: Counted events.", []),
    "delays?by=device": ("There is no key field “device” to group by. Shown: each key.", []),
    "delays?tz=Mars/Base": ("“Mars/Base” is no time zone that this browser knows. Shown: times of UTC.", []),
    "delays?window=77": ("There is no window of “77” seconds for the rate.", ["6 hours", "day"]),
    "delays?epsilon=much": ("“much” is no epsilon.", []),
    "delays?of=ZZ": ("There is no histogram of “ZZ”.", []),
}
FINE = (
    "delays",
    "delays?key=UA&key=other&view=consistent&range=24+hours&window=21600&epsilon=0.2&by=*",
    "delays?range=90+days",  # longer than the stream
    "delays?from=2013-01-02T00:00:00Z&to=2014-01-01T00:00:00Z&tz=Europe/Paris&show=count",
)


def test_unknown_choice_in_the_address_is_said_with_what_is_shown_instead(
    browser: Browser, site: str
) -> None:
    with opened(browser, site + "delays") as page:
        for address, (said, links) in UNKNOWN.items():
            page.goto(site + address)
            lines = page.locator("#unknown-choices p")
            expect(lines).to_have_count(1)
            expect(lines).to_contain_text(said)
            assert lines.locator("a").all_inner_texts() == links, address


def test_address_of_known_choices_needs_no_words(browser: Browser, site: str) -> None:
    with opened(browser, site + "delays") as page:
        for address in FINE:
            page.goto(site + address)
            expect(page.get_by_test_id("value")).not_to_have_text("–")
            expect(page.locator("#unknown-choices")).to_be_hidden()


def test_link_shows_what_exists_and_a_choice_ends_the_words(browser: Browser, site: str) -> None:
    with opened(browser, site + "delays?key=ZZ&view=latest") as page:
        expect(page.locator("#unknown-choices p")).to_have_count(2)
        page.locator("#unknown-choices").get_by_role("link", name="B6").click()
        expect(page.locator("#stream-name")).to_have_text("delays · B6")
        expect(page.locator("#unknown-choices p")).to_have_count(1)  # the view is still unknown
        page.get_by_label("Whole", exact=True).check()
        expect(page.locator("#unknown-choices")).to_be_hidden()


def test_words_about_an_unknown_key_fit_a_phone(browser: Browser, site: str) -> None:
    phone: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}
    with opened(browser, f"{site}delays?key={'long-name-' * 30}", **phone) as page:
        expect(page.locator("#unknown-choices")).to_be_visible()
        fits(page)
