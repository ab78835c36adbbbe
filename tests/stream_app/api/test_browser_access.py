"""Every page can be used without a mouse and without sight: axe-core, a walk by keyboard, a walk by ear."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from stream_app.api.admission.access import AccessRules
from stream_app.ports.access import ApiKey, digest_of
from tests.stream_app.api.accessibility import OF_LOOKS, WATCH_LIVE, faults, tabbed
from tests.stream_app.api.browsing import Backstage, eventually, fits, opened, panel
from tests.stream_app.api.page_states import EMPTY, STATES, States, drawn, shown

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# States whose parts differ; ``make pictures`` examines all of them.
EXAMINED = (
    *("overview", "overview-loading", "stream-compared", "stream-numbers", "stream-loading"),
    *("stream-panel-refused", "stream-unknown", "keys-open", "windows", "mean-of-keys", "first-bin-open"),
    *("not-private", "api", "no-page", "stream-as-table", "overview-as-table"),
)


@pytest.fixture(scope="module")
def states() -> Iterator[States]:
    """Serve streams of every kind and in every state."""
    served = States()
    yield served
    served.close()


@pytest.mark.parametrize("name", EXAMINED)
def test_no_page_has_a_serious_accessibility_fault(browser: Browser, states: States, name: str) -> None:
    with shown(browser, states.address, STATES[name]) as page:
        # The page of the API has a hundred tables of the same kind.
        page.evaluate(
            "[...document.querySelectorAll('details')].slice(0, 20).forEach((one) => { one.open = true; })"
        )
        found = faults(page)
        page.set_viewport_size({"width": 390, "height": 844})
        page.emulate_media(color_scheme="dark")
        found += faults(page, OF_LOOKS)
        fits(page)
    assert found == []


def test_axe_finds_faults_that_were_made_on_purpose(browser: Browser, states: States) -> None:
    with shown(browser, states.address, STATES["overview"]) as page:
        page.evaluate(
            """() => {
              document.documentElement.removeAttribute("lang");
              document.querySelector(".interval").style.color = "#ccc";
              document.querySelector(".interval").style.background = "#fff";
            }"""
        )
        assert {line.split(":")[0] for line in faults(page)} == {
            "serious html-has-lang",
            "serious color-contrast",
        }


@pytest.mark.parametrize(
    "name", ["overview", "keys-and-values", "windows", "stream-unknown", "api", "no-page"]
)
def test_tab_reaches_everything_in_order_and_shows_where_it_is(
    browser: Browser, states: States, name: str
) -> None:
    with shown(browser, states.address, STATES[name]) as page:
        expected, stops = tabbed(page)
        names = [stop["name"] for stop in stops if "Skip to" not in stop["name"] and stop["name"] != "#main"]
        assert names == expected
        assert [stop["name"] for stop in stops if not stop["visible"]] == []
        assert [stop["name"] for stop in stops if not stop["uncovered"]] == []


def test_every_control_works_with_the_keyboard(browser: Browser, states: States) -> None:
    with shown(browser, states.address, STATES["overview"]) as page:
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.get_by_role("link", name="delays").press("Enter")
        panel(page, "bins")
        page.locator("#bins-chart").press("Home")
        expect(page.locator("#spoken")).to_contain_text("1 Jan 2013, 00:00–01:00: ")
        page.locator("#exact summary").press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("Escape")
        expect(page.locator("#exact-form")).to_be_hidden()
        expect(page.locator("#exact summary")).to_be_focused()
        page.keyboard.press("Enter")
        page.locator("#exact-to").fill("2013-01-02T00:00:00")
        page.locator("#exact-to").press("Enter")
        panel(page, "bins")
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", "24")
        page.locator("#bins-chart").press("Escape")
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", "72")
        page.locator("#ranges input:checked").press("ArrowRight")
        expect(page.locator("#bins-chart")).to_have_attribute("data-points", "24")
        page.locator("#key-picker summary").press("Enter")
        expect(page.get_by_label("UA", exact=True)).to_be_visible()
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        expect(page.locator("#key-chosen")).to_have_text("UA")
        page.keyboard.press("Escape")
        expect(page.locator("#key-picker summary")).to_be_focused()
        panel(page, "heat")
        page.locator("#heat-chart").press("ArrowLeft")
        expect(page.locator("#spoken")).to_contain_text("standard error")
        panel(page, "rate")
        page.locator("#rate-window").press("ArrowUp")
        in_seconds = page.locator("#rate-window").input_value()
        eventually(page, lambda: f"window={in_seconds}" in page.url)
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.locator("#theme").press("Enter")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def read_out(page: Page) -> list[str]:
    """Return what a screen reader reads of a page, a line for each part."""
    return [line.strip(" -") for line in page.locator("body").aria_snapshot().splitlines()]


@pytest.mark.parametrize("name", ["overview", "keys-and-values", "windows", "sum", "api", "stream-unknown"])
def test_page_makes_sense_when_it_is_read_out(browser: Browser, states: States, name: str) -> None:
    with shown(browser, states.address, STATES[name]) as page:
        lines = read_out(page)
    for landmark in ("banner:", "main:", "contentinfo:"):
        assert lines.count(landmark) == 1, landmark
    levels = [int(found[1]) for line in lines if (found := re.match(r"heading .*\[level=(\d)\]", line))]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip([0, *levels], levels, strict=False))
    unnamed = [
        line for line in lines if re.fullmatch(r"(button|link|combobox|img|textbox|region|slider):?", line)
    ]
    assert unnamed == []
    for picture in (line for line in lines if line.startswith("img ")):
        # A title, how much there is to see, and the newest value with its interval or its range.
        assert re.search(r"\d.*(between .* and |from .* to )", picture), picture


def test_releases_do_not_make_a_page_chatter(browser: Browser, backstage: Backstage) -> None:
    stream = backstage.stream([40] * 30)
    with opened(browser, backstage.start() + "/streams/departures") as page:
        drawn(page)
        page.evaluate(WATCH_LIVE)
        backstage.run(stream.close([50]))
        expect(page.locator("#bins")).to_have_attribute("data-seq", "31")
        expect(page.get_by_test_id("value")).to_have_attribute("data-seq", "31")
        assert page.evaluate("window.said") == []
        page.locator("#bins-chart").press("End")
        eventually(page, lambda: len(page.evaluate("window.said")) == 1)


def commands(page: Page) -> list[str]:
    """Return the commands of the page of the API that end by themselves."""
    expect(page.locator("#operations")).to_have_attribute("data-examples", re.compile("."))
    return [
        line for line in page.locator(".command pre:first-child").all_inner_texts() if "curl -N" not in line
    ]


def asked(command: str, **variables: str) -> tuple[int, bytes]:
    """Run a command in a shell as it is; return the status of the answer and its body."""
    told = command.replace("curl ", "curl -s -w '\\n%{http_code}' ", 1)
    found = subprocess.run(
        ["sh", "-c", told], capture_output=True, check=True, env={**os.environ, **variables}
    )
    body, _, status = found.stdout.rpartition(b"\n")
    return int(status), body


def test_every_command_of_the_api_page_works_as_it_is_pasted(browser: Browser, states: States) -> None:
    with shown(browser, states.address, STATES["api"]) as page:
        routes = page.request.get(f"{states.address}/openapi.json").json()["paths"]
        pasted = commands(page)
        expect(page.locator(".example").filter(has_text="No example")).to_have_count(0)
        endless = page.locator(".command pre").filter(has_text="curl -N").all_inner_texts()
        listed = page.locator("#contents li a")
        expect(listed).to_have_count(len(routes))
        listed.filter(has_text="…/quantile").first.press("Enter")
        eventually(page, lambda: page.url.endswith("/docs#get-v1-streams-stream-quantile"))
        card = page.locator("#get-v1-streams-stream-count")
        card.get_by_role("button", name="Show the answer").press("Enter")
        expect(card.locator(".answer")).to_contain_text('"confidence": 0.95')
    assert len(endless) == 3
    assert len(pasted) + len(endless) == len(routes) + 1  # one route has an example as CSV too
    assert {status: command for command in pasted if (status := asked(command)[0]) != 200} == {}
    csv = next(command for command in pasted if "text/csv" in command)
    assert asked(csv)[1].startswith(b"start,end,value")


def test_api_page_reads_the_key_from_the_shell_and_never_shows_it(
    browser: Browser, backstage: Backstage
) -> None:
    backstage.stream([40] * 30)
    backstage.stream([40] * 3, name="it's 5 % & more?", source="other")
    key = "k" * 40
    address = backstage.start(AccessRules(keys=(ApiKey("reader", digest_of(key), None),)))
    password: dict[str, Any] = {"http_credentials": {"username": "reader", "password": key}}
    with opened(browser, f"{address}/docs", **password) as page:
        expect(page.locator("#key-words")).to_contain_text("read -rs PRIVATE_COUNTS_KEY")
        pasted = commands(page)
        assert key not in page.content()
        page.get_by_label("Examples with").select_option("it's 5 % & more?")
        expect(page.locator("#operations")).to_have_attribute("data-examples", "it's 5 % & more?")
        [odd] = [line for line in commands(page) if "/count?" in line]
    of_count = next(command for command in pasted if "/count?" in command)
    assert asked(of_count)[0] == 401
    for command in (of_count, odd):
        status, body = asked(command, PRIVATE_COUNTS_KEY=key)
        assert (status, b'"value"' in body) == (200, True), command


def test_pages_of_a_service_without_streams_say_so(browser: Browser, backstage: Backstage) -> None:
    address = backstage.start()
    for state in EMPTY.values():
        with shown(browser, address, state) as page:
            assert faults(page, OF_LOOKS) == []
            if state.path == "/docs":
                expect(page.locator(".example").first).to_be_visible()
                expect(page.locator("#get-v1-streams-stream-count .example")).to_contain_text(
                    "No example: none"
                )
