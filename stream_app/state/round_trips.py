"""One round trip to Redis for all tasks that ask in the same turn of the loop.

Streams whose bins close together ask the store the same things together. Sent one by one, each question costs
this process more than Redis needs for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

Argument = bytes | str | int
Command = tuple[Argument, ...]
_Shapes = Mapping[Any, Callable[..., Any]]


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """What one task waits for."""

    commands: Sequence[Command]
    atomic: bool
    replies: asyncio.Future[list[Any]]

    def sent(self) -> list[Command]:
        return [("MULTI",), *self.commands, ("EXEC",)] if self.atomic else list(self.commands)

    def answer(self, told: list[Any], shapes: _Shapes) -> None:
        """Tell the task what Redis has replied to everything that was sent for it."""
        if self.replies.done():  # the task was cancelled
            return
        replies = told[-1] if self.atomic and isinstance(told[-1], list) else told
        failures = [reply for reply in (*told, *replies) if isinstance(reply, Exception)]
        if failures:
            self.replies.set_exception(failures[0])
            return
        try:
            pairs = zip(self.commands, replies, strict=True)
            self.replies.set_result([_shaped(shapes, *pair) for pair in pairs])
        except Exception as failure:
            self.replies.set_exception(failure)


class RoundTrips:
    """A Redis that many tasks ask: what they ask in one turn of the loop is sent together.

    Each task hears of its own commands only. They run in their order, and nothing is promised about the
    commands of two tasks. Only a lost connection is everybody's failure: what was sent with it may have
    happened or not. A task that is cancelled does not take back what was sent.
    """

    def __init__(self, pool: BlockingConnectionPool) -> None:
        self._pool = pool
        self._client = Redis.from_pool(pool)
        self._asked: list[_Asked] = []  # not sent so far
        self._sending: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()  # the loop itself would forget them

    @property
    def place(self) -> str:
        """Name the server, without its password."""
        at = self._pool.connection_kwargs
        return str(at.get("path") or f"{at.get('host', 'localhost')}:{at.get('port', 6379)}")

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def ask(self, commands: Sequence[Command], atomic: bool = False) -> list[Any]:
        """Run commands and return their replies, in the shapes that redis-py gives them.

        Args: atomic, run them in one step.
        Raises: redis' errors; of several, the first.
        """
        asked = _Asked(commands, atomic, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())
            self._under_way.add(self._sending)
            self._sending.add_done_callback(self._under_way.discard)
        return await asked.replies

    async def _send(self) -> None:
        """Send all that is asked by the time when a connection is free, and hand on the replies."""
        asked: list[_Asked] = []
        try:
            connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
            try:
                asked = self._taken()
                await self._exchange(connection, asked)
            except BaseException:
                await connection.disconnect(nowait=True)  # replies may be left that nobody waits for
                raise
            finally:
                await self._pool.release(connection)
        except Exception as failure:
            for one in asked or self._taken():
                if not one.replies.done():
                    one.replies.set_exception(failure)

    def _taken(self) -> list[_Asked]:
        """Take what is asked; who asks from now on begins another round trip."""
        asked, self._asked, self._sending = self._asked, [], None
        return [one for one in asked if not one.replies.done()]

    async def _exchange(self, connection: AbstractConnection, asked: Sequence[_Asked]) -> None:
        commands = [command for one in asked for command in one.sent()]
        await connection.send_packed_command(connection.pack_commands(commands))
        for one in asked:
            told = [await _reply(connection) for _ in one.sent()]
            one.answer(told, self._client.response_callbacks)


async def _reply(connection: AbstractConnection) -> Any:
    """Return one reply; an error that Redis replied is returned too, for other replies follow it."""
    try:
        return await connection.read_response()
    except ResponseError as refusal:
        return refusal


def _shaped(shapes: _Shapes, command: Command, reply: Any) -> Any:
    shape = shapes.get(command[0])
    return reply if shape is None else shape(reply)
