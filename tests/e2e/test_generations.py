"""The real service, started again with other bins and keys: the stream goes on as its next generation."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from deploy.ports import free_port
from stream_app.core.instants import format_instant, parse_instant
from tests.e2e.service import Service
from tests.e2e.test_successor import Writer
from tests.patience import eventually

CONFIG = """
redis: {{url: "embedded:./redis"}}
api: {{port: {port}}}
publish_every: 250ms
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: ms, bin: 1s, grace: 1s, epoch: 4s, first: "{first}"}}
    privacy: {{epsilon: 1000000000, not_private: true}}
"""
SAID = "time.bin 500ms instead of 1s"


@pytest.mark.redis
def test_other_bins_begin_under_the_same_name_and_no_event_is_lost(tmp_path: Path) -> None:
    first_s, file = int(time.time()) - 2, tmp_path / "app.yaml"
    text = CONFIG.format(port=free_port(), first=format_instant(first_s * 10**6))
    writer = Writer(tmp_path / "clicks.ndjson")
    writer.file.touch()
    writer.start()

    def rows(name: str) -> list[dict[str, Any]]:
        witness = tmp_path / "state" / "witness" / f"{name}.ndjson"
        lines = witness.read_text().splitlines() if witness.exists() else []
        return [json.loads(line.partition("\t")[0]) for line in lines]

    file.write_text(text)
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until("released until")
        assert service.interrupt() == 0
    file.write_text(text.replace("bin: 1s", "bin: 500ms"))
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until(SAID)
        said = service.output.split(SAID)[0].rpartition("clicks: from ")[2]
        edge_us = parse_instant(said.split(" on, as generation 2")[0])
        assert (edge_us // 1_000_000 - first_s) % 4 == 0
        eventually(lambda: len(rows("clicks%402")) > 6, "the next generation has released")
        writer.ends.set()
        writer.join()
        assert service.interrupt() == 0
    old, new = rows("clicks"), rows("clicks%402")
    assert (old[-1]["bin"] + 1) * 1_000_000 == new[0]["bin"] * 500_000 == edge_us
    until_ms = (new[-1]["bin"] + 1) * 500
    before = [at for at in writer.times_ms if first_s * 1000 <= at < edge_us // 1000]
    after = [at for at in writer.times_ms if edge_us // 1000 <= at < until_ms]
    assert (sum(leaves(old)), sum(leaves(new))) == (len(before), len(after))


def leaves(rows: list[dict[str, Any]]) -> list[int]:
    """Return the count of each bin; there is no noise."""
    return [row["nodes"][0][2][0] for row in rows]
