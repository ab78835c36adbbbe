"""Sends the commands of all tasks that ask in the same turn of the event loop in one round trip to Redis.

Streams whose bins close together send similar commands at the same time. Sent one by one, each command costs
this process more time than Redis needs for all of them.
"""

from __future__ import annotations

import asyncio
import builtins
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hiredis import pack_command
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError, ResponseError, TimeoutError

from stream_app.durable import room_to_make
from stream_app.state.greeting import Greeting

_RENEW_S = 0.1
# Tasks whose commands are sent in one round trip; those of further tasks are sent on other connections. Redis
# reads 16 KiB of each connection before it writes and syncs what they changed, so one connection would need
# a sync for each 16 KiB.
MOST_AT_ONCE = 64
Argument = bytes | str | int
Command = tuple[Argument, ...]
_Shapes = Mapping[Any, Callable[..., Any]]
# A server that says one of these is not the primary any more, or has lost its replicas or its primary.
_NOT_THE_PRIMARY = ("READONLY", "NOREPLICAS", "MASTERDOWN")


class Server(Protocol):
    """A server, or an object that names one: an address, and connections that end."""

    @property
    def place(self) -> str:
        """The server's address, without its password."""

    async def aclose(self) -> None:
        """Close all connections."""


class RoundTrips(Server, Protocol):
    """A Redis client for many tasks: commands given in one turn of the event loop are sent together.

    Each task gets the replies and errors of its own commands only. A task's commands run in order; the order
    between tasks is not defined. A lost connection fails all tasks whose commands were sent on it: these may
    have run or not. Cancelling a task does not take back its commands.
    """

    @property
    def connections(self) -> int:
        """How many connections were made so far. Behind each new one may be another server, or older data."""

    @property
    def servers_met(self) -> int:
        """How many server processes have answered so far. Each new one may have lost writes."""

    async def ask(self, commands: Sequence[Command], atomic: bool = False) -> list[Any]:
        """Run commands and return their replies, in redis-py's usual shapes.

        Args: atomic, whether to run them in one atomic step; their keys then have one tag.
        Raises: redis' errors; if there are several, the first.
        """

    async def primaries(self) -> Sequence[RoundTrips]:
        """Return a client for each server that takes writes: one, or each shard's of a cluster."""


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """The commands of one task and the replies that it waits for."""

    commands: Sequence[Command]
    atomic: bool
    replies: asyncio.Future[list[Any]]

    def sent(self) -> list[Command]:
        return [("MULTI",), *self.commands, ("EXEC",)] if self.atomic else list(self.commands)

    def answer(self, answers: list[Any], shapes: _Shapes) -> None:
        """Give the task its replies from Redis, or the first error among them."""
        if self.replies.done():  # the task was cancelled
            return
        replies = answers[-1] if self.atomic and isinstance(answers[-1], list) else answers
        failures = [reply for reply in (*answers, *replies) if isinstance(reply, Exception)]
        if failures:
            self.replies.set_exception(failures[0])
            return
        try:
            pairs = zip(self.commands, replies, strict=True)
            shaped = [
                shape(reply) if (shape := shapes.get(command[0])) else reply for command, reply in pairs
            ]
            self.replies.set_result(shaped)
        except Exception as failure:
            self.replies.set_exception(failure)


class ServerRoundTrips(RoundTrips):
    """A client of one server, or of the server that Sentinels name."""

    def __init__(
        self,
        pool: BlockingConnectionPool,
        greeting: Greeting | None = None,
        sentinels: Server | None = None,
    ) -> None:
        self._pool = pool
        self._greeting = greeting
        self._sentinels = sentinels
        self._client = Redis.from_pool(pool)
        self._asked: list[_Asked] = []  # not sent yet
        self._sending: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()  # a reference, because the event loop keeps none

    @property
    def place(self) -> str:
        if self._sentinels is not None:
            return self._sentinels.place
        at = self._pool.connection_kwargs
        return str(at.get("path") or f"{at.get('host', 'localhost')}:{at.get('port', 6379)}")

    @property
    def connections(self) -> int:
        return 0 if self._greeting is None else self._greeting.connections

    @property
    def servers_met(self) -> int:
        return 0 if self._greeting is None else self._greeting.servers_met

    async def aclose(self) -> None:
        # Cancelled tasks left commands under way: later these would open a connection that nobody closes.
        under_way = [sending for sending in self._under_way if sending.cancel()]
        await asyncio.gather(*under_way, return_exceptions=True)
        self._fail(self._asked, ConnectionError("the client is closed"))
        self._asked = []
        await self._client.aclose()
        if self._sentinels is not None:
            await self._sentinels.aclose()

    async def primaries(self) -> Sequence[RoundTrips]:
        return [self]

    async def ask(self, commands: Sequence[Command], atomic: bool = False) -> list[Any]:
        asked = _Asked(commands, atomic, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        if self._sending is None or self._sending.done():
            self._start()
        return await asked.replies

    def _start(self) -> None:
        self._sending = asyncio.create_task(self._send())
        self._under_way.add(self._sending)
        self._sending.add_done_callback(self._under_way.discard)

    async def _send(self) -> None:
        """Wait for a free connection, send commands that wait by then, and distribute the replies."""
        asked: list[_Asked] = []
        try:
            connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
            try:
                asked = self._taken()
                await self._exchange(connection, asked)
            except BaseException:
                await connection.disconnect(nowait=True)  # unread replies may be left on it
                raise
            finally:
                await self._pool.release(connection)
        except asyncio.CancelledError:
            self._fail(asked, ConnectionError("the client is closed"))
            raise
        except Exception as failure:
            self._fail(asked or self._taken(), self._explained(failure))

    def _fail(self, asked: Sequence[_Asked], failure: Exception) -> None:
        for one in asked:
            if not one.replies.done():
                one.replies.set_exception(failure)

    def _explained(self, failure: Exception) -> Exception:
        """Return the cause of a failure, if it is a full disk: an embedded server ends itself then."""
        is_lost = type(failure) is ConnectionError and self.place.startswith("/")
        full = room_to_make(Path(self.place).parent) if is_lost else ""
        return ConnectionError(full) if full else failure

    def _taken(self) -> list[_Asked]:
        """Take waiting commands; those that are left, and later ones, start another round trip."""
        asked, self._asked = self._asked[:MOST_AT_ONCE], self._asked[MOST_AT_ONCE:]
        self._sending = None
        if self._asked:
            self._start()
        return [one for one in asked if not one.replies.done()]

    async def _exchange(self, connection: AbstractConnection, asked: Sequence[_Asked]) -> None:
        commands = [command for one in asked for command in one.sent()]
        await connection.send_packed_command(packed(commands))
        is_primary = True
        try:
            async with asyncio.timeout(connection.socket_timeout) as patience:
                for one in asked:
                    answers = [await _reply(connection) for _ in one.sent()]
                    _renew(patience, connection.socket_timeout)
                    is_primary = is_primary and not any(map(_says_it_is_no_primary, answers))
                    one.answer(answers, self._client.response_callbacks)
        except builtins.TimeoutError:
            raise TimeoutError(f"it says nothing for {connection.socket_timeout:g} s") from None
        if not is_primary:
            await connection.disconnect(nowait=True)  # the next connection asks the Sentinels again


def packed(commands: Sequence[Command]) -> bytes:
    """Return commands as bytes for the server. The client packs in Python and takes seven times as long."""
    words = ((*str(command[0]).split(), *command[1:]) for command in commands)  # "CONFIG GET" is two words
    return b"".join([pack_command(command) for command in words])  # type: ignore[arg-type]  # stubs: one item


async def _reply(connection: AbstractConnection) -> Any:
    """Return one reply. An error reply is returned, not raised, because other replies follow it."""
    try:
        return await connection.read_response(timeout=math.inf)
    except ResponseError as refusal:
        return refusal


def _renew(patience: asyncio.Timeout, longest_s: float | None) -> None:
    """Wait as long for the next reply. A timer for each reply would cost more than the reply."""
    now_s, end_s = asyncio.get_running_loop().time(), patience.when()
    if longest_s is not None and end_s is not None and end_s - now_s < longest_s - _RENEW_S:
        patience.reschedule(now_s + longest_s)


def _says_it_is_no_primary(reply: Any) -> bool:
    return isinstance(reply, ResponseError) and any(word in str(reply) for word in _NOT_THE_PRIMARY)
