"""How soon the pages show charts of 10^5 released bins; JSON under results/.

    python -m benchmarks.page            (make bench-page)

A service over a memory store and a headless Chromium run on the same machine. Each page is opened several
times with an empty cache. Two streams of 100,000 bins are served, one causal and one anticipating, with an
alert rule, and a board of both: bins, running counts, the newest bin and the rule. Two times are measured
from the start of navigation: the browser's first contentful paint, and the time when the first chart is there
(on the overview the last card, on other pages what they are for). Each is compared with the same page over a
stream of 100 bins.
"""

from __future__ import annotations

import json
import os
import statistics
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

RESULTS = Path(__file__).parent / "results" / "page.json"
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


def opened(browser: Browser, address: str, ready: str) -> tuple[float, float]:
    """Open a page with an empty cache; return the seconds until first paint and until the first chart."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(address, wait_until="commit")
    page.wait_for_selector(ready)
    ready_ms = page.evaluate("performance.now()")
    # On a busy machine the browser draws later than the page is ready.
    page.wait_for_function(f"{_PAINTS}.length")
    paint_ms = page.evaluate(f"{_PAINTS}[0].startTime")
    context.close()
    return paint_ms / 1e3, ready_ms / 1e3


def measured() -> dict[str, Any]:
    """Return the times of all pages."""
    behind = Backstage()
    try:
        for kind in KINDS:
            release(behind, f"{kind}-many", kind, EPOCH_BINS, BINS)
            release(behind, f"{kind}-few", kind, EPOCH_BINS, FEW)
        above = "sum(causal-many, 24h) > 900"
        behind.watch([Rule("busy", above, parse_condition(above))])
        address = behind.start(AccessRules(boards={BOARD.name: BOARD}))
        pages = {
            "overview": ("/", "article:nth-of-type(4) .number[data-seq]"),
            "API": ("/docs", "#operations[data-examples]"),
            "board, many": ("/boards/many", "#each [data-points]"),
            "unknown stream": ("/streams/nothing", "#unknown a"),
            "unknown address": ("/nothing", "main a"),
        }
        for kind in KINDS:
            for size in ("few", "many"):
                pages[f"{kind}, {size}"] = (f"/streams/{kind}-{size}", "#bins-chart[data-points]")
        load = [round(one, 1) for one in os.getloadavg()]
        found: dict[str, Any] = {"processors": os.cpu_count(), "load_average": load}
        found |= {"bins": {"few": FEW, "many": BINS}, "times": TIMES, "pages": {}}
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=str(chromium()), args=["--no-sandbox"])
            for name, (path, ready) in pages.items():
                runs = [opened(browser, address + path, ready) for _ in range(TIMES)]
                paints, readies = zip(*runs, strict=True)
                found["pages"][name] = {
                    "first_paint_s": round(statistics.median(paints), 3),
                    "first_paint_worst_s": round(max(paints), 3),
                    "first_chart_s": round(statistics.median(readies), 3),
                    "first_chart_worst_s": round(max(readies), 3),
                }
                print(f"{name:20}", found["pages"][name], flush=True)
            browser.close()
    finally:
        behind.close()
    return found


def main() -> None:
    """Measure, print, write."""
    RESULTS.write_text(json.dumps(measured(), indent=1) + "\n")


if __name__ == "__main__":
    main()
