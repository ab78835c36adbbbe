"""A worker that waits for Redis answers its supervisor and its operator, and says for what it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import httpx
import pytest

from deploy.ports import free_port
from stream_app.config import load_text
from stream_app.state.embedded import find_server
from stream_app.wiring.workers import run_worker
from tests.patience import PATIENCE_S, eventually_async
from tests.redis_servers import PASSWORDS, shipped_server

pytestmark = [pytest.mark.redis, pytest.mark.slow]

CONFIGURATION = """
redis: {{url: "redis://worker:{password}@127.0.0.1:{redis}/0"}}
operator: {{port: {operator}}}
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: ms, bin: 1s, grace: 0s, epoch: 1h}}
    privacy: {{epsilon: 1}}
"""


def test_a_worker_without_redis_is_alive_and_not_ready_until_redis_answers(tmp_path: Path) -> None:
    (tmp_path / "clicks.ndjson").touch()
    port, redis = free_port(), shipped_server(tmp_path / "redis", free_port(), Path(find_server()))
    text = CONFIGURATION.format(password=PASSWORDS["worker"], redis=redis.port, operator=port)
    settings = load_text(text, tmp_path / "app.yaml", {})

    async def scenario() -> None:
        working = asyncio.create_task(run_worker(settings))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:

            async def waits(said: str) -> bool:
                assert not working.done()
                try:
                    return (await client.get("/readyz")).text == said
                except httpx.ConnectError:
                    return False

            await eventually_async(lambda: waits("waits for redis\n"), "it waits for Redis")
            assert (await client.get("/readyz")).status_code == 503
            assert (await _of(client.get("/healthz"))) == (200, "alive\n")
            assert 'stream_app_waiting{service="redis"} 1.0' in (await client.get("/metrics")).text
            redis.start()
            await eventually_async(lambda: waits("ready\n"), "it does its work")
            assert (await _of(client.get("/readyz"))) == (200, "ready\n")
            gauges = (await client.get("/metrics")).text.splitlines()
            waited = {line.rpartition(" ")[2] for line in gauges if line.startswith("stream_app_waiting{")}
            assert waited == {"0.0"}
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    try:
        asyncio.run(scenario())
    finally:
        redis.kill()


async def _of(asked: Awaitable[httpx.Response]) -> tuple[int, str]:
    answer = await asked
    return answer.status_code, answer.text
