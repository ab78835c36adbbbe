"""Events move to another topic, as docs/how-to/move.md says: each counts once, and the ledger adds up."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stream_app.api.generations import Succession
from stream_app.api.replicas import Replicas
from stream_app.core.instants import format_instant
from stream_app.core.ledger import statement
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from tests.brokers import Topic
from tests.e2e.service import Service
from tests.patience import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

OLD = """
kafka: {{bootstrap_servers: "{servers}", group: "{here}"}}
redis: {{url: "{redis}"}}
state: {{dir: ./state}}
publish_every: 250ms
streams:
  clicks:
    source: {{topic: {here}}}
    time: {{field: at, format: us, bin: 1s, grace: 3s, epoch: 1h, first: "{first}"}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
"""
NEW = """
  clicks-moved:
    source: {{topic: {there}, group: "topic:{here}"}}
    time: {{field: at, format: us, bin: 1s, grace: 3s, epoch: 1h, first: "{edge}"}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
    successor_of: clicks
"""


@contextmanager
def worker(folder: Path) -> Iterator[None]:
    """Run a worker, and drain it at the end."""
    with Service(["worker", "--config", "app.yaml"], folder) as running:
        yield
        assert running.terminate() == 0, running.output


def rows(folder: Path, stream: str) -> list[dict[str, Any]]:
    """Return the rows of a stream's witness."""
    file = folder / "state" / "witness" / f"{stream}.ndjson"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def until(folder: Path, stream: str, end_s: int) -> bool:
    """Return whether a stream has released its bins of a second up to an instant."""
    released = rows(folder, stream)
    return bool(released) and released[-1]["bin"] >= end_s - 1


def test_events_that_move_to_another_topic_count_once(tmp_path: Path, bootstrap_servers: str) -> None:
    here = asyncio.run(Topic.create(bootstrap_servers, partitions=2))
    there = asyncio.run(Topic.create(bootstrap_servers, partitions=1))
    sent: list[int] = []  # the times of all events, in seconds

    def send(*topics: Topic) -> None:
        """Send events dated now, and one that is a second old, to the first topic; copy them."""
        now_us = time.time_ns() // 1000
        times = [now_us, now_us, now_us - 10**6]
        sent.extend(at // 10**6 for at in times)
        values = [json.dumps({"at": at}).encode() for at in times]
        for topic in topics:
            asyncio.run(topic.send(values))
        time.sleep(0.2)

    with EmbeddedRedis(tmp_path / "redis") as redis:
        first_s = int(time.time()) - 5
        places = {"servers": here.servers, "here": here.name, "there": there.name, "redis": redis.worker_url}
        text = OLD.format(first=format_instant(first_s * 10**6), **places)
        (tmp_path / "app.yaml").write_text(text)
        with worker(tmp_path):
            send(here, there)  # the copy runs from here on
            eventually(lambda: bool(rows(tmp_path, "clicks")), "the stream counts")
        edge_s = int(time.time()) + 15
        (tmp_path / "app.yaml").write_text(text + NEW.format(edge=format_instant(edge_s * 10**6), **places))
        with worker(tmp_path):
            while time.time() < edge_s + 5:  # beyond the edge and the grace
                send(here, there)
            for _ in range(10):  # the programs that write have moved
                send(there)
            end_s = int(time.time()) + 1
            eventually(lambda: until(tmp_path, "clicks-moved", end_s), "the new stream has counted all")
        old, new = rows(tmp_path, "clicks"), rows(tmp_path, "clicks-moved")
        assert (old[-1]["bin"], new[0]["bin"]) == (edge_s - 1, edge_s)
        assert old[-1]["estimate"] == [sum(at < edge_s for at in sent)]
        assert new[-1]["estimate"] == [sum(at >= edge_s for at in sent)]
        entries = asyncio.run(ledger(redis, here))
        assert {entry.stream for entry in entries} == {"clicks", "clicks-moved"}
        assert statement(f"topic:{here.name}", entries).epsilon == 10**9
        start_s, until_s, count = asyncio.run(history(redis, "clicks-moved"))
        assert start_s == first_s
        assert until_s > edge_s
        assert count == sum(at < until_s for at in sent)


async def history(redis: EmbeddedRedis, stream: str) -> tuple[int, int, float]:
    """Return what readers see as one history: start and end in seconds since 1970, and the running count."""
    reader = RedisReader(redis.api_url)
    try:
        replicas = Replicas(reader)
        await replicas.refresh()
        view = Succession.of(replicas.by_name[stream], replicas.by_name, lambda other: True).view
        assert view is not None
        assert view.released_until_us is not None
        return view.start_us // 10**6, view.released_until_us // 10**6, float(view.running().value)
    finally:
        await reader.close()


async def ledger(redis: EmbeddedRedis, topic: Topic) -> tuple[Any, ...]:
    """Return the ledger of a topic."""
    store = RedisStore(redis.worker_url)
    try:
        return await store.ledger(f"topic:{topic.name}")
    finally:
        await store.close()
