"""kill -9 of workers and of Redis over found keys: each bin names the keys that the epoch's seed decides.

``python -m tests.e2e.test_found_kills 1 10`` tries ten seeds. No noise is added to counts.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer

from deploy.kafka import broker
from dphist.noise.derived import DerivedNoise
from stream_app.core.kinds import Discovering
from stream_app.core.strategy import Strategy
from stream_app.state.redis_store import RedisStore
from stream_app.vault.cipher import KeyNames, decrypt_page
from stream_app.vault.key_ring import SharedKey
from tests.e2e.topic_workers import Cell, running_cell
from tests.ending import end_all_with_this_run
from tests.patience import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]

STREAMS = ("events", "people", "approximate")
WORKERS, PARTITIONS, TRAFFIC_S, GRACE_S = 2, 3, 30.0, 8
TERMS = [f"term-{place}" for place in range(60)]
WEIGHTS = [1 / (place + 1) ** 0.7 for place in range(60)]
CONFIG = """
kafka: {{bootstrap_servers: "{servers}", group: "{group}", group_protocol: {protocol}}}
redis: {{url: "{redis}"}}
state: {{dir: ./state}}
secrets: {{key_file: ./key}}
publish_every: 250ms
streams:
  events:
    source: &log {{topic: {topic}, format: json}}
    time: &seconds {{field: at, format: ms, bin: 1s, grace: 8s, epoch: 1h, first: "{first}"}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
    tree: {{release: causal}}
    keys: &found {{field: term, discover: {{epsilon: 1, delta: 1e-4}}}}
  people:
    source: *log
    time: *seconds
    privacy:
      {{epsilon: 1.0e9, not_private: true, accept: measured again, unit: {{user: user, max_events: 1}}}}
    tree: {{release: causal}}
    keys: *found
  approximate:
    source: *log
    time: *seconds
    privacy: {{epsilon: 1.0e9, delta: 1e-3, not_private: true, accept: measured again}}
    keys: *found
outputs:
  - {{stream: events, topic: {topic}.private}}
  - {{stream: people, topic: {topic}.private}}
  - {{stream: approximate, topic: {topic}.private}}
"""


def test_kills_change_no_decision_about_found_keys(tmp_path: Path, bootstrap_servers: str) -> None:
    print(tried(tmp_path, bootstrap_servers, seed=1))


def tried(folder: Path, servers: str, seed: int) -> str:
    """Run two workers that are killed at random, and recompute all decisions; return what happened."""
    (folder / "key").touch(0o600)
    (folder / "key").write_bytes(b64encode(random.Random(seed).randbytes(32)))
    with running_cell(folder, servers, config=CONFIG) as cell:
        for _ in range(WORKERS):
            cell.start("stream_app", "worker", "--config", "app.yaml")
        eventually(lambda: asyncio.run(_all_open(cell)), cell.said)
        counts, kills = asyncio.run(_traffic(cell, random.Random(seed)))
        named = Counter[str]()
        for stream in STREAMS:
            rows = cell.rows(cell.sent, stream)
            named += _check(stream, rows, counts, *asyncio.run(_secrets(cell, stream)))
        load = f"load {os.getloadavg()[0]:.0f}"
        return f"seed {seed}: {kills} kills, {cell.sent} events, {dict(named)}, as recomputed; {load}"


async def _all_open(cell: Cell) -> bool:
    assert all(worker.poll() is None for worker in cell.workers), cell.said()
    store = RedisStore(cell.redis.worker_url)
    try:
        return None not in [await store.load(stream) for stream in STREAMS]
    finally:
        await store.close()


async def _traffic(cell: Cell, rng: random.Random) -> tuple[dict[int, Counter[str]], int]:
    """Send events, each of another user, while processes are killed.

    Returns: the counts by bin and term, and how many processes were killed.
    """
    counts, until, kills, kill_s = dict[int, Counter[str]](), time.time() + TRAFFIC_S, 0, time.time() + 2
    async with AIOKafkaProducer(bootstrap_servers=cell.topic.servers, linger_ms=5) as client:
        while (now := time.time()) < until:
            for term in rng.choices(TERMS, WEIGHTS, k=rng.randrange(8, 16)):
                value = json.dumps({"at": int(now * 1_000), "term": term, "user": f"u{cell.sent}"}).encode()
                await client.send(cell.topic.name, value, b"key", rng.randrange(PARTITIONS))
                counts.setdefault(int(now), Counter())[term] += 1
                cell.sent += 1
            await client.flush()
            assert time.time() - now < GRACE_S, "an event took longer than the grace; a busy machine?"
            if time.time() > kill_s:
                await asyncio.to_thread(_kill, cell, rng.choice(["redis", "worker", "worker", "worker"]), rng)
                kills, kill_s = kills + 1, time.time() + rng.uniform(1, 4)
            await asyncio.sleep(0.25)
    return counts, kills


def _kill(cell: Cell, victim: str, rng: random.Random) -> None:
    """kill -9 Redis or one of the two last workers, and start it again."""
    assert all(worker.poll() is None for worker in cell.workers[-WORKERS:]), cell.said()
    if victim == "redis":
        cell.kill_redis()
        cell.redis.restart()
        return
    worker = cell.workers.pop(-1 - rng.randrange(WORKERS))
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    cell.workers.insert(0, worker)
    cell.start("stream_app", "worker", "--config", "app.yaml")


async def _secrets(cell: Cell, stream: str) -> tuple[Discovering, DerivedNoise, KeyNames]:
    """Return a stream's rule, the noise of its decisions, and the hashes of its keys."""
    store, vault = RedisStore(cell.redis.worker_url), SharedKey.read(cell.folder / "key")
    try:
        state = await store.load(stream)
        assert state is not None
        page = await store.read_noise(stream, state.noise, 0)
    finally:
        await store.close()
    assert page is not None
    assert state.epoch.epoch == 0
    [(_, chain)] = await vault.chains(stream, 0, state.noise)
    strategy = Strategy.from_json(state.strategy)
    assert isinstance(strategy.kind, Discovering)
    windows = strategy.declared.cap_windows(state.epoch, strategy.time.horizon)
    window = int(windows.of(np.array([state.epoch.first_bin]))[0])
    seed = decrypt_page(chain, stream, 0, state.noise, 0, page)
    names = KeyNames(vault.user_key(stream, state.user_keys.of(window)), stream, window)
    return strategy.kind, DerivedNoise(seed, strategy.kind.rule.step), names


def _check(
    stream: str,
    rows: list[dict[str, Any]],
    counts: Mapping[int, Counter[str]],
    kind: Discovering,
    noise: DerivedNoise,
    names: KeyNames,
) -> Counter[str]:
    """Check that each row names the keys of the law; return how many decisions there were, and names."""
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1)), "a bin twice, or none"
    assert [row["bin"] for row in rows] == list(range(rows[0]["bin"], rows[0]["bin"] + len(rows)))
    assert {row["epoch"] for row in rows} == {0}
    hashes = [names.hashed(term) for term in TERMS]
    bars = kind.rule.threshold + noise.geometric(b"bar", hashes)
    brought, named = Counter[str](), set[str]()
    for place, row in enumerate(rows):
        brought += counts.get(row["bin"], Counter())
        more = noise.geometric(b"bin %d" % place, hashes).tolist()
        wanted = {
            term
            for term, bar, z in zip(TERMS, bars.tolist(), more, strict=True)
            if brought[term] and term not in named and brought[term] + z > bar
        }
        found = row.get("found", {}).get("keys", [])
        assert found == sorted(wanted), (stream, row["bin"])
        named |= wanted
        assert row["estimate"] == [pytest.approx(brought.total(), abs=0.01)], (stream, row["bin"])
    assert 0 < len(named) < len(TERMS)
    return Counter(decisions=len(rows), named=len(named))


def main() -> None:
    """Try some seeds. Prints what happened with each."""
    first, last = map(int, sys.argv[1:3])
    with (
        tempfile.TemporaryDirectory(prefix="found-kills-") as name,
        broker.running(Path(name) / "kafka") as servers,
    ):
        for seed in range(first, last + 1):
            (folder := Path(name) / f"seed{seed}").mkdir()
            print(tried(folder, servers, seed), flush=True)


if __name__ == "__main__":
    end_all_with_this_run()
    main()
