"""A spool and a list of files are counted exactly, whichever process is killed or frozen, and whenever.

One ``stream-app run`` counts two logs at epsilon 1e9 while programs write them
([log_traffic.py](log_traffic.py)). ``python -m tests.e2e.under_faults logs`` tries many faults.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx

from deploy.ports import free_port
from stream_app.config.key_file import add_key
from stream_app.spool import parts
from tests.e2e.log_traffic import LogTraffic
from tests.e2e.service import get
from tests.e2e.under_faults import order, started, strike

CONFIGURATION = """
redis: {{url: "embedded:./redis"}}
state: {{dir: ./state}}
api: {{port: {port}}}
ingest: {{port: {ingest_port}, keys: writers.ndjson}}
publish_every: 250ms
streams:
  pages:
    source: {{http: pages}}
    time: &seconds {{field: at, format: ms, bin: 1s, grace: 1s, epoch: 1h, max_ahead: 60s}}
    privacy: &exact {{epsilon: 1.0e9, not_private: true}}
  files:
    source: {{file: log-*.ndjson}}
    time: *seconds
    privacy: *exact
"""
KILL_PIPE = "kill pipe"
FAULTS = (
    "kill ingest",
    "kill worker",
    "kill redis",
    "freeze ingest",
    "freeze worker",
    KILL_PIPE,
    "kill all",
)
FROZEN_S = 2.5
PIPE = (sys.executable, "-m", "stream_app", "ingest", "--config", "app.yaml", "--stdin", "pages")


def configure(folder: Path) -> tuple[int, int]:
    """Write the configuration; return the ports of the API and of the listener."""
    ports = free_port(), free_port()
    (folder / "app.yaml").write_text(CONFIGURATION.format(port=ports[0], ingest_port=ports[1]))
    return ports


def run(folder: Path, faults: int, seed: int, tell: Callable[[str], None] = lambda _: None) -> str:
    """Run a schedule of faults, recount both logs and compare; return a summary."""
    port, ingest_port = configure(folder)
    key = add_key(folder / "writers.ndjson", "web", ["pages"])
    (folder / "log-00000.ndjson").touch()
    url, rng = f"http://127.0.0.1:{ingest_port}/v1/ingest/pages", random.Random(seed)
    traffic, service = LogTraffic(folder, url, seed, 0.05, key, PIPE), started(folder)
    try:
        service.until("bins closed")
        traffic.start()
        for number, fault in order(FAULTS, faults, rng):
            tell(f"fault {number}: {fault}")
            if fault != KILL_PIPE:
                service = strike(service, fault, FROZEN_S, rng)
            elif traffic.pipe is not None:
                traffic.pipe.kill()
            time.sleep(rng.uniform(0.3, 1.5))
        traffic.end()
        assert traffic.duplicates, "no request was ever repeated"
        records = b"".join(one.records.read_bytes() for one in parts(folder / "spool/pages"))
        stored = [json.loads(text)["name"] for text in records.splitlines()]
        twice = [name for name, count in Counter(stored).items() if count > 1]
        assert not twice, f"seed {seed}: stored twice: {twice[:5]}"
        lost = {one.name for one in traffic.confirmed} - set(stored)
        assert not lost, f"seed {seed}: confirmed and not stored: {sorted(lost)[:5]}"
        assert {path.stat().st_mode & 0o077 for path in (folder / "spool").rglob("*")} == {0}
        expected = {"pages": len(stored), "files": len(traffic.written_ms)}
        service.until_true(lambda: counted(port) == expected, f"{expected} are counted")
        time.sleep(1.5)
        assert counted(port) == expected
        assert service.interrupt() == 0
    finally:
        service.close()
    arrived, written = expected.values()
    return f"seed {seed}: {faults} faults, {arrived:,} events over HTTP and pipes, {written:,} in files"


def counted(port: int) -> dict[str, int]:
    """Return the released count of each stream; nothing while the API starts."""
    found = {}
    with suppress(httpx.TransportError, AssertionError):  # no answer yet, or 404
        for name in ("pages", "files"):
            has_rows = get(port, f"/v1/streams/{name}")["released_until"] is not None
            found[name] = round(get(port, f"/v1/streams/{name}/count")["value"]) if has_rows else 0
    return found
