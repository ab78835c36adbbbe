"""A fault that only the operator can mend appears while the loops run: one line, and exit status 2."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import redis

from stream_app.config import load
from stream_app.shell.processes import REFUSED, exit_status, until_stopped
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.keys import StreamKeys
from stream_app.state.reader import RedisReader
from stream_app.wiring.workers import run_worker
from tests.e2e.test_topics import GONE
from tests.e2e.topic_workers import Cell
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]


def test_a_topic_created_anew_ends_a_worker_in_faust(cell: Cell) -> None:
    worker = cell.start("faust", "-A", "stream_app.worker", "worker")
    cell.send(10)
    cell.rows(30)
    assert not listening(worker.pid), "Faust serves pages, which show how many events there are"
    asyncio.run(cell.topic.delete())
    asyncio.run(cell.topic.create_again(3))
    assert worker.wait(PATIENCE_S) == REFUSED
    assert f"stream-app: topic {cell.topic.name}: {GONE}" in cell.said()
    assert "Traceback" not in cell.said()
    assert "crash" not in cell.said().lower()


def test_another_strategy_under_the_name_of_every_stream_ends_the_worker(
    cell: Cell, capsys: pytest.CaptureFixture[str]
) -> None:
    async def start_another() -> None:
        with redis.Redis.from_url(cell.redis.operator_url, protocol=2) as client:
            for stream in ("clicks", "approximate"):
                client.hset(StreamKeys(stream).state, "strategy_hash", "another")

    said = refused(cell.folder / "app.yaml", cell.redis.worker_url, start_another, capsys)
    assert "stream clicks: " in said
    assert "strategy_hash is not that of the strategy whose text it holds" in said


def listening(pid: int) -> set[str]:
    """Return the TCP sockets on which a process listens."""
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    listens = {f"socket:[{fields[9]}]" for fields in map(str.split, lines) if fields[3] == "0A"}
    return listens & {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}


FILE = """
redis: {{url: "{redis}"}}
publish_every: 250ms
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: s, bin: 1s, grace: 0s, epoch: 60s}}
    privacy: {{epsilon: 1}}
"""


def test_a_file_that_is_truncated_ends_the_worker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = tmp_path / "clicks.ndjson"
    events.write_text(json.dumps({"at": int(time.time())}) + "\n")

    async def truncate() -> None:
        events.write_text("")

    with EmbeddedRedis(tmp_path / "redis") as server:
        (tmp_path / "app.yaml").write_text(FILE.format(redis=server.worker_url))
        said = refused(tmp_path / "app.yaml", server.worker_url, truncate, capsys)
    assert said == f"stream-app: {events}: it was truncated; put its records back, it may only grow"


def refused(
    config: Path, redis_url: str, hurt: Callable[[], Awaitable[None]], capsys: pytest.CaptureFixture[str]
) -> str:
    """Run a worker until a row is visible, then call ``hurt``; return the line with which it ends."""

    async def run() -> None:
        working = asyncio.create_task(until_stopped(run_worker(load(config, {}))))
        reader = RedisReader(redis_url)
        state = None
        while not working.done() and (state is None or not state.visible_seq):
            state = await reader.public_state("clicks")
            await asyncio.sleep(0.05)
        await reader.close()
        await hurt()
        await asyncio.wait_for(working, PATIENCE_S)

    assert exit_status(lambda: asyncio.run(run())) == REFUSED
    *_, line = capsys.readouterr().err.splitlines()
    return line
