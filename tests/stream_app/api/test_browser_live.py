"""A stream's page as releases come, requests fail and its promise changes; what its numbers say of errors."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from stream_app.api.admission.access import AccessRules
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import Rule
from stream_app.core.counting.bounding import PerUser
from tests.models.memory import MemoryStore
from tests.stream_app.api.browsing import Backstage, opened, panel, table
from tests.stream_app.api.test_browser import PAGE, shows_seq
from tests.stream_app.published import Published
from tests.stream_app.published_axes import PublishedAxes, delays

pytestmark = pytest.mark.browser


def test_thousands_of_bins_released_together_cause_few_redraws(
    browser: Browser, backstage: Backstage
) -> None:
    stream = backstage.stream([5] * 50, epoch_bins=3000)
    with opened(browser, backstage.start() + PAGE) as page:
        shows_seq(page, 50)
        asked: list[str] = []
        page.on("request", lambda one: asked.append(one.url) if "/series" in one.url else None)
        began_s = time.monotonic()
        for _ in range(20):
            backstage.run(stream.close([5] * 100))
        shows_seq(page, 2050)
        # At most three panels, once a second each, while 2,000 releases arrived.
        assert 2 <= len(asked) <= 6 + 3 * (time.monotonic() - began_s)


def test_a_page_of_a_quiet_stream_sends_few_requests(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([5] * 50)
    with opened(browser, backstage.start() + PAGE) as page:
        shows_seq(page, 50)
        asked: list[str] = []
        page.on("request", lambda one: asked.append(one.url.rpartition("/")[2]))
        for _ in range(20):  # on a busy machine the page's first answers come late
            asked.clear()
            page.wait_for_timeout(4_000)
            if set(asked) <= {"marks", "privacy"}:
                break
        assert set(asked) <= {"marks", "privacy"}
        assert len(asked) <= 4


def test_page_that_could_not_reach_the_service_as_it_opened_tries_again(
    browser: Browser, backstage: Backstage
) -> None:
    backstage.stream([5] * 50)
    with opened(browser, backstage.start() + PAGE, expect_errors=True) as page:
        lost: list[str] = []

        def lose_the_first(route: Route) -> None:
            if lost:
                route.continue_()
                return
            lost.append(route.request.url)
            route.abort()

        page.route("**/v1/streams/departures", lose_the_first)
        page.reload()
        shows_seq(page, 50)
        expect(page.locator("#connection")).to_have_text("Connected")
        assert lost


def test_a_stream_that_begins_anew_is_followed_from_its_start(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([5] * 50)
    with opened(browser, backstage.start() + PAGE, expect_errors=True) as page:
        shows_seq(page, 50)
        backstage.stop()
        backstage.store = MemoryStore()
        stream = backstage.stream([5] * 3)
        backstage.start()
        shows_seq(page, 3)
        backstage.run(stream.close([5] * 4))
        shows_seq(page, 7)


def test_a_page_marks_a_stream_that_is_not_private(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([5] * 30, epsilon="1000000000")
    with opened(browser, backstage.start() + PAGE) as page:
        expect(page.locator("#not-private")).to_contain_text("not private")
        expect(page.get_by_test_id("value")).to_have_text("150")


def test_page_of_a_stream_without_releases(browser: Browser, backstage: Backstage) -> None:
    stream = Published(backstage.store)
    backstage.run(stream.open())
    with opened(browser, backstage.start() + PAGE) as page:
        expect(page.locator("#interval")).to_contain_text("Nothing is released yet")
        backstage.run(stream.close([5, 5]))
        shows_seq(page, 2)


def test_page_shows_everything_after_requests_were_limited(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([40] * 200, epoch_bins=256)
    # The limit is so low that a page is refused even on a slow machine, because it asks several questions at
    # once.
    address = backstage.start(AccessRules(requests_per_s=1)) + PAGE
    with opened(browser, address, expect_errors=True) as page:
        refused: list[str] = []
        page.on("response", lambda one: refused.append(one.url) if one.status == 429 else None)
        for name in ("running", "bins", "rate", "preview"):
            page.locator(f"#{name}").scroll_into_view_if_needed()
            expect(page.locator(f"#{name}")).to_have_attribute("data-seq", "200")
        assert refused
        assert not [one for one in refused if "/v1/" not in one]


def test_page_warns_when_its_source_stops_being_private(browser: Browser, backstage: Backstage) -> None:
    stream = backstage.stream([5] * 10)
    with opened(browser, backstage.start() + PAGE) as page:
        expect(page.get_by_test_id("value")).to_have_attribute("data-seq", "10")
        expect(page.locator("#not-private")).to_be_hidden()
        bare = Published(backstage.store, name="bare", epsilon="1000000000")
        backstage.run(bare.open())
        backstage.run(stream.close([1]))
        expect(page.locator("#not-private")).to_contain_text("These values are not private")


VIEWS = {"Best": "unbiased", "First": "first_published", "Whole": "consistent"}


def last_of_running(page: Page) -> tuple[str, str, str]:
    """Return value and interval of the newest point of the running count."""
    row = table(page, "running")[0]
    return row[1], row[2], row[3]


@pytest.mark.parametrize("label", VIEWS)
def test_number_and_panel_show_the_same_count_in_every_view(
    browser: Browser, backstage: Backstage, label: str
) -> None:
    stream = backstage.stream([30, 40, 50, 5, 0, 0, 12], epsilon="0.2")
    with opened(browser, backstage.start() + "/streams/departures") as page:
        page.get_by_label(label, exact=True).check()
        for seq in (7, 8):
            expect(page.get_by_test_id("value")).to_have_attribute("data-seq", str(seq))
            panel(page, "running")
            expect(page.locator("#running-chart")).to_have_attribute("data-view", VIEWS[label])
            expect(page.locator("#running-chart")).to_have_attribute("data-seq", str(seq))
            value, lower, upper = last_of_running(page)
            expect(page.get_by_test_id("value")).to_have_text(value)
            expect(page.locator("#interval")).to_contain_text(f"{lower} to {upper}")
            if seq == 7:
                backstage.run(stream.close([25]))


def test_plus_minus_is_half_of_an_interval_everywhere(browser: Browser, backstage: Backstage) -> None:
    stream = PublishedAxes(backstage.store, epsilon="2", epoch_bins=96, buckets=10)
    backstage.run(stream.open())
    text = "sum(delays, 2h) > 1"
    watcher = backstage.watch([Rule("busy", text, parse_condition(text))])
    backstage.run(stream.close_cells(delays(stream, 96)))
    backstage.run(watcher.look())
    with opened(browser, backstage.start() + "/streams/delays") as page:
        for name in ("alerts", "running", "bins", "rate", "keys", "quantiles", "heat", "cdf", "preview"):
            table(page, name)
        said = page.locator("main").inner_text()
        places = {
            page.evaluate("node => node.closest('section')?.id ?? ''", node)
            for node in page.locator("xpath=//main//*[text()[contains(., '±')]]").element_handles()
        }
        assert places - {""} == {"keys", "running", "preview"}
        assert "± is half its width" in said
        assert "standard error" in page.locator("#alerts").inner_text()
        keys = page.evaluate("fetch('/v1/streams/delays/keys').then((answer) => answer.json())")["keys"]
        shown = page.locator("#keys .multiple-number").first.inner_text()
        half = float(re.sub(r".*±\s|,", "", shown))
        lower, upper = keys[0]["interval"]
        assert half == pytest.approx((upper - lower) / 2, rel=0.01)


def test_interval_that_is_not_symmetric_shows_both_ends(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([1, 0, 0, 0, 0], epsilon="0.1")
    with opened(browser, backstage.start() + "/streams/departures?view=consistent") as page:
        panel(page, "running")
        expect(page.locator("#band-readout")).to_contain_text(re.compile(r"−[\d.,]+ to \+[\d.,]+"))


def test_user_s_day_is_named_beside_the_cost_of_a_whole_epoch(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([30, 40, 50], user=PerUser("visitor", 10, 5, 2, per="1d"))
    with opened(browser, backstage.start() + "/streams/departures") as page:
        expect(page.locator("#meaning")).to_contain_text("per user and UTC day, at most 2 in each of at most")
        expect(page.locator("#privacy-numbers")).to_contain_text(
            "one user within one UTC day, of whom at most 10 events count, at most 2 in each of at most 5"
        )
        expect(page.locator("#promise")).to_contain_text("within any one UTC day")
        expect(page.locator("#also")).to_contain_text("All events of a user in one epoch of")
