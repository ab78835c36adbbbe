"""Cost of a cap on the events of each user: adding records, and choosing which of them count.

Run with ``python -m benchmarks.users``; results go to ``benchmarks/results/users.json``. Records are added in
two ways: as ``ingest`` does, and one by one with a script that decides at once whether the record counts.
Both are measured in turns on one core, which client and server share. Seconds are their processor time, so
that other work on the machine does not count.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from dphist.arrays import Int64Array
from dphist.caps import Caps
from stream_app.core.coded import Coded
from stream_app.core.counting.bins import split
from stream_app.core.counting.bounding import Bounds, UserHashes, UserRecords
from stream_app.core.records import GENESIS, Cut, EpochRecord, Reply
from stream_app.core.store_writes import Apply
from stream_app.state.connection import Script, connect, execute
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.redis_store import RedisStore

RESULTS = Path(__file__).parent / "results" / "users.json"
STREAM, HASH, KEY = "departures", "0" * 64, bytes(32)
FIRST_BIN, BINS, CELLS, MOST_EVENTS = 1, 4, 100, 4
USERS, RECORDS, SLICE, ROUNDS = 100_000, 200_000, 10_000, 3
_pack = msgspec.msgpack.Encoder().encode

# A script that decides about each record when it is added.
RECORD_BY_RECORD = Script(b"""
local cells, places = unpack(cmsgpack.unpack(ARGV[1]))
local ids, most = ARGV[2], tonumber(ARGV[3])
for n, cell in ipairs(cells) do
  if redis.call('HINCRBY', KEYS[1], string.sub(ids, 16 * n - 15, 16 * n), 1) <= most then
    redis.call('HINCRBY', KEYS[1 + places[n]], cell, 1)
  end
end
return 'done'
""")


@dataclass
class Slice:
    """The records that one read returns of one partition."""

    partition: str
    users: list[str]
    bins: Int64Array
    cells: Int64Array


@dataclass
class Spent:
    """The cost of some work: processor seconds of client and server, and bytes of the append-only file."""

    seconds: float
    bytes: int


class Bench:
    """A store whose work is measured."""

    def __init__(self, server: EmbeddedRedis) -> None:
        self.store = RedisStore(server.worker_url)
        self.client = connect(server.operator_url)
        self.positions: dict[str, int] = {}
        self.calls = 0

    async def close(self) -> None:
        """Close the connections."""
        await self.store.close()
        await self.client.aclose()

    async def open(self, partitions: int) -> None:
        """Open the stream in an empty store."""
        await execute(self.client, "FLUSHALL")
        record = EpochRecord(0, FIRST_BIN, 2**20, 1, HASH)
        assert await self.store.open_epoch(STREAM, b"{}", record, GENESIS) == Reply.DONE
        self.positions = {str(number): 0 for number in range(partitions)}
        for partition in self.positions:
            assert await self.store.start_partition(STREAM, HASH, partition, 0) == Reply.DONE

    async def spent(self, work: Awaitable[None]) -> Spent:
        """Await some work and return what it cost."""
        before = await self._spent()
        await work
        after = await self._spent()
        return Spent(after.seconds - before.seconds, after.bytes - before.bytes)

    async def _spent(self) -> Spent:
        info = await execute(self.client, "INFO")
        server = info["used_cpu_sys"] + info["used_cpu_user"]
        return Spent(time.process_time() + server, info["aof_current_size"])

    async def add(self, slices: list[Slice]) -> None:
        """Add records as ingest does."""
        for part in slices:
            windows = np.full_like(part.bins, FIRST_BIN + BINS - 1)
            named = _named(part, windows)
            keys = named.keys(part.bins * CELLS + part.cells)
            for run in split(keys):
                _, firsts, deltas = np.unique(keys[run], return_index=True, return_counts=True)
                rows, start = firsts + run.start, self.positions[part.partition]
                change = Apply(
                    *(HASH, part.partition, start, start + run.stop - run.start, FIRST_BIN - 1, None),
                    *(part.bins[rows], part.cells[rows], deltas, named.users(rows)),
                )
                assert await self.store.apply(STREAM, change) == Reply.DONE
                self.positions[part.partition] = change.new

    async def add_record_by_record(self, slices: list[Slice]) -> None:
        """Add records one by one. The store decides at once which records of each user count."""
        keys = [f"dp:{{{STREAM}}}:sec:users:4", *(f"dp:{{{STREAM}}}:sec:cells:{n}" for n in range(BINS + 1))]
        for part in slices:
            windows = np.full_like(part.bins, FIRST_BIN + BINS - 1)
            named = _named(part, windows)
            ids = named.ids[named.rows]
            for first in range(0, len(part.users), 5_000):
                run = slice(first, first + 5_000)
                packed = _pack([part.cells[run].tolist(), (part.bins[run] + 1).tolist()])
                arguments: list[bytes | str | int] = [packed, ids[run].tobytes(), MOST_EVENTS]
                await RECORD_BY_RECORD(self.client, keys, arguments)

    async def tally(self, bounds: Bounds) -> None:
        """Choose which records count, in all bins."""
        reply, self.calls = Reply.DONE, 0
        while reply is Reply.DONE:
            reply = await self.store.tally(STREAM, HASH, bounds, FIRST_BIN + BINS - 1)
            self.calls += 1

    async def seal(self) -> None:
        """Cut and seal all bins."""
        last = FIRST_BIN + BINS - 1
        for partition, position in self.positions.items():
            cuts = [Cut(last, position)]
            assert await self.store.take_cuts(STREAM, HASH, partition, FIRST_BIN - 1, cuts) == Reply.DONE
        assert await self.store.seal(STREAM, HASH, list(self.positions), last) == last


def _named(part: Slice, windows: Int64Array) -> UserRecords:
    users = Coded.of([str(user) for user in part.users])
    return UserRecords.of(users, windows, lambda window: UserHashes(users.values, window, KEY))


def drawn(partitions: int, users: int, seed: int) -> list[Slice]:
    """Return records of random users in random cells, as slices of one partition each."""
    rng = np.random.default_rng(seed)
    return [
        Slice(
            str(partition),
            [f"user-{number:08d}" for number in rng.integers(0, users, SLICE).tolist()],
            rng.integers(FIRST_BIN, FIRST_BIN + BINS, SLICE),
            rng.integers(0, CELLS, SLICE),
        )
        for partition, _ in zip(cycle(range(partitions)), range(RECORDS // SLICE), strict=False)
    ]


async def measure(server: EmbeddedRedis, partitions: int, users: int) -> dict[str, float]:
    """Return events per second and bytes per event of both ways to add, from the best of some rounds."""
    bench = Bench(server)
    await execute(bench.client, "CONFIG", "SET", "auto-aof-rewrite-percentage", 0)
    ways: dict[str, Callable[[list[Slice]], Awaitable[None]]] = {
        "record_by_record": bench.add_record_by_record,
        "added": bench.add,
    }
    seconds: dict[str, list[float]] = {"record_by_record": [], "added": [], "tallied": []}
    found: dict[str, float] = {}
    for seed in range(ROUNDS):
        slices = drawn(partitions, users, seed)
        for name, way in ways.items():
            await bench.open(partitions)
            spent = await bench.spent(way(slices))
            seconds[name].append(spent.seconds)
            found[f"{name}_file_bytes_per_event"] = spent.bytes / RECORDS
        await bench.seal()
        spent = await bench.spent(bench.tally(Bounds(Caps(MOST_EVENTS))))
        seconds["tallied"].append(spent.seconds)
        found["tallied_file_bytes_per_event"] = spent.bytes / RECORDS
        found["ms_of_a_tally"] = min(seconds["tallied"]) / bench.calls * 1e3
    await bench.close()
    found |= {f"{name}_events_per_s": RECORDS / min(each) for name, each in seconds.items()}
    found["ratio_added_to_record_by_record"] = min(seconds["record_by_record"]) / min(seconds["added"])
    return {name: round(number, 2) for name, number in sorted(found.items())}


def keep(results: Path, measured: Callable[[EmbeddedRedis], dict[str, Any]]) -> None:
    """Measure on one core, with a server that inherits it; print and store the results."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with TemporaryDirectory() as directory, EmbeddedRedis(Path(directory)) as server:
        about = {"machine": platform.machine(), "records": RECORDS, "cells": CELLS, "bins": BINS}
        text = json.dumps(about | measured(server), indent=2, sort_keys=True)
    results.write_text(text + "\n")
    print(text)


def main() -> None:
    """Measure few and many users, over one and over four partitions."""
    cases = [(users, partitions) for users in (1_000, USERS) for partitions in (1, 4)]
    keep(
        RESULTS,
        lambda server: {
            f"{users}_users_{partitions}_partitions": asyncio.run(measure(server, partitions, users))
            for users, partitions in cases
        },
    )


if __name__ == "__main__":
    main()
