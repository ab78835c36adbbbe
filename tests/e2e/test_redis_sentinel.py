"""Real Sentinels and real failovers under load: every event counts once, and every row has one value."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_app.ports import OperatorError
from stream_app.state.safety import Unreachable, check_safety
from tests.e2e.redis_load import Load, configured, under_load
from tests.redis_servers import PASSWORDS, Node, Watched, watched

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched(tmp_path_factory.mktemp("watched"), replicas=2) as running:
        yield running


async def another_primary(servers: Watched, load: Load, before: Node) -> None:
    await load.until_answers(lambda: servers.primary is not before)


def pauses(load: Load) -> str:
    return ", ".join(f"{name} {seen.longest_pause_s:.1f} s" for name, seen in load.seen.items())


def test_no_epoch_ends_if_the_next_primary_has_confirmed(servers: Watched, tmp_path: Path) -> None:
    settings = configured(tmp_path, servers.url, ["a", "b"], "replicas: 1")

    async def run() -> None:
        async with under_load(settings) as load:
            lost = servers.primary
            lost.kill()
            await another_primary(servers, load, lost)
            lost.start()
            await load.until_rows(3)
            print("killed; longest time without releases:", pauses(load))
            frozen = servers.primary
            frozen.signal(signal.SIGSTOP)
            await another_primary(servers, load, frozen)
            frozen.signal(signal.SIGCONT)  # it takes writes until the Sentinels have told it
            await load.until_rows(4)
            load.check()
            print("frozen; longest time without releases:", pauses(load))
            assert [seen.epochs for seen in load.seen.values()] == [[0], [0]]

    asyncio.run(run())


def test_the_epoch_ends_if_the_next_primary_lacks_shown_rows(
    servers: Watched, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = configured(tmp_path, servers.url, ["c"])  # rows are shown before replicas have them

    async def run() -> None:
        async with under_load(settings) as load:
            lost = servers.primary
            replicas = [node for node in servers.servers if node is not lost]
            for node in replicas:  # from now on they get no writes, and stay reachable
                node.ask("CONFIG", "SET", "masterauth", "wrong")
            lost.ask("CLIENT", "KILL", "TYPE", "replica")
            await load.until_rows(2)
            lost.kill()
            for node in replicas:
                node.ask("CONFIG", "SET", "masterauth", PASSWORDS["operator"])
            await another_primary(servers, load, lost)
            lost.start()
            await load.until_rows(4)
            load.check()
            print("set back; longest time without releases:", pauses(load))
            assert load.seen["c"].epochs == [0, 1]

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert "the store was set back: epoch 0 has ended, epoch 1 begins at" in caplog.text


def test_wrong_sentinels_are_refused_in_one_line(servers: Watched) -> None:
    url = servers.url("worker")
    with pytest.raises(Unreachable, match="knows no primary 'other'"):
        asyncio.run(check_safety(url.replace("/main", "/other")))
    sentinel = f"redis://{servers.sentinels[0].address}/0"
    with pytest.raises(OperatorError, match=r"is a Sentinel; write redis\+sentinel://"):
        asyncio.run(check_safety(sentinel))
    server = servers.servers[0].address
    with pytest.raises(Unreachable, match="no Sentinel names a primary"):
        asyncio.run(check_safety(f"redis+sentinel://worker:{PASSWORDS['worker']}@{server}/main"))
