"""The pages of capped streams and of counts of users say once what is counted, and describe charts so."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from stream_app.core.counting.bounding import PerUser
from stream_app.core.counting.where import OneOf
from stream_app.core.meaning import meaning_of
from tests.stream_app.api.browsing import Backstage, drawn_from_now_on, fits, opened, panel
from tests.stream_app.published_axes import PublishedAxes, delays

pytestmark = pytest.mark.browser

CAP = "at most 50 events per user and epoch, earliest bins first"
SIZES: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2},
}


def test_number_and_interval_of_a_capped_stream_name_the_cap(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([30, 40, 50], user=PerUser("visitor", 50))
    with opened(browser, backstage.start() + "/streams/departures") as page:
        expect(page.locator("#interval")).to_contain_text(
            "True number of counted events (at most 50 per user"
        )
        expect(page.locator("#meaning")).to_contain_text(f"Counts {CAP}.")
        expect(page.locator("#meaning")).to_contain_text("not for the number of all events")
        expect(page.locator("#privacy-numbers")).to_contain_text(
            "a log, and the same log without all events of one user"
        )
        expect(page.locator("#privacy-numbers")).to_contain_text("at most 50 events count in an epoch")
        panel(page, "bins")
        expect(page.locator("#bins-title")).to_have_text("Counted events per hour")


@pytest.mark.parametrize("size", SIZES)
def test_page_of_a_capped_stream_says_once_that_the_cap_bends_its_charts(
    browser: Browser, backstage: Backstage, tmp_path: Path, size: str
) -> None:
    stream = PublishedAxes(
        backstage.store, epsilon="2", epoch_bins=96, buckets=10, user=PerUser("visitor", 50)
    )
    backstage.fill(stream, delays(stream, 96))
    warning = meaning_of(stream.strategy.declared).warning
    with opened(browser, backstage.start() + "/streams/delays", **SIZES[size]) as page:
        expect(page.locator("#meaning")).to_contain_text(warning)
        for name in ("running", "bins", "rate", "keys", "quantiles", "heat", "cdf", "preview"):
            expect(panel(page, name).locator("canvas, [role=img]").first).to_be_visible()
            expect(page.locator(f"#{name}-meaning")).to_be_hidden()
            expect(page.locator(f"#{name}-meaning")).to_have_text(warning)
        expect(page.locator("#bins-chart")).to_have_accessible_description(re.compile(re.escape(warning)))
        with page.expect_download() as saved:
            page.get_by_role("button", name="as CSV").first.click()
        saved.value.save_as(tmp_path / "saved.csv")
        row = next(csv.DictReader((tmp_path / "saved.csv").read_text().splitlines()))
        assert CAP in row["meaning"]
        fits(page)


def test_page_of_a_count_of_users_says_users_first_seen(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([30, 40, 50], user=PerUser("visitor", 1), count="users")
    with opened(browser, backstage.start() + "/streams/departures") as page:
        expect(page.locator("#interval")).to_contain_text("True number of users first seen since")
        expect(page.locator("#meaning")).to_contain_text("Counts each user once per epoch")
        panel(page, "bins")
        expect(page.locator("#bins-title")).to_have_text("Users first seen per hour")
        page.goto(page.url.rsplit("/streams", 1)[0])
        expect(page.locator("article.stream")).to_contain_text("Counts each user once per epoch")


def test_page_of_users_leads_with_the_promise_to_users(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([30, 40, 50], user=PerUser("visitor", 1), count="users")
    backstage.stream([30, 40, 50], name="events")
    with opened(browser, backstage.start() + "/streams/departures") as page:
        expect(page.locator("#promise")).to_contain_text("all events of any one user of flights.ndjson exist")
        expect(page.locator("#promise")).to_contain_text("anything that this stream shows")
        expect(page.locator("#also")).to_contain_text("All streams over this source together: whether or not")
        expect(page.locator("#also sup").first).to_have_text("3")


def test_number_of_users_is_that_of_this_epoch_beside_the_sum_over_epochs(
    browser: Browser, backstage: Backstage
) -> None:
    stream = backstage.stream([30, 40, 50, 20], user=PerUser("visitor", 1), count="users", epoch_bins=4)
    address = backstage.start() + "/streams/departures"
    with opened(browser, address) as page:
        expect(page.locator("#interval")).to_contain_text("users first seen since 1 Jan 2013, 00:00 UTC")
        expect(page.locator("#over-epochs")).to_be_hidden()
        expect(page.locator("#epsilon")).to_have_text("ε = 1 per epoch of 4 hours")
    backstage.run(stream.open(1, stream.first_bin + 4))
    backstage.run(stream.close([500, 600]))
    with opened(browser, address) as page:
        expect(page.locator("#interval")).to_contain_text("users first seen since 1 Jan 2013, 04:00 UTC")
        expect(page.locator("#over-epochs")).to_contain_text("Sum over all 2 epochs")
        expect(page.locator("#epsilon")).to_have_text("ε = 1 per epoch of 4 hours, 2 so far over its source")
        expect(page.locator("#over-epochs")).to_contain_text("counts a user once in every epoch")
        told = page.request.get(f"{address.replace('/streams', '/v1/streams')}").json()
        assert told["epsilon_so_far"] == "2"  # saved pictures say it, too
        now, whole = (f"{round(told[name]['value']):,}" for name in ("this_epoch", "running"))
        assert now != whole
        expect(page.locator("#value")).to_have_text(now)
        expect(page.locator("#over-epochs b")).to_have_text(whole)
        panel(page, "running")
        expect(page.locator("#running-title")).to_have_text("Running count, summed over epochs")
        page.get_by_role("radio", name="Whole").check()
        expect(page.locator("#interval")).to_contain_text("since 1 Jan 2013, 04:00 UTC")
        page.goto(address.rsplit("/streams", 1)[0])
        card = page.locator("article.stream")
        expect(card).to_contain_text("Users first seen since 1 Jan 2013, 04:00")
        expect(card.get_by_test_id("value")).to_have_text(now)
        expect(card).to_contain_text("ε = 1 per epoch, 2 so far")


def test_page_of_a_stream_with_a_condition_says_it_at_the_number_and_every_chart(
    browser: Browser, backstage: Backstage
) -> None:
    backstage.stream([30, 40, 50], where=OneOf("country", ("FR", "MC")))
    with opened(browser, backstage.start() + "/streams/departures") as page:
        said_lightly(page, "events where country is one of FR, MC")


def test_page_of_a_stream_whose_events_need_a_number_says_so(
    browser: Browser, backstage: Backstage, tmp_path: Path
) -> None:
    stream = PublishedAxes(backstage.store, epsilon="2", buckets=10)
    backstage.fill(stream, delays(stream, 48))
    events = "events with a number in delay"
    address = backstage.start()
    with opened(browser, address + "/streams/delays") as page:
        said_lightly(page, events)
        for name in ("keys", "quantiles", "heat", "cdf"):
            panel(page, name)
            expect(page.locator(f"#{name}-meaning")).to_have_text(f"Counts {events}.")
        for chart in ("#heat-chart", "#cdf-chart", "#keys canvas"):
            expect(page.locator(chart).first).to_have_accessible_description(re.compile(f"Counts {events}."))
        with page.expect_download() as saved:
            page.get_by_role("button", name="as CSV").first.click()
        saved.value.save_as(tmp_path / "saved.csv")
        row = next(csv.DictReader((tmp_path / "saved.csv").read_text().splitlines()))
        assert row["meaning"] == f"Counts {events}."
        drawn_from_now_on(page)
        with page.expect_download():
            page.get_by_role("button", name="as PNG").first.click()
        assert f"Counts {events}." in page.evaluate("window.drawn")
        page.goto(address)
        expect(page.locator("article.stream")).to_contain_text(f"Counts {events}.")


def said_lightly(page: Page, events: str) -> None:
    """Check that the head names the events, and that charts only describe them to screen readers."""
    expect(page.locator("#interval")).to_contain_text(f"True number of {events}: ")
    expect(page.locator("#meaning")).to_contain_text(f"Counts {events}.")
    for name in ("running", "bins", "preview"):
        panel(page, name)
        chart = page.locator(f"#{name}-chart")
        expect(chart).to_have_accessible_description(re.compile(f"Counts {events}."))
        expect(chart).to_have_accessible_description(re.compile("95.% probability"))
    expect(page.locator("#bins-title")).to_have_text("Counted events per hour")
    expect(page.locator(".panel .meaning")).to_have_count(0)


def test_page_of_a_stream_without_a_cap_has_no_warning(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([30, 40, 50])
    with opened(browser, backstage.start() + "/streams/departures") as page:
        expect(page.locator("#interval")).to_contain_text("True number of events: ")
        panel(page, "bins")
        expect(page.locator("#meaning")).to_be_hidden()
        expect(page.locator(".panel .meaning")).to_have_count(0)
