"""Page and terminal list every alert rule, also those that never changed."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, expect

from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import Rule
from stream_app.core.answers.labels import AllLabels
from stream_app.shell.commands import main
from tests.patience import eventually
from tests.stream_app.api.browsing import Backstage, fits, opened, panel, table
from tests.stream_app.api.client import EXACT

pytestmark = pytest.mark.browser

TEXTS = {
    "calm": "sum(departures, 2h) > 1000",
    "drop": "count(departures, 1h) < 0.5 * count(departures, 1h, 2h ago)",
    "pace": "rate(departures, 2h) > 50/m",
}
UNKNOWN = "its past begins before the first interval, 2013-01-01T00:00:00Z"
RULES = [Rule(name, text, parse_condition(text)) for name, text in TEXTS.items()]


def test_page_lists_rules_that_never_changed(browser: Browser, backstage: Backstage) -> None:
    backstage.stream([40, 50], epsilon=EXACT)
    backstage.watch(RULES)
    backstage.run(backstage.alerts.acknowledge("webhook 1", "1-0", "pace", "webhooks[0] (status 400)"))
    with opened(browser, backstage.start() + "/streams/departures") as page:
        lines = panel(page, "alerts").locator("li")
        expect(lines).to_have_count(3)
        expect(lines.nth(1)).to_contain_text(f"Never changed; it cannot be decided now: {UNKNOWN}")
        expect(lines.first).to_contain_text("Never changed; it now reads 90")
        expect(lines.first).to_contain_text("Watched since 1 Jan 2013, 02:00")
        expect(lines.last).to_contain_text("now reads 0.75/m")
        expect(lines.last).to_contain_text("Its last notification was refused by webhooks[0] (status 400).")
        expect(lines.first).not_to_contain_text("refused")
        assert len(table(page, "alerts")) == 3
        page.set_viewport_size({"width": 390, "height": 844})
        fits(page)
        panel(page, "running")  # a panel out of sight is not read, and shows nothing
        expect(page.locator("#running-chart")).to_be_visible()


def test_terminal_lists_rules_under_the_titles_of_their_streams(backstage: Backstage) -> None:
    backstage.stream([40, 50], epsilon=EXACT)
    url = backstage.start(labels=AllLabels({"departures": "Flights that left"}))
    empty = CliRunner().invoke(main, ["rules", "--url", url])
    assert empty.output.startswith("No rule is watched")
    backstage.watch(RULES)

    def said(*options: str) -> str:
        return CliRunner().invoke(main, [*options, "--url", url]).output

    for _ in range(100):  # until the service has read the rules
        if "calm" in said("rules"):
            break
    words = " ".join(said("rules").split())
    assert "calm Flights that left inactive 90 (standard error 0) never 2013-01-01T02:00:00Z sum(" in words
    assert "0.75/m" in words
    assert f"drop: not decided now, {UNKNOWN}" in words
    [calm, _, pace] = json.loads(said("rules", "--format", "json"))
    assert (calm["stream"], calm["changed"], calm["value_now"]) == ("departures", None, 90.0)
    assert (pace["unit"], pace["refused"]) == ("/m", [])
    backstage.run(backstage.alerts.acknowledge("webhook 1", "1-0", "pace", "webhooks[0] (status 400)"))
    eventually(lambda: "pace: refused by webhooks[0] (status 400)" in said("rules"), "the refusal is listed")
    assert said("query", "departures").startswith("Flights that left\n90.00")
