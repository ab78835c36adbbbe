"""Readers see titles and names, and never a path of the server, in any answer, page or row."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Browser, expect

from stream_app.core.answers.labels import AllLabels
from tests.stream_app.api.browsing import Backstage, opened, panel

SECRET = "file:../../srv/acme-gmbh/events/clicks.ndjson"
PATHS = (
    *("/v1/streams", "/v1/overview", "/v1/alerts", "/metrics", "/openapi.json", "/streams/departures"),
    *(f"/v1/streams/departures{path}" for path in ("", "/privacy", "/count", "/series", "/nodes", "/marks")),
    *(f"/v1/streams/departures{path}" for path in ("/transitions", "/preview?epsilon=1", "/window", "/keys")),
    "/v1/streams/unknown",
)


@pytest.mark.browser
@pytest.mark.parametrize("title", ["", "Clicks in the shop"])
def test_no_page_and_no_answer_holds_a_path_of_the_server(
    browser: Browser, backstage: Backstage, title: str
) -> None:
    backstage.stream([50] * 8, source=SECRET)
    backstage.stream([50] * 8, name="other", source=SECRET)
    labels = AllLabels({"departures": title})
    address = backstage.start(labels=labels)
    name = title or "departures"
    with opened(browser, address + "/streams/departures", expect_errors=True) as page:
        panel(page, "running")
        expect(page.locator("#stream-name")).to_have_text(name)
        expect(page.locator("#stream-about")).to_contain_text("Events of file:clicks.ndjson since")
        expect(page.locator("#promise")).to_contain_text("any one event of file:clicks.ndjson exists")
        expect(page.locator("#ledger")).to_contain_text("Source: file:clicks.ndjson.")
        expect(page.locator("#stream-select option").first).to_have_text(name)
        assert page.title().endswith(f" · {name}")
        page.locator(".privacy details summary").click()
        shown = page.content()
        answers = [
            page.evaluate("path => fetch(path).then((answer) => answer.text())", path) for path in PATHS
        ]
        page.goto(address)
        expect(page.get_by_role("article", name=name, exact=True)).to_be_visible()
        for text in (shown, page.content(), *answers):
            assert "srv" not in text
            assert "acme" not in text


def test_source_has_one_name_on_the_pages_of_all_its_streams(backstage: Backstage) -> None:
    backstage.stream([50] * 3, source=SECRET)
    backstage.stream([50] * 3, name="other", source=SECRET)
    address = backstage.start(
        labels=AllLabels({"departures": "Clicks in the shop", "other": "Something else"})
    )
    for stream in ("departures", "other"):
        detail, privacy = (
            httpx.get(f"{address}/v1/streams/{stream}{path}").json() for path in ("", "/privacy")
        )
        assert detail["source"] == privacy["source"] == "file:clicks.ndjson"
        assert "of file:clicks.ndjson exists" in privacy["promise"]


def test_rows_hold_no_name_of_the_source(backstage: Backstage) -> None:
    stream = backstage.stream([50] * 3, source=SECRET)
    backstage.start()
    rows = backstage.run(stream.store.reader().rows("departures", 0, 10))
    assert len(rows) == 3
    assert not [row for _, row in rows if b"acme" in row]
