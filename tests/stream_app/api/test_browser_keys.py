"""Keys on a stream's page: chosen by field, several, among a thousand; strange, long, and found ones."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from stream_app.core.counting.cells import Buckets
from stream_app.core.counting.keys import KeyField, KeyList
from tests.models.memory import MemoryStore
from tests.stream_app.api.browsing import (
    Backstage,
    asked,
    eventually,
    fits,
    holds,
    in_address,
    opened,
    panel,
    photograph,
    table,
    whole,
)
from tests.stream_app.api.client import EXACT
from tests.stream_app.api.test_found_keys import PAGES, amounts_of, visited
from tests.stream_app.published_axes import PublishedAxes, PublishedKeys, delays

pytestmark = pytest.mark.browser

FIELDS = (KeyField("country", ("FR", "DE"), True), KeyField("device", ("mobile", "desk/top"), False))
MANY = tuple(f"shop-{number:04}" for number in range(999))
GRAFANA = Path(__file__).with_name("grafana_escapes.json")
STRANGE = tuple(json.loads(GRAFANA.read_text())["keys"])
LONG = max(STRANGE, key=len)
COUNTS = np.add.outer(np.arange(30) % 3, np.arange(len(STRANGE)) % 7 + 50 * (np.array(STRANGE) == LONG))


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
def site() -> Iterator[str]:
    """Serve streams of found keys, two fields, five carriers, 1,000 shops and 101 strange keys."""
    with Backstage() as behind:
        with ThreadPoolExecutor(1) as apart:  # a world has an event loop, as the browser of this thread has
            behind.store.restore(apart.submit(played).result())
        # Five carriers and their "other" are planned: as many keys as there are combinations.
        clicks = PublishedClicks(
            behind.store,
            name="clicks",
            source="clicks",
            epsilon="2",
            epoch_bins=24,
            buckets=4,
            carriers=tuple("abcde"),
        )
        behind.fill(clicks, delays(clicks, 24))
        stream = PublishedAxes(behind.store, epsilon="2", epoch_bins=48, buckets=10)
        behind.fill(stream, delays(stream, 48))
        shops = PublishedAxes(
            behind.store, name="shops", source="b", epsilon="2", epoch_bins=4, carriers=MANY, buckets=2
        )
        behind.fill(shops, np.full((4, 1000, 2), 3, np.int64))
        strange = PublishedKeys(
            behind.store, name="strange", source="c", carriers=STRANGE, epsilon=EXACT, epoch_bins=32
        )
        behind.run(strange.fill(COUNTS))
        yield behind.start() + "/streams/"


def played() -> MemoryStore:
    with visited(users=True) as world:
        return world.store


def test_each_field_is_chosen_by_itself(browser: Browser, site: str) -> None:
    with opened(browser, site + "clicks") as page:
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
        expect(page.locator("#interval")).to_contain_text("listed (country: FR + other, device: desk/top): ")
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


def test_charts_are_by_one_field_or_by_each_combination(browser: Browser, site: str) -> None:
    with opened(browser, site + "clicks") as page:
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


@pytest.mark.parametrize(("stream", "is_offered"), [("clicks", True), ("delays", False)])
def test_only_several_fields_offer_a_grouping_before_the_charts_come(
    browser: Browser, site: str, stream: str, is_offered: bool
) -> None:
    waiting = list[Route]()  # requests that nobody answers

    def leave_charts_unanswered(page: Page) -> None:
        page.route(re.compile(r"/v1/streams/\w+/(series|keys)\?"), lambda route: waiting.append(route))

    with opened(browser, site + stream, before=leave_charts_unanswered) as page:
        page.locator("#keys").wait_for()
        assert page.locator("#keys-by").is_visible() is is_offered


def test_chosen_keys_are_counted_together_in_every_panel(browser: Browser, site: str) -> None:
    with opened(browser, site + "delays") as page:
        page.locator("#key-picker summary").click()
        page.get_by_label("B6", exact=True).check()
        page.get_by_label("UA", exact=True).check()
        expect(page.locator("#stream-name")).to_have_text("delays · B6 + UA")  # in the order of the choice
        expect(page.locator("#key-chosen")).to_have_text("B6 + UA")
        eventually(page, lambda: page.url.endswith("?key=B6&key=UA"))
        both = asked(page, "count?key=UA&key=B6")
        expect(page.get_by_test_id("value")).to_have_text(f"{round(both['value']):,}")
        events = "True number of events with a number in delay"
        expect(page.locator("#interval")).to_contain_text(f"{events} for B6 + UA")
        page.keyboard.press("Escape")
        expect(page.locator("#key-picker summary")).to_be_focused()
        bins = asked(page, "series?kind=bin&key=UA&key=B6")
        assert [whole(row[1]) for row in table(page, "bins")] == [round(one) for one in bins["value"]][::-1]
        for name in ("running", "rate", "quantiles", "heat", "cdf", "preview"):
            panel(page, name)
        pressed = panel(page, "keys").locator("button[aria-pressed=true]")
        expect(pressed).to_have_count(2)
        address = page.url
        page.goto("about:blank")
        page.goto(address)  # as somebody who gets the address
        expect(page.locator("#stream-name")).to_have_text("delays · B6 + UA")
        expect(page.get_by_test_id("value")).to_have_text(f"{round(both['value']):,}")
        page.locator("#key-picker summary").click()
        page.get_by_role("button", name="All keys").click()
        expect(page.locator("#stream-name")).to_have_text("delays")
        in_address(page, "key=", is_there=False)


def test_keys_of_a_saved_file_are_in_its_name(browser: Browser, site: str) -> None:
    with opened(browser, site + "delays?key=UA&key=B6") as page:
        panel(page, "bins")
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save Counted events per hour as CSV").click()
        assert saved.value.suggested_filename == "delays-UA-B6-bins.csv"


def test_keyboard_chooses_among_a_thousand_keys_by_searching(browser: Browser, site: str) -> None:
    with opened(browser, site + "shops") as page:
        expect(page.locator("#key-picker")).to_be_visible()
        page.locator("#key-picker summary").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_label("Search keys")).to_be_focused()
        expect(page.locator("#key-note")).to_have_text("The first 200 of 1,000 keys; search for the others.")
        page.keyboard.type("0777")
        expect(page.locator("#key-note")).to_have_text("1 of 1,000 keys.")
        page.keyboard.press("Enter")
        expect(page.locator("#stream-name")).to_have_text("shops · shop-0777")
        page.get_by_label("Search keys").fill("shop-088")
        expect(page.locator("#key-note")).to_have_text("10 of 1,000 keys.")
        for _ in range(3):
            page.keyboard.press("Tab")
            page.keyboard.press("Space")
        expect(page.locator("#stream-name")).to_have_text("shops · shop-0777 + shop-0880 + 2 more")
        eventually(page, lambda: page.url.count("key=") == 4)
        expect(page.locator("#interval")).to_contain_text("for shop-0777 + shop-0880 + shop-0881 + shop-0882")
        page.get_by_label("Search keys").fill("nothing")
        expect(page.locator("#key-note")).to_have_text("No key has this in its name.")


def test_box_of_keys_fits_on_a_phone(browser: Browser, site: str) -> None:
    phone = {"width": 390, "height": 844}
    with opened(browser, site + "shops", viewport=phone, has_touch=True, color_scheme="dark") as page:
        page.locator("#key-picker summary").tap()
        page.get_by_label("shop-0003").tap()
        expect(page.locator("#stream-name")).to_have_text("shops · shop-0003")
        box = page.locator("#key-picker .key-box").bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 390
        fits(page)


def test_ctrl_click_on_a_chart_of_a_key_adds_it(browser: Browser, site: str) -> None:
    with opened(browser, site + "delays") as page:
        panel(page, "keys").get_by_role("button", name="B6").click()
        expect(page.locator("#stream-name")).to_have_text("delays · B6")
        panel(page, "keys").get_by_role("button", name="EV").click(modifiers=["Control"])
        expect(page.locator("#stream-name")).to_have_text("delays · B6 + EV")


def test_file_of_all_keys_is_safe_for_spreadsheets(browser: Browser, site: str, tmp_path: Path) -> None:
    with opened(browser, f"{site}strange?from=2013-01-01T01:00:00Z&to=2013-01-02T05:00:00Z") as page:
        expect(panel(page, "keys").locator(".note")).to_contain_text(
            "89 keys with smaller estimates are not shown."
        )
        expect(page.locator("#keys .note")).to_contain_text("The CSV file holds all 101 of them.")
        with page.expect_download() as download:
            panel(page, "keys").get_by_role("button", name="as CSV").click()
        file = download.value.path().read_bytes()
        assert len(page.locator("#keys .multiple").all()) == 12
    assert file.startswith(b"\xef\xbb\xbf")  # Excel takes other files for Latin-1
    rows = list(csv.DictReader(file.decode("utf-8-sig").splitlines(keepends=True)))
    assert not [row["key"] for row in rows if row["key"][0] in "=+-@\t\r"]
    assert {row["key"] for row in rows if row["key"].startswith("'")} == {
        key if key.startswith("'") else f"'{key}" for key in STRANGE if key[0] in "'=+-@\t\r"
    }
    total = Counter[str]()
    for row in rows:
        total[row["key"].removeprefix("'") if row["key"] not in STRANGE else row["key"]] += round(
            float(row["value"])
        )
    assert dict(total) == dict(zip(STRANGE, COUNTS[1:29].sum(axis=0).tolist(), strict=True))
    assert {row["partial"] for row in rows} == {"false"}
    assert rows[0]["start"] == "2013-01-01T01:00:00.000Z"


def test_long_key_fits_into_its_card(browser: Browser, site: str) -> None:
    for width in (1280, 390):
        with opened(browser, site + "strange", viewport={"width": width, "height": 900}) as page:
            button = panel(page, "keys").get_by_role("button", name=LONG, exact=True)
            expect(button).to_have_attribute("title", LONG)
            fits(page)
            line = button.bounding_box()
            card = page.locator("#keys .multiple").first.bounding_box()
            assert line is not None
            assert card is not None
            assert line["x"] + line["width"] <= card["x"] + card["width"]
            assert line["height"] < 40
            button.focus()
            page.keyboard.press("Shift+Tab")
            page.keyboard.press("Tab")  # a key of the keyboard shows the whole name
            holds(page, "document.activeElement.clientHeight > 60")
            fits(page)
            button.click()
            expect(page.locator("#stream-name")).to_contain_text(LONG)
            fits(page)


def test_keys_say_when_they_were_found_beside_their_sums(browser: Browser, site: str) -> None:
    with opened(browser, site + "pages") as page:
        panel(page, "keys").scroll_into_view_if_needed()  # it loads when it is in sight
        cards = panel(page, "keys").locator(".key-of")
        expect(cards.last).to_contain_text("shown since 1 Jan 1970, 00:16:50")
        rows = table(page, "keys")
        assert [row[0] for row in rows] == sorted(PAGES, key=lambda name: -amounts_of([name]))
        assert rows[0][-1] == "1 Jan 1970, 00:17:30"  # of /late
        expect(panel(page, "keys")).to_contain_text("The order is that of released values.")
        photograph(page, "found-keys")
        fits(page)
