"""A stream over a file has one state directory, which holds the position in the file."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from stream_app.config import Settings, load
from stream_app.ports import OperatorError
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.reader import RedisReader
from stream_app.wiring.workers import run_worker
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.redis, pytest.mark.slow]

CONFIGURATION = """
redis: {{url: "{redis}"}}
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: s, bin: 1s, grace: 0s, epoch: 60s}}
    privacy: {{epsilon: 1}}
"""


def settings_in(folder: Path, redis: str) -> Settings:
    """Return a configuration as on another machine, where other files have the same names."""
    folder.mkdir()
    (folder / "clicks.ndjson").write_text(f'{{"at": {int(time.time())}}}\n')
    (folder / "app.yaml").write_text(CONFIGURATION.format(redis=redis))
    return load(folder / "app.yaml", {})


def test_a_second_machine_is_refused_and_the_first_one_moves_with_its_state(tmp_path: Path) -> None:
    async def run(redis: str) -> None:
        here, there = (settings_in(tmp_path / name, redis) for name in ("here", "there"))
        reader = RedisReader(redis)
        first = asyncio.create_task(run_worker(here))
        try:
            await asyncio.wait_for(_released(reader, 2), PATIENCE_S)
            with pytest.raises(
                OperatorError, match=r"^stream clicks: its file is counted from another state d"
            ):
                await asyncio.wait_for(run_worker(there), PATIENCE_S)
            assert not first.done()
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            (tmp_path / "here").rename(tmp_path / "moved")
            moved = asyncio.create_task(run_worker(load(tmp_path / "moved" / "app.yaml", {})))
            state = await reader.public_state("clicks")
            assert state is not None
            await asyncio.wait_for(_released(reader, state.visible_seq + 2), PATIENCE_S)
            moved.cancel()
            await asyncio.gather(moved, return_exceptions=True)
            state = await reader.public_state("clicks")
            assert state is not None
            assert all(epoch.end_reason is None for epoch in state.epochs), "noise was lost on the way"
        finally:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await reader.close()

    with EmbeddedRedis(tmp_path / "redis") as server:
        asyncio.run(run(server.worker_url))


async def _released(reader: RedisReader, seq: int) -> None:
    while True:
        state = await reader.public_state("clicks")
        if state is not None and state.visible_seq >= seq:
            return
        await asyncio.sleep(0.1)
