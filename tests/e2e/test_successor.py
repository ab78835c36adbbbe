"""The real service goes on with other bins under another name: each event counts in one of both streams."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from deploy.ports import free_port
from stream_app.core.instants import format_instant, parse_instant
from tests.e2e.service import Service
from tests.patience import eventually

CONFIG = """
redis: {{url: "embedded:./redis"}}
api: {{port: {port}}}
publish_every: 250ms
streams:
  old:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: ms, bin: 1s, grace: 1s, epoch: 4s, first: "{first}"}}
    privacy: {{epsilon: 1000000000, not_private: true}}
"""
NEW = """
  new:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: ms, bin: 500ms, grace: 2s, epoch: 4s, first: "{edge}"}}
    privacy: {{epsilon: 1000000000, not_private: true}}
    successor_of: old
"""


class Writer(threading.Thread):
    """Appends an event every 50 ms; every third one is half a second old."""

    def __init__(self, file: Path) -> None:
        super().__init__(daemon=True)
        self.file, self.times_ms, self.ends = file, list[int](), threading.Event()

    def run(self) -> None:
        """Write until ``ends`` is set."""
        while not self.ends.wait(0.05):
            at_ms = time.time_ns() // 1_000_000 - 500 * (len(self.times_ms) % 3 == 0)
            with self.file.open("a") as events:
                events.write(json.dumps({"at": at_ms}) + "\n")
            self.times_ms.append(at_ms)


@pytest.mark.redis
def test_each_event_counts_before_or_after_the_edge(tmp_path: Path) -> None:
    port, first_s = free_port(), int(time.time()) - 2
    text = CONFIG.format(port=port, first=format_instant(first_s * 10**6))
    writer = Writer(tmp_path / "clicks.ndjson")
    writer.file.touch()
    writer.start()

    def told(stream: str, what: str = "") -> dict[str, Any]:
        with urlopen(f"http://127.0.0.1:{port}/v1/streams/{stream}{what}") as answer:
            return dict(json.load(answer))

    def counted(stream: str, until_s: int) -> bool:
        detail = told(stream)
        return bool(detail["released_until"]) and detail["released_until"] >= format_instant(until_s * 10**6)

    (tmp_path / "app.yaml").write_text(text)
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until("released until")
        assert service.interrupt() == 0
    edge_s = int(time.time()) + 12
    edge = format_instant(edge_s * 10**6)
    (tmp_path / "app.yaml").write_text(text + NEW.format(edge=edge))
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until(f"it ends for good at {edge}")
        service.until("page and API")
        eventually(
            lambda: counted("old", edge_s) and counted("new", edge_s + 2), "both streams have released"
        )
        writer.ends.set()
        writer.join()
        old, new, privacy = told("old"), told("new"), told("new", "/privacy")
        late = {time_ms for time_ms in writer.times_ms if time_ms // 1000 < first_s}
        before = [time_ms for time_ms in writer.times_ms if time_ms < edge_s * 1000]
        assert (old["released_until"], old["ends"], old["next_release"]) == (edge, edge, None)
        assert old["running"]["value"] == len(before) - len(late)
        assert (old["successor"], new["successor_of"]) == ("new", "old")
        assert new["start"] == format_instant(first_s * 10**6)  # one history
        count = told("new", f"/count?start={edge}&end={new['released_until']}")
        until_ms = parse_instant(new["released_until"]) // 1000
        own = [time_ms for time_ms in writer.times_ms if edge_s * 1000 <= time_ms < until_ms]
        assert count["value"] == len(own)
        assert privacy["source_epsilon"] == "1000000000"
        assert service.interrupt() == 0
