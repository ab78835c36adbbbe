"""The page of an approximate stream: its promise, keys over epochs, tables, and an alert."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
from msgspec import structs
from playwright.sync_api import Browser, expect

from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import Rule
from tests.stream_app.api.browsing import Backstage, asked, inked, opened, panel, table, whole
from tests.stream_app.declared import FIRST_BIN, STREAM
from tests.stream_app.loops.test_answers import approximate
from tests.stream_app.product_stream import BINS, COUNTRIES, Visits
from tests.world.recounts import ServiceNoise

pytestmark = pytest.mark.browser

PANELS = ("running", "bins", "rate", "keys", "preview")
VISITS = [(FIRST_BIN + number * BINS / 900, f"user {number}", COUNTRIES[number % 3]) for number in range(900)]
BUSY = f"sum({STREAM}, 30s) > 90"  # 180 users, with an error of about 20
RARE = f"sum({STREAM}['DE'], 30s) > 900"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve users by country over two epochs and a half, with two rules; return the page's address."""
    plain = approximate(Fraction(1))
    privacy = structs.replace(plain.declared.privacy, private=True)
    strategy = replace(plain, declared=structs.replace(plain.declared, privacy=privacy))
    one, behind = Visits(tmp_path_factory.mktemp("visits"), strategy), Backstage()
    behind.store, noise, watcher = one.store, ServiceNoise(3), None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
        for stop in range(FIRST_BIN + 3, FIRST_BIN + BINS + 1, 3):
            one.append_visits(visit for visit in VISITS if stop - 3 <= visit[0] < stop)
            behind.run(one.run_until(stop, noise))
            if watcher is None:
                texts = {"busy": BUSY, "rare": RARE}
                watcher = behind.watch(
                    [Rule(name, text, parse_condition(text)) for name, text in texts.items()]
                )
        assert watcher is not None
        behind.run(watcher.look())
    yield behind.start() + f"/streams/{STREAM}"
    for source in one.sources:
        behind.run(source.close())
    behind.close()


def test_page_states_the_promise_with_its_delta(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        expect(page.locator("#promise")).to_contain_text("by at most a factor e1.82")
        expect(page.locator("#promise")).to_contain_text("and adds at most 1e-6")
        expect(page.locator("#privacy-numbers")).to_contain_text("1e-6")


def test_panels_show_what_the_service_answers_for_keys_and_epochs(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        for name in PANELS:
            panel(page, name)
            inked(page, f"#{name} canvas")
        everything = asked(page, "series?kind=bin")
        shown = table(page, "bins")
        assert [whole(row[1]) for row in shown] == [round(value) for value in reversed(everything["value"])]
        starts = asked(page, "keys?step=15")
        keys = {one["key"]: one for one in starts["keys"]}
        rows = {row[0]: row for row in table(page, "keys")}
        assert rows.keys() == set(COUNTRIES)
        for key, row in rows.items():
            value = keys[key]["value"]
            assert whole(row[1]) == round(value if isinstance(value, float) else value[0])


def test_page_names_no_number_of_noisy_counts(browser: Browser, address: str) -> None:
    """Each value is computed from all that was released so far, so 0 would be wrong."""
    with opened(browser, address) as page:
        assert table(page, "running")
        expect(page.locator("#running-table thead")).to_contain_text("Standard error")
        expect(page.locator("#running-table thead")).not_to_contain_text("Noisy counts used")
        expect(page.locator("#running-readout")).not_to_have_attribute("title", re.compile("released count"))


def test_choosing_a_key_shows_its_counts(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}?key=DE") as page:
        shown = table(page, "bins")
        of_key = asked(page, "series?kind=bin&key=DE")
        assert [whole(row[1]) for row in shown] == [round(value) for value in reversed(of_key["value"])]


def test_rule_over_an_approximate_stream_fires(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        rules = panel(page, "alerts").locator("li")
        expect(rules).to_have_count(2)
        busy = rules.filter(has_text="busy")
        expect(busy.locator(".chip")).to_have_text("firing")
        expect(rules.filter(has_text="rare").locator(".chip")).not_to_have_text("firing")
