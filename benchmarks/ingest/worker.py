"""Our worker, end to end: from records to durable counts, in a store with an fsync before every reply.

The worker runs in a separate process, as users start it, and is observed from outside. The store shows its
progress, and the operating system its use of resources. At the end, every hour that it released must be
exact.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ingest.topic import HOUR_US, HOURS
from benchmarks.machine import cpu_s, memory_mb, running
from stream_app.state.connection import connect, execute
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.keys import StreamKeys
from stream_app.state.redis_store import RedisStore

LOOK_EVERY_S = 0.002
PATIENCE_S = 300.0
STREAM = "events"
# Epsilon 10^9 leaves no noise, so that released values can be compared with the true counts.
CONFIGURATION = """
redis: {{url: "{redis}"}}
kafka: {{bootstrap_servers: "{servers}", group: benchmark}}
streams:
  {stream}:
    source: {{topic: {topic}, format: json}}
    time: {{field: at, format: ms, bin: {bin_s}s, grace: 0s, epoch: 30d, first: {first}}}
    privacy: {{epsilon: 1000000000, not_private: true}}
"""


@dataclass(frozen=True)
class Looked:
    """An observation of the worker: its progress, and the resources that it has used by then."""

    events: int
    at_s: float
    cpu_s: float
    redis_cpu_s: float


def measure(
    folder: Path, servers: str, topic: str, expected: Counter[int], bin_s: int = 3600
) -> dict[str, float]:
    """Run the worker over the whole topic and return the measurements.

    Args: expected, the exact counts per hour; bin_s, the length of the worker's bins.
    """
    folder.mkdir()
    first_us = min(expected) * HOUR_US
    with EmbeddedRedis(folder / "redis") as redis:
        configuration = folder / "app.yaml"
        first = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(first_us // 1_000_000))
        configuration.write_text(
            CONFIGURATION.format(
                redis=redis.worker_url, servers=servers, topic=topic, stream=STREAM, bin_s=bin_s, first=first
            )
        )
        with running(folder) as worker:
            assert redis.process is not None
            first_look, last_look = asyncio.run(
                _follow(redis.worker_url, worker, redis.process.pid, expected.total())
            )
            peak_mb = memory_mb(worker.pid, "VmHWM")
            released = asyncio.run(_released_hours(redis.worker_url, first_us, bin_s))
    if released != expected:
        raise AssertionError(f"{topic}: the released hours are not those of the topic; see {folder}")
    return {
        "events": last_look.events - first_look.events,
        "seconds": last_look.at_s - first_look.at_s,
        "cpu_seconds": last_look.cpu_s - first_look.cpu_s,
        "redis_cpu_seconds": last_look.redis_cpu_s - first_look.redis_cpu_s,
        "peak_mb": peak_mb,
        "counted": released.total(),
    }


async def _follow(
    url: str, worker: subprocess.Popen[bytes], redis_pid: int, events: int
) -> tuple[Looked, Looked]:
    """Return the observation with the first durable counts, and the observation with all counts."""
    client, first = connect(url), None
    deadline = time.perf_counter() + PATIENCE_S
    try:
        while worker.poll() is None and time.perf_counter() < deadline:
            positions = await execute(client, "HVALS", StreamKeys(STREAM).positions)
            seen = sum(map(int, positions))
            if seen:
                looked = Looked(seen, time.perf_counter(), cpu_s(worker.pid), cpu_s(redis_pid))
                first = first or looked
                if seen >= events:
                    return first, looked
            await asyncio.sleep(LOOK_EVERY_S)
    finally:
        await client.aclose()
    raise RuntimeError("the worker ended or stood still before it had counted all events; see worker.log")


async def _released_hours(url: str, first_us: int, bin_s: int) -> Counter[int]:
    """Wait for the release of every bin and return the counts per hour."""
    store = RedisStore(url)
    wanted, rows = HOURS * 3600 // bin_s, list[tuple[int, bytes]]()
    deadline = time.perf_counter() + PATIENCE_S
    try:
        while len(rows) < wanted and time.perf_counter() < deadline:
            await asyncio.sleep(0.1)
            after = rows[-1][0] if rows else 0
            rows += await store.rows(STREAM, after, wanted - len(rows))
    finally:
        await store.close()
    running = [round(json.loads(row)["estimate"][0]) for _, row in rows]
    hours = Counter[int]()
    for number, (before, now) in enumerate(zip([0, *running], running, strict=False)):
        hours[first_us // HOUR_US + number * bin_s // 3600] += now - before
    return hours
