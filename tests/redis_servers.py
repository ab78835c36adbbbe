"""Several real Redis servers on this machine: a cluster, or a primary with replicas and Sentinels.

They run with deploy's settings and users, and fail over within a few seconds.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS as SLOTS
from redis.crc import key_slot

from deploy.ports import free_port
from deploy.redis.make_users import RULES, acl
from stream_app.state.embedded import find_server
from tests.patience import eventually

CONFIGURATION = Path(__file__).parents[1] / "deploy" / "redis" / "redis.conf"
PASSWORDS = {user: f"password-of-{user}" for user in RULES}
# Sentinels never choose a replica that was cut off for longer than ten times this.
DOWN_AFTER_MS = 2_000
OUTGOING_PORTS = 32_768  # from here on any connection may take a port


class Node:
    """One server process. Args: settings, beside deploy's."""

    def __init__(self, folder: Path, port: int, settings: Sequence[str], executable: Path) -> None:
        self.folder, self.port = folder, port
        self.command = [str(executable), *settings]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The address in URLs."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the process."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def kill(self) -> None:
        """End the process with kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        if self.process is not None:
            self.process.send_signal(number)

    def ask(self, *command: Any) -> Any:
        """Return the reply to the operator's command."""
        with redis.Redis(
            port=self.port, username="operator", password=PASSWORDS["operator"], protocol=2
        ) as client:
            return client.execute_command(*command)

    def info(self, section: str, name: str) -> str:
        """Return one value of INFO."""
        return str(self.ask("INFO", section)[name])


def until(holds: Callable[[], object], what: str) -> None:
    """Wait until something holds; a server that does not answer yet is asked again."""

    def answered() -> bool:
        with suppress(redis.exceptions.RedisError, OSError):
            return bool(holds())
        return False

    eventually(answered, what)


def shipped_server(folder: Path, port: int, executable: Path, *settings: str) -> Node:
    """Return a server, not started yet, with deploy's settings and users, and with more settings."""
    folder.mkdir()
    (folder / "users.acl").write_text(acl(PASSWORDS))
    # Sentinels have servers write their configuration anew, so each has its own.
    configuration = Path(shutil.copy(CONFIGURATION, folder))
    given = [
        *(str(configuration), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)),
        *("--aclfile", str(folder / "users.acl"), "--masteruser", "operator"),
        *("--masterauth", PASSWORDS["operator"], "--repl-diskless-sync", "no", *settings),
    ]
    return Node(folder, port, given, executable)


class Cluster:
    """Primaries, each with one replica. Slots are divided among the primaries in order."""

    def __init__(self, nodes: Sequence[Node], primaries: int) -> None:
        self.nodes, self.primaries = list(nodes), primaries

    def url(self, user: str) -> str:
        """Return the URL of a user, which names two of the nodes."""
        hosts = ",".join(node.address for node in self.nodes[:2])
        return f"redis+cluster://{user}:{PASSWORDS[user]}@{hosts}"

    def primary_of(self, key: str) -> Node:
        """Return the node that has a key's slot now. Raises: ConnectionError if none is known to have it."""
        slot, by_port = key_slot(key.encode()), {node.port: node for node in self.nodes}
        for first, last, primary, *_ in chain.from_iterable(map(_slots, self.nodes)):
            if first <= slot <= last:
                return by_port[int(primary[1])]
        # Not StopIteration: asyncio cannot pass it on from a thread, so the test would wait for ever.
        raise ConnectionError(f"no node says who has slot {slot}")


def _slots(node: Node) -> Any:
    """Return who has each range of slots, as a node says; nothing if it does not answer."""
    client = redis.Redis(port=node.port, username="operator", password=PASSWORDS["operator"], protocol=2)
    client.response_callbacks.clear()
    with client, suppress(redis.exceptions.RedisError, OSError):
        return client.execute_command("CLUSTER", "SLOTS")
    return ()


@contextmanager
def cluster(folder: Path, primaries: int = 3, executable: Path | None = None) -> Iterator[Cluster]:
    """Run a cluster whose primaries have one replica each."""
    settings = [
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        "15000",  # for the handshakes; less once the cluster stands
        "--cluster-replica-validity-factor",
        "0",
    ]
    server = executable or find_server()
    nodes = [
        shipped_server(folder / f"node-{number}", _cluster_port(), server, *settings)
        for number in range(2 * primaries)
    ]
    try:
        for node in nodes:
            node.start()
        for node in nodes:
            until(partial(node.ask, "PING"), "a node answers")
        _join(nodes, primaries)
        yield Cluster(nodes, primaries)
    finally:
        for node in nodes:
            node.kill()


def _join(nodes: Sequence[Node], primaries: int) -> None:
    ids = [node.ask("CLUSTER", "MYID") for node in nodes]
    for number, node in enumerate(nodes):
        node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)  # so that no two must first agree who is right
        if number:
            node.ask("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
    bounds = [SLOTS * number // primaries for number in range(primaries + 1)]
    for node, first, end in zip(nodes, bounds, bounds[1:], strict=False):
        node.ask("CLUSTER", "ADDSLOTS", *range(first, end))
    for number, node in enumerate(nodes[primaries:]):
        until(
            partial(node.ask, "CLUSTER", "REPLICATE", ids[number]),
            "a replica knows its primary",
        )
    for node in nodes:
        until(partial(is_whole, node), "the cluster is whole")
    for node in nodes[primaries:]:
        until(partial(is_in_sync, node), "a replica is in sync")
    for node in nodes:
        node.ask("CONFIG", "SET", "cluster-node-timeout", 2_000)


def _cluster_port() -> int:
    """Return a free port; the nodes of a cluster use the port 10,000 above it, too."""
    while True:
        port = free_port()
        if port + 10_000 >= OUTGOING_PORTS:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port + 10_000))
            return port


class Watched:
    """A primary with replicas, and three Sentinels that watch it under the name ``main``."""

    def __init__(self, servers: Sequence[Node], sentinels: Sequence[Node]) -> None:
        self.servers, self.sentinels = list(servers), list(sentinels)

    def url(self, user: str) -> str:
        """Return the URL of a user, which names the Sentinels."""
        hosts = ",".join(node.address for node in self.sentinels)
        return f"redis+sentinel://{user}:{PASSWORDS[user]}@{hosts}/main"

    @property
    def primary(self) -> Node:
        """The server that the first Sentinel names."""
        with redis.Redis(port=self.sentinels[0].port, protocol=2) as client:
            port = int(client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")[1])
        return next(node for node in self.servers if node.port == port)


@contextmanager
def watched(folder: Path, replicas: int = 1, executable: Path | None = None) -> Iterator[Watched]:
    """Run a primary, its replicas and three Sentinels."""
    server = executable or find_server()
    first, *others = ports = [free_port() for _ in range(replicas + 1)]
    servers = [shipped_server(folder / f"server-{port}", port, server) for port in [first]]
    servers += [
        shipped_server(folder / f"server-{p}", p, server, "--replicaof", "127.0.0.1", str(first))
        for p in others
    ]
    assert len(servers) == len(ports)
    sentinels = [_sentinel(folder / f"sentinel-{number}", first, server) for number in range(3)]
    try:
        for node in servers:
            node.start()
            until(partial(node.ask, "PING"), "a server answers")
        for node in servers[1:]:
            until(
                partial(is_in_sync, node),
                "a replica is in sync",
            )
        for node in sentinels:
            node.start()
        for node in sentinels:
            until(partial(_knows_all, node, replicas), "the Sentinels know everybody")
        yield Watched(servers, sentinels)
    finally:
        for node in (*sentinels, *servers):
            node.kill()


def _sentinel(folder: Path, primary_port: int, executable: Path) -> Node:
    folder.mkdir()
    port = free_port()
    (folder / "sentinel.conf").write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
        f"sentinel monitor main 127.0.0.1 {primary_port} 2\n"
        f"sentinel auth-user main operator\nsentinel auth-pass main {PASSWORDS['operator']}\n"
        f"sentinel down-after-milliseconds main {DOWN_AFTER_MS}\nsentinel failover-timeout main 1000\n"
    )
    return Node(folder, port, [str(folder / "sentinel.conf"), "--sentinel"], executable)


def _knows_all(sentinel: Node, replicas: int) -> bool:
    with redis.Redis(port=sentinel.port, protocol=2) as client:
        told = client.sentinel_master("main")
    return bool(told["num-slaves"] == replicas and told["num-other-sentinels"] == 2)


def is_whole(node: Node) -> bool:
    """Return whether a node knows who has each slot of its cluster."""
    return bool(node.ask("CLUSTER INFO")["cluster_state"] == "ok")


def is_in_sync(node: Node) -> bool:
    """Return whether a replica has what its primary has."""
    return node.info("replication", "master_link_status") == "up"
