"""Many streams over one topic: seconds until all are open and have released, memory, CPU of a closing.

    python -m benchmarks.many [--streams 1 10 100 1000] [--partitions 2]
                             [--bin SECONDS] [--seconds 30]

A real broker, a Redis and one worker run in separate processes. All streams count the same topic, to which a
producer sends 100 events a second. ``open_s`` runs from the start of the process until every stream is in
the store, ``all_released_s`` until every stream has a visible row; 0.0: not within two minutes. Then the CPU
of worker and Redis is divided by the bins that close. On a busy machine only seconds of CPU mean something.
``before`` in the results is an older measurement; it is kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import commit, cpu_s, machine, memory_mb, running
from benchmarks.visible import PARTITIONS, make_topic, produce
from deploy.kafka import broker
from stream_app.core.ledger import ACCEPTED
from stream_app.state.connection import batch, connect
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.keys import StreamKeys

RESULTS = Path(__file__).parent / "results" / "many.json"
PATIENCE_S, LOOK_EVERY_S = 110.0, 0.1
CONFIGURATION = """
redis: {{url: "{url}", api_url: "{api_url}"}}
state: {{dir: ./state}}
kafka: {{bootstrap_servers: "{servers}", group: many}}
streams:
{streams}
"""
STREAM = """
  {name}:
    source: {{topic: clicks, format: json}}
    time: {{field: at, format: ms, bin: {bin_s}s, grace: 1s, epoch: 1h}}
    privacy: {{epsilon: 0.001, accept: {accept}}}
    {more}
"""


def configuration(
    streams: Sequence[str], servers: str, redis: EmbeddedRedis, bin_s: int, more: str = ""
) -> str:
    """Return the settings of a run: every stream counts the same topic."""
    said = json.dumps(ACCEPTED)
    written = [STREAM.format(name=name, bin_s=bin_s, accept=said, more=more) for name in streams]
    return CONFIGURATION.format(
        url=redis.worker_url, api_url=redis.api_url, servers=servers, streams="".join(written)
    )


class Looking:
    """What the store shows of a run's streams."""

    def __init__(self, url: str, streams: Sequence[str]) -> None:
        self._redis = connect(url)
        self._keys = [StreamKeys(name) for name in streams]

    async def open(self) -> int:
        """Return how many streams are in the store."""
        return sum(await batch(self._redis, [("EXISTS", keys.state) for keys in self._keys]))

    async def visible(self) -> list[int]:
        """Return the number of visible rows of each stream."""
        seen = await batch(self._redis, [("GET", keys.visible) for keys in self._keys])
        return [int(seq or 0) for seq in seen]

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()


async def measured(
    folder: Path, number: int, bin_s: int, seconds: float, more: str = "", partitions: int = PARTITIONS
) -> dict[str, object]:
    """Run a worker over so many streams; return the measurements. Args: partitions, of the topic."""
    names = [f"s{place:04}" for place in range(number)]
    cluster = await asyncio.to_thread(broker.start, folder / "kafka")
    redis = EmbeddedRedis(folder / "redis")
    redis.start()
    looking = Looking(redis.worker_url, names)
    try:
        await make_topic(cluster.bootstrap_servers, partitions)
        (folder / "app.yaml").write_text(configuration(names, cluster.bootstrap_servers, redis, bin_s, more))
        producing = asyncio.create_task(produce(cluster.bootstrap_servers, partitions))
        with running(folder) as child:
            assert redis.process is not None
            began, opened_s, first_s, all_s, opened_cpu_s = time.monotonic(), 0.0, 0.0, 0.0, 0.0
            while not all_s:
                await asyncio.sleep(LOOK_EVERY_S)
                past_s = time.monotonic() - began
                if child.poll() is not None or past_s > PATIENCE_S:
                    break
                if not opened_s:
                    opened_s = past_s if await looking.open() == number else 0.0
                    opened_cpu_s = cpu_s(child.pid)
                    continue
                seen = await looking.visible()
                first_s = first_s or (past_s if max(seen) else 0.0)
                all_s = past_s if min(seen) else 0.0
            found: dict[str, object] = {
                "streams": number,
                "partitions": partitions,
                "open_s": round(opened_s, 1),
                "first_release_s": round(first_s, 1),
                "all_released_s": round(all_s, 1),
                "open_cpu_s": round(opened_cpu_s, 1),
                "start_cpu_s": round(cpu_s(child.pid), 1),
            }
            if all_s:
                await asyncio.sleep(bin_s / 2)  # so that whole rounds of closings fall into the time measured
                rows, cpu = sum(await looking.visible()), cpu_s(child.pid)
                redis_cpu, at_s = cpu_s(redis.process.pid), time.monotonic()
                await asyncio.sleep(seconds)
                closed = sum(await looking.visible()) - rows
                past_s = time.monotonic() - at_s
                cpu, redis_cpu = cpu_s(child.pid) - cpu, cpu_s(redis.process.pid) - redis_cpu
                found |= {
                    "closings_per_s": round(closed / past_s, 1),
                    "expected_closings_per_s": number / bin_s,
                    "cpu_share": round(cpu / past_s, 3),
                    "cpu_ms_per_closing": round(cpu / max(closed, 1) * 1e3, 2),
                    "redis_cpu_ms_per_closing": round(redis_cpu / max(closed, 1) * 1e3, 2),
                }
            found |= {
                "rss_mb": round(memory_mb(child.pid)),
                "peak_mb": round(memory_mb(child.pid, "VmHWM")),
                "redis_mb": round(memory_mb(redis.process.pid)),
            }
        producing.cancel()
        said = (folder / "worker.log").read_text()
        found["lines_logged"] = said.count("\n")
        if not all_s:
            print(said[-3000:], file=sys.stderr)
    finally:
        await looking.close()
        redis.stop()
        cluster.stop()
    return found


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 10, 100, 1000])
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="of the topic")
    parser.add_argument("--bin", type=int, default=10, help="seconds of a bin")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args([] if sys.argv[0].endswith("__main__.py") else None)
    table = []
    for number in asked.streams:
        with tempfile.TemporaryDirectory(prefix="many-") as folder:
            found = measured(Path(folder), number, asked.bin, asked.seconds, partitions=asked.partitions)
            table.append(asyncio.run(found))
        print(json.dumps(table[-1]), flush=True)
    known = json.loads(asked.output.read_text()) if asked.output.exists() else {}
    result = known | {
        "command": " ".join(["python -m benchmarks.many", *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
        "streams": table,
    }
    asked.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
