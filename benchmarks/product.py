"""Closing a bin over many keys and buckets: time of each step, and memory in Redis, against their goals.

    python -m benchmarks.product

One bin from sealed exact counts in an embedded Redis (append-only file, fsync always) to a release that is on
disk: read, noise, release. Seconds of the clock, and of this process' processor, median of the rounds.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import redis

from dphist import SystemNoise, plan_product
from dphist.product.answers import Histogram
from dphist.product.counter import ProductCounter
from dphist.product.design import ProductDesign
from dphist.product.forest import ProductForest
from stream_app.core.records import GENESIS, Apply, Cut, EpochRecord
from stream_app.core.release import make_release
from stream_app.core.strategy import Strategy
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.redis_store import RedisStore

RESULTS = Path(__file__).parent / "results" / "product.json"
HOUR_US = 3_600_000_000
MOST_CELLS = 5_000
ROUNDS = 5
EVENTS_A_BIN = 20_000


def strategy_of(design: ProductDesign) -> Strategy:
    """Return a strategy of hourly bins."""
    declared: dict[str, Any] = {
        "source": {"name": "bench", "replay": None},
        "time": {"field": "at", "bin_us": HOUR_US, "grace_us": 0, "first_us": 0, "max_ahead_bins": 1},
        "privacy": {"epsilon": str(design.epsilon), "unit": "event", "private": True},
        "late": "next_bin",
    }
    return Strategy("bench", "bench", declared, design.time, design.cells, design)


@asynccontextmanager
async def opened(strategy: Strategy) -> AsyncIterator[tuple[RedisStore, EmbeddedRedis]]:
    """Yield a store with the stream's first epoch open."""
    with TemporaryDirectory() as directory, EmbeddedRedis(Path(directory) / "redis") as server:
        store = RedisStore(server.worker_url)
        record = EpochRecord(0, 0, strategy.design.horizon, 1, strategy.hash)
        await store.open_epoch("bench", strategy.to_json(), record, GENESIS)
        await store.start_partition("bench", strategy.hash, "0", 0)
        yield store, server
        await store.close()


async def count(store: RedisStore, strategy: Strategy, bin: int, position: int) -> int:
    """Put events into cells of a bin and seal it; return the new position."""
    generator = np.random.default_rng(bin)
    cells = np.unique(generator.integers(0, strategy.width, EVENTS_A_BIN))
    for part in np.array_split(cells, -(-len(cells) // MOST_CELLS)):
        change = Apply(
            strategy.hash, "0", position, position + 1, bin - 1, None,
            np.full(len(part), bin), part, np.ones(len(part), np.int64),
        )  # fmt: skip
        await store.apply("bench", change)
        position += 1
    await store.take_cuts("bench", strategy.hash, "0", bin - 1, [Cut(bin, position)])
    await store.seal("bench", strategy.hash, ["0"], bin)
    return position


async def close_one(store: RedisStore, strategy: Strategy) -> dict[str, float]:
    """Close the next bin and return how long each step took."""
    times = [time.perf_counter()]
    began = time.process_time()
    state = await store.load("bench")
    assert state is not None
    bin = state.released_bin + 1
    counts = await store.read_cells("bench", bin, bin, strategy.width)
    times.append(time.perf_counter())
    release = make_release(state, strategy, counts, SystemNoise(), nonce=str(bin))
    times.append(time.perf_counter())
    reply = await store.release("bench", release)
    times.append(time.perf_counter())
    assert reply == "done", reply
    read, noise, written = np.diff(times).tolist()
    cpu = time.process_time() - began
    return {"read": read, "noise": noise, "release": written, "total": times[-1] - times[0], "processor": cpu}


async def closing(keys: int) -> dict[str, float]:
    """Return the medians over a few bins of a stream of so many keys."""
    strategy = strategy_of(plan_product(24, 1, keys=keys))
    async with opened(strategy) as (store, _):
        position, rounds = 0, []
        for bin in range(ROUNDS):
            position = await count(store, strategy, bin, position)
            rounds.append(await close_one(store, strategy))
    return {step: statistics.median(one[step] for one in rounds) for step in rounds[0]}


async def memory() -> dict[str, float]:
    """Return the released and the used bytes of a month of hours, 20 keys and 256 buckets."""
    design = plan_product(720, 1, keys=20, buckets=256)
    strategy = strategy_of(design)
    async with opened(strategy) as (store, server):
        client = redis.Redis.from_url(server.worker_url)
        before = client.info("memory")["used_memory"]
        for first in range(0, 720, 48):
            state = await store.load("bench")
            assert state is not None
            await store.take_cuts("bench", strategy.hash, "0", first - 1, [Cut(first + 47, 0)])
            await store.seal("bench", strategy.hash, ["0"], first + 47)
            counts = np.zeros((48, strategy.width), np.int64)
            await store.release("bench", make_release(state, strategy, counts, SystemNoise(), nonce="n"))
        after = client.info("memory")["used_memory"]
        client.close()
    return {"redis_megabytes": (after - before) / 1e6, "columns": float(design.columns)}


def asking() -> dict[str, float]:
    """Return how long a CDF over a day takes, the first time and again."""
    design = plan_product(720, 1, keys=20, buckets=256, total_share=Fraction(1, 5))
    forest = ProductForest(design)
    counter = ProductCounter(design, SystemNoise())
    forest.append_many(counter.push_many(np.ones((48, design.cells), np.int64)))
    asked = []
    for key in (3, 4):
        began = time.perf_counter()
        Histogram.of(forest.range(12, 36), key).cdf()
        asked.append(time.perf_counter() - began)
    return {"cdf_first_seconds": asked[0], "cdf_again_seconds": asked[1]}


def main() -> None:
    """Measure all and write the result."""
    found: dict[str, Any] = {}
    for keys in (10_000, 100_000):
        found[f"{keys} keys"] = asyncio.run(closing(keys))
        print(keys, found[f"{keys} keys"], flush=True)
    found["month of 20 keys x 256 buckets"] = asyncio.run(memory())
    print(found["month of 20 keys x 256 buckets"], flush=True)
    found["a CDF of 256 buckets"] = asking()
    print(found["a CDF of 256 buckets"])
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
