"""Processor time until a reader has counted up to a cut for every stream and partition of a topic.

    python -m benchmarks.up_to_cut [--streams 40 200] [--partitions 12] [--cuts 3] [--checkouts FOLDER ...]

One process runs cutter and reader over a real Redis and a log in memory, which returns what a Kafka client
has fetched. No bin is released. All streams count alike. For each cut the table says how many reads and
script calls follow it, and the processor time of the process and of Redis. ``--checkouts`` measures the code
of several folders in turn, and ``--pieces`` says how many partitions a read returns at most in each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from stream_app.core.incoming import RecordBatch
from stream_app.core.records import EpochRecord
from stream_app.loops.stream import Ports
from stream_app.state.connection import batch, connect
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.redis_store import RedisStore
from stream_app.wiring.pipeline import Counting
from tests.stream_app.declared import strategy_of

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "up_to_cut.json"
BIN_US, DAY_US = 10_000_000, 86_400_000_000
RECORDS = 20  # of each partition between two reads


class Clock:
    """A clock that is set by hand, a day ahead of Redis: for Redis no cut is due."""

    virtual = False

    def __init__(self) -> None:
        self.us = (int(time.time() * 1e6) + DAY_US) // BIN_US * BIN_US + 1

    async def now_us(self) -> int:
        """Return the instant that was set."""
        return self.us


class Topic:
    """A log in memory. A partition's next records are fetched once those fetched before were returned."""

    def __init__(self, clock: Clock, partitions: int, pieces: int) -> None:
        self._clock, self._pieces = clock, pieces
        self._logs: dict[str, list[int]] = {str(number): [] for number in range(partitions)}
        self._fetched = dict.fromkeys(self._logs, 0)  # in the order in which they are returned

    def append(self, records: int) -> None:
        """Append records, dated now, to each partition."""
        for log in self._logs.values():
            log += [self._clock.us] * records

    async def partitions(self) -> Sequence[str]:
        """Return all partitions."""
        return list(self._logs)

    owned = partitions

    async def first_position(self, partition: str, since_us: int | None) -> int:
        """Return the beginning."""
        return 0

    async def positions_at(
        self, names: Sequence[str], instants_us: Sequence[int]
    ) -> Mapping[str, Sequence[int]]:
        """Return where partitions end."""
        return {name: [len(self._logs[name])] * len(instants_us) for name in names}

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        """Return what was fetched, of so many partitions at most."""
        found: list[RecordBatch] = []
        for name, end in list(self._fetched.items()):
            start = positions[name]
            if end > start and len(found) < self._pieces:
                times = np.array(self._logs[name][start:end], np.int64)
                found.append(
                    RecordBatch(
                        name, start, end, np.arange(start, end), {"at": times}, [], [b""] * len(times)
                    )
                )
                del self._fetched[name]
                self._fetched[name] = len(self._logs[name])
            elif end <= start:
                self._fetched[name] = len(self._logs[name])
        return found


async def opened(store: RedisStore, streams: int, first_us: int) -> list[str]:
    """Open streams that count alike; return their names."""
    names = [f"s{place:04}" for place in range(streams)]
    for name in names:
        strategy = strategy_of(stream=name, bin_us=BIN_US, first_us=first_us, format="us")
        epoch = EpochRecord(0, first_us // BIN_US, 1_000, 1, strategy.hash)
        await store.open_epoch(name, strategy.to_json(), epoch, "0" * 64)
    return names


async def measured(streams: int, partitions: int, cuts: int, pieces: int) -> dict[str, float]:
    """Return the medians over some cuts."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis(Path(folder) / "redis") as server:
        assert server.process is not None
        pid = server.process.pid
        store, operator, clock = RedisStore(server.worker_url), connect(server.operator_url), Clock()
        topic = Topic(clock, partitions, pieces)
        names = await opened(store, streams, clock.us // BIN_US * BIN_US)
        unused: dict[str, Any] = {"witnesses": {}, "dead_letters": None, "noise": {}, "keys": None}
        ports = Ports(
            store=store,
            source=cast("Any", topic),
            clock=cast("Any", clock),
            wall=cast("Any", clock),
            **unused,
        )
        counting = Counting.over(ports, names)
        await counting.ingest.step()

        async def spent() -> tuple[int, float, float]:
            [known] = await batch(operator, [("INFO", "commandstats")])
            return known["cmdstat_evalsha"]["calls"], time.process_time(), time.clock_gettime(~pid << 3 | 2)

        found = []
        for _ in range(cuts):
            for _ in range(2):
                topic.append(RECORDS)
                await counting.ingest.step()
            topic.append(RECORDS)
            clock.us += BIN_US
            await counting.cutter.take_due(await topic.partitions())
            topic.append(RECORDS)
            before, reads = await spent(), 0
            while not counting.views.reached_cuts():
                await counting.ingest.step()
                reads += 1
            found.append((reads, *(now - then for now, then in zip(await spent(), before, strict=True))))
        await store.close()
        await operator.aclose()
    reads, scripts, cpu, redis_cpu = (statistics.median(column) for column in zip(*found, strict=True))
    return {
        "streams": streams,
        "partitions": partitions,
        "reads": reads,
        "scripts": scripts,
        "cpu_s": round(cpu, 3),
        "redis_cpu_s": round(redis_cpu, 3),
    }


def main() -> None:
    """Measure and store the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, nargs="*", default=[40, 200])
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--cuts", type=int, default=3)
    parser.add_argument("--checkouts", type=Path, nargs="*", default=[ROOT])
    parser.add_argument("--pieces", type=int, nargs="*", default=[10**6], help="one for each checkout")
    parser.add_argument("--alone", action="store_true", help="print a measurement of this process' code")
    asked = parser.parse_args()
    if asked.alone:
        print(
            json.dumps(asyncio.run(measured(asked.streams[0], asked.partitions, asked.cuts, asked.pieces[0])))
        )
        return
    table = []
    for streams in asked.streams:
        for place, (checkout, pieces) in enumerate(zip(asked.checkouts, asked.pieces, strict=True)):
            given = {"streams": streams, "partitions": asked.partitions, "cuts": asked.cuts, "pieces": pieces}
            options = [word for name, number in given.items() for word in (f"--{name}", str(number))]
            said = subprocess.run(
                [sys.executable, __file__, "--alone", *options],
                env=os.environ | {"PYTHONPATH": str(checkout.resolve())},
                stdout=subprocess.PIPE,
                check=True,
            ).stdout
            table.append({"checkout": place} | json.loads(said))
            print(json.dumps(table[-1]), flush=True)
    command = f"python -m benchmarks.up_to_cut {' '.join(sys.argv[1:])}".strip()
    RESULTS.write_text(json.dumps({"command": command, "cuts": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
