"""What more workers cost for the same events, and what an engine that counts before them leaves to a worker.

    python -m benchmarks.engines

Prints what it measures and writes results/engines.json. All numbers are processor time: two cores run broker,
engine, Redis and workers at once. The cost of a million events by n workers is the difference between two
measurements of which one has more events, so that starts do not count. Beside other work starts differ by
more than the events cost: run it on a quiet machine.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.machine import commit, cpu_s, machine, running
from benchmarks.scale.cell import Producing, measured
from benchmarks.scale.points import Point
from deploy.kafka import broker
from stream_app.config.source import SIGNED_EVENT
from stream_app.core.instants import format_instant
from stream_app.state.embedded import EmbeddedRedis
from tests.brokers import Topic
from tests.e2e.engines import Engine, counted, kafka_streams
from tests.patience import eventually

RESULTS = Path(__file__).parent / "results" / "engines.json"
WORKERS = (1, 2, 4, 8)
FEW, MANY = 500_000, 3_000_000  # events that wait
BEHIND = 2_000_000  # events of the engine
PARTITIONS = 8
CONFIG = """
kafka: {{bootstrap_servers: "{servers}", group: "{events}"}}
redis: {{url: "{redis}"}}
state: {{dir: ./state}}
streams:
  clicks:
    source: {{counts: {events}.counts, origins: {partitions}}}
    time: {{field: at, format: ms, bin: 1s, grace: 2s, epoch: 1h, first: "{first}"}}
    privacy: {{epsilon: 1.0e9, not_private: true, signed: "{signed}"}}
    keys: {{field: page, list: [a, b]}}
"""


def of_workers(folder: Path, servers: str) -> list[dict[str, Any]]:
    """Return the processor time of a million events for each number of workers."""
    found = []
    for workers in WORKERS:
        took = []
        for events in (FEW, MANY):
            own = folder / f"{workers}-{events}"
            own.mkdir()
            point = Point(workers, 1, 1, 0, events, PARTITIONS)
            took.append(measured(point, own, servers, 0)["cpu_s_since_start"])
        found.append({"workers": workers, "cpu_s": (took[1] - took[0]) / (MANY - FEW) * 1e6})
        print(f"| {workers} | {found[-1]['cpu_s']:.2f} s |", flush=True)
    return found


class Pages(Producing):
    """Sends events of pages."""

    def value(self) -> bytes:
        """Return the next event."""
        return b'{"at":%d,"page":"%c"}' % (time.time_ns() // 1_000_000, b"abc"[self._sent % 3])


def of_engine(folder: Path, servers: str) -> dict[str, float]:
    """Let Kafka Streams count events that wait; return the processor time for a million of them."""
    events = asyncio.run(Topic.create(servers, PARTITIONS, message_timestamp_type="LogAppendTime"))
    asyncio.run(replace(events, name=f"{events.name}.counts").create_again())
    first = format_instant((int(time.time()) - 2) * 10**6)
    point = Point(1, 1, 3, 0, BEHIND, PARTITIONS)
    with EmbeddedRedis(folder / "redis") as redis:
        places = {"servers": servers, "events": events.name, "redis": redis.worker_url}
        more = {"partitions": PARTITIONS, "first": first, "signed": SIGNED_EVENT}
        (folder / "app.yaml").write_text(CONFIG.format(**places, **more))
        Pages(servers, events.name, point).send(BEHIND)
        engine: Engine = kafka_streams(folder, servers, events.name, f"{events.name}.counts")
        with running(folder) as worker:
            engine.start()
            try:
                assert engine.process is not None
                eventually(lambda: counted(redis, "clicks")[0].total() >= BEHIND, "all are counted", 0.5)
                spent = cpu_s(engine.process.pid), cpu_s(worker.pid)
            finally:
                engine.kill()
    return dict(zip(("engine_s", "worker_s"), (one / BEHIND * 1e6 for one in spent), strict=True))


def main() -> None:
    """Measure, print and store."""
    result: dict[str, Any] = {
        "command": "python -m benchmarks.engines",
        "commit": commit(),
        "machine": machine(),
    }
    with tempfile.TemporaryDirectory(prefix="engines-") as name:
        folder = Path(name)
        cluster = broker.start(folder / "kafka")
        try:
            result["workers"] = of_workers(folder, cluster.bootstrap_servers)
            own = folder / "engine"
            own.mkdir()
            result["behind"] = found = of_engine(own, cluster.bootstrap_servers)
            print(f"engine {found['engine_s']:.2f} s, worker {found['worker_s']:.2f} s a million events")
        finally:
            cluster.stop()
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
