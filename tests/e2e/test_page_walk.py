"""Events that a person sends or has in files, followed to the number on the page by the real commands."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from deploy.ports import free_port
from tests.e2e.service import Service, answers
from tests.patience import PATIENCE_S
from tests.stream_app.api.browsing import fits, opened, panel, photograph

pytestmark = [pytest.mark.redis, pytest.mark.browser, pytest.mark.slow]

CONFIGURATION = """
redis: {{url: "embedded:./redis"}}
state: {{dir: ./state}}
api: {{port: {port}}}
ingest: {{port: {ingest_port}}}
publish_every: 250ms
streams:
  french:
    source: {{http: french}}
    where: {{country: FR, amount: {{min: 10}}}}
    time: {live}
    privacy: {exact}
  visitors:
    source: {{http: visitors}}
    count: users
    time: {live}
    privacy: {{epsilon: 1.0e9, not_private: true, unit: {{user: user}}}}
  sales:
    source: {{http: sales}}
    keys: {{field: country, list: [FR, DE, ES], other: false}}
    sum: {{field: amount, min: 0, max: 500, unit: 0.01}}
    time: {live}
    privacy: {exact}
  history:
    source: {{file: history-*.ndjson}}
    time: {{field: at, format: ms, bin: 1s, grace: 1s, epoch: 1h, first: "{first}"}}
    privacy: {exact}
"""
LIVE = "{field: at, format: ms, bin: 1s, grace: 1s, epoch: 1h, max_ahead: 60s}"
EXACT = "{epsilon: 1.0e9, not_private: true}"
PAST_S = 600
PHONE: ViewportSize = {"width": 390, "height": 844}
DESKTOP: ViewportSize = {"width": 1280, "height": 900}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("walk")


def configured(folder: Path, port: int, ingest_port: int) -> None:
    """Write the configuration, and ten minutes of past events into a compressed file and a growing one."""
    first_s = int(time.time()) - PAST_S
    first = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(first_s))
    filled = CONFIGURATION.format(port=port, ingest_port=ingest_port, first=first, live=LIVE, exact=EXACT)
    (folder / "app.yaml").write_text(filled)
    lines = [json.dumps({"at": (first_s + second) * 1000}) for second in range(PAST_S - 60)]
    (folder / "history-1.ndjson.gz").write_bytes(gzip.compress("\n".join(lines[:300]).encode()))
    (folder / "history-2.ndjson").write_text("\n".join(lines[300:]) + "\n")


def now_ms() -> int:
    return int(time.time() * 1000)


def send(ingest_port: int, stream: str, events: Sequence[dict[str, Any]]) -> None:
    """Send events of this moment over HTTP."""
    body = "".join(json.dumps({"at": now_ms(), **event}) + "\n" for event in events)
    reply = httpx.post(f"http://127.0.0.1:{ingest_port}/v1/ingest/{stream}", content=body, timeout=PATIENCE_S)
    assert (reply.status_code, reply.json()["records"]) == (200, len(events)), reply.text


def pictured(page: Page, name: str) -> None:
    """Check that nothing is wider than a phone; with PHOTOGRAPHS, save pictures of all sizes and colours."""
    for panel_name in page.locator("#panels > section").evaluate_all("all => all.map((one) => one.id)"):
        panel(page, panel_name)
    for size, viewport in (("desktop", DESKTOP), ("phone", PHONE)) if "PHOTOGRAPHS" in os.environ else ():
        page.set_viewport_size(viewport)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(150)
            photograph(page, f"walk-{name}-{size}-{scheme}")
    page.set_viewport_size(PHONE)
    fits(page)


def walk_condition(page: Page, sender: Callable[[str, Sequence[dict[str, Any]]], None]) -> None:
    expect(page.locator("#meaning")).to_contain_text("country is FR and amount is at least 10")
    sender("french", [{"country": ("FR", "DE")[i % 2], "amount": i} for i in range(40)])
    expect(page.get_by_test_id("value")).to_have_text("15")
    expect(page.locator("#interval")).to_contain_text("True number of events where country is FR")


def walk_users(page: Page, sender: Callable[[str, Sequence[dict[str, Any]]], None]) -> None:
    sender("visitors", [{"user": f"u{i % 7}"} for i in range(40)])
    expect(page.get_by_test_id("value")).to_have_text("7")
    expect(page.locator("#interval")).to_contain_text("True number of users first seen")
    panel(page, "bins")
    expect(page.locator("#bins-title")).to_contain_text("Users first seen per")


def walk_sum(page: Page, sender: Callable[[str, Sequence[dict[str, Any]]], None]) -> None:
    sales = [{"country": ("FR", "DE", "ES")[i % 3], "amount": 10.25 * i} for i in range(60)]
    clamped = [min(float(one["amount"]), 500) for one in sales]
    sender("sales", sales)
    expect(page.get_by_test_id("value")).to_have_text(f"{sum(clamped):,.2f}")
    page.get_by_role("radio", name="Mean amount").check()
    expect(page.get_by_test_id("value")).to_have_text(f"{sum(clamped) / 60:.2f}")
    page.locator("#key-picker summary").click()
    for key in ("FR", "ES"):
        page.get_by_label(key, exact=True).check()
    page.keyboard.press("Escape")
    page.get_by_role("radio", name="Total amount").check()
    both = sum(amount for i, amount in enumerate(clamped) if i % 3 != 1)
    expect(page.get_by_test_id("value")).to_have_text(f"{both:,.2f}")
    expect(page.locator("#stream-name")).to_have_text("sales · FR + ES")


def walk_history(page: Page, folder: Path) -> None:
    expect(page.get_by_test_id("value")).to_have_text(str(PAST_S - 60))
    with (folder / "history-2.ndjson").open("a") as file:
        file.write((json.dumps({"at": now_ms()}) + "\n") * 5)
    expect(page.get_by_test_id("value")).to_have_text(str(PAST_S - 55))
    page.locator("#ranges").get_by_label("All").check()
    panel(page, "bins")


@pytest.mark.timeout(600)
def test_events_of_every_source_reach_the_number_on_their_page(folder: Path, browser: Browser) -> None:
    port, ingest_port = free_port(), free_port()
    configured(folder, port, ingest_port)
    with Service(["run", "--config", "app.yaml"], folder) as service:
        for stream in ("french", "visitors", "sales", "history"):
            path = f"/v1/streams/{stream}/count"
            service.until_true(partial(answers, port, path), "bins are released")

        def sender(stream: str, events: Sequence[dict[str, Any]]) -> None:
            send(ingest_port, stream, events)

        walks: dict[str, Callable[[Page], None]] = {
            "french": lambda page: walk_condition(page, sender),
            "visitors": lambda page: walk_users(page, sender),
            "sales": lambda page: walk_sum(page, sender),
            "history": lambda page: walk_history(page, folder),
        }
        for stream, walk in walks.items():
            with opened(browser, f"http://127.0.0.1:{port}/streams/{stream}") as page:
                expect(page.locator("#stream-state")).to_have_text("Live")
                walk(page)
                pictured(page, stream)
        overview_names_them(browser, port)
        assert service.interrupt() == 0


def overview_names_them(browser: Browser, port: int) -> None:
    with opened(browser, f"http://127.0.0.1:{port}/") as page:
        expect(page.locator("article h2")).to_have_text(["french", "history", "sales", "visitors"])
        for size, viewport in (("desktop", DESKTOP), ("phone", PHONE)):
            page.set_viewport_size(viewport)
            photograph(page, f"walk-overview-{size}")
