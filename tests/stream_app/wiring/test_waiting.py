"""Processes that start or wait for Redis answer their supervisor, their operator and readers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial
from pathlib import Path

import httpx
import pytest

from deploy.ports import free_port
from stream_app.api.admission.access import AccessRules
from stream_app.api.app import create_app
from stream_app.config import load_text
from stream_app.core.answers.labels import AllLabels, Labels
from stream_app.ports.access import ApiKey, digest_of
from stream_app.state.embedded import find_server
from stream_app.wiring import workers
from stream_app.wiring.public import run_alerts, run_api
from stream_app.wiring.workers import Preparing, run_worker
from tests.models.memory import MemoryStore
from tests.patience import PATIENCE_S, eventually_async
from tests.redis_servers import PASSWORDS, shipped_server
from tests.simulator.loop import simulate
from tests.stream_app.api.client import SHARED

DAY = """
redis:
  url: "redis://worker:{worker}@127.0.0.1:{redis}/0"
  api_url: "redis://api:{api}@127.0.0.1:{redis}/0"
  alerts_url: "redis://alerts:{alerts}@127.0.0.1:{redis}/0"
operator: {{port: {free[0]}}}
api: {{port: {free[1]}, operator_port: {free[2]}}}
publish_every: 250ms
streams:
  clicks:
    source: {{file: clicks.ndjson, replay: {{from: 2024-01-01T00:00:00Z, to: 2024-01-02T00:00:00Z}}}}
    time: {{field: at, format: iso8601, bin: 1h, epoch: 1d}}
    privacy: {{epsilon: 1}}
alerts:
  operator_port: {free[3]}
  rules: {{busy: {{when: "count(clicks) > 1000"}}}}
"""

CONFIGURATION = """
redis: {{url: "redis://worker:{password}@127.0.0.1:{redis}/0"}}
operator: {{port: {operator}}}
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: ms, bin: 1s, grace: 0s, epoch: 1h}}
    privacy: {{epsilon: 1}}
"""


@pytest.mark.redis
@pytest.mark.slow
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


@pytest.mark.redis
@pytest.mark.slow
def test_an_outage_of_redis_is_no_outage_of_readers_and_the_operator_sees_it(tmp_path: Path) -> None:
    (tmp_path / "clicks.ndjson").write_text('{"at": "2024-01-01T12:00:00Z"}\n' * 100)
    free = [free_port() for _ in range(4)]
    redis = shipped_server(tmp_path / "redis", free_port(), Path(find_server()))
    settings = load_text(DAY.format(**PASSWORDS, redis=redis.port, free=free), tmp_path / "app.yaml", {})
    _, port, of_api, of_watcher = (f"http://127.0.0.1:{port}" for port in free)

    async def scenario() -> None:
        readers = [asyncio.create_task(run_api(settings)), asyncio.create_task(run_alerts(settings))]
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:

            async def says(url: str, said: str) -> bool:
                assert not any(one.done() for one in readers)
                try:
                    return (await client.get(f"{url}/readyz")).text == said
                except httpx.ConnectError:
                    return False

            async def is_old(url: str) -> bool:
                lines = (await client.get(f"{url}/metrics")).text.splitlines()
                (line,) = (one for one in lines if one.startswith("stream_app_store_age_seconds "))
                return float(line.split()[1]) > 2.0

            for url in (of_api, of_watcher):
                await eventually_async(partial(says, url, "waits for redis\n"), "it waits for Redis")
            assert (await client.get(f"{port}/readyz")).status_code == 503
            assert (await client.get(f"{port}/metrics")).status_code == 503
            redis.start()
            await run_worker(settings)  # until the replay is complete
            for url in (of_api, of_watcher):
                await eventually_async(partial(says, url, "ready\n"), "it reads")
            question = f"{port}/v1/streams/clicks/count"

            async def is_complete() -> bool:
                answer = await client.get(question)
                return answer.status_code == 200 and answer.json()["released_until"][:10] == "2024-01-02"

            await eventually_async(is_complete, "all releases are shown")
            before = (await client.get(question)).json()["value"]
            redis.kill()
            for url in (of_api, of_watcher):
                await eventually_async(partial(is_old, url), "the store was not read for two seconds")
                assert await _of(client.get(f"{url}/healthz")) == (200, "alive\n")
            assert (await client.get(f"{port}/readyz")).status_code == 200
            assert (await client.get(question)).json()["value"] == before
        for one in readers:
            one.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    try:
        asyncio.run(scenario())
    finally:
        redis.kill()


@pytest.mark.redis
@pytest.mark.slow
def test_a_watcher_that_has_read_no_released_values_is_not_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    free = [free_port() for _ in range(4)]
    redis = shipped_server(tmp_path / "redis", free_port(), Path(find_server()))
    text = DAY.replace("api:{api}@127.0.0.1:{redis}", f"api:{{api}}@127.0.0.1:{free_port()}")
    settings = load_text(text.format(**PASSWORDS, redis=redis.port, free=free), tmp_path / "app.yaml", {})

    async def scenario() -> None:
        watching = asyncio.create_task(run_alerts(settings))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{free[3]}", timeout=PATIENCE_S) as client:

            async def looks() -> bool:
                assert not watching.done()
                return "redis.api_url or redis.alerts_url does not answer" in caplog.text

            await eventually_async(looks, "it tries to look")
            waits = "waits for redis: no rule was compared with released values yet\n"
            assert await _of(client.get("/readyz")) == (503, waits)
            metrics = (await client.get("/metrics")).text
            assert 'stream_app_waiting{service="redis"} 1.0' in metrics
            assert "stream_app_store_age_seconds NaN" in metrics
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    redis.start()
    try:
        asyncio.run(scenario())
    finally:
        redis.kill()


async def _of(asked: Awaitable[httpx.Response]) -> tuple[int, str]:
    answer = await asked
    return answer.status_code, answer.text


NOT_OPEN = "stream 'clicks' is not open yet: its worker prepares it or is down, the worker's log says which"


def test_a_long_start_logs_how_many_streams_are_open(caplog: pytest.LogCaptureFixture) -> None:
    async def start() -> None:
        streams = Preparing(["a", "b", "c"])
        async with streams.said():
            await asyncio.sleep(workers.SAY_EVERY_S - 1)
            streams.opened("a")
            await asyncio.sleep(workers.SAY_EVERY_S)
            streams.opened("c")
            await asyncio.sleep(workers.SAY_EVERY_S)
            streams.opened("b")
        await asyncio.sleep(100)

    with caplog.at_level(logging.WARNING):
        simulate(1, start())  # in virtual time
    assert caplog.messages == [
        "start: 1 of 3 streams open; preparing b",
        "start: 2 of 3 streams open; preparing b",
    ]


def test_readers_of_a_stream_that_is_not_open_hear_so_and_others_hear_of_no_stream() -> None:
    keys = tuple(ApiKey(name, digest_of(name), frozenset({name})) for name in ("clicks", "orders"))
    app = create_app(
        MemoryStore().reader(), AccessRules(keys=keys), apart=SHARED, labels=AllLabels({"clicks": Labels()})
    )

    asyncio.run(app.state.replicas.refresh())

    async def asked(key: str) -> str:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.get("/v1/streams/clicks", headers={"Authorization": f"Bearer {key}"})
            assert answer.status_code == 404
            return str(answer.json()["error"])

    assert asyncio.run(asked("clicks")) == NOT_OPEN
    assert "not open" not in asyncio.run(asked("orders"))
