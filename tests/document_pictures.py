"""``python -m tests.document_pictures``: photograph the pages for README and docs/, over 90 days of flights.

The service counts the demo's events. Look at the pictures in docs/images/ before you commit them.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from deploy.ports import free_port
from stream_app.shell.flights import write_flights
from stream_app.state.embedded import EmbeddedRedis
from tests.e2e.flights import instant
from tests.e2e.service import Service
from tests.services import REPOSITORY
from tests.stream_app.api.browsing import launched, opened, panel

IMAGES = REPOSITORY / "docs" / "images"
HOURS = 90 * 24
COLOURS = 256


def configuration(flights: Path, port: int, redis: EmbeddedRedis) -> str:
    """Return a configuration of three streams over 90 days of flights, and two alert rules."""
    source = f'{{file: "{flights}", replay: {{from: {instant(0)}, to: {instant(HOURS)}, speed: max}}}}'
    time = f"field: scheduled, format: iso8601, epoch: {HOURS}h"
    return f"""
redis: {{url: "{redis.worker_url}", api_url: "{redis.api_url}", alerts_url: "{redis.alerts_url}"}}
api: {{port: {port}}}
streams:
  delays:
    title: Delays of departures
    source: {source}
    time: {{{time}, bin: 1h}}
    privacy: {{epsilon: 2, accept: "measured again"}}
    keys: {{field: origin, list: [EWR, JFK, LGA], other: false, total: true}}
    value: {{field: delay_minutes, min: -30, max: 120, buckets: 15}}
  departures:
    title: Departures
    source: {source}
    time: {{{time}, bin: 1h}}
    privacy: {{epsilon: 1, accept: "measured again"}}
  half-hours:
    title: Departures per half hour
    source: {source}
    time: {{{time}, bin: 30m}}
    privacy: {{epsilon: 0.5, accept: "measured again"}}
alerts:
  rules:
    milestone: {{when: "count(departures) > 80000", confidence: 0.99}}
    quiet-day: {{when: "sum(departures, 24h) < 780", confidence: 0.99}}
"""


def shots(browser: Browser, address: str) -> None:
    """Photograph a stream's page in light colours, panels of another in dark ones, and the overview."""
    light: dict[str, Any] = {"color_scheme": "light", "reduced_motion": "reduce"}
    with opened(browser, f"{address}/streams/departures?range=30+days", **light) as page:
        expect(panel(page, "alerts").locator("li").first).to_contain_text("firing")  # the last change
        for name in ("rate", "running", "bins"):
            panel(page, name)
        page.wait_for_timeout(2_000)  # panels in sight are loaded again after a change
        save(page, "dashboard", "main", "#running")
    dark = light | {"color_scheme": "dark"}
    with opened(browser, f"{address}/streams/delays?range=7+days", **dark) as page:
        for name in ("keys", "quantiles", "heat", "cdf", "preview"):
            panel(page, name)
        save(page, "panels", "#keys", "#cdf")
    with opened(browser, address, **light) as page:
        expect(page.locator(".number[data-seq]")).to_have_count(3)
        expect(page.locator("#connection")).to_have_text("Connected")
        save(page, "overview", "main", "#streams")


def save(page: Page, name: str, first: str, last: str) -> None:
    """Save the part of a page from the top of one element to the end of another, over the whole width."""
    page.mouse.move(0, 0)
    page.evaluate("scrollTo(0, 0)")
    taken = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    edge = "([css, side]) => document.querySelector(css).getBoundingClientRect()[side] + scrollY"
    top = 0 if first == "main" else int(page.evaluate(edge, [first, "top"])) - 16
    bottom = int(page.evaluate(edge, [last, "bottom"])) + 16
    few = taken.crop((0, top, taken.width, bottom)).quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(IMAGES / f"{name}.png", optimize=True)
    print(f"{name}.png: {few.width} x {few.height}, {(IMAGES / f'{name}.png').stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Count the flights once, and photograph the pages."""
    with tempfile.TemporaryDirectory() as made, EmbeddedRedis(Path(made) / "redis") as redis:
        folder, port = Path(made), free_port()
        flights = folder / "flights.ndjson"
        write_flights(flights)
        (folder / "app.yaml").write_text(configuration(flights, port, redis))
        with (
            Service(["api", "--config", "app.yaml"], folder),
            Service(["alerts", "--config", "app.yaml"], folder),
            Service(["worker", "--config", "app.yaml"], folder) as worker,
            launched() as browser,
        ):
            assert worker.wait() == 0
            shots(browser, f"http://127.0.0.1:{port}")


if __name__ == "__main__":
    main()
