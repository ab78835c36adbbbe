"""The page of a stream whose store was lost between epochs: its numbers, and what no epoch measured."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.stream_app.api.browsing import Backstage, asked, fits, inked, opened, panel
from tests.stream_app.api.test_browser_meaning import SIZES
from tests.stream_app.api.test_browser_sums import of_answer
from tests.stream_app.api.test_gaps import GAPS, sold

pytestmark = pytest.mark.browser

SAID = "Not measured, and in no number here: 1 Jan 2013, 05:00–07:00 UTC; 1 Jan 2013, 11:00–14:00 UTC."


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Serve sales with two gaps between epochs; return the page's address."""
    behind = Backstage()
    behind.run(sold("2", behind.store))
    yield behind.start() + "/streams/sales"
    behind.close()


@pytest.mark.parametrize("size", SIZES)
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
        fits(page)


def blue(page: Page, name: str, start: float, end: float) -> int:
    """Return how many pixels of lines and bands a panel's first chart has between two hours."""
    return int(
        page.evaluate(
            """([name, start, end]) => {
              const canvas = document.querySelector(`#${name} canvas`);
              const over = document.querySelector(`#${name} .u-over`);
              const [paper, plot] = [canvas, over].map((one) => one.getBoundingClientRect());
              const ratio = canvas.width / paper.width;
              const x = (hour) => Math.round((plot.left - paper.left + (plot.width * hour) / 20) * ratio);
              const other = new OffscreenCanvas(canvas.width, canvas.height);
              const copy = other.getContext("2d", { willReadFrequently: true });
              copy.drawImage(canvas, 0, 0);
              const { data } = copy.getImageData(x(start), 0, x(end) - x(start), canvas.height);
              let found = 0;
              for (let i = 0; i < data.length; i += 4) found += data[i + 3] > 0 && data[i + 2] > data[i] + 90;
              return found;
            }""",
            [name, start, end],
        )
    )


@pytest.mark.parametrize("name", ["running", "bins"])
def test_lines_break_at_gaps(browser: Browser, site: str, name: str) -> None:
    with opened(browser, site) as page:
        panel(page, name)
        inked(page, f"#{name} canvas")
        for start, end in GAPS:
            assert blue(page, name, start + 0.2, end - 0.2) == 0
        assert blue(page, name, 14.2, 19.8) > 1_000
        assert blue(page, name, 7.2, 10.8) > 500


def test_keys_of_a_range_with_gaps_say_which_slices_are_left_out(browser: Browser, site: str) -> None:
    with opened(browser, site) as page:
        expect(panel(page, "keys")).to_contain_text("Slices that no epoch measured whole are left out.")
        page.get_by_role("radio", name="Mean amount").check()
        expect(page.get_by_test_id("value")).to_have_text(of_answer(asked(page, "mean")))
