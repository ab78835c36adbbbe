"""A real Redis Cluster: streams on several nodes count, are read, and raise alerts, also over a failover."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner
from redis.crc import key_slot

from stream_app.shell.commands import main
from stream_app.state.embedded import find_server
from stream_app.state.keys import ALERT_STATES, StreamKeys
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from stream_app.state.safety import check_alerting, check_reading, check_safety
from stream_app.wiring.public import run_alerts
from tests.contracts import test_redis_access as access
from tests.e2e.redis_load import configured, under_load
from tests.redis_servers import PASSWORDS, Cluster, cluster

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
    a_copy_is_checked_whole(servers, names, tmp_path)


def a_copy_is_checked_whole(servers: Cluster, names: Sequence[str], folder: Path) -> None:
    """Check all primaries' files together, as docs/how-to/backup.md says; no other choice passes."""
    primaries = {node.port: node for node in map(servers.primary_of, map(strategy_key, names))}
    copies = [folder / f"{port}.rdb" for port in primaries]
    for copy, node in zip(copies, primaries.values(), strict=True):
        url = f"redis://operator:{PASSWORDS['operator']}@{node.address}"
        words = [str(find_server().parent / "redis-cli"), "-u", url, "--rdb", str(copy)]
        subprocess.run(words, check=True, capture_output=True)
    status, said = checked(folder, *copies)
    assert (status, said[-1]) == (0, f"{', '.join(map(str, copies))}: 24 checks, 0 failed"), said
    assert [line.split(":")[0] for line in said[:-1]] == names
    lacks = {key_slot(strategy_key(name).encode()): name for name in names}
    for left_out, key in zip(copies, primaries, strict=True):
        status, said = checked(folder, *(copy for copy in copies if copy != left_out))
        [line] = said
        lost = [slot for slot, name in lacks.items() if servers.primary_of(strategy_key(name)).port == key]
        assert status == 2
        assert "the copy lacks slot" in line
        assert all(f"slot {slot} (" in line for slot in lost) or "(the list of streams)" in line
    status, said = checked(folder, *copies, copies[1])
    assert status == 2
    assert re.search(r"\.rdb: it has slot \d+, as .* does; name one file of each primary", said[0])
    assert len(said) == 1


def strategy_key(stream: str) -> str:
    return StreamKeys(stream).strategy


def checked(folder: Path, *files: Path) -> tuple[int, list[str]]:
    words = ["check-backup", *map(str, files), "--config", str(folder / "app.yaml")]
    result = CliRunner().invoke(main, words)
    return result.exit_code, result.output.splitlines()


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
