"""The deployed store: a real server with deploy's files loses no write and refuses secret keys."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from deploy.ports import free_port
from deploy.redis.make_users import DEFAULT_USER, GRAFANAS, MEASURED, OPERATOR_TOKEN, RULES, write
from stream_app.state import embedded
from stream_app.state.keys import ALERT_PATTERN, PUBLIC_PATTERN
from stream_app.state.redis_store import RedisStore
from stream_app.state.safety import check_safety
from tests.contracts import test_redis_access as access
from tests.contracts.servers import server_paths
from tests.patience import PATIENCE_S

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "redis" / "redis.conf"


@dataclass
class DeployedRedis:
    """A running server and the URLs that make_users.py wrote."""

    folder: Path
    port: int
    executable: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def command(self) -> list[str]:
        """The command of the process: deploy's file; only the paths and the port are the test's."""
        own = ("--dir", self.folder / "data", "--aclfile", self.folder / "users.acl", "--port", self.port)
        return [str(word) for word in (self.executable, CONFIGURATION, *own, "--bind", "127.0.0.1")]

    def start(self) -> None:
        """Start the server."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                once = Retry(NoBackoff(), 0)  # the client's own pauses are of seconds
                with redis.Redis.from_url(self.url("operator"), protocol=2, retry=once) as client:
                    client.ping()
                return
            except redis.exceptions.RedisError:
                assert time.monotonic() < deadline
                assert self.process.poll() is None
                time.sleep(0.02)

    def kill(self) -> None:
        """End the server with kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def url(self, user: str) -> str:
        """Return a user's URL from the environment file."""
        return (self.folder / f"{user}.env").read_text().splitlines()[0].partition("=")[2]

    @property
    def worker_url(self) -> str:
        """The worker's URL."""
        return self.url("worker")

    @property
    def alerts_url(self) -> str:
        """The URL of the watcher of alerts."""
        return self.url("alerts")

    @property
    def api_url(self) -> str:
        """The API's URL."""
        return self.url("api")


@contextmanager
def deployed(folder: Path, executable: Path) -> Iterator[DeployedRedis]:
    """Run a server with deploy's files."""
    server = DeployedRedis(folder, free_port(), executable)
    write(folder, f"127.0.0.1:{server.port}")
    (folder / "data").mkdir(exist_ok=True)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.redis) for name in server_paths()]
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DeployedRedis]:
    with ExitStack() as stack:
        yield stack.enter_context(deployed(tmp_path_factory.mktemp("redis"), server_paths()[request.param]))


def filled(server: DeployedRedis) -> list[str]:
    """Run every script for one stream; return the keys that the store then has."""

    async def fill() -> None:
        store = RedisStore(server.worker_url)
        await access.fill(store, f"stream-{uuid4().hex}")
        await access.fill_alerts(server.url("alerts"))
        await store.forget()
        await store.close()

    asyncio.run(fill())
    with redis.Redis.from_url(server.url("operator"), protocol=2) as client:
        return sorted(key.decode() for key in client.scan_iter("*"))


def test_the_deployed_redis_keeps_acknowledged_writes_and_the_worker_can_check_it(
    server: DeployedRedis,
) -> None:
    asyncio.run(check_safety(server.worker_url))


def test_the_worker_can_do_its_work_and_the_api_reads_public_keys_only(server: DeployedRedis) -> None:
    keys = filled(server)
    access.test_every_key_is_in_the_table_with_its_type((server, keys))
    access.test_api_user_reads_public_keys_only_and_writes_none((server, keys))
    access.test_alerts_user_writes_its_own_keys_and_sees_no_other((server, keys))


def test_the_worker_administers_nothing(server: DeployedRedis) -> None:
    with redis.Redis.from_url(server.worker_url, protocol=2) as client:
        for command in (
            ("CONFIG", "SET", "appendfsync", "no"), ("FLUSHALL",), ("ACL", "LIST"), ("SHUTDOWN",),
            ("SAVE",), ("REPLICAOF", "127.0.0.1", "1"), ("MONITOR",), ("SET", "other", "1"),
        ):  # fmt: skip
            with pytest.raises(redis.exceptions.ResponseError, match=r"(?i)permission"):
                client.execute_command(*command)


def test_nobody_enters_without_a_password(server: DeployedRedis) -> None:
    address = f"127.0.0.1:{server.port}/0"
    for url in (f"redis://{address}", f"redis://worker:wrong@{address}", f"redis://default:x@{address}"):
        with redis.Redis.from_url(url, protocol=2) as client, pytest.raises(redis.AuthenticationError):
            client.ping()


def test_kill_9_loses_no_write(server: DeployedRedis) -> None:
    keys = filled(server)
    server.kill()
    server.start()
    with redis.Redis.from_url(server.url("operator"), protocol=2) as client:
        assert sorted(key.decode() for key in client.scan_iter("*")) == keys
    assert not list((server.folder / "data").rglob("*.rdb.*"))


def test_access_rules_equal_those_of_the_embedded_server() -> None:
    told = embedded._CONFIG.format(
        **dict.fromkeys(("socket", "directory", "log", "worker", "api", "alerts", "operator"), "x"),
        public=PUBLIC_PATTERN,
        reads=embedded._PUBLIC_COMMANDS,
        alert_keys=ALERT_PATTERN,
        alert_commands=embedded._ALERT_COMMANDS,
    ).splitlines()
    assert DEFAULT_USER in told
    for user, rules in RULES.items():
        assert f"user {user} on #x {rules}" in told
    durable = {line for line in told if line.startswith(("append", "no-append", "aof", "maxmemory", "save"))}
    assert len(durable) == 7
    assert durable <= set(CONFIGURATION.read_text().splitlines())


def test_passwords_are_kept_private_and_different(tmp_path: Path) -> None:
    write(tmp_path / "secrets")
    names = ("worker.env", "api.env", "alerts.env", "operator.env")
    tokens = {role: (tmp_path / "secrets" / f"{role}.token").read_text() for role in MEASURED}
    assert len(set(tokens.values())) == len(MEASURED) == 4
    for role, token in tokens.items():
        assert f"{OPERATOR_TOKEN}={token}\n" in (tmp_path / "secrets" / f"{role}.env").read_text()
    first = {name: (tmp_path / "secrets" / name).read_text() for name in names}
    write(tmp_path / "secrets")
    assert {name: (tmp_path / "secrets" / name).read_text() for name in names} == first
    shutil.rmtree(tmp_path / "secrets")
    (tmp_path / "secrets").mkdir(mode=0o755)
    write(tmp_path / "secrets")
    acl = (tmp_path / "secrets" / "users.acl").read_text()
    for name in names:
        path = tmp_path / "secrets" / name
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_text() != first[name]
        password = path.read_text().split(":")[2].split("@")[0]
        assert len(password) >= 40
        assert password not in acl
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700


def test_processes_that_shared_a_token_get_their_own(tmp_path: Path) -> None:
    """As an earlier version had written them."""
    write(tmp_path)
    shared = (tmp_path / "worker.token").read_text()
    (tmp_path / "ingest.env").write_text(f"{OPERATOR_TOKEN}={shared}\n")
    url = (tmp_path / "api.env").read_text().splitlines()[0]
    (tmp_path / "api.env").write_text(f"{url}\n")
    write(tmp_path)
    assert (tmp_path / "worker.token").read_text() == shared
    assert (tmp_path / "ingest.env").read_text().strip().partition("=")[2] != shared
    assert (tmp_path / "api.env").read_text().startswith(f"{url}\n{OPERATOR_TOKEN}=")


def test_both_grafanas_keep_passwords_that_differ(tmp_path: Path) -> None:
    """An earlier version wrote one for both."""
    (tmp_path / "grafana.password").write_text("of both")
    write(tmp_path)
    first = [(tmp_path / name).read_text() for name in GRAFANAS]
    assert first[1] == "of both" != first[0]
    (tmp_path / "grafana.password").write_text(first[0])
    write(tmp_path)
    second = [(tmp_path / name).read_text() for name in GRAFANAS]
    assert second[0] == first[0] != second[1]
    assert all(len(password) >= 40 for password in second)
