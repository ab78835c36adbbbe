"""The commands of docs/how-to/backup.md: a store is copied under load, destroyed, and restored."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from stream_app.sinks.witness_file import witnessed_rows
from stream_app.state.embedded import find_server
from stream_app.state.keys import StreamKeys
from tests.deployment.test_redis import DeployedRedis, deployed
from tests.e2e.service import Service

pytestmark = [pytest.mark.redis, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "backup.md"
CONFIGURATION = """
redis: {{url: "{url}"}}
publish_every: 250ms
streams:
  visits:
    source: {{file: visits.ndjson}}
    time: &seconds {{field: at, format: ms, bin: 1s, grace: 3s, epoch: 1h, max_ahead: 60s}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
  noisy:
    source: {{file: visits.ndjson}}
    time: *seconds
    privacy: {{epsilon: 0.5, accept: measured again}}
"""
STREAMS = ("visits", "noisy")


def command(name: str) -> str:
    """Return a block of commands of the page."""
    found = re.search(rf"^( *)```sh {name}\n(.*?)^ *```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found.group(2)


def run(name: str, folder: Path, redis: DeployedRedis) -> None:
    """Run a block of commands with the programs of the bundled server."""
    path = f"{find_server().parent}{os.pathsep}{os.environ['PATH']}"
    values = {"REDIS_OPERATOR_URL": redis.url("operator"), "REDIS_DATA": str(redis.folder / "data")}
    environment = {**os.environ, "PATH": path, **values}
    subprocess.run(["sh", "-ec", command(name)], cwd=folder, env=environment, check=True)


@contextmanager
def sending(file: Path, sent: Counter[int]) -> Iterator[None]:
    """Append events dated now during the block, and count them by second."""
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(0.05):
            at = int(time.time() * 1000)
            with file.open("ab") as log:
                log.write(b'{"at": %d}\n' % at * 5)
            sent[at // 1000] += 5

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def visible_rows(redis: DeployedRedis, stream: str) -> dict[int, bytes]:
    keys = StreamKeys(stream)
    with Redis.from_url(redis.url("operator"), protocol=2) as client:
        last: Any = client.get(keys.visible)
        found: Any = client.xrange(keys.chain, max=f"{int(last)}-0") if last else []
    return {int(id.split(b"-")[0]): fields[b"row"] for id, fields in found}


def test_a_restored_backup_releases_no_bin_twice(tmp_path: Path) -> None:
    sent, rows = Counter[int](), dict[str, dict[int, bytes]]()
    (tmp_path / "visits.ndjson").touch()
    with deployed(tmp_path, find_server()) as redis, sending(tmp_path / "visits.ndjson", sent):
        (tmp_path / "app.yaml").write_text(CONFIGURATION.format(url=redis.worker_url))

        def worker() -> Service:
            return Service(["worker", "--config", "app.yaml"], tmp_path)

        with worker() as first:
            first.until_true(lambda: len(visible_rows(redis, "noisy")) >= 2, "it releases")
            run("backup", tmp_path, redis)
            copied = len(visible_rows(redis, "noisy"))
            first.until_true(lambda: len(visible_rows(redis, "noisy")) >= copied + 2, "it goes on")
            before = {stream: visible_rows(redis, stream) for stream in STREAMS}
        redis.kill()
        shutil.rmtree(redis.folder / "data")
        (redis.folder / "data").mkdir()
        shutil.copy(tmp_path / "backup.rdb", redis.folder / "data")
        run("restore", tmp_path, redis)
        redis.start()
        with worker() as second:
            wanted = {stream: max(before[stream]) + 3 for stream in STREAMS}
            second.until_true(
                lambda: all(max(visible_rows(redis, one), default=0) >= wanted[one] for one in STREAMS),
                "it releases again",
            )
            assert "the store was set back: epoch 0 has ended" in second.output
            rows = {stream: visible_rows(redis, stream) for stream in STREAMS}
    for stream in STREAMS:
        assert rows[stream].items() >= before[stream].items(), "a row has another value, or is gone"
        witnessed = {row.seq: row.row for row in witnessed_rows(tmp_path / "state" / "witness", stream)}
        assert witnessed.items() >= rows[stream].items()
        told = [json.loads(row) for _, row in sorted(witnessed.items())]
        assert {after["bin"] - one["bin"] for one, after in pairwise(told)} == {1}, (
            "no bin twice, none missing"
        )
        assert {row["epoch"] for row in told} == {0, 1}
    counted, running, epoch = dict[int, int](), 0, 0
    for row in (json.loads(row) for _, row in sorted(rows["visits"].items())):
        running, epoch = (running if row["epoch"] == epoch else 0), row["epoch"]
        counted[row["bin"]] = round(row["estimate"][0]) - running
        running = round(row["estimate"][0])
    assert counted == {bin: sent[bin] for bin in counted}
