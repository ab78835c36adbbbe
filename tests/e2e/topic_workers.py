"""Workers over one topic with a real broker and a real Redis, for end-to-end tests."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from stream_app.kafka.cluster import Cluster
from stream_app.sinks.witness_topic import WitnessTopic
from stream_app.state.embedded import EmbeddedRedis
from tests.brokers import Topic
from tests.patience import PATIENCE_S, eventually

REPOSITORY = Path(__file__).resolve().parents[2]

CONFIG = """
kafka: {{bootstrap_servers: "{servers}", group: "{group}", group_protocol: {protocol}}}
redis: {{url: "{redis}"}}
state: {{dir: ./state}}
publish_every: 250ms
streams:
  clicks:
    source: &log {{topic: {topic}, format: json}}
    time: &seconds {{field: "user.at", format: us, bin: 1s, grace: 1s, epoch: 1h, first: "{first}"}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
  approximate:
    source: *log
    time: *seconds
    privacy: {{epsilon: 1.0e9, delta: 1.0e-6, not_private: true, accept: measured again}}
outputs:
  - {{stream: clicks, topic: {topic}.private}}
  - {{stream: approximate, topic: {topic}.private}}
"""


class Cell:
    """One broker, one Redis, one topic, and the workers that a test starts."""

    def __init__(
        self, folder: Path, servers: str, topic: Topic, redis: EmbeddedRedis, protocol: str, config: str
    ) -> None:
        self.folder, self.topic, self.redis = folder, topic, redis
        first = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 5))
        values = {"servers": servers, "group": topic.name, "redis": redis.worker_url, "topic": topic.name}
        (folder / "app.yaml").write_text(config.format(first=first, protocol=protocol, **values))
        self.sent = 0
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a command in the background, like a person in a shell."""
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

    def send(self, events: int, age_us: int = 0) -> None:
        """Send events to every partition. Args: age_us, how old they are."""
        for partition in range(3):
            now_us = time.time_ns() // 1000 - age_us
            value = json.dumps({"user": {"at": now_us}, "page": "ab"[self.sent % 2]}).encode()
            asyncio.run(self.topic.send([value] * events, partition=partition))
            self.sent += events

    def kill_redis(self) -> None:
        """kill -9 Redis. ``self.redis.restart()`` starts it again with its file."""
        assert self.redis.process is not None
        self.redis.process.kill()
        eventually(lambda: not self.redis.running, "redis is gone")

    def rows(self, until: int, stream: str = "clicks") -> list[dict[str, Any]]:
        """Return a stream's rows in the releases topic, once its running count has reached ``until``."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            rows = asyncio.run(self._rows(stream))
            if rows and rows[-1]["estimate"][0] > until - 0.1:  # approximate counts are rounded
                return rows
            time.sleep(0.5)
        raise AssertionError(f"{rows[-3:]}\n{self.said()}")

    async def _rows(self, stream: str) -> list[dict[str, Any]]:
        witness = await WitnessTopic.open(Cluster(self.topic.servers), f"{self.topic.name}.private")
        try:
            return [json.loads(row.row) for row in await witness.rows(stream, 0)]
        finally:
            await witness.close()

    def said(self) -> str:
        """Return the end of each worker's output."""
        return "\n".join(path.read_text()[-1500:] for path in sorted(self.folder.glob("worker-*.log")))

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.kill()
            worker.wait()


@contextmanager
def running_cell(
    folder: Path, servers: str, protocol: str = "classic", config: str = CONFIG
) -> Iterator[Cell]:
    """Yield a cell without workers. At the end, everything that the cell started is ended.

    Args: protocol, of the consumer group; config, a template.
    """
    topic = asyncio.run(Topic.create(servers, partitions=3))
    with ExitStack() as stack:
        redis = stack.enter_context(EmbeddedRedis(folder / "redis"))
        cell = Cell(folder, servers, topic, redis, protocol, config)
        stack.callback(cell.close)
        yield cell
