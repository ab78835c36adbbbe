"""The page of a stream with several key fields: a choice for each field, and charts by one field."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from stream_app.core.counting.cells import Buckets
from stream_app.core.counting.keys import KeyField, KeyList
from tests.stream_app.api.browsing import Backstage, asked, eventually, fits, opened, panel, table, whole
from tests.stream_app.published_axes import PublishedAxes, PublishedKeys, delays

pytestmark = pytest.mark.browser

HOURS = 24
FIELDS = (KeyField("country", ("FR", "DE"), True), KeyField("device", ("mobile", "desk/top"), False))


class PublishedClicks(PublishedAxes):
    """Clicks per country and device; the value is not shown here."""

    def axes(self) -> tuple[KeyList, Buckets]:
        """Return the declared keys and value."""
        return KeyList(fields=FIELDS, total=False), super().axes()[1]

    @property
    def keys(self) -> int:
        """The number of combinations."""
        return 6


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    behind = Backstage()
    # Five carriers and their "other" are planned: as many keys as there are combinations.
    stream = PublishedClicks(
        behind.store, name="clicks", epsilon="2", epoch_bins=HOURS, buckets=4, carriers=tuple("abcde")
    )
    behind.run(stream.open())
    behind.run(stream.close_cells(delays(stream, HOURS)))
    behind.run(PublishedKeys(behind.store, epoch_bins=HOURS, carriers=("UA", "DL")).fill(np.full((3, 2), 5)))
    yield behind.start() + "/streams/clicks"
    behind.close()


def test_each_field_is_chosen_by_itself(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.locator("#key-picker summary").click()
        page.get_by_role("group", name="country").get_by_label("FR").check()
        expect(page.locator("#stream-name")).to_have_text("clicks · country: FR")
        french = asked(page, "count?key=FR/*")
        expect(page.get_by_test_id("value")).to_have_text(f"{round(french['value']):,}")
        page.get_by_role("group", name="country").get_by_label("other").check()
        page.get_by_role("group", name="device").get_by_label("desk/top").check()
        expect(page.locator("#stream-name")).to_have_text("clicks · country: FR + other, device: desk/top")
        both = asked(page, "count?key=FR/desk%5C/top&key=other/desk%5C/top")
        expect(page.get_by_test_id("value")).to_have_text(f"{round(both['value']):,}")
        expect(page.locator("#interval")).to_contain_text(
            "listed (country: FR + other, device: desk/top): between"
        )
        shared = page.url
        page.goto("about:blank")
        page.goto(shared)
        expect(page.locator("#key-chosen")).to_have_text("country: FR + other, device: desk/top")
        page.locator("#key-picker summary").click()
        page.get_by_role("group", name="country").get_by_label("FR").uncheck()
        page.get_by_role("group", name="country").get_by_label("other").uncheck()
        expect(page.locator("#stream-name")).to_have_text("clicks · device: desk/top")
        page.set_viewport_size({"width": 390, "height": 844})
        fits(page)


def test_charts_are_by_one_field_or_by_each_combination(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        for by, path in (("country", "keys?by=country"), ("device", "keys?by=device"), ("*", "keys")):
            panel(page, "keys")
            page.locator("#keys-by").select_option(by)
            found = asked(page, path)["keys"]
            expect(page.locator("#keys .multiple")).to_have_count(len(found))
            names = [one["key"] for one in found]
            shown = {"country": 0, "device": 1}.get(by)
            if shown is not None:
                names = [name.replace("\\/", "|").split("/")[shown].replace("|", "/") for name in names]
            assert [row[0] for row in table(page, "keys")] == names
            assert [whole(row[1]) for row in table(page, "keys")] == [round(one["value"]) for one in found]
        eventually(page, lambda: "by=*" in page.url or "by=%2A" in page.url)
        page.locator("#keys-by").select_option("country")
        panel(page, "keys").get_by_role("button", name="DE", exact=True).click()
        expect(page.locator("#stream-name")).to_have_text("clicks · country: DE")
        expect(panel(page, "keys").get_by_role("button", name="DE", exact=True)).to_have_attribute(
            "aria-pressed", "true"
        )


@pytest.mark.parametrize(("stream", "is_offered"), [("clicks", True), ("carriers", False)])
def test_only_several_fields_offer_a_grouping_before_the_charts_come(
    browser: Browser, address: str, stream: str, is_offered: bool
) -> None:
    waiting = list[Route]()  # requests that nobody answers

    def leave_charts_unanswered(page: Page) -> None:
        page.route(re.compile(r"/v1/streams/\w+/(series|keys)\?"), lambda route: waiting.append(route))

    with opened(browser, address.replace("clicks", stream), before=leave_charts_unanswered) as page:
        page.locator("#keys").wait_for()
        assert page.locator("#keys-by").is_visible() is is_offered
