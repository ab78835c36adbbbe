"""A broker, a Redis and one folder, over which builds of the service take turns, and what readers saw."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from redis import Redis

from benchmarks.soak.deployment import TOPIC, Producer, make_topic
from deploy.kafka import broker
from deploy.ports import free_port
from stream_app.sinks.witness_file import witnessed_rows
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.keys import StreamKeys
from tests.patience import PATIENCE_S, eventually
from tests.upgrade.builds import Build

EXACT = ("visits", "shown")  # without noise: a file and a topic are their witnesses
USERS = "people"
STREAMS = (*EXACT, "noisy", "keyed", USERS)
INTO_TOPIC = ("shown", "keyed")
GRACE_S = 8
_TIME = f"{{field: at, format: ms, bin: 1s, grace: {GRACE_S}s, epoch: 1h}}"
_PRIVACY = {
    "visits": "epsilon: 1000000000, not_private: true",
    "shown": 'epsilon: 1000000000, not_private: true, accept: "measured again"',
    "noisy": 'epsilon: 0.5, accept: "measured again"',
    "keyed": 'epsilon: 0.5, accept: "measured again"',
    USERS: 'epsilon: 0.5, unit: {user: member, max_events: 3}, accept: "measured again"',
}


class Broken(AssertionError):
    """The service has broken a promise."""


class Deployment:
    """Args: folder, of everything; streams, that are configured."""

    def __init__(self, folder: Path, streams: tuple[str, ...] = STREAMS) -> None:
        self.folder, self.streams = folder, streams
        self.broker = broker.start(folder / "kafka")
        self.redis = EmbeddedRedis(folder / "redis")
        self.redis.start()
        asyncio.run(make_topic(self.broker.bootstrap_servers))
        self.producing = _Producing(self.broker.bootstrap_servers)
        self.worker: subprocess.Popen[bytes] | None = None
        self.seen: dict[tuple[str, int], bytes] = {}  # every row that any reader could see
        (folder / "app.yaml").write_text(self._configuration())

    def _configuration(self) -> str:
        outputs = "\n".join(
            f"  - {{stream: {name}, topic: releases}}" for name in self.streams if name in INTO_TOPIC
        )
        text = (
            f'redis: {{url: "{self.redis.worker_url}", api_url: "{self.redis.api_url}"}}\n'
            f"state: {{dir: ./state}}\napi: {{port: {free_port()}}}\npublish_every: 500ms\n"
            f'kafka: {{bootstrap_servers: "{self.broker.bootstrap_servers}", group: upgrade}}\n'
            + (f"outputs:\n{outputs}\n" if outputs else "")
            + "streams:\n"
        )
        for name in self.streams:
            text += (
                f"  {name}:\n    source: {{topic: {TOPIC}, format: json}}\n    time: {_TIME}\n"
                f"    privacy: {{{_PRIVACY[name]}}}\n"
            )
            text += "    keys: {field: country, list: [FR, DE, IT]}\n" if name == "keyed" else ""
        return text

    def run(self, build: Build, seconds: float) -> None:
        """Let a build's worker count for some seconds of visible bins, and keep what readers see."""
        self.worker = build.start(self.folder, "worker")
        before = self.visible()
        self._until(lambda: all(self.visible()[one] > before[one] for one in self.streams))
        self.producing.go_on()
        wanted = {name: seq + seconds for name, seq in self.visible().items()}
        self._until(lambda: all(self.visible()[one] >= wanted[one] for one in self.streams))

    def end_worker(self) -> None:
        """End the worker as an operator does, while events go on."""
        assert self.worker is not None
        self.worker.terminate()
        if (status := self.worker.wait(PATIENCE_S)) != 0:
            raise Broken(f"the worker ended with status {status}: {self.said()}")
        self.worker = None
        self.look()
        if any(name in INTO_TOPIC for name in self.streams):
            self._read_topic()

    def _until(self, holds: Any) -> None:
        def reached() -> bool:
            self.look()
            if self.worker is not None and self.worker.poll() is not None:
                raise Broken(f"the worker has ended: {self.said()}")
            return bool(holds())

        eventually(reached, self.said, pause_s=0.5)

    def look(self) -> None:
        """Read every visible row, as a reader may. Raises: Broken if a row has another value than before."""
        with Redis.from_url(self.redis.operator_url, protocol=2) as redis:
            for name in self.streams:
                keys = StreamKeys(name)
                visible = int(redis.get(keys.visible) or 0)
                found: Any = redis.xrange(keys.chain, max=f"{visible}-0") if visible else []
                for id, fields in found:
                    self._note(name, int(id.split(b"-")[0]), fields[b"row"])
        for name in self.streams:
            if name not in INTO_TOPIC:
                for row in witnessed_rows(self.folder / "state" / "witness", name):
                    self._note(name, row.seq, row.row)

    def _read_topic(self) -> None:
        """Read every record that the releases topic has ever shown, as its consumers do."""
        for key, row in committed(self.broker.bootstrap_servers, "releases"):
            name = key.split("/")[0]
            self._note(name, int(json.loads(row)["seq"]), row)

    def _note(self, stream: str, seq: int, row: bytes) -> None:
        if self.seen.setdefault((stream, seq), row) != row:
            raise Broken(f"row {seq} of {stream} has two values: {self.seen[stream, seq]!r} and {row!r}")

    def visible(self) -> dict[str, int]:
        """Return the last visible row of each stream."""
        with Redis.from_url(self.redis.operator_url, protocol=2) as redis:
            found = {name: redis.get(StreamKeys(name).visible) for name in self.streams}
        return {name: int(seq or 0) for name, seq in found.items()}

    def rows(self, stream: str) -> list[dict[str, Any]]:
        """Return every row of a stream that a reader could see, in order. Raises: Broken for a bin twice."""
        rows = [json.loads(row) for (name, _), row in sorted(self.seen.items()) if name == stream]
        twice = [bin for bin, number in Counter(row["bin"] for row in rows).items() if number > 1]
        if twice:
            raise Broken(f"{stream}: bins {twice[:5]} were released twice")
        return rows

    def check_counts(self) -> dict[str, tuple[int, int]]:
        """Compare the streams without noise with what was sent; return their bins and missing bins.

        Raises: Broken.
        """
        sent, found = self.producing.sent, dict[str, tuple[int, int]]()
        for name in EXACT:
            if name not in self.streams:
                continue
            rows = self.rows(name)
            before: Mapping[str, Any] | None = None
            for row in rows:
                same = before is not None and before["epoch"] == row["epoch"]
                count = round(row["estimate"][0]) - (round(before["estimate"][0]) if same and before else 0)
                if count != sent[row["bin"]]:
                    raise Broken(f"{name}: bin {row['bin']} has {count}, sent were {sent[row['bin']]}")
                before = row
            missing = sum(after["bin"] - one["bin"] - 1 for one, after in pairwise(rows))
            found[name] = len(rows), missing
        return found

    def epochs(self, stream: str) -> list[int]:
        """Return the numbers of the epochs that have rows."""
        return sorted({row["epoch"] for row in self.rows(stream)})

    def back_up(self) -> Path:
        """Copy the store's file while everything runs, as docs/how-to/backup.md says."""
        shutil.copy2(self.folder / "redis" / "appendonly.aof", self.folder / "backup.aof")
        return self.folder / "backup.aof"

    def restore(self, backup: Path) -> None:
        """Replace the store by a backup; the witnesses stay as they are."""
        self.redis.stop()
        shutil.copy2(backup, self.folder / "redis" / "appendonly.aof")
        self.redis.start()

    def lose_store(self) -> None:
        """Empty the store."""
        with Redis.from_url(self.redis.operator_url, protocol=2) as redis:
            redis.flushall()

    def said(self) -> str:
        """Return the end of the worker's log."""
        log = self.folder / "worker.log"
        return log.read_text(errors="replace")[-3000:] if log.exists() else ""

    def close(self) -> None:
        """End everything."""
        self.producing.close()
        if self.worker is not None:
            self.worker.kill()
            self.worker.wait()
        self.redis.stop()
        self.broker.stop()


class _Producing:
    """A producer in a thread; it begins with ``go_on`` and then never pauses."""

    def __init__(self, servers: str) -> None:
        self.producer = Producer(servers, seed=1)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.running: Any = None

    @property
    def sent(self) -> Counter[int]:
        return self.producer.sent

    def go_on(self) -> None:
        self.running = self.running or asyncio.run_coroutine_threadsafe(self.producer.run(), self.loop)

    def close(self) -> None:
        if self.running is not None:
            self.running.cancel()
            time.sleep(1)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)


def committed(servers: str, topic: str) -> Iterator[tuple[str, bytes]]:
    """Yield key and value of every committed record of a topic with one partition."""
    settings = {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer(
        {**settings, "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        while True:
            for message in consumer.consume(1_000, timeout=1.0):
                failure = message.error()
                if failure is not None and failure.code() == KafkaError._PARTITION_EOF:
                    return
                if failure is not None:
                    raise KafkaException(failure)
                yield (message.key() or b"").decode(), message.value() or b""
    finally:
        consumer.close()
