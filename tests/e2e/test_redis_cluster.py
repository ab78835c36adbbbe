"""A real Redis Cluster: streams on several nodes count, are read, and raise alerts, also over a failover."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
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
from tests.deployment.test_backup import command
from tests.e2e.redis_load import Load, configured, under_load
from tests.patience import PATIENCE_S
from tests.redis_servers import PASSWORDS, Cluster, cluster, is_in_sync, is_whole, until

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


def copied(servers: Cluster, names: Sequence[str], folder: Path) -> dict[int, Path]:
    """Copy the primaries of streams as docs/how-to/backup.md says; return each one's file by its port."""
    primaries = {node.port: node for node in map(servers.primary_of, map(strategy_key, names))}
    files = {port: folder / f"{port}.rdb" for port in primaries}
    for port, node in primaries.items():
        url = f"redis://operator:{PASSWORDS['operator']}@{node.address}"
        words = [str(find_server().parent / "redis-cli"), "-u", url, "--rdb", str(files[port])]
        subprocess.run(words, check=True, capture_output=True)
    return files


def test_a_cluster_is_restored_from_a_copy_of_each_primary(
    servers: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every node loses its data while the worker is stopped; the page's commands bring each primary back."""
    names = names_on_all_nodes(servers)
    settings = configured(tmp_path, servers.url, names, "replicas: 1")

    async def counted() -> tuple[Load, dict[int, Path]]:
        async with under_load(settings) as load:
            copies = await asyncio.to_thread(copied, servers, names, tmp_path)
            await load.until_rows(2)
            return load, copies

    async def goes_on(before: Load) -> None:
        async with under_load(settings, before=before) as load:
            await load.until_rows(2)
            load.check()
            assert {name: seen.epochs for name, seen in load.seen.items()} == {name: [0, 1] for name in names}

    with caplog.at_level(logging.WARNING):
        load, copies = asyncio.run(counted())
        restore(servers, copies)
        for name, seen in load.seen.items():
            held = int(servers.primary_of(strategy_key(name)).ask("GET", StreamKeys(name).visible))
            assert 0 < held < len(seen.rows), "the copy has come back, and it is older than what was shown"
        asyncio.run(goes_on(load))


def restore(servers: Cluster, copies: Mapping[int, Path]) -> None:
    """Destroy what every node holds, and restore as docs/how-to/backup.md says. Args: copies, by port."""
    for node in servers.nodes:
        node.kill()
        for held in (*node.folder.glob("appendonly*"), *node.folder.glob("*.rdb")):
            shutil.rmtree(held) if held.is_dir() else held.unlink()
    primaries = [node for node in servers.nodes if node.port in copies]
    for node in primaries:
        shutil.copy(copies[node.port], node.folder / "backup.rdb")
        path = f"{find_server().parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "REDIS_DATA": str(node.folder)}
        words = ["sh", "-ec", command("restore")]
        subprocess.run(words, check=True, env=environment, capture_output=True, timeout=PATIENCE_S)
    replicas = [node for node in servers.nodes if node not in primaries]
    for nodes, are_back in ((primaries, is_whole), (replicas, is_in_sync)):
        for node in nodes:
            node.start()
        for node in nodes:
            until(partial(are_back, node), "a node is back")


def a_copy_is_checked_whole(servers: Cluster, names: Sequence[str], folder: Path) -> None:
    """Check all primaries' files together, as docs/how-to/backup.md says; no other choice passes."""
    primaries = copied(servers, names, folder)
    copies = list(primaries.values())
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
