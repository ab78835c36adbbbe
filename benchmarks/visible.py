"""From a public instant to the reader: how late an SSE client has a row; JSON under results/.

    python -m benchmarks.visible [--streams 1 20] [--seconds 60]       (make bench-visible)

A real broker, a Redis, one worker and one API run in separate processes. All streams count one topic and
release into one topic, which is their witness. A bin of five seconds closes 250 ms after its end. The bin's
public instant is the next multiple of ``publish_every`` (500 ms). The delay is the time from this instant
until a client that follows the stream has read the whole row.

For comparison one fsync, and one transaction of one record, are measured on the same disk and broker while
the service is idle. The goal is a p99 of at most 100 ms more than both together. A row that missed its
instant is at least 500 ms late. ``before`` in the results is an older measurement, from when the releases
topic was polled on the connection that answers; it is kept. On a busy machine ``chrt -r 1`` gives the
benchmark priority.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from benchmarks.machine import machine, running
from deploy.kafka import broker
from deploy.ports import free_port
from stream_app.core.ledger import ACCEPTED
from stream_app.state.embedded import EmbeddedRedis

RESULTS = Path(__file__).parent / "results" / "visible.json"
EVENTS_PER_S, PARTITIONS = 100, 2
BIN_S, GRACE_S, PUBLISH_EVERY_S = 5, 0.25, 0.5
GOAL_S = 0.1
WARM_UP_S = 10
PROBES = 50
CONFIGURATION = """
redis: {{url: "{url}", api_url: "{api_url}"}}
state: {{dir: ./state}}
api: {{port: {port}}}
publish_every: 500ms
kafka: {{bootstrap_servers: "{servers}", group: visible}}
outputs:
{outputs}
streams:
{streams}
"""
STREAM = """
  {name}:
    source: {{topic: clicks, format: json}}
    time: {{field: at, format: ms, bin: 5s, grace: 250ms, epoch: 10m}}
    privacy: {{epsilon: 0.1, accept: {accept}}}
"""


def configuration(streams: Sequence[str], servers: str, redis: EmbeddedRedis, port: int) -> str:
    """Return the settings of a run: every stream counts the same topic."""
    said = f'"{ACCEPTED}"'
    return CONFIGURATION.format(
        url=redis.worker_url,
        api_url=redis.api_url,
        port=port,
        servers=servers,
        outputs="\n".join(f"  - {{stream: {name}, topic: releases}}" for name in streams),
        streams="".join(STREAM.format(name=name, accept=said) for name in streams),
    )


async def follow(port: int, stream: str, delays: list[float], ends_at: float) -> None:
    """Note, for each new row, how long after its public instant a client has read it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(f"GET /v1/streams/{stream}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    began_at = time.time()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ends_at - began_at):
            while line := await reader.readline():
                if line.startswith(b"data: "):
                    read_at, told = time.time(), json.loads(line[6:])
                    if "bin" not in told:  # the event that says whether the stream is private
                        continue
                    closed_at = told["bin"] * BIN_S + BIN_S + GRACE_S
                    if closed_at > began_at + WARM_UP_S:
                        instant = math.ceil(closed_at / PUBLISH_EVERY_S) * PUBLISH_EVERY_S
                        delays.append(read_at - instant)
    writer.close()


async def produce(servers: str, partitions: int = PARTITIONS) -> None:
    """Send events with the current time until cancelled."""
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5) as producer:
        for number in range(10**9):
            event = json.dumps({"at": int(time.time() * 1000)}).encode()
            await producer.send("clicks", event, partition=number % partitions)
            await asyncio.sleep(1 / EVENTS_PER_S)


async def transactions(servers: str) -> list[float]:
    """Return the times of transactions with one record each."""
    taken = []
    async with AIOKafkaProducer(
        bootstrap_servers=servers, transactional_id="probe", acks="all", enable_idempotence=True
    ) as producer:
        for _ in range(PROBES):
            began = time.perf_counter()
            async with producer.transaction():
                await producer.send_and_wait("clicks", b"{}", partition=0)
            taken.append(time.perf_counter() - began)
            await asyncio.sleep(0.02)
    return taken


def fsyncs(folder: Path) -> list[float]:
    """Return the times to write and sync a small record."""
    taken = []
    with (folder / "probe").open("wb", buffering=0) as file:
        for _ in range(PROBES):
            began = time.perf_counter()
            file.write(b"x" * 512)
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return taken


async def make_topic(servers: str, partitions: int = PARTITIONS) -> None:
    """Create the topic of events."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic("clicks", partitions, 1)])
    await admin.close()


def wait_for(port: int, streams: Sequence[str], folder: Path) -> None:
    """Wait until every stream has a visible row."""
    until = time.monotonic() + 400
    while time.monotonic() < until:
        with contextlib.suppress(OSError, KeyError, ValueError):
            for name in streams:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/streams/{name}", timeout=5) as a:
                    if json.load(a)["seq"] < 1:
                        raise ValueError
            return
        time.sleep(0.5)
    raise SystemExit((folder / "worker.log").read_text()[-3000:])


async def measured(folder: Path, streams: Sequence[str], seconds: float) -> dict[str, object]:
    """Run a deployment; return the percentiles of its delays in milliseconds."""
    port, delays = free_port(), list[float]()
    cluster = await asyncio.to_thread(broker.start, folder / "kafka")
    redis = EmbeddedRedis(folder / "redis")
    redis.start()
    try:
        servers = cluster.bootstrap_servers
        await make_topic(servers)
        synced, committed = fsyncs(folder), await transactions(servers)
        (folder / "app.yaml").write_text(configuration(streams, servers, redis, port))
        with running(folder), running(folder, "api"):
            producing = asyncio.create_task(produce(servers))
            await asyncio.to_thread(wait_for, port, streams, folder)
            began = time.time()
            ends_at = began + WARM_UP_S + seconds
            await asyncio.gather(*(follow(port, name, delays, ends_at) for name in streams))
            producing.cancel()
        said = (folder / "worker.log").read_text()
    finally:
        redis.stop()
        cluster.stop()
    millis = np.array(delays or [math.inf]) * 1000
    own_ms = float(np.percentile(synced, 50) + np.percentile(committed, 50)) * 1000
    return {
        "streams": len(streams),
        "rows": len(delays),
        "expected_rows": int(len(streams) * (seconds // BIN_S - 1)),
        "p50_ms": round(float(np.percentile(millis, 50)), 1),
        "p99_ms": round(float(np.percentile(millis, 99)), 1),
        "waited_for_a_later_instant": int((millis > PUBLISH_EVERY_S * 1000).sum()),
        "fsync_ms": round(float(np.percentile(synced, 50)) * 1000, 2),
        "transaction_ms": round(float(np.percentile(committed, 50)) * 1000, 2),
        "goal_ms": round(GOAL_S * 1000 + own_ms, 1),
        "outages_logged": said.count("trying again"),
    }


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 20])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args([] if sys.argv[0].endswith("__main__.py") else None)
    table = []
    for number in asked.streams:
        with tempfile.TemporaryDirectory(prefix="visible-") as folder:
            names = [f"s{place:02}" for place in range(number)]
            table.append(asyncio.run(measured(Path(folder), names, asked.seconds)))
        print(json.dumps(table[-1]), flush=True)
    known = json.loads(asked.output.read_text()) if asked.output.exists() else {}
    result = {
        "command": "python -m benchmarks.visible",
        "machine": machine(),
        "before": known.get("before", []),
        "delays": table,
    }
    asked.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
