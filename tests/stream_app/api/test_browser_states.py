"""Pages say whether a stream is live, complete, late or stopped, and help where there is no page."""

from __future__ import annotations

import hashlib
import re
import time
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from stream_app.api import announced
from stream_app.api.admission.access import AccessRules
from stream_app.ports.access import ApiKey
from tests.stream_app.api.browsing import Backstage, eventually, opened

pytestmark = pytest.mark.browser

MINUTE_US = 60_000_000
PAGE = "/streams/departures"


def bins_until(ago_s: float, bins: int = 3) -> dict[str, Any]:
    """Return options of a stream of minutes whose next bin closed, or closes, so many seconds ago."""
    next_bin = int((time.time() - ago_s) * 1e6) // MINUTE_US
    return {"bin_us": MINUTE_US, "first_bin": next_bin - bins}


def behind(words: str) -> re.Pattern[str]:
    """Match a stream that is about two hours behind: each bin that closes takes a minute off."""
    return re.compile(rf"{words} (2 h|1 h 5[5-9] min)")


def test_overview_of_a_service_that_has_not_read_its_store_says_so_and_goes_on_by_itself(
    browser: Browser, backstage: Backstage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable() -> None:
        raise ConnectionError

    backstage.stream([5, 6, 7])
    monkeypatch.setattr(backstage.alerts, "load", unreachable)
    with opened(browser, backstage.start(), expect_errors=True) as page:
        summary, connection = page.locator("#summary"), page.locator("#connection")
        expect(summary).to_contain_text("The service has not read Redis yet: start Redis")
        monkeypatch.undo()
        expect(summary).to_contain_text("1 stream.")
        expect(connection).to_have_text("Connected")
        backstage.stop()
        monkeypatch.setattr(backstage.alerts, "load", unreachable)
        backstage.start()
        expect(connection).to_have_text("Disconnected")
        expect(summary).to_contain_text("1 stream.")
        monkeypatch.undo()
        expect(connection).to_have_text("Connected")


def test_stream_that_works_through_its_past_is_catching_up_and_not_stopped(
    browser: Browser, backstage: Backstage
) -> None:
    stream = backstage.stream([5, 6, 7], **bins_until(7_200))
    address = backstage.start()
    with opened(browser, address + PAGE) as page:
        expect(page.locator("#connection")).to_have_text("Connected")
        backstage.run(stream.close([8]))
        expect(page.locator("#stream-state")).to_contain_text(behind("Catching up:"))
        page.goto(address)
        expect(page.locator("article.stream .next")).to_contain_text(behind("next overdue by"))
        expect(page.locator("#connection")).to_have_text("Connected")
        backstage.run(stream.close([9]))
        expect(page.locator("article.stream .next")).to_contain_text(behind("Catching up:"))


def test_page_without_a_connection_does_not_say_that_the_stream_stopped(
    browser: Browser, backstage: Backstage
) -> None:
    backstage.stream([5, 6, 7], **bins_until(300))
    with opened(browser, backstage.start() + PAGE, expect_errors=True) as page:
        expect(page.locator("#stream-state")).to_contain_text("Late by")
        backstage.stop()
        expect(page.locator("#stream-state")).to_have_text("")


def test_reader_learns_of_no_stream_that_the_key_does_not_open(
    browser: Browser, backstage: Backstage
) -> None:
    for name in ("departures", "secret"):
        backstage.stream([5, 6, 7], name=name)
    key, digest = "k" * 40, hashlib.sha256(b"k" * 40).hexdigest()
    rules = AccessRules(keys=(ApiKey("reader", digest, frozenset({"departures"})),))
    password: dict[str, Any] = {"http_credentials": {"username": "reader", "password": key}}
    said = {}
    address = backstage.start(rules)
    for name in ("secret", "nosuch"):
        with opened(browser, f"{address}/streams/{name}", True, **password) as page:
            expect(page.locator("h1")).to_have_text(f"There is no stream “{name}” here")
            expect(page.locator("#unknown").get_by_role("link", name="departures")).to_be_visible()
            said[name] = page.locator("body").inner_text().replace(name, "?")
            for path in ("", "/count", "/privacy"):
                answer = page.request.get(f"{address}/v1/streams/{name}{path}")
                assert answer.status == 404
                said[name + path] = answer.text().replace(name, "?")
            page.goto(address)
            expect(page.locator("article.stream")).to_have_count(1)
    assert said["secret"] == said["nosuch"]
    assert {said[f"secret{path}"] == said[f"nosuch{path}"] for path in ("", "/count", "/privacy")} == {True}


def test_unknown_stream_gets_a_page_that_helps(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([5, 6, 7])
    with opened(browser, backstage.start() + "/streams/departuers", True) as page:
        expect(page.locator("h1")).to_have_text("There is no stream “departuers” here")
        expect(page.locator("#panels")).to_be_hidden()
        page.locator("#unknown").get_by_role("link", name="departures").click()
        expect(page.locator("#stream-name")).to_have_text("departures")
        expect(page.locator("#interval")).to_contain_text("True number")


def test_unknown_address_gets_a_page_in_a_browser(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([5, 6, 7])
    with opened(browser, backstage.start() + "/stream/departures", True) as page:
        expect(page.locator("h1")).to_have_text("There is no page at this address")
        page.get_by_role("link", name="All streams").click()
        expect(page.locator("article.stream")).to_have_count(1)


def test_a_stream_that_a_fault_has_stopped_is_marked(
    browser: Browser, backstage: Backstage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announced, "SHOWN_EVERY_S", 0.1)
    stream = backstage.stream([40] * 5)

    def halted() -> Any:
        return backstage.json("departures").get("halted")

    with opened(browser, backstage.start() + PAGE) as page:
        assert not page.locator("#stream-state", has_text="Stopped by a fault").is_visible()
        backstage.run(backstage.store.mark_halted(stream.name, True))
        eventually(page, halted)
        page.reload()
        expect(page.locator("#stream-state")).to_have_text("Stopped by a fault")
        expect(page.locator("#state-words")).to_contain_text("keeps this stream from being counted")
        backstage.run(backstage.store.mark_halted(stream.name, False))
        eventually(page, lambda: not halted())
