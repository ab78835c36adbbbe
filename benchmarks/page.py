"""How soon the pages show charts of 10^5 released bins; JSON under results/.

    python -m benchmarks.page            (make bench-page)
    python -m benchmarks.page weight     what the pages transfer, beside what they did before 0.2.0

A service over a memory store and a headless Chromium run on the same machine. Each page is opened several
times with an empty cache. Two streams of 100,000 bins are served, one causal and one anticipating, with an
alert rule, a board of both (bins, running counts, the newest bin and the rule), and a stream of 72 bins with
keys and a value. Two times are measured from the start of navigation: the browser's first contentful paint,
and the time when the first chart is there (on the overview the last card, on other pages what they are for).
Each is compared with the same page over a stream of 100 bins.

``weight`` visits each page once and scrolls to its end. It counts the requests, the bytes that they transfer,
the words that a reader sees, and how far parts of the page moved by themselves (cumulative layout shift).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from benchmarks.long import release
from dphist.tree.design import Release
from stream_app.api.admission.access import AccessRules
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.rules import Rule
from stream_app.core.boards import Board, Line, Panel
from tests.services import chromium
from tests.stream_app.api.browsing import Backstage
from tests.stream_app.published_axes import PublishedAxes, delays

RESULTS = Path(__file__).parent / "results" / "page.json"
WEIGHTS = RESULTS.with_name("page_weight.json")
EPOCH_BINS, BINS, FEW, TIMES = 131_072, 100_000, 100, 5
KINDS: tuple[Release, ...] = ("causal", "anticipating")
BOTH = (Line("causal-many"), Line("anticipating-many"))
BOARD = Board(
    "many",
    "Many bins",
    (
        Panel("newest", "number", BOTH[:1]),
        Panel("each", "bins", BOTH),
        Panel("running", "running", BOTH),
        Panel("rules", "alerts", BOTH[:1]),
    ),
)
_PAINTS = 'performance.getEntriesByName("first-contentful-paint")'


_SHIFTS = """new PerformanceObserver((list) => {
  const moved = list.getEntries().filter((one) => !one.hadRecentInput);
  window.shifted = moved.reduce((sum, one) => sum + one.value, window.shifted ?? 0);
}).observe({ type: "layout-shift", buffered: true });"""


def weighed(browser: Browser, address: str, ready: str) -> dict[str, float]:
    """Visit a page to its end with an empty cache; return its requests, bytes, words and layout shift."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(600_000)
    page, received = context.new_page(), list[float]()
    page.add_init_script(_SHIFTS)
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
    page.goto(address, wait_until="commit")
    page.wait_for_selector(ready)
    for _ in range(12):  # panels ask when they come into sight
        page.mouse.wheel(0, 500)
        page.wait_for_timeout(250)
    words = len(page.inner_text("body").split())
    shift = page.evaluate("window.shifted ?? 0")
    context.close()
    return {
        "requests": len(received),
        "kB": round(sum(received) / 1e3, 1),
        "words": words,
        "shift": round(shift, 4),
    }


def opened(browser: Browser, address: str, ready: str) -> tuple[float, float]:
    """Open a page with an empty cache; return the seconds until first paint and until the first chart."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(600_000)
    page = context.new_page()
    page.goto(address, wait_until="commit")
    page.wait_for_selector(ready)
    ready_ms = page.evaluate("performance.now()")
    # On a busy machine the browser draws later than the page is ready.
    page.wait_for_function(f"{_PAINTS}.length")
    paint_ms = page.evaluate(f"{_PAINTS}[0].startTime")
    context.close()
    return paint_ms / 1e3, ready_ms / 1e3


@contextmanager
def served(sizes: Mapping[str, int]) -> Iterator[dict[str, tuple[str, str]]]:
    """Serve streams of so many bins; yield for each page its address, and what shows that it is ready."""
    behind = Backstage()
    try:
        for kind in KINDS:
            for size, bins in sizes.items():
                release(behind, f"{kind}-{size}", kind, EPOCH_BINS, bins)
        axes = PublishedAxes(behind.store, source="delays", epoch_bins=72, buckets=20)
        behind.fill(axes, delays(axes, axes.epoch_bins))
        above = f"sum(causal-{next(iter(sizes))}, 24h) > 900"
        behind.watch([Rule("busy", above, parse_condition(above))])
        address = behind.start(AccessRules(boards={BOARD.name: BOARD}))
        pages = {
            "overview": ("/", f"article:nth-of-type({2 * len(sizes) + 1}) .number[data-seq]"),
            "API": ("/docs", "#operations[data-examples]"),
            "unknown stream": ("/streams/nothing", "#unknown a"),
            "unknown address": ("/nothing", "main a"),
            "keys and value": ("/streams/delays", "#bins-chart[data-points]"),
        }
        if "many" in sizes:
            pages["board, many"] = ("/boards/many", "#each [data-points]")
        for kind in KINDS:
            for size in sizes:
                pages[f"{kind}, {size}"] = (f"/streams/{kind}-{size}", "#bins-chart[data-points]")
        yield {name: (address + path, ready) for name, (path, ready) in pages.items()}
    finally:
        behind.close()


@contextmanager
def launched() -> Iterator[Browser]:
    """Yield a headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium()), args=["--no-sandbox"])
        yield browser
        browser.close()


def timed() -> dict[str, Any]:
    """Return the times of all pages."""
    with served({"many": BINS, "few": FEW}) as pages, launched() as browser:
        load = [round(one, 1) for one in os.getloadavg()]
        found: dict[str, Any] = {"processors": os.cpu_count(), "load_average": load}
        found |= {"bins": {"few": FEW, "many": BINS}, "times": TIMES, "pages": {}}
        for name, (address, ready) in pages.items():
            runs = [opened(browser, address, ready) for _ in range(TIMES)]
            paints, readies = zip(*runs, strict=True)
            found["pages"][name] = {
                "first_paint_s": round(statistics.median(paints), 3),
                "first_paint_worst_s": round(max(paints), 3),
                "first_chart_s": round(statistics.median(readies), 3),
                "first_chart_worst_s": round(max(readies), 3),
            }
            print(f"{name:20}", found["pages"][name], flush=True)
    return found


def weights() -> dict[str, dict[str, float]]:
    """Return what each page transfers, says and moves."""
    found = {}
    with served({"few": FEW}) as pages, launched() as browser:
        for name, (address, ready) in pages.items():
            found[name] = weighed(browser, address, ready)
            print(f"{name:20}", found[name], flush=True)
    return found


def main(wanted: list[str]) -> None:
    """Measure, print, write."""
    if wanted == ["weight"]:
        kept = json.loads(WEIGHTS.read_text()) if WEIGHTS.exists() else {}
        WEIGHTS.write_text(json.dumps(kept | {"now": weights()}, indent=1) + "\n")
    else:
        RESULTS.write_text(json.dumps(timed(), indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
