"""A real server with a dangerous setting is refused in one line."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from stream_app.ports import ACCEPT_LOSS, OperatorError
from stream_app.state.connection import connect, execute
from stream_app.state.embedded import find_server
from stream_app.state.safety import Unreachable, check_safety
from tests.contracts.servers import server_paths
from tests.patience import PATIENCE_S

SAFE = {"appendonly": "yes", "appendfsync": "always"}


@contextmanager
def server(settings: dict[str, str], path: Path | None = None) -> Iterator[str]:
    """Run a server with settings and return its URL."""
    with tempfile.TemporaryDirectory(prefix="redis-") as directory:
        socket = Path(directory) / "redis.sock"
        command = [str(path or find_server()), "--port", "0", "--unixsocket", str(socket), "--dir", directory]
        for name, value in settings.items():
            command += [f"--{name.replace('_', '-')}", *value.split(" ")]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not _answers(socket):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield f"unix://{socket}?db=0"
        finally:
            process.kill()
            process.wait()


def _answers(socket: Path) -> bool:
    try:
        with redis.Redis(unix_socket_path=str(socket), protocol=2) as client:
            return bool(client.ping())
    except redis.exceptions.NoPermissionError:
        return True
    except redis.exceptions.RedisError:
        return False


@pytest.mark.redis
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "has appendonly no, so a crash loses releases; set appendonly yes"),
        (
            {"appendonly": "yes"},
            "has appendfsync everysec, so a crash loses releases; set appendfsync always",
        ),
        ({**SAFE, "no_appendfsync_on_rewrite": "yes"}, "has no-appendfsync-on-rewrite yes"),
        (
            {**SAFE, "maxmemory": "100mb", "maxmemory_policy": "allkeys-lru"},
            "set maxmemory-policy noeviction",
        ),
        ({**SAFE, "user": "default on nopass ~* +@all -config"}, "grant CONFIG GET"),
    ],
)
def test_redis_that_may_lose_writes_is_refused_unless_accepted(settings: dict[str, str], words: str) -> None:
    with server(settings) as url:
        with pytest.raises(OperatorError) as refused:
            asyncio.run(check_safety(url))
        asyncio.run(check_safety(url, accept=ACCEPT_LOSS))
    line = str(refused.value)
    assert words in line
    assert line.startswith("redis.url: ")
    assert line.endswith(f'or say redis.accept: "{ACCEPT_LOSS}"')
    assert "\n" not in line


@pytest.mark.redis
def test_default_user_without_rights_is_refused_where_it_loses_writes() -> None:
    for path in server_paths().values():
        with server(SAFE, path) as url:
            asyncio.run(set_acl(url, "worker", "on", "nopass", "~*", "+@all"))
            asyncio.run(set_acl(url, "default", "reset"))
            url = url.replace("unix://", "unix://worker:any@")
            if "v=6." in subprocess.check_output([path, "--version"], text=True):
                asyncio.run(check_safety(url))
            else:
                with pytest.raises(OperatorError, match=r"give the default user ~\* \+@all"):
                    asyncio.run(check_safety(url))
            asyncio.run(check_safety(url, accept=ACCEPT_LOSS))


async def set_acl(url: str, *rules: str) -> None:
    client = connect(url)
    await execute(client, "ACL SETUSER", *rules)
    await client.aclose()


@pytest.mark.redis
def test_safe_redis_passes() -> None:
    with server(SAFE) as url:
        asyncio.run(check_safety(url))
    with server({**SAFE, "maxmemory": "100mb", "maxmemory_policy": "noeviction"}) as url:
        asyncio.run(check_safety(url))


@pytest.mark.redis
@pytest.mark.parametrize("accept", [None, ACCEPT_LOSS])
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({**SAFE, "replicaof": "127.0.0.1 1"}, "is a replica, which takes no writes; name the master"),
        (
            {**SAFE, "cluster_enabled": "yes", "port": "0"},
            r"is a node of a cluster, which redirects; write redis\+cluster",
        ),
    ],
)
def test_unusable_redis_is_refused_whatever_is_accepted(
    settings: dict[str, str], words: str, accept: str | None
) -> None:
    with server(settings) as url, pytest.raises(OperatorError, match=words):
        asyncio.run(check_safety(url, accept))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://user:pass@127.0.0.1:1/0", r"redis\.url: no use of 127\.0\.0\.1:1: .*start it or correct"),
        ("unix:///nowhere/redis.sock", r"no use of /nowhere/redis\.sock"),
        ("http://localhost", r"write redis://host:6379/0 or embedded:\./state"),
    ],
)
def test_unreachable_redis_is_one_line_without_the_password(url: str, words: str) -> None:
    with pytest.raises(OperatorError, match=words) as refused:
        asyncio.run(check_safety(url))
    assert "\n" not in str(refused.value)
    assert "pass" not in str(refused.value)


@pytest.mark.redis
def test_only_an_unreachable_server_may_be_tried_again() -> None:
    with pytest.raises(Unreachable):
        asyncio.run(check_safety("redis://127.0.0.1:1/0"))
    with (
        server(SAFE) as url,
        pytest.raises(OperatorError, match=r"invalid username.*correct its user and password") as refused,
    ):
        asyncio.run(check_safety(url.replace("unix://", "unix://nobody:wrong@")))
    assert not isinstance(refused.value, Unreachable)


def test_only_the_exact_words_accept_losses() -> None:
    with pytest.raises(OperatorError, match=r"redis\.accept: 'yes' is not known"):
        asyncio.run(check_safety("redis://127.0.0.1:1/0", accept="yes"))
