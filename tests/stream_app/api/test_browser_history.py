"""Pages of streams that nobody counts any more say so, and since when."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from stream_app.core.records import History
from tests.stream_app.api.browsing import Backstage, fits, opened

pytestmark = pytest.mark.browser

RETIRED_US, IMPORTED_US = 1_700_000_000_000_000, 1_710_000_000_000_000  # 14 November 2023, 9 March 2024


def test_page_says_since_when_a_stream_is_retired_or_imported(browser: Browser, backstage: Backstage) -> None:
    stream = backstage.stream([30, 40, 50])
    held = stream.store._streams["departures"]
    address = backstage.start()
    for history, text in (
        (History(retired_us=RETIRED_US), "Retired on 14 Nov 2023"),
        (History(imported_us=IMPORTED_US), "History, imported on 9 Mar 2024"),
        (History(RETIRED_US, IMPORTED_US), "Retired on 14 Nov 2023"),
    ):
        held.history = history
        with opened(browser, address + "/streams/departures", viewport={"width": 390, "height": 844}) as page:
            expect(page.locator("#stream-state")).to_have_text(text)
            expect(page.locator("#value")).not_to_be_empty()
            fits(page)
            page.goto(address)
            expect(page.locator("article.stream")).to_contain_text(text)
