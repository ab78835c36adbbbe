"""The senders of docs/events.md, as they stand there, send to a real listener."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route

from stream_app.config.key_file import add_key
from tests.patience import PATIENCE_S
from tests.stream_app.api.browsing import eventually
from tests.stream_app.receiving.running import Running, settings_of

REPOSITORY = Path(__file__).parents[3]
TEXT = (REPOSITORY / "docs" / "events.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8089"


def example(language: str) -> str:
    """Return the only example in a language."""
    [found] = re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)
    return str(found)


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log no request."""


@contextmanager
def silent_site(folder: Path) -> Iterator[str]:
    """Yield the origin of a site whose pages are in a folder, which is made."""
    folder.mkdir()
    handler = partial(_Silent, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Iterator[str]:
    """The origin of a site whose pages are in a folder."""
    with silent_site(tmp_path / "site") as origin:
        yield origin


def lines_of(running: Running) -> list[dict[str, object]]:
    """Return the stored events."""
    return [json.loads(line) for line in running.stored().splitlines()]


def until(page: Page, running: Running, events: int) -> None:
    """Wait until so many events are stored."""
    eventually(page, lambda: len(lines_of(running)) >= events)


@pytest.mark.slow
def test_the_page_sends_each_click_once_although_requests_and_answers_are_lost(
    tmp_path: Path, site: str, browser: Browser
) -> None:
    key = add_key(tmp_path / "writers.ndjson", "page", ["clicks"])
    settings = settings_of(tmp_path, f', keys: writers.ndjson, origins: ["{site}"]')
    with Running(settings) as running:
        text = (
            example("html").replace(ADDRESS, f"http://127.0.0.1:{running.port}").replace('"..."', f'"{key}"')
        )
        (tmp_path / "site" / "shop.html").write_text(text.replace("5000", "200") + "<p>shop</p>")
        page, asked = browser.new_page(), list[str]()

        def lose(route: Route) -> None:
            """Lose the first request, and the answer of the second one."""
            if route.request.method == "OPTIONS":
                route.continue_()
                return
            asked.append(route.request.headers["idempotency-key"])
            if len(asked) == 1:
                route.abort()
            elif len(asked) == 2:
                route.fetch()
                route.abort()
            else:
                route.continue_()

        page.route("**/v1/ingest/clicks", lose)
        page.goto(f"{site}/shop.html")
        for _ in range(3):
            page.click("p")
            page.wait_for_timeout(300)
        until(page, running, 3)
        assert len(set(asked[:3])) == 1  # the same request until there was an answer
        page.click("p")
        page.goto("about:blank")  # what was not sent goes when the page is left
        until(page, running, 4)
        assert [line["page"] for line in lines_of(running)] == ["/shop.html"] * 4
        page.close()


@pytest.mark.slow
def test_beacons_arrive_without_a_key_and_only_from_known_pages(
    tmp_path: Path, site: str, browser: Browser
) -> None:
    with Running(settings_of(tmp_path, f', origins: ["{site}"]')) as running:
        url = f"http://127.0.0.1:{running.port}/v1/ingest/clicks"
        (tmp_path / "site" / "a.html").write_text("<p>a</p>")
        page = browser.new_page()
        page.goto(f"{site}/a.html")
        send = "url => navigator.sendBeacon(url, JSON.stringify({at: 1}))"
        assert page.evaluate(send, url)
        until(page, running, 1)
        page.goto(f"{site.replace('localhost', '127.0.0.1')}/a.html")  # another origin
        page.evaluate(send, url)
        page.wait_for_timeout(500)
        assert lines_of(running) == [{"at": 1}]
        page.close()


def test_the_script_sends(tmp_path: Path) -> None:
    key = add_key(tmp_path / "writers.ndjson", "script", ["clicks"])
    with Running(settings_of(tmp_path, ", keys: writers.ndjson")) as running:
        script = example("python").replace(ADDRESS, f"http://127.0.0.1:{running.port}")
        subprocess.run(
            [sys.executable, "-c", script.replace('"..."', f'"{key}"')], check=True, timeout=PATIENCE_S
        )
        assert len(lines_of(running)) == 1
        refused = subprocess.run(
            [sys.executable, "-c", script], check=False, timeout=PATIENCE_S, capture_output=True
        )
        assert b"HTTP Error 401" in refused.stderr
