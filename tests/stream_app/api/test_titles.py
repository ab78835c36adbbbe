"""Readers see titles and names, and never a path of the server, in any answer, page or row."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Browser, expect

from stream_app.core.answers.labels import AllLabels, Labels
from tests.patience import PATIENCE_S
from tests.stream_app.api.browsing import Backstage, opened, panel

pytestmark = pytest.mark.slow

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
    labels = AllLabels({"departures": Labels(title), "other": Labels(title and "Another one")})
    address = backstage.start(labels=labels)
    name, source = title or "departures", "the log" if title else "file:clicks.ndjson"
    with opened(browser, address + "/streams/departures", expect_errors=True) as page:
        panel(page, "running")
        expect(page.locator("#stream-name")).to_have_text(name)
        expect(page.locator("#stream-about")).to_contain_text(f"Events of {source} since")
        expect(page.locator("#promise")).to_contain_text(f"any one event of {source} exists")
        expect(page.locator("#ledger")).to_contain_text(f"Source: {source}.")
        expect(page.locator("#stream-select option").first).to_have_text(name)
        assert page.title().endswith(f" · {name}")
        page.locator("#privacy-title").click()
        shown = page.content()
        answers = [
            page.evaluate("path => fetch(path).then((answer) => answer.text())", path) for path in PATHS
        ]
        page.goto(address)
        expect(page.get_by_role("article", name=name, exact=True)).to_be_visible()
        for text in (shown, page.content(), *answers):
            assert "srv" not in text
            assert "acme" not in text
            assert (title == "") or "ndjson" not in text.replace("application/x-ndjson", "")


def test_source_has_one_name_on_the_pages_of_all_its_streams(backstage: Backstage) -> None:
    backstage.stream([50] * 3, source=SECRET)
    backstage.stream([50] * 3, name="other", source=SECRET)
    address = backstage.start(
        labels=AllLabels({"departures": Labels("Clicks in the shop"), "other": Labels("Something else")})
    )
    for stream in ("departures", "other"):
        detail, privacy = (
            httpx.get(f"{address}/v1/streams/{stream}{path}", timeout=PATIENCE_S).json()
            for path in ("", "/privacy")
        )
        assert detail["source"] == privacy["source"] == "the log"
        assert "of the log exists" in privacy["promise"]


def test_no_address_tells_the_file_of_a_stream_with_a_title(backstage: Backstage) -> None:
    """All addresses of the service, hidden ones too; of followers' streams the first events."""
    backstage.stream([50] * 8, source=SECRET)
    labels = AllLabels({"departures": Labels("Clicks in the shop")})
    address, seen = backstage.start(labels=labels), 0
    documented = httpx.get(f"{address}/openapi.json", timeout=PATIENCE_S).json()["paths"]
    hidden = ["/metrics", "/", "/docs", "/api/v1/query?query=private_counts_running"]
    for path in (*documented, *hidden, *(f"/v1/streams/departures{path}" for path in ("/events?after=0",))):
        wanted = path.replace("{stream}", "departures").replace("{name}", "departures")
        with httpx.stream("GET", address + wanted, timeout=PATIENCE_S) as answer:
            told = (next(answer.iter_raw()) if "events" in path else answer.read()).decode()
        seen += answer.status_code == 200
        for name in ("ndjson", "acme", "srv"):
            assert name not in told.replace("application/x-ndjson", ""), (path, told)
    assert seen >= 15


def test_rows_hold_no_name_of_the_source(backstage: Backstage) -> None:
    stream = backstage.stream([50] * 3, source=SECRET)
    backstage.start()
    rows = backstage.run(stream.store.reader().rows("departures", 0, 10))
    assert len(rows) == 3
    assert not [row for _, row in rows if b"acme" in row]
