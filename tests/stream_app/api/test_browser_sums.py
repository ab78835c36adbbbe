"""The page of a sum shows total, mean and events, as the service answers them, and what no epoch measured."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from stream_app.shell.numbers import supported
from tests.stream_app.api.browsing import Backstage, asked, fits, in_address, inked, opened, panel, table
from tests.stream_app.api.client import EXACT
from tests.stream_app.api.test_browser_meaning import SIZES
from tests.stream_app.api.test_gaps import GAPS, sold
from tests.stream_app.published_axes import PublishedSums, sales_of

pytestmark = pytest.mark.browser

HOURS = 15 * 24
CHARTS = ("running", "bins", "rate")
DAY = "start=2013-01-15T00:00:00Z&end=2013-01-16T00:00:00Z"
LAST_DAY = "from=2013-01-15T00:00:00Z&to=2013-01-16T00:00:00Z"
SAID = "Not measured, and in no number here: 1 Jan 2013, 05:00–07:00 UTC; 1 Jan 2013, 11:00–14:00 UTC."
WORDS = "amount, each clamped to 0 to 500 and rounded to 0.01"


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Serve two weeks of sales, too few sales for a mean, and sales with two gaps between epochs."""
    behind = Backstage()
    for name, source, busiest in (("sales", "a", 600), ("few", "b", 1)):
        stream = PublishedSums(behind.store, name=name, source=source, epsilon="2", epoch_bins=HOURS)
        behind.fill(stream, sales_of(stream, HOURS, busiest)[0])
    behind.run(sold("2", behind.store, name="lossy", source="d"))
    yield behind.start() + "/streams/"
    behind.close()


@pytest.fixture(scope="module")
def exact() -> Iterator[str]:
    """Serve a day of very many sales without noise; return the page's address."""
    behind = Backstage()
    stream = PublishedSums(behind.store, name="exact", source="c", epsilon=EXACT, epoch_bins=24)
    behind.fill(stream, sales_of(stream, 24, 600)[0] * 1_000)
    yield behind.start() + "/streams/exact"
    behind.close()


def written(value: float, low: float, high: float) -> str:
    """Return a number as pages write it: with the decimals that its error supports, at most cents."""
    return f"{value:,.{supported((high - low) / 2)}f}"


def of_answer(answer: Any) -> str:
    """Return the number of an answer as pages write it."""
    return written(answer["value"], *answer["interval"])


def test_total_is_the_headline_and_numbers_have_the_decimals_that_their_errors_support(
    browser: Browser, site: str
) -> None:
    with opened(browser, site + "sales") as page:
        total, mean, count = (asked(page, path) for path in ("sum", "mean", "count"))
        expect(page.get_by_test_id("value")).to_have_text(of_answer(total))
        assert "." not in of_answer(total)  # its error is hundreds
        expect(page.locator("#interval")).to_contain_text(f"True sum of {WORDS}: ")
        low, high = (float(text.replace(",", "")) for text in page.locator("#interval b").all_inner_texts())
        assert low <= total["interval"][0] <= low + 1
        assert high - 1 <= total["interval"][1] <= high
        assert page.locator("#measures b").all_inner_texts() == [
            of_answer(total),
            of_answer(mean),
            f"{round(count['value']):,}",
        ]
        expect(page.get_by_role("radio", name="Total amount")).to_be_checked()
        expect(page.locator("#views")).to_be_hidden()  # sums have one view only


@pytest.mark.parametrize("measure", ["sum", "mean"])
def test_charts_show_the_series_of_the_chosen_measure(browser: Browser, site: str, measure: str) -> None:
    titles = {
        "sum": (
            "Running total of amount",
            "Total amount per hour",
            "Total amount per hour, average of the last",
        ),
        "mean": ("Running mean of amount", "Mean amount per hour", "Mean amount over the last"),
    }
    with opened(browser, f"{site}sales?show={measure}&{LAST_DAY}") as page:
        bins = asked(page, f"{measure}/series?kind=bin&{DAY}")
        rows = table(page, "bins")
        points = list(zip(bins["value"], bins["lower"], bins["upper"], strict=True))[::-1]
        few = [measure == "mean" and high - low > 125 for _, low, high in points]
        expected = ["too few events" if no else written(*one) for no, one in zip(few, points, strict=True)]
        assert [row[1] for row in rows] == expected
        for row, (_, low, high) in [pair for no, *pair in zip(few, rows, points, strict=True) if not no]:
            shown = [float(text.replace(",", "")) for text in row[2:4]]
            last = 10.0 ** -supported((high - low) / 2)
            assert shown[0] <= low <= shown[0] + last
            assert shown[1] - last <= high <= shown[1]
        for name, title in zip(CHARTS, titles[measure], strict=True):
            panel(page, name)
            expect(page.locator(f"#{name}-title")).to_contain_text(title)
            expect(page.locator(f"#{name} .note")).to_contain_text(f"{measure} of {WORDS}")
            inked(page, f"#{name} canvas")
        expect(page.locator("#band-readout b")).to_have_text(re.compile(r"^±\s"))  # both sides alike


def test_chosen_measure_is_in_the_address_and_in_the_saved_file(
    browser: Browser, site: str, tmp_path: Path
) -> None:
    with opened(browser, site + "sales?range=24+hours") as page:
        page.get_by_role("radio", name="Mean amount").check()
        expect(page.get_by_test_id("value")).to_have_text(of_answer(asked(page, f"mean?{DAY}")))
        in_address(page, "show=mean")
        panel(page, "bins")
        with page.expect_download() as saved:
            page.get_by_role("button", name=re.compile("Save Mean .* per .* as CSV")).click()
        saved.value.save_as(tmp_path / "saved.csv")
        first = next(csv.DictReader((tmp_path / "saved.csv").read_text().splitlines()))
        assert first["meaning"] == f"The mean of {WORDS}."
        page.get_by_role("radio", name="Events").check()
        expect(page.locator("#views")).to_be_visible()
        panel(page, "bins")
        expect(page.locator("#bins-title")).to_have_text("Counted events per hour")
        page.get_by_role("radio", name="Total amount").check()
        panel(page, "bins")
        expect(page.locator("#bins-title")).to_have_text("Total amount per hour")
        in_address(page, "show=", is_there=False)


def test_total_and_mean_of_a_key(browser: Browser, site: str) -> None:
    with opened(browser, site + "sales?key=ES&show=mean") as page:
        expect(page.get_by_test_id("value")).to_have_text(of_answer(asked(page, "mean?key=ES")))
        expect(page.locator("#interval")).to_contain_text(f"mean of {WORDS} for ES: ")
        page.get_by_role("radio", name="Total amount").check()
        expect(page.get_by_test_id("value")).to_have_text(of_answer(asked(page, "sum?key=ES")))


def test_mean_of_too_few_events_says_so_instead_of_a_number(browser: Browser, site: str) -> None:
    with opened(browser, site + "few?show=mean&range=24+hours&key=IT") as page:
        expect(page.get_by_test_id("value")).to_have_text("–")
        expect(page.locator("#interval")).to_contain_text("Too few events for a mean. True mean of amount")
        expect(page.locator("[data-measure=mean] b")).to_have_text("too few events")
        assert {row[1] for row in table(page, "bins")} == {"too few events"}


@pytest.mark.parametrize(
    ("show", "heads"), [("", "A total of"), ("mean", "A total of"), ("count", "A count of")]
)
def test_preview_shows_what_the_page_shows(browser: Browser, site: str, show: str, heads: str) -> None:
    with opened(browser, f"{site}sales?{LAST_DAY}{f'&show={show}' if show else ''}") as page:
        panel(page, "preview")
        of = "" if show == "count" else "&of=sum"
        answer = asked(page, f"preview?epsilon=0.5&step=1{of}&{DAY}")
        expect(page.locator("#preview .questions th").first).to_have_text(heads)
        [*cells] = page.locator("#preview .questions tbody td:nth-child(2)").all_inner_texts()
        shown = [float(cell.strip("±\u00a0").replace(",", "")) for cell in cells]
        assert shown == pytest.approx([one["half_width"] for one in answer["questions"]], rel=0.01)
        newest = table(page, "preview")[0]
        last, half = answer["value"][-1], answer["half_width"][-1]
        expected = f"{round(last):,}" if show == "count" else written(last, last - half, last + half)
        assert expected in newest
        note = page.locator("#preview .note")
        assert ("so totals are shown" in note.inner_text()) is (show == "mean")


def test_bins_of_a_total_are_days_of_the_chosen_time_zone(browser: Browser, site: str) -> None:
    with opened(browser, f"{site}sales?tz=Europe/Paris&from=2013-01-03T23:00:00Z") as page:
        panel(page, "bins")
        expect(page.locator("#bins-title")).to_contain_text("Total amount per")
        inked(page, "#bins canvas")


@pytest.mark.parametrize("size", SIZES)
def test_large_totals_in_cents_fit(browser: Browser, exact: str, size: str) -> None:
    """Without noise every cent is known, so numbers are as long as they get."""
    with opened(browser, exact, **SIZES[size]) as page:
        expect(page.get_by_test_id("value")).to_have_text(re.compile(r"^\d{2,3},\d{3},\d{3}\.\d\d$"))
        for name in CHARTS:
            panel(page, name)
        fits(page)
        wide = "(one) => one.scrollWidth > one.clientWidth + 1"
        assert (
            page.locator(".value, #measures span").evaluate_all(
                f"all => all.filter({wide}).map((one) => one.textContent)"
            )
            == []
        )


@pytest.mark.parametrize("size", SIZES)
def test_headline_over_gaps_is_the_services_number_and_names_the_gaps(
    browser: Browser, site: str, size: str
) -> None:
    with opened(browser, site + "lossy", **SIZES[size]) as page:
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
    with opened(browser, site + "lossy") as page:
        panel(page, name)
        inked(page, f"#{name} canvas")
        for start, end in GAPS:
            assert blue(page, name, start + 0.2, end - 0.2) == 0
        assert blue(page, name, 14.2, 19.8) > 1_000
        assert blue(page, name, 7.2, 10.8) > 500


def test_keys_of_a_range_with_gaps_say_which_slices_are_left_out(browser: Browser, site: str) -> None:
    with opened(browser, site + "lossy") as page:
        expect(panel(page, "keys")).to_contain_text("Slices that no epoch measured whole are left out.")
        page.get_by_role("radio", name="Mean amount").check()
        expect(page.get_by_test_id("value")).to_have_text(of_answer(asked(page, "mean")))
