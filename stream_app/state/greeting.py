"""The first words on each connection to Redis: is it a server that this process can use, and the same one?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from redis import exceptions
from redis.asyncio.connection import AbstractConnection

OLDEST_VERSION = (6, 2)


class Refused(exceptions.ConnectionError):
    """A server answers, but cannot be used."""


class Replaced(exceptions.ConnectionError):
    """Another server process answers than before; a caller that tries again has a connection to it."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The facts that a client expects of its server.

    Args:
        writes: whether it must accept writes; a reader may use a replica.
        same_server: whether to refuse the first connection to another server process, or to the same
            process after another one was the primary. Both may have lost writes. The client reconnects
            silently, and the caller's view may then differ from the new server's data.
    """

    writes: bool = False
    same_server: bool = False


class Greeting:
    """Greets the server on each new connection of one pool.

    Args: in_cluster, whether the server must be a node of a cluster.
    """

    def __init__(self, expected: Expected, in_cluster: bool) -> None:
        self._expected = expected
        self._in_cluster = in_cluster
        self._server: tuple[str, ...] | None = None
        self._greeted: WeakSet[AbstractConnection] = WeakSet()
        self.connections = 0  # how many were greeted
        self.servers_met = 0  # how many server processes answered, one after the other

    async def greet(self, connection: AbstractConnection) -> None:
        """Greet the server. Raises: redis' ConnectionError for a server that cannot be used."""
        self.connections += 1
        await connection.on_connect()
        # Every user may say HELLO, and it tells nothing about the data.
        answer = await _asked(connection, "HELLO", "2")
        facts = {_text(name): _text(value) for name, value in zip(answer[::2], answer[1::2], strict=True)}
        role = facts.get("role", "") if self._expected.writes else "master"  # a Sentinel has none
        for fault in unusable(facts["version"], role, facts["mode"], self._in_cluster):
            raise Refused(f"{_place(connection)} {fault}")
        if self._expected.same_server:
            await self._recognise(connection)
        self._greeted.add(connection)

    async def _recognise(self, connection: AbstractConnection) -> None:
        """Remember the server. Raises: Replaced if it is another one than the last time."""
        process = await _line(connection, "server", "run_id")
        # Each time that a server becomes the primary, it begins another history.
        server = (process, await _line(connection, "replication", "master_replid"))
        before, self._server = self._server, server
        self.servers_met += before != server
        if before not in (None, server):
            for other in list(self._greeted):
                await other.disconnect(nowait=True)
            raise Replaced("another server process answers than before, as after a restart")


def unusable(version: str, role: str, mode: str, in_cluster: bool) -> Iterator[str]:
    """Yield why a server cannot be used, with the remedy.

    Args: role, "master" or another word for a replica; mode, "standalone", "cluster" or "sentinel".
    """
    if mode == "sentinel":
        yield "is a Sentinel; write redis+sentinel://host:port,host:port/name"
        return
    if feature_version(version) < OLDEST_VERSION:
        yield f"is Redis {version}; use 6.2 or newer"
    if role != "master":
        yield "is a replica, which takes no writes; name the master"
    if mode == "cluster" and not in_cluster:
        yield "is a node of a cluster, which redirects; write redis+cluster://host:port,host:port"
    if mode != "cluster" and in_cluster:
        yield "is not in cluster mode; write redis://host:port/0"


def feature_version(version: str) -> tuple[int, ...]:
    """Return a version's first two numbers; formats and commands change only with these."""
    return tuple(int(part) for part in version.split(".")[:2])


async def _line(connection: AbstractConnection, section: str, name: str) -> str:
    lines = _text(await _asked(connection, "INFO", section)).splitlines()
    return next((line for line in lines if line.startswith(f"{name}:")), "")


async def _asked(connection: AbstractConnection, *command: str) -> Any:
    await connection.send_command(*command)
    return await connection.read_response()


def _place(connection: AbstractConnection) -> str:
    path = getattr(connection, "path", None)
    return str(path or f"{getattr(connection, 'host', '')}:{getattr(connection, 'port', '')}")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
