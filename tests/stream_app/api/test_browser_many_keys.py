"""The panel of keys with many strange keys: a file holds all of them, and long ones fit into their cards."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from tests.stream_app.api.browsing import Backstage, fits, holds, opened, panel
from tests.stream_app.api.client import EXACT
from tests.stream_app.published_axes import PublishedKeys

pytestmark = pytest.mark.browser

GRAFANA = Path(__file__).with_name("grafana_escapes.json")
KEYS = tuple(json.loads(GRAFANA.read_text())["keys"])
LONG = max(KEYS, key=len)
COUNTS = np.add.outer(np.arange(30) % 3, np.arange(len(KEYS)) % 7 + 50 * (np.array(KEYS) == LONG))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve 30 hours of events by 101 keys; the newest slices of a chart are only partial."""
    behind = Backstage()
    stream = PublishedKeys(behind.store, carriers=KEYS, epsilon=EXACT, epoch_bins=32)
    behind.run(stream.fill(COUNTS))
    yield behind.start() + "/streams/carriers"
    behind.close()


def test_file_of_all_keys_is_safe_for_spreadsheets(browser: Browser, address: str, tmp_path: Path) -> None:
    with opened(browser, f"{address}?from=2013-01-01T01:00:00Z&to=2013-01-02T05:00:00Z") as page:
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
        key if key.startswith("'") else f"'{key}" for key in KEYS if key[0] in "'=+-@\t\r"
    }
    total = Counter[str]()
    for row in rows:
        total[row["key"].removeprefix("'") if row["key"] not in KEYS else row["key"]] += round(
            float(row["value"])
        )
    assert dict(total) == dict(zip(KEYS, COUNTS[1:29].sum(axis=0).tolist(), strict=True))
    assert {row["partial"] for row in rows} == {"false"}
    assert rows[0]["start"] == "2013-01-01T01:00:00.000Z"


def test_long_key_fits_into_its_card(browser: Browser, address: str) -> None:
    for width in (1280, 390):
        with opened(browser, address, viewport={"width": width, "height": 900}) as page:
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
