"""A managed Redis: no CONFIG, no rewriting, and after a crash its last writes are gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from deploy.ports import free_port
from stream_app.ports import ACCEPT_MANAGED, OperatorError
from stream_app.state.embedded import find_server
from stream_app.state.safety import check_safety
from tests.e2e.redis_load import configured, under_load
from tests.redis_servers import Node, until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]

SETTINGS = """
port {port}
bind 127.0.0.1
dir {folder}
save ""
appendonly yes
appendfsync everysec
rename-command CONFIG ""
rename-command BGREWRITEAOF ""
rename-command ACL ""
{more}
"""


@contextmanager
def managed(folder: Path, more: str = "") -> Iterator[Node]:
    """Run a server that its user cannot administer."""
    port = free_port()
    (folder / "redis.conf").write_text(SETTINGS.format(port=port, folder=folder, more=more))
    node = Node(folder, port, [str(folder / "redis.conf")], find_server())
    node.start()
    try:
        until(lambda: answers(node), "the server answers")
        yield node
    finally:
        node.kill()


def answers(node: Node) -> bool:
    with redis.Redis(port=node.port, protocol=2) as client:
        return bool(client.ping())


def test_a_loss_of_the_last_writes_ends_the_epoch_and_no_row_gets_a_second_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with managed(tmp_path) as node:
        url = f"redis://{node.address}/0"
        with pytest.raises(OperatorError, match="does not show its appendfsync"):
            asyncio.run(check_safety(url))
        settings = configured(tmp_path, lambda user: url, ["m"], f'accept: "{ACCEPT_MANAGED}"')
        # Redis 7 keeps what was written since the last rewriting in a folder.
        file = next(tmp_path.glob("appendonlydir/*.incr.aof"), tmp_path / "appendonly.aof")

        async def run() -> None:
            async with under_load(settings) as load:
                size = file.stat().st_size
                await load.until_rows(2)
                node.kill()
                with file.open("r+b") as log:  # as a crash of the machine leaves it
                    log.truncate(size)
                node.start()
                await load.until_rows(3)
                load.check()
                assert load.seen["m"].epochs == [0, 1]

        with caplog.at_level(logging.ERROR):
            asyncio.run(run())
    assert "the store was set back: epoch 0 has ended, epoch 1 begins at" in caplog.text


def test_a_managed_redis_that_evicts_is_refused(tmp_path: Path) -> None:
    evicting = managed(tmp_path, "maxmemory 100mb\nmaxmemory-policy allkeys-lru")
    with evicting as node, pytest.raises(OperatorError, match="allkeys-lru, which evicts keys"):
        asyncio.run(check_safety(f"redis://{node.address}/0", ACCEPT_MANAGED))
