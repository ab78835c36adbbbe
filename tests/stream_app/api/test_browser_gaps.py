"""The page of a stream whose store was lost between epochs: its numbers, and what no epoch measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.stream_app.api.browsing import Backstage, opened, panel, photograph
from tests.stream_app.api.test_browser_meaning import SIZES
from tests.stream_app.api.test_browser_sums import of_answer
from tests.stream_app.api.test_gaps import sold

pytestmark = pytest.mark.browser

SAID = "Not measured, and in no number here: 1 Jan 2013, 05:00–07:00 UTC; 1 Jan 2013, 11:00–14:00 UTC."


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Serve sales with two gaps between epochs; return the page's address."""
    behind = Backstage()
    behind.run(sold("2", behind.store))
    yield behind.start() + "/streams/sales"
    behind.close()


def asked(page: Page, path: str) -> Any:
    return page.evaluate("path => fetch(path).then((answer) => answer.json())", f"/v1/streams/sales/{path}")


@pytest.mark.parametrize("size", sorted(SIZES))
def test_headline_over_gaps_is_the_services_number_and_names_the_gaps(
    browser: Browser, site: str, size: str
) -> None:
    with opened(browser, site, **SIZES[size]) as page:
        for name in ("sum", "mean", "count"):
            expect(page.locator(f"#measures [data-measure={name}] b")).to_be_visible()
        expect(page.get_by_test_id("value")).to_have_text(of_answer(asked(page, "sum")))
        expect(page.locator("#measures [data-measure=mean] b")).to_have_text(of_answer(asked(page, "mean")))
        expect(page.locator("#unmeasured")).to_have_text(SAID)
        for name in ("running", "bins", "keys"):
            panel(page, name)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        photograph(page, f"gaps-{size}")


def test_keys_of_a_range_with_gaps_say_which_slices_are_left_out(browser: Browser, site: str) -> None:
    with opened(browser, site) as page:
        expect(panel(page, "keys")).to_contain_text("Slices that no epoch measured whole are left out.")
        page.get_by_role("radio", name="Mean amount").check()
        expect(page.get_by_test_id("value")).to_have_text(of_answer(asked(page, "mean")))
