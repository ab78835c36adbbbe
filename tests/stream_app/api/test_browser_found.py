"""The page of a stream that finds keys: which keys it shows, and since when."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Browser, expect

from tests.models.memory import MemoryStore
from tests.stream_app.api.browsing import Backstage, fits, opened, panel, photograph, table
from tests.stream_app.api.test_found_keys import PAGES, amounts_of, visited

pytestmark = pytest.mark.browser


def played() -> MemoryStore:
    with visited(users=True) as world:
        return world.store


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    behind = Backstage()
    with ThreadPoolExecutor(1) as apart:  # a world has an event loop, as the browser of this thread has
        behind.store.restore(apart.submit(played).result())
    yield behind.start() + "/streams/"
    behind.close()


def test_keys_say_when_they_were_found_beside_their_sums(browser: Browser, site: str) -> None:
    with opened(browser, site + "pages") as page:
        panel(page, "keys").scroll_into_view_if_needed()  # it loads when it is in sight
        cards = panel(page, "keys").locator(".key-of")
        expect(cards.last).to_contain_text("found 1 Jan 1970, 00:16:50")
        rows = table(page, "keys")
        assert [row[0] for row in rows] == sorted(PAGES, key=lambda name: -amounts_of([name]))
        assert rows[0][-1] == "1 Jan 1970, 00:17:30"  # of /late
        expect(panel(page, "keys")).to_contain_text("The order is that of released values.")
        photograph(page, "found-keys")
        fits(page)
