"""Serves a memory store to a real browser. A page may send requests to this service only."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from deploy.ports import free_port
from stream_app.api.admission.access import AccessRules
from stream_app.api.app import EVERYBODY, listen, serve_on
from stream_app.core.alerts.rules import Rule
from stream_app.core.answers.labels import NO_LABELS, AllLabels
from stream_app.loops.alert_watch import AlertWatcher
from stream_app.ports.access import Limits
from stream_app.ports.reader import PublicReader
from tests.models.memory import MemoryStore
from tests.models.memory_alerts import MemoryAlertStore
from tests.patience import PATIENCE_S
from tests.services import chromium, required
from tests.stream_app.api.client import SHARED, fill
from tests.stream_app.published import Published

P = TypeVar("P", bound=Published)
ARTIFACTS = Path(__file__).parents[3] / "artifacts"  # the folder for screenshots
PATIENCE_MS = PATIENCE_S * 1_000
PATIENT = Limits(idle_s=PATIENCE_S, slow_s=PATIENCE_S)  # or a page that stands still loses its connection
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--in-process-gpu",  # a process less: a page costs a fifth less CPU time
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@contextmanager
def launched() -> Iterator[Browser]:
    """Yield a headless Chromium, and end it afterwards."""
    expect.set_options(timeout=PATIENCE_MS)
    program = required(chromium, "chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=QUIET, timeout=PATIENCE_MS)
        yield browser
        browser.close()


class WithAlerts:
    """A reader of released values that also knows the states of alert rules, like the reader of Redis."""

    def __init__(self, reader: PublicReader, alerts: MemoryAlertStore) -> None:
        self._reader, self._alerts = reader, alerts

    async def alerts(self) -> tuple[dict[str, bytes], dict[str, list[str]]]:
        """Return the state of every alert rule, and the refusals of its last notification."""
        states, _decided = await self._alerts.load()
        return states, self._alerts.refusals()

    async def transitions(self, stream: str) -> list[bytes]:
        """Return the transitions of the rules over a stream."""
        return self._alerts.transitions_of(stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


class Backstage:
    """A store, a stream, and a server in a thread, which a test can stop and start again."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.store = MemoryStore()
        self.alerts = MemoryAlertStore()
        self.port = 0
        self.rules = EVERYBODY  # those in force
        self.server: Any = None

    def run(self, work: Coroutine[Any, Any, Any], timeout_s: float = PATIENCE_S) -> Any:
        """Run a coroutine in the thread's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    def stream(self, counts: list[int], **options: Any) -> Published:
        """Open a stream and release counts."""
        return self.fill(Published(self.store, **options), counts)

    def fill(self, stream: P, cells: Any) -> P:
        """Open a stream and release cells, or counts; return the stream."""
        self.run(fill(stream, cells))
        return stream

    def watch(self, rules: Sequence[Rule]) -> AlertWatcher:
        """Return a watcher of rules that has read the stream's current state."""
        watcher = AlertWatcher(rules, self.store.reader(), self.alerts)
        self.run(watcher.look())
        return watcher

    def start(
        self,
        rules: AccessRules = EVERYBODY,
        labels: AllLabels = NO_LABELS,
        publish_every_us: int = 1_000_000,
    ) -> str:
        """Start the server, on its earlier port if it had one; return its address."""

        @asynccontextmanager
        async def reader() -> Any:
            yield WithAlerts(self.store.reader(), self.alerts)

        self.port = self.port or free_port()  # no other process takes it while the server is down
        self.rules = replace(rules, limits=PATIENT)
        listener = listen("127.0.0.1", self.port)
        self.server = asyncio.run_coroutine_threadsafe(
            serve_on(listener, reader, self.rules, None, labels, publish_every_us, apart=SHARED),
            self.loop,
        )
        return self.address

    @property
    def address(self) -> str:
        """The service's address."""
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Stop the server and keep the store."""
        self.server.cancel()
        self.run(self._settled())

    def reply(self, path: str, key: str = "", **headers: str) -> httpx.Response:
        """Return the service's answer. Args: path, below ``/v1/streams/`` unless it begins with /."""
        if self.server is None:
            self.start()
        url = self.address + (path if path.startswith("/") else f"/v1/streams/{path}")
        own = {"Authorization": f"Bearer {key}"} if key else {}
        with httpx.stream("GET", url, headers=own | headers, timeout=PATIENCE_S, verify=False) as answer:
            if "event-stream" not in answer.headers.get("content-type", ""):  # which has no end
                answer.read()
            return answer

    def json(self, path: str, key: str = "") -> Any:
        """Return the body of a successful answer."""
        answer = self.reply(path, key)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refusal(self, path: str, key: str = "") -> str:
        """Return the line with which a question is refused."""
        answer = self.reply(path, key)
        assert answer.status_code == 400, answer.text
        return str(answer.json()["error"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread."""
        if self.server and not self.server.done():
            self.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE_S)
        self.loop.close()

    async def _settled(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)


@contextmanager
def opened(
    browser: Browser,
    address: str,
    expect_errors: bool = False,
    before: Callable[[Page], object] = lambda _page: None,
    **options: Any,
) -> Iterator[Page]:
    """Yield a page. At the end, fail if a request left this machine or the page logged an error.

    Args: before, what to do with the page before it asks for the address.
    """
    # The only motion of the pages is a panel that pulses while it loads: 60 pictures a second of the whole
    # page, drawn by the processor, cost more than everything else that a page does.
    look = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"} | options
    context: BrowserContext = browser.new_context(**look)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    origin, strangers = "/".join(address.split("/")[:3]) + "/", list[str]()
    faults: list[str] = []
    page.on("request", lambda one: None if one.url.startswith(origin) else strangers.append(one.url))
    page.on("console", lambda one: faults.append(one.text) if one.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    before(page)
    page.goto(address)
    yield page
    context.close()
    assert strangers == [], strangers
    assert faults == [] or expect_errors, faults


def eventually(page: Page, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, because a page draws only when it has time."""
    deadline_s = time.monotonic() + PATIENCE_MS / 1000
    while not condition():
        assert time.monotonic() < deadline_s, "the condition does not hold"
        page.wait_for_timeout(50)


def in_address(page: Page, text: str, is_there: bool = True) -> None:
    """Wait until the page's address has a text, or has it no more."""
    eventually(page, lambda: (text in page.url) is is_there)


def fits(page: Page) -> None:
    """Wait until the page is not wider than its window, to which charts adapt a moment after other parts."""
    holds(page, "document.documentElement.scrollWidth <= window.innerWidth")


def holds(page: Page, expression: str) -> None:
    """Wait until an expression is true. The page's policy lets no script of its own evaluate texts."""
    eventually(page, lambda: bool(page.evaluate(expression)))


def ink(page: Page, selector: str) -> int:
    """Return how many pixels are drawn on the canvases."""
    return int(
        page.evaluate(
            """selector => [...document.querySelectorAll(selector)].map((canvas) => {
              const copy = new OffscreenCanvas(canvas.width, canvas.height);
              const paper = copy.getContext("2d", { willReadFrequently: true });
              paper.drawImage(canvas, 0, 0);
              const { data } = paper.getImageData(0, 0, canvas.width, canvas.height);
              let drawn = 0;
              for (let i = 3; i < data.length; i += 4) drawn += data[i] > 0;
              return drawn;
            }).reduce((sum, one) => sum + one, 0)""",
            selector,
        )
    )


def inked(page: Page, selector: str, least: int = 1_000) -> int:
    """Wait until more than ``least`` pixels of the canvases are drawn; return how many are drawn."""
    eventually(page, lambda: ink(page, selector) > least)
    return ink(page, selector)


def drawn_from_now_on(page: Page) -> None:
    """Record every text that the page writes on a canvas from now on: all texts, and those of a panel."""
    page.evaluate(
        """() => {
          window.drawn = [];
          const places = [];
          window.drawnIn = (panel) => window.drawn.filter((_, i) => places[i] === panel);
          const write = CanvasRenderingContext2D.prototype.fillText;
          CanvasRenderingContext2D.prototype.fillText = function (words, ...where) {
            window.drawn.push(words);
            places.push(this.canvas.closest("section")?.id);
            return write.call(this, words, ...where);
          };
        }"""
    )


def asked(page: Page, path: str) -> Any:
    """Return the service's answer about the page's stream. Args: path, after the stream's name."""
    return page.evaluate(
        "path => fetch(`/v1${location.pathname}/${path}`).then((answer) => answer.json())", path
    )


def panel(page: Page, name: str) -> Any:
    """Scroll to a panel, and wait until it shows what the reader chose."""
    found = page.locator(f"#{name}")
    found.scroll_into_view_if_needed()
    expect(found).to_have_attribute("data-seq", re.compile(r"^\d+$"))
    expect(found).to_have_attribute("aria-busy", "false")
    expect(found).not_to_have_class(re.compile("failed"))
    return found


def photograph(page: Page, name: str) -> None:
    """Save a screenshot of the whole page if PHOTOGRAPHS is set: nothing reads it but a person."""
    page.evaluate("scrollTo(0, 0)")  # or the sticky header lies over a panel
    if "PHOTOGRAPHS" in os.environ:
        ARTIFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True)


def table(page: Page, name: str) -> list[list[str]]:
    """Open a panel's table of numbers and return its rows."""
    found = panel(page, name)
    if not found.locator("details").evaluate("details => details.open"):
        found.locator("summary").click()
    rows = found.locator("details tbody tr")
    expect(rows.first).to_be_visible()
    return [row.split("\t") for row in rows.all_inner_texts()]


def whole(text: str) -> int:
    """Return the number that a text on the page shows."""
    return int(text.replace(",", ""))
