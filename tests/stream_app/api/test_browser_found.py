"""The page of a stream that finds keys: which keys it shows, and since when."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.stream_app.api.browsing import Backstage, fits, opened, panel, photograph, table
from tests.stream_app.api.test_found_keys import PAGES, TRUTH, visited

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    behind = Backstage()
    with visited(users=True) as world:
        behind.store.restore(world.store)
    yield behind.start() + "/streams/"
    behind.close()


def test_keys_say_when_they_were_found(browser: Browser, site: str) -> None:
    with opened(browser, site + "pages") as page:
        cards = panel(page, "keys").locator(".key-of")
        expect(cards.first).to_contain_text("found 1 Jan 1970, 00:16:50")
        rows = table(page, "keys")
        assert [row[0] for row in rows] == sorted(PAGES, key=lambda name: -TRUTH[name])
        assert rows[-1][-1] == "1 Jan 1970, 00:17:10"  # of /shop
        expect(panel(page, "keys")).to_contain_text("The order is that of released values.")
        photograph(page, "found-keys")
        fits(page)
