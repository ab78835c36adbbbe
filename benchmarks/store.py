"""Cost of the store's two most frequent scripts, with an fsync before every reply and without any file.

Run with ``python -m benchmarks.store``; results go to ``benchmarks/results/store.json``. Both servers are
measured in turns on one machine, so the ratios give the price of durability on this disk. A slower disk costs
more.
"""

from __future__ import annotations

import asyncio
import json
import platform
import statistics
import time
from collections.abc import Awaitable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dphist.arrays import Int64Array
from stream_app.core.kinds.tables import node_table
from stream_app.core.records import GENESIS, Apply, Cut, EpochRecord, Release, Reply
from stream_app.core.releases.tiles import tile_appends
from stream_app.state.connection import connect, execute
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.redis_store import RedisStore

RESULTS = Path(__file__).parent / "results" / "store.json"
STREAM, HASH = "departures", "0" * 64
CELLS, BINS, ROUNDS = 5_000, 256, 15
LEVELS = 4
ROW = b"x" * 500  # a row of a running count with its nodes


class Driven:
    """A store with one stream. Every call of the benchmark must succeed."""

    def __init__(self, url: str) -> None:
        self.store = RedisStore(url)
        self.position = self.released = self.rows = 0
        self.head = GENESIS

    async def open(self) -> None:
        """Open a stream whose epoch is long enough for all rounds."""
        record = EpochRecord(0, 1, 2**30, 1, HASH)
        assert await self.store.open_epoch(STREAM, b"{}", record, GENESIS) == Reply.DONE
        assert await self.store.start_partition(STREAM, HASH, "0", 0) == Reply.DONE

    async def apply(self, bins: Int64Array, cells: Int64Array) -> float:
        """Time one apply. Args: bins, counted from the first bin that is not released."""
        deltas = np.ones(CELLS, dtype=np.int64)
        change = Apply(
            HASH,
            "0",
            self.position,
            self.position + 1,
            self.released,
            None,
            bins + self.released + 1,
            cells,
            deltas,
        )
        self.position += 1
        return await timed(self.store.apply(STREAM, change))

    async def release(self) -> float:
        """Cut and seal the next bins, then time their release."""
        last = self.released + BINS
        cut = Cut(last, self.position)
        assert await self.store.take_cuts(STREAM, HASH, "0", self.released, [cut]) == Reply.DONE
        assert await self.store.seal(STREAM, HASH, ["0"], last) == last
        values = np.ones((BINS, 1), dtype=np.int64)
        tiles = [
            append
            for level in range(LEVELS)
            for append in tile_appends(0, node_table(level), self.rows, values)
        ]
        head = f"{last:064d}"
        release = Release(
            *(
                HASH,
                0,
                self.released,
                self.head,
                self.released + 1,
                last,
                [ROW] * BINS,
                head,
                tiles,
                bytes(400),
            )
        )
        self.head, self.released, self.rows = head, last, self.rows + BINS
        return await timed(self.store.release(STREAM, release))


async def timed(call: Awaitable[Reply]) -> float:
    start = time.perf_counter()
    reply = await call
    elapsed = time.perf_counter() - start
    assert reply == Reply.DONE, reply
    return elapsed * 1e3


async def measure(urls: dict[str, str]) -> dict[str, dict[str, float]]:
    """Return the median milliseconds of each call on each server."""
    index = np.arange(CELLS, dtype=np.int64)
    shapes = {
        "apply_5000_cells_of_one_bin": (index * 0, index),
        "apply_50_bins_of_100_cells": (index // 100, index % 100),
        "apply_5000_bins_of_one_cell": (index, index * 0),
    }
    driven = {name: Driven(url) for name, url in urls.items()}
    times: dict[str, dict[str, list[float]]] = {}
    for one in driven.values():
        await one.open()
    for _ in range(ROUNDS):
        for name, one in driven.items():
            for call, (bins, cells) in shapes.items():
                times.setdefault(call, {}).setdefault(name, []).append(await one.apply(bins, cells))
            times.setdefault("release_256_bins", {}).setdefault(name, []).append(await one.release())
    for one in driven.values():
        await one.store.close()
    return {call: {name: statistics.median(ms) for name, ms in each.items()} for call, each in times.items()}


async def without_file(url: str) -> None:
    """Switch the append-only file off."""
    client = connect(url)
    await execute(client, "CONFIG SET", "appendonly", "no")
    await client.aclose()


def main() -> None:
    """Measure, print and keep the results."""
    with (
        TemporaryDirectory() as durable,
        TemporaryDirectory() as forgetful,
        EmbeddedRedis(Path(durable)) as first,
        EmbeddedRedis(Path(forgetful)) as second,
    ):
        asyncio.run(without_file(second.operator_url))
        milliseconds = asyncio.run(measure({"fsync": first.worker_url, "no_file": second.worker_url}))
    results = {
        "machine": platform.machine(),
        "milliseconds": milliseconds,
        "ratio_fsync_to_no_file": {call: ms["fsync"] / ms["no_file"] for call, ms in milliseconds.items()},
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
    print(json.dumps(results, indent=2, sort_keys=True))


if __name__ == "__main__":
    main()
