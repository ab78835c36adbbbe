"""A service with the streams that the pages name, counting a small week of January 2013."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from deploy.ports import free_port
from tests.blocks.pages import block
from tests.e2e.service import Service, answers, get

BOARDS = "docs/how-to/boards.md: boards:"
_STREAMS = """
redis: {{url: "embedded:./state/redis"}}
state: {{dir: ./state}}
api: {{port: {port}}}
streams:
  departures: {{{log}, {count}}}
  visits: {{{log}, {count}}}
  sales: {{{log}, {count}, {keys}, sum: {{field: number, min: 0, max: 60, unit: 0.1}}}}
  clicks: {{{log}, {count}, {keys}}}
  delays: {{{log}, {count}, {keys}, value: {{{value}}}}}
  loads: {{{log}, {count}, {keys}, value: {{{value}, mode: window, window: 1d}}}}
{boards}
"""
_LOG = (
    "source: {file: NAME.ndjson, replay: {from: 2013-01-01T00:00:00Z, to: 2013-01-08T00:00:00Z, speed: 7d/s}}"
)
_COUNT = "time: {field: at, format: iso8601, bin: 1h, epoch: 30d}, privacy: {epsilon: 1}"
_KEYS = "keys: {field: key, list: [FR, DE, UA]}"
_VALUE = "field: number, min: 0, max: 60, buckets: 12"


def _events(seed: int) -> str:
    """Return lines of events, every few minutes of the week."""
    chosen = random.Random(seed)
    lines, at = [], datetime(2013, 1, 1, tzinfo=UTC)
    while at < datetime(2013, 1, 8, tzinfo=UTC):
        event = {
            "at": at.isoformat(),
            "key": chosen.choice(["FR", "DE", "UA"]),
            "number": chosen.uniform(0, 60),
        }
        lines.append(json.dumps(event) + "\n")
        at += timedelta(minutes=chosen.uniform(1, 5))
    return "".join(lines)


@contextmanager
def counted(folder: Path) -> Iterator[int]:
    """Run the service in a folder; yield the port of its API when the week is counted."""
    port = free_port()
    text = _STREAMS.format(
        port=port, log=_LOG, count=_COUNT, keys=_KEYS, value=_VALUE, boards=block(BOARDS).text
    )
    lines: list[str] = []
    for line in text.splitlines():
        name = line.strip().partition(":")[0]
        if "NAME" in line:
            (folder / f"{name}.ndjson").write_text(_events(len(lines)), encoding="utf-8")
        lines.append(line.replace("NAME", name))
    (folder / "stream-app.yaml").write_text("\n".join(lines), encoding="utf-8")
    with Service(["run"], folder) as service:
        names = ("departures", "visits", "sales", "clicks", "delays", "loads")
        service.until_true(lambda: all(_whole(port, name) for name in names), "the week is counted")
        yield port
        service.interrupt()


def _whole(port: int, stream: str) -> bool:
    if not answers(port, f"/v1/streams/{stream}"):
        return False
    return (get(port, f"/v1/streams/{stream}")["released_until"] or "") >= "2013-01-08"
