"""Workers that share topics: killed, stopped, joined and left alone by Redis, they count each event once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stream_app.kafka_cluster import Cluster
from stream_app.sinks.witness_topic import WitnessTopic
from stream_app.state.embedded import EmbeddedRedis
from tests.brokers import Topic

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 180.0

CONFIG = """
kafka: {{bootstrap_servers: "{servers}", group: "{group}"}}
redis: {{url: "{redis}"}}
state: {{dir: ./state}}
publish_every: 250ms
streams:
  clicks:
    source: {{topic: {topic}, format: json}}
    time: {{field: "user.at", format: us, bin: 1s, grace: 1s, epoch: 1h, first: "{first}"}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
outputs: [{{stream: clicks, topic: {topic}.private}}]
"""


class Cell:
    """One broker, one Redis, one topic, and the workers that a test starts."""

    def __init__(self, folder: Path, servers: str, topic: Topic, redis: EmbeddedRedis) -> None:
        self.folder, self.topic, self.redis = folder, topic, redis
        first = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 5))
        values = {"servers": servers, "group": topic.name, "redis": redis.worker_url, "topic": topic.name}
        (folder / "app.yaml").write_text(CONFIG.format(first=first, **values))
        self.sent = 0
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a worker as a person does."""
        with (self.folder / f"worker-{len(self.workers)}.log").open("wb") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=self.folder,
                env={**os.environ, "STREAM_APP_CONFIG": "app.yaml", "PYTHONPATH": str(REPOSITORY)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.workers.append(worker)
        return worker

    def send(self, events: int) -> None:
        """Send events of this moment, to every partition."""
        for partition in range(3):
            now_us = time.time_ns() // 1000
            value = json.dumps({"user": {"at": now_us}}).encode()
            asyncio.run(self.topic.send([value] * events, partition=partition))
            self.sent += events

    def kill_redis(self) -> None:
        """kill -9 of Redis; ``self.redis.restart()`` starts it over its file."""
        assert self.redis.pid is not None
        os.kill(self.redis.pid, signal.SIGKILL)
        while self.redis.running:
            time.sleep(0.05)

    def rows(self, until: int) -> list[dict[str, object]]:
        """Return what is in the releases topic, once its running count has reached a number."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            rows = asyncio.run(self._rows())
            if rows and rows[-1]["estimate"][0] >= until:
                return rows
            time.sleep(0.5)
        raise AssertionError(f"{rows[-3:]}\n{self.said()}")

    async def _rows(self) -> list[dict[str, object]]:
        witness = await WitnessTopic.open(Cluster(self.topic.servers), f"{self.topic.name}.private")
        try:
            return [json.loads(row) for _, row in await witness.rows("clicks", 0)]
        finally:
            await witness.close()

    def said(self) -> str:
        """Return what the workers said."""
        return "\n".join(path.read_text()[-1500:] for path in sorted(self.folder.glob("worker-*.log")))

    def close(self) -> None:
        """Leave nothing behind."""
        for worker in self.workers:
            worker.kill()
            worker.wait()


@pytest.fixture
def cell(tmp_path: Path, bootstrap_servers: str) -> Iterator[Cell]:
    topic = asyncio.run(Topic.create(bootstrap_servers, partitions=3))
    with ExitStack() as stack:
        redis = stack.enter_context(EmbeddedRedis(tmp_path / "redis"))
        cell = Cell(tmp_path, bootstrap_servers, topic, redis)
        stack.callback(cell.close)
        yield cell


def test_workers_come_and_go_and_every_event_counts_once(cell: Cell) -> None:
    one = cell.start("stream_app", "worker", "--config", "app.yaml")
    cell.send(100)
    cell.rows(300)
    two = cell.start("faust", "-A", "stream_app.worker", "worker")
    cell.send(100)
    cell.rows(600)
    # The first one leads and owns partitions: it goes without a word, and Redis starts anew.
    one.send_signal(signal.SIGKILL)
    cell.send(100)
    cell.kill_redis()
    cell.redis.restart()
    cell.send(50)
    rows = cell.rows(cell.sent)
    assert two.poll() is None, cell.said()
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1)), "a bin twice, or none"
    assert {row["epoch"] for row in rows} == {0}
    assert rows[-1]["estimate"] == [cell.sent]
    nodes: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        for level, index, values in row["nodes"]:
            assert nodes.setdefault((level, index), values) == values
    two.send_signal(signal.SIGTERM)
    two.wait(120)
    _follow(cell, [sys.executable, str(REPOSITORY / "examples/releases_consumer.py")], f": {cell.sent} (")
    _follow(cell, [sys.executable, "-m", "faust", "-A", "examples.releases_agent", "worker"], " 0 events")


def test_a_worker_waits_for_a_redis_that_is_away_as_it_starts(cell: Cell) -> None:
    cell.kill_redis()
    worker = cell.start("stream_app", "worker", "--config", "app.yaml")
    cell.send(10)
    deadline = time.monotonic() + PATIENCE_S
    while "start it or correct the URL; trying again" not in cell.said():
        assert worker.poll() is None, cell.said()
        assert time.monotonic() < deadline, cell.said()
        time.sleep(0.1)
    cell.redis.restart()
    cell.rows(30)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(120) == 0, cell.said()
    assert "Traceback" not in cell.said()


def test_a_missing_topic_and_one_created_anew_are_refused_in_one_line(cell: Cell) -> None:
    worker = cell.start("stream_app", "worker", "--config", "app.yaml")
    cell.send(10)
    cell.rows(30)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(120) == 0, cell.said()
    asyncio.run(cell.topic.delete())
    said = _refused(cell)
    assert said.startswith(f"stream-app: topic {cell.topic.name}: ")
    assert said.endswith(" has none; create it")
    asyncio.run(cell.topic.create_again(3))
    said = _refused(cell)
    assert said.startswith("stream-app: stream clicks: source.topic_id was ")
    assert said.endswith(" now; put it back, or give the new stream another name")


def _refused(cell: Cell) -> str:
    """Start a worker that may not run; return its one line."""
    worker = cell.start("stream_app", "worker", "--config", "app.yaml")
    assert worker.wait(PATIENCE_S) == 2
    lines = (cell.folder / f"worker-{len(cell.workers) - 1}.log").read_text().splitlines()
    return lines[-1]


def _follow(cell: Cell, command: list[str], expected: str) -> None:
    """Run an example over the releases topic until it says what is expected."""
    topic = f"{cell.topic.name}.private"
    reader = cell.folder / "example.log"
    arguments = [cell.topic.servers, topic] if command[-1].endswith(".py") else []
    with reader.open("wb") as log:
        example = subprocess.Popen(
            [*command, *arguments],
            cwd=REPOSITORY,
            env={
                **os.environ,
                "RELEASES_BROKER": f"kafka://{cell.topic.servers}",
                "RELEASES_TOPIC": topic,
                "PYTHONPATH": str(REPOSITORY),
                "FAUST_DATADIR": str(cell.folder / "faust"),
                "PYTHONUNBUFFERED": "1",
            },
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    cell.workers.append(example)
    deadline = time.monotonic() + PATIENCE_S
    while expected not in reader.read_text():
        assert example.poll() is None, reader.read_text()
        assert time.monotonic() < deadline, reader.read_text()
        time.sleep(0.2)
    example.kill()
    example.wait()
