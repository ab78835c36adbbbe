"""What more workers cost for the same events, and what an engine that counts before them leaves to a worker.

    python -m benchmarks.engines

Prints what it measures and writes results/engines.json. All numbers are processor time: two cores run broker,
engine, Redis and workers at once. Workers have started and divided the partitions before the events that they
read are sent. Their cost is the median of some measurements.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.machine import commit, cpu_s, machine, running
from benchmarks.scale.cell import Producing, frozen, measured
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
ROUNDS = 3
WAITING = 1_500_000  # events
FEW, BEHIND = 100_000, 2_000_000  # events of the engine: until it has started, and measured
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
        point, took = Point(workers, 1, 1, 0, WAITING, PARTITIONS), []
        for number in range(ROUNDS):
            own = folder / f"{workers}-{number}"
            own.mkdir()
            took.append(measured(point, own, servers, 0)["cpu_s"] / WAITING * 1e6)
        found.append({"workers": workers, "cpu_s": statistics.median(took), "rounds": took})
        said = ", ".join(f"{one:.2f}" for one in took)
        print(f"| {workers} | {found[-1]['cpu_s']:.2f} s | {said} |", flush=True)
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
        pages = Pages(servers, events.name, point)
        engine: Engine = kafka_streams(folder, servers, events.name, f"{events.name}.counts")
        with running(folder) as worker:
            engine.start()
            try:
                assert engine.process is not None
                both = [engine.process, worker]
                pages.send(FEW)
                eventually(lambda: total(redis) >= FEW, "both have started", 0.5)
                before = [cpu_s(one.pid) for one in both]
                with frozen(both):
                    pages.send(BEHIND)
                eventually(
                    lambda: counted(redis, "clicks")[0].total() >= FEW + BEHIND, "all are counted", 0.5
                )
                spent = [cpu_s(one.pid) - of for one, of in zip(both, before, strict=True)]
            finally:
                engine.kill()
    return dict(zip(("engine_s", "worker_s"), (one / BEHIND * 1e6 for one in spent), strict=True))


def total(redis: EmbeddedRedis) -> int:
    """Return how many events of the engine are released."""
    return counted(redis, "clicks")[0].total()


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
