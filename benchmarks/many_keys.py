"""100,000 keys in a real service: seconds until it releases, memory, and what answers and pages cost.

    python -m benchmarks.many_keys [--keys 100 100000]

``stream-app run`` counts a file of live events over a list of keys, with the Redis that it brings along. Once
a bin is visible, questions are put and pages are opened in a headless Chromium with an empty cache. The
network bytes of a page are those of all its answers until its chart is there, as they came over the wire.
The noise is drawn ahead: every key has its own noise, whether it has events or not. On a busy machine only
bytes, memory and seconds of CPU mean something.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, sync_playwright

from benchmarks.machine import children, commit, cpu_s, memory_mb, running
from deploy.ports import free_port
from tests.services import chromium

RESULTS = Path(__file__).parent / "results" / "many_keys.json"
EVENTS, BIN_S, PATIENCE_S = 20_000, 5, 120.0
CONFIGURATION = """
streams:
  clicks:
    source: {{file: events.ndjson}}
    time: {{field: at, format: s, bin: {bin_s}s, grace: 1s, epoch: 5m}}
    privacy: {{epsilon: 1}}
    keys: {{field: key, list_file: keys.txt}}
api: {{port: {port}, metrics: {{keys_of: [clicks]}}}}
"""
QUESTIONS = {
    "all streams (/v1/overview)": "/v1/overview",
    "the stream (/v1/streams/clicks)": "/v1/streams/clicks",
    "a search in the list of keys (/keys/list)": "/v1/streams/clicks/keys/list?contains=7&limit=200",
    "the panel of keys (/keys)": "/v1/streams/clicks/keys",
    "a count of one key (/count)": "/v1/streams/clicks/count?key=k000007",
    "the series of one key (/series)": "/v1/streams/clicks/series?key=k000007",
    "metrics, at most 20,000 series (/metrics)": "/metrics",
}
PAGES = {
    "overview": ("/", "article .number[data-seq]"),
    "stream": ("/streams/clicks", "#running-chart[data-points]"),
}


def files(folder: Path, keys: int, port: int) -> None:
    """Write the configuration, the list of keys, and events of which few keys have most."""
    chance = random.Random(1)
    (folder / "app.yaml").write_text(CONFIGURATION.format(bin_s=BIN_S, port=port))
    (folder / "keys.txt").write_text("".join(f"k{place:06}\n" for place in range(keys)))
    soon_s = time.time()
    lines = (
        json.dumps({"at": soon_s + place * 120 / EVENTS, "key": f"k{int(keys * chance.random() ** 3):06}"})
        for place in range(EVENTS)
    )
    (folder / "events.ndjson").write_text("\n".join(lines) + "\n")


def answered(client: httpx.Client, path: str) -> dict[str, float]:
    """Return how long an answer takes and how many bytes it has on the wire."""
    began_s = time.monotonic()
    with client.stream("GET", path) as answer:
        answer.raise_for_status()
        for _ in answer.iter_raw():
            pass
    return {"s": round(time.monotonic() - began_s, 3), "kb": round(answer.num_bytes_downloaded / 1e3, 1)}


def opened(browser: Browser, address: str, ready: str) -> dict[str, float]:
    """Open a page with an empty cache; return the seconds until its chart is there, and its bytes."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page, received = context.new_page(), [0]
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.dataReceived", lambda event: received.append(event["encodedDataLength"]))
    page.goto(address, wait_until="commit")
    page.wait_for_selector(ready, timeout=PATIENCE_S * 1e3)
    ready_s = page.evaluate("() => performance.now()") / 1e3
    paint_ms = page.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0].startTime")
    elements = page.evaluate("() => document.querySelectorAll('*').length")
    context.close()
    return {
        "paint_s": round(paint_ms / 1e3, 2),
        "s": round(ready_s, 2),
        "kb": round(sum(received) / 1e3),
        "elements": elements,
    }


def measured(folder: Path, keys: int) -> dict[str, Any]:
    """Run the service over so many keys; return the measurements."""
    port = free_port()
    files(folder, keys, port)
    address = f"http://127.0.0.1:{port}"
    found: dict[str, Any] = {"keys": keys}
    began_s = time.monotonic()
    with running(folder, "run") as service:
        with httpx.Client(base_url=address, timeout=PATIENCE_S) as client:
            while time.monotonic() < began_s + PATIENCE_S and "released_s" not in found:
                time.sleep(0.2)
                assert service.poll() is None, (folder / "run.log").read_text()
                try:
                    shown = client.get("/v1/streams/clicks")
                except httpx.TransportError:
                    continue
                if shown.status_code == 200:
                    past_s = round(time.monotonic() - began_s, 1)
                    found.setdefault("open_s", past_s)
                    if shown.json()["released_until"] is not None:
                        found["released_s"] = past_s
            found["processes"] = {
                role: {"cpu_s": round(cpu_s(pid), 1), "peak_mb": round(memory_mb(pid, "VmHWM"))}
                for role, pid in children(service.pid).items()
            }
            found["answers"] = {name: answered(client, path) for name, path in QUESTIONS.items()}
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=str(chromium()), args=["--no-sandbox"])
            found["pages"] = {
                name: opened(browser, address + path, ready) for name, (path, ready) in PAGES.items()
            }
            browser.close()
    return found


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, nargs="*", default=[100, 100_000])
    asked = parser.parse_args([] if sys.argv[0].endswith("__main__.py") else None)
    table = []
    for keys in asked.keys:
        with tempfile.TemporaryDirectory(prefix="keys-") as folder:
            table.append(measured(Path(folder), keys))
        print(json.dumps(table[-1], indent=1), flush=True)
    result = {
        "command": "python -m benchmarks.many_keys",
        "commit": commit(),
        "processors": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "runs": table,
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
