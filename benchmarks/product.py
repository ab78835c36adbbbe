"""Closing a bin over many keys and buckets, memory in Redis, and questions about all keys, with their goals.

    python -m benchmarks.product

One bin goes from sealed exact counts in an embedded Redis (append-only file, fsync always) to a release on
disk: read, add noise, release. The noise is drawn ahead: either one page is read and decrypted, or, for a
causal stream, the vectors of the next bin are ready in memory. Results are seconds of the clock and of this
process' processor, as medians of the rounds.

Questions about all keys are timed over the API without a network. Each round asks another question, so no
answer comes from a cache.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import httpx
import numpy as np
import redis

from dphist import SystemNoise, plan_product
from dphist.product.answers import Histogram
from dphist.product.counter import ProductCounter
from dphist.product.design import ProductDesign
from dphist.product.forest import ProductForest
from dphist.tree.design import Release
from stream_app.api.app import create_app
from stream_app.core.counting.keys import KeyList
from stream_app.core.kinds import kind_of
from stream_app.core.records import GENESIS, Cut, EpochRecord
from stream_app.core.releases.release import make_release
from stream_app.core.store_writes import Apply
from stream_app.core.strategy import Strategy
from stream_app.loops.noise_ahead import NoiseAhead, NoisePool
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from stream_app.vault.key_files import KeyFiles
from tests.stream_app.declared import declared_of

RESULTS = Path(__file__).parent / "results" / "product.json"
HOUR_US = 3_600_000_000
MONTH = 720
MOST_CELLS = 5_000
ROUNDS = 5
EVENTS_A_BIN = 20_000
ASKED_KEYS, ASKED_BINS = 10_000, 48
ASKED_METRIC = "private_counts_key_running"
CLOSED = {10_000: 0.3, 100_000: 3.0}  # keys of a stream, and the seconds in which a bin should close
GOALS_S = {"keys": 0.7, "query": 0.5, "query_range": 1.5}


def strategy_of(design: ProductDesign) -> Strategy:
    """Return a strategy of hourly bins."""
    names = tuple(f"key {place}" for place in range(design.keys.keys))
    keys = KeyList("key", names, False, False)
    declared = declared_of(source="bench", epsilon=design.epsilon, bin_us=HOUR_US, first_us=0, keys=keys)
    return Strategy("bench", declared, kind_of(design))


class Opened(NamedTuple):
    """A store in which the stream's first epoch is open, with noise drawn ahead."""

    store: RedisStore
    server: EmbeddedRedis
    ahead: NoiseAhead
    pool: NoisePool
    seconds: float  # the time to draw and store the epoch's noise


@asynccontextmanager
async def opened(strategy: Strategy) -> AsyncIterator[Opened]:
    """Yield a store in which the stream's first epoch has just opened."""
    with TemporaryDirectory() as directory, EmbeddedRedis(Path(directory) / "redis") as server:
        store = RedisStore(server.worker_url)
        keys = KeyFiles(Path(directory) / "keys")
        ahead = NoiseAhead(store, keys, SystemNoise(), "bench", lambda: secrets.token_hex(16))
        began = time.perf_counter()
        noise = await ahead.stored(strategy, 0)
        seconds = time.perf_counter() - began
        record = EpochRecord(0, 0, strategy.design.horizon, 1, strategy.hash)
        await store.open_epoch("bench", strategy.to_json(), record, GENESIS, noise)
        await store.start_partition("bench", strategy.hash, "0", 0)
        yield Opened(store, server, ahead, NoisePool(SystemNoise(), strategy.kind.vectors()), seconds)
        await store.close()


async def count(store: RedisStore, strategy: Strategy, bin: int, position: int) -> int:
    """Add events to cells of a bin and seal it; return the new position."""
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


async def close_one(opened: Opened, strategy: Strategy) -> dict[str, float]:
    """Close the next bin and return how long each step took."""
    store = opened.store
    times = [time.perf_counter()]
    began = time.process_time()
    state = await store.load("bench")
    assert state is not None
    bin = state.released_bin + 1
    counts = await store.read_cells("bench", bin, bin, strategy.width)
    times.append(time.perf_counter())
    ahead = await opened.ahead.of_bins(strategy, state, bin) if strategy.kind.drawn_ahead else None
    release = make_release(state, strategy, counts, opened.pool, nonce=str(bin), ahead=ahead)
    times.append(time.perf_counter())
    reply = await store.release("bench", release)
    times.append(time.perf_counter())
    assert reply == "done", reply
    read, noised, written = np.diff(times).tolist()
    cpu = time.process_time() - began
    return {
        "read": read,
        "noise": noised,
        "release": written,
        "total": times[-1] - times[0],
        "processor": cpu,
    }


async def closing(keys: int, release: Release) -> dict[str, float]:
    """Return the medians over a few bins of a stream with this many keys."""
    strategy = strategy_of(plan_product(24, 1, keys=keys, release=release))
    async with opened(strategy) as stream:
        position, rounds = 0, []
        for bin in range(ROUNDS):
            position = await count(stream.store, strategy, bin, position)
            while stream.pool.draw_one():
                pass  # the service too draws it between two closings
            rounds.append(await close_one(stream, strategy))
    steps = {step: statistics.median(one[step] for one in rounds) for step in rounds[0]}
    return steps | {"drawing ahead, an epoch": stream.seconds}


async def memory(release: Release) -> dict[str, float]:
    """Return Redis' memory for a month of hours, 20 keys and 256 buckets: at the month's end, and at most.

    If noise is drawn ahead, the next month's noise is included at the end.
    """
    design = plan_product(MONTH, 1, keys=20, buckets=256, release=release)
    strategy = strategy_of(design)
    async with opened(strategy) as stream:
        store, client = stream.store, redis.Redis.from_url(stream.server.operator_url)
        empty, most = 1_000_000, 0
        bin = 0
        while bin < MONTH:
            state = await store.load("bench")
            assert state is not None
            await stream.ahead.settle(strategy, state)
            ahead, last = None, min(bin + 47, MONTH - 1)
            if release == "anticipating":
                if bin > MONTH // 2:
                    await stream.ahead.stored(strategy, 1)
                ahead = await stream.ahead.of_bins(strategy, state, last)
                last = bin + len(ahead.errors) - 1
            await store.take_cuts("bench", strategy.hash, "0", bin - 1, [Cut(last, 0)])
            await store.seal("bench", strategy.hash, ["0"], last)
            counts = np.zeros((last - bin + 1, strategy.width), np.int64)
            made = make_release(state, strategy, counts, SystemNoise(), nonce="n", ahead=ahead)
            reply = await store.release("bench", made)
            assert reply == "done", reply
            bin = last + 1
            most = max(most, client.info("memory")["used_memory"])
        end = client.info("memory")["used_memory"]
        client.close()
    return {
        "at its end, megabytes": (end - empty) / 1e6,
        "at most, megabytes": (most - empty) / 1e6,
        "columns": float(design.columns),
    }


async def answering(release: Release) -> dict[str, dict[str, float]]:
    """Return how long answers about many keys take: the median and the slowest of the rounds."""
    strategy = strategy_of(plan_product(ASKED_BINS, 1, keys=ASKED_KEYS, release=release))
    async with opened(strategy) as stream:
        position = 0
        for bin in range(ASKED_BINS):
            position = await count(stream.store, strategy, bin, position)
            await close_one(stream, strategy)
        state = await stream.store.load("bench")
        assert state is not None
        await stream.store.publish("bench", state.seq)
        reader = RedisReader(stream.server.api_url)
        app = create_app(reader)
        await app.state.replicas.refresh()
        await app.state.apart.of(os.getpid)  # a service starts the second process before the first question
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            found = {address: await asked_s(client, address) for address in GOALS_S}
        await reader.close()
    return {
        address: {"median": statistics.median(times), "slowest": max(times)}
        for address, times in found.items()
    }


async def asked_s(client: httpx.AsyncClient, address: str) -> list[float]:
    """Return the seconds that a question takes, for several ranges one after the other."""
    times = []
    for number in range(ROUNDS):
        first, stop = (bin * HOUR_US // 10**6 for bin in (number, ASKED_BINS - number))
        three_hours = f"start={stop - 7_200}&end={stop}&step=1h"
        path = {
            "keys": f"/v1/streams/bench/keys?start={first}",
            "query": f"/api/v1/query?query={ASKED_METRIC}&time={stop}",
            "query_range": f"/api/v1/query_range?query={ASKED_METRIC}&{three_hours}",
        }[address]
        began = time.perf_counter()
        answer = await client.get(path)
        times.append(time.perf_counter() - began)
        assert answer.status_code == 200, answer.text
        most = 12 if address == "keys" else ASKED_KEYS  # the panel of keys shows the largest ones
        assert answer.content.count(b"key ") >= min(most, ASKED_KEYS), "an answer without values is fast"
    return times


def asking() -> dict[str, float]:
    """Return how long a CDF over a day takes, when asked first and when asked again."""
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
    found: dict[str, Any] = {"processors busy before": os.getloadavg()[0]}
    releases: tuple[Release, ...] = ("anticipating", "causal")
    for keys, goal in CLOSED.items():
        for release in releases:
            measured = asyncio.run(closing(keys, release))
            found[f"{keys} keys, {release}"] = measured
            print(
                f"{keys:7,} keys {release:12}: a bin closes in {measured['total']:.3f} s of the clock, "
                f"{measured['processor']:.3f} s of the processor (goal {goal} s)",
                flush=True,
            )
    for release in releases:
        times = asyncio.run(answering(release))
        found[f"asking about {ASKED_KEYS} keys, {release}"] = times
        for address, one in times.items():
            print(
                f"{ASKED_KEYS:7,} keys {release:12}: {address} answers in {one['median']:.3f} s, "
                f"at the slowest {one['slowest']:.3f} s (goal {GOALS_S[address]} s)",
                flush=True,
            )
    for release in releases:
        held = asyncio.run(memory(release))
        found[f"a month of 20 keys x 256 buckets, {release}"] = held
        print(
            f"a month of hours, 20 keys x 256 buckets, {release}: {held['at its end, megabytes']:.1f} MB of "
            f"Redis at its end, {held['at most, megabytes']:.1f} MB at most (goal 60 MB)",
            flush=True,
        )
    found["a CDF of 256 buckets"] = asking()
    print(found["a CDF of 256 buckets"])
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
