"""Two real workers divide the closings of forty streams; when one is killed, the other closes all of them."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_app.core.ledger import ACCEPTED
from stream_app.state.connection import batch, connect
from stream_app.state.keys import StreamKeys
from tests.e2e.topic_workers import Cell, running_cell
from tests.patience import PATIENCE_S, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]

NAMES = [f"s{number:02}" for number in range(40)]
KEYS = [StreamKeys(name) for name in NAMES]
CONFIG = """
kafka: {{bootstrap_servers: "{servers}", group: "{topic}"}}
redis: {{url: "{redis}"}}
state: {{dir: ./state-{worker}}}
streams:
"""
STREAM = """
  {name}:
    source: {{topic: {topic}, format: json}}
    time: {{field: "user.at", format: us, bin: 2s, grace: 1s, epoch: 1h}}
    tree: {{release: causal}}
    privacy: {{epsilon: 1.0e9, not_private: true, accept: {accept}}}
"""


@pytest.fixture
def cell(tmp_path: Path, bootstrap_servers: str) -> Iterator[Cell]:
    with running_cell(tmp_path, bootstrap_servers) as cell:
        for worker in "ab":
            streams = [
                STREAM.format(name=name, topic=cell.topic.name, accept=json.dumps(ACCEPTED)) for name in NAMES
            ]
            common = {"servers": bootstrap_servers, "topic": cell.topic.name, "redis": cell.redis.worker_url}
            text = CONFIG.format(worker=worker, **common) + "".join(streams)
            (tmp_path / f"{worker}.yaml").write_text(text)
        yield cell


def asked(cell: Cell, *command: str) -> list[bytes | None]:
    """Return the reply to one command about each stream. Args: command, its name, and a key's name."""
    name, key = command

    async def ask() -> list[bytes | None]:
        redis = connect(cell.redis.worker_url)
        try:
            return await batch(redis, [(name, getattr(keys, key)) for keys in KEYS])
        finally:
            await redis.aclose()

    return asyncio.run(ask())


def shares(cell: Cell) -> Counter[bytes | None]:
    """Return how many streams each worker closes; None: nobody does."""
    return Counter(asked(cell, "GET", "lease"))


def visible(cell: Cell) -> list[int]:
    """Return the number of visible rows of each stream."""
    return [int(seq or 0) for seq in asked(cell, "GET", "visible")]


def goes_on(cell: Cell) -> None:
    """Wait until readers see two more rows of each stream."""
    before = visible(cell)
    eventually(
        lambda: all(now >= then + 2 for now, then in zip(visible(cell), before, strict=True)),
        lambda: f"all streams go on: {visible(cell)}\n{cell.said()}",
    )


def test_both_workers_close_streams_and_after_a_kill_the_other_closes_all(cell: Cell) -> None:
    first = cell.start("stream_app", "worker", "--config", "a.yaml")
    goes_on(cell)
    eventually(lambda: list(shares(cell).values()) == [len(NAMES)], "one worker closes all")
    [one] = set(asked(cell, "GET", "lease"))
    second = cell.start("stream_app", "worker", "--config", "b.yaml")

    def is_divided() -> bool:
        found = shares(cell)
        return len(found) == 2 and None not in found and min(found.values()) >= 5  # P(fewer) < 1e-6

    eventually(is_divided, lambda: f"both close: {shares(cell)}\n{cell.said()}")
    goes_on(cell)
    [other] = shares(cell).keys() - {one, None}
    first.send_signal(signal.SIGKILL)
    eventually(
        lambda: shares(cell) == {other: len(NAMES)}, lambda: f"one closes all: {shares(cell)}\n{cell.said()}"
    )
    goes_on(cell)
    second.terminate()
    assert second.wait(PATIENCE_S) == 0, cell.said()
    assert set(shares(cell)) == {None}, "it has given its leases up"
