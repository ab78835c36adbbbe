"""Many streams over one topic open together: what they ask is asked once, not once a stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dphist.planning import tree
from stream_app.config import load_text
from stream_app.core.ledger import ACCEPTED
from stream_app.sources.kafka import KafkaSource
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.redis_store import RedisStore
from stream_app.state.round_trips import ServerRoundTrips
from stream_app.wiring.workers import run_worker
from tests.brokers import Topic
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.redis, pytest.mark.kafka, pytest.mark.slow]
STREAMS, PARTITIONS = 200, 2
CONFIGURATION = """
redis: {{url: "{redis}"}}
kafka: {{bootstrap_servers: "{servers}", group: "{topic}"}}
streams:
"""
STREAM = """
  {name}:
    source: {{topic: {topic}, format: json}}
    time: {{field: at, format: ms, bin: 1h, grace: 1s, epoch: 1d}}
    privacy: {{epsilon: 0.01{more}}}
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return a counter of what this process asks: Redis, the topic and the planner."""
    counter = Counter[str]()
    exchange, position = ServerRoundTrips._exchange, KafkaSource.first_position
    best_shares = tree.best_shares

    async def exchanged(self: ServerRoundTrips, connection: Any, waiting: Any) -> None:
        commands = [command for one in waiting for command in one.commands]
        counter["round trips"] += 1
        counter["ledgers"] += sum(
            command[0] == "HGETALL" and str(command[1]).endswith(":pub:ledger") for command in commands
        )
        await exchange(self, connection, waiting)

    async def positioned(self: KafkaSource, partition: str, since_us: int | None) -> int:
        counter["positions"] += 1
        return await position(self, partition, since_us)

    def planned(*given: Any, **named: Any) -> Any:
        counter["plans"] += 1
        return best_shares(*given, **named)

    monkeypatch.setattr(ServerRoundTrips, "_exchange", exchanged)
    monkeypatch.setattr(KafkaSource, "first_position", positioned)
    monkeypatch.setattr(tree, "best_shares", planned)
    return counter


async def reading_begun(store: RedisStore, stream: str) -> None:
    """Return when a stream knows where it reads each partition."""
    state = await store.load(stream)
    while state is None or len(state.partitions) < PARTITIONS:
        await asyncio.sleep(0.05)
        state = await store.load(stream)


async def opened(url: str, servers: str, folder: Path, asked: Counter[str]) -> Counter[str]:
    """Run a worker until all streams are open and know where they read; return what opening them asked."""
    topic = (await Topic.create(servers, PARTITIONS)).name
    names = [f"s{number:03}" for number in range(STREAMS)]
    more = [""] + [f', accept: "{ACCEPTED}"'] * (STREAMS - 1)
    text = CONFIGURATION.format(redis=url, servers=servers, topic=topic) + "".join(
        STREAM.format(name=name, topic=topic, more=said) for name, said in zip(names, more, strict=True)
    )
    ready, at_ready = asyncio.Event(), Counter[str]()

    def note() -> None:
        at_ready.update(asked)
        ready.set()

    settings = load_text(text, folder / "app.yaml", {})
    asked.clear()
    running = asyncio.create_task(run_worker(settings, note))
    store = RedisStore(url)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await ready.wait()
            for name in names:
                await reading_begun(store, name)
            positions = asked["positions"]
            ledger = await store.ledger(f"topic:{topic}")
    finally:
        await store.close()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    assert sorted(entry.stream for entry in ledger) == names
    assert ledger[0].stream == names[0], "the stream without accept must begin before the others"
    return at_ready | Counter({"positions": positions})


def test_two_hundred_streams_ask_together(
    bootstrap_servers: str, tmp_path: Path, asked: Counter[str]
) -> None:
    with EmbeddedRedis(tmp_path / "redis") as redis:
        found = asyncio.run(opened(redis.worker_url, bootstrap_servers, tmp_path, asked))
    assert found["plans"] < STREAMS // 2  # the search for one plan
    assert found["positions"] == PARTITIONS
    assert found["ledgers"] < STREAMS
    assert found["round trips"] < 2 * STREAMS
