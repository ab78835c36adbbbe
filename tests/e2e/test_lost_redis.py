"""Redis is emptied under a live service: every bin comes back, and every event counts once."""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deploy.ports import free_port
from tests.e2e.service import Follower, Service, get

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]

CONFIGURATION = """
api: {{port: {port}}}
operator: {{port: {operator}}}
publish_every: 250ms
streams:
  visits:
    source: {{file: visits.ndjson, start: latest}}
    time: {{field: at, format: ms, bin: 1s, grace: 500ms, epoch: 1h, max_ahead: 60s}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
"""


def send(directory: Path, events: int) -> None:
    """Append events dated now."""
    with (directory / "visits.ndjson").open("ab") as file:
        file.write(b'{"at": %d}\n' % int(time.time() * 1000) * events)


def test_an_emptied_redis_leaves_no_gap(tmp_path: Path) -> None:
    port, operator = free_port(), free_port()
    (tmp_path / "visits.ndjson").touch()
    (tmp_path / "app.yaml").write_text(CONFIGURATION.format(port=port, operator=operator))
    service = Service(["run", "--config", "app.yaml"], tmp_path)
    follower = Follower(port, "visits")
    try:
        service.until_true(lambda: len(follower.seen) >= 2, "it releases")
        for _ in range(3):
            send(tmp_path, 100)
            time.sleep(0.7)
        seen = len(follower.seen)
        service.until_true(lambda: len(follower.seen) >= seen + 3, "all three are released")
        before = dict(follower.seen)
        service.kill_everything()
        service.close()
        shutil.rmtree(tmp_path / "state" / "redis")
        send(tmp_path, 100)  # while it is down
        time.sleep(2.0)
        service = Service(["run", "--config", "app.yaml"], tmp_path)
        send(tmp_path, 100)
        service.until_true(lambda: max(follower.seen) > max(before) + 3, "it releases again")
        last = max(follower.seen)
        again = Follower(port, "visits")  # from the first row on
        service.until_true(lambda: len(again.seen) >= last, "the history is there")
        again.close()
        assert {seq: again.seen[seq] for seq in before} == before
        bins = [json.loads(again.seen[seq])["bin"] for seq in sorted(again.seen)]
        assert bins == list(range(bins[0], bins[0] + len(bins))), "no bin is missing"
        first = datetime.fromtimestamp(bins[0], UTC).isoformat()
        service.until_true(
            lambda: get(port, "/v1/streams/visits/count", start=first)["value"] == 500,
            "each event counts once",
        )
        assert "the store was lost: epoch 0 has ended, epoch 1 begins at" in service.output
    finally:
        follower.close()
        service.close()
