"""A real Redis Cluster: streams on several nodes count, are read, and raise alerts, also over a failover."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from stream_app.state.keys import ALERT_STATES, StreamKeys
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from stream_app.state.safety import check_alerting, check_reading, check_safety
from stream_app.wiring.public import run_alerts
from tests.contracts import test_redis_access as access
from tests.e2e.redis_load import configured, under_load
from tests.redis_servers import Cluster, cluster

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def names_on_all_nodes(servers: Cluster) -> list[str]:
    """Return the name of a new stream for each primary."""
    found: dict[int, str] = {}
    while len(found) < servers.primaries:
        name = f"s{uuid4().hex[:8]}"
        found.setdefault(servers.primary_of(StreamKeys(name).state).port, name)
    return list(found.values())


def test_streams_on_several_nodes_outlast_the_loss_of_one(
    servers: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = names_on_all_nodes(servers)
    rules = f'alerts: {{rules: {{busy: {{when: "rate({names[1]}, 5s) > 1/m"}}}}}}'
    settings = configured(tmp_path, servers.url, names, "replicas: 1", rules)

    def fires() -> bool:
        said = servers.primary_of(ALERT_STATES).ask("HGETALL", ALERT_STATES)
        return any(b"firing" in state for state in said.values())

    async def run() -> None:
        async with under_load(settings, run_alerts(settings)) as load:
            lost = servers.primary_of(StreamKeys(names[0]).state)
            lost.kill()
            await load.until_answers(lambda: servers.primary_of(StreamKeys(names[0]).state) is not lost)
            lost.start()  # as a replica: without one, nothing more would be shown
            await load.until_rows(4)
            await load.until_answers(fires)
            load.check()
            print("time without releases:", {n: round(s.longest_pause_s, 1) for n, s in load.seen.items()})
            # A replica has whatever was shown, so no epoch ended.
            assert {name: seen.epochs for name, seen in load.seen.items()} == {name: [0] for name in names}

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())


def test_every_script_runs_and_every_user_has_its_half(servers: Cluster) -> None:
    async def run() -> None:
        await check_safety(servers.url("worker"))
        assert await check_reading("redis.api_url", servers.url("api")) is None
        assert await check_alerting("redis.alerts_url", servers.url("alerts")) is None
        store, reader = RedisStore(servers.url("worker"), replicas=1), RedisReader(servers.url("api"))
        try:
            names = names_on_all_nodes(servers)
            for name in names:
                await access.fill(store, name)
            await access.fill_alerts(servers.url("alerts"))
            assert await reader.visible_seqs([*names, "unknown", *names]) == [1, 1, 1, 0, 1, 1, 1]
            assert set(names) <= set(await reader.streams())
            await store.forget()
        finally:
            await store.close()
            await reader.close()

    asyncio.run(run())
