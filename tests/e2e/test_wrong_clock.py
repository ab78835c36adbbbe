"""A worker starts while the clock of Redis' host is wrong. It waits, and then counts everything."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

import pytest

from stream_app.state.embedded import EmbeddedRedis, find_server
from tests.e2e.service import Service
from tests.host_clock import HostClock

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]

CONFIGURATION = """
redis: {{url: "{url}"}}
publish_every: 250ms
streams:
  visits:
    source: {{file: visits.ndjson}}
    time: {{field: at, format: ms, bin: 1s, grace: 500ms, epoch: 1h, first: "{first}"}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
"""


def released(folder: Path) -> list[tuple[int, int]]:
    """Return (bin, running count) of every row in the witness; it has no file before the clocks agree."""
    files = (folder / "state" / "witness").glob("*visits*")
    lines = [line for file in files for line in file.read_text().splitlines()]
    rows = [json.loads(line.partition("\t")[0]) for line in lines]  # behind it are the settings
    return [(row["bin"], round(row["estimate"][0])) for row in rows]


def test_a_worker_that_starts_under_a_wrong_clock_waits_until_it_is_right(tmp_path: Path) -> None:
    clock, began_s = HostClock(tmp_path), int(time.time())
    (tmp_path / "visits.ndjson").write_text(json.dumps({"at": began_s * 1000}) + "\n")
    with EmbeddedRedis(tmp_path / "redis", clock.program(find_server())) as redis:
        first = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began_s))
        (tmp_path / "app.yaml").write_text(CONFIGURATION.format(url=redis.worker_url, first=first))
        clock.set_ahead(600)
        with closing(Service(["worker", "--config", "app.yaml"], tmp_path)) as worker:
            worker.until("the clock of redis is 600 s ahead of this worker's")
            clock.set_ahead(-600)
            worker.until("the clock of redis is 600 s behind this worker's")
            time.sleep(1.5)  # it tries again every second
            assert worker.process.poll() is None, worker.output
            assert "Traceback" not in worker.output
            assert released(tmp_path) == []
            clock.set_ahead(0)
            worker.until_true(lambda: len(released(tmp_path)) >= 3, "it releases")
            assert worker.interrupt() == 0
    bins, counts = zip(*released(tmp_path), strict=True)
    assert bins == tuple(range(began_s, began_s + len(bins)))
    assert set(counts) == {1}
