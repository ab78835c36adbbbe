"""Connections to Redis, the scripts in ``lua/``, and the errors that callers see."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import Any, cast

from redis import exceptions
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from stream_app.state.round_trips import Argument, Command, RoundTrips

_ANSWER_SECONDS = 15.0


class SameServer:
    """Refuses the first connection to another server process: a restart or a failover may have lost writes.

    The client reconnects silently, and the caller's view may then differ from the new server's data.
    """

    def __init__(self) -> None:
        self._run_id: str | None = None

    async def greet(self, connection: AbstractConnection) -> None:
        """Greet the server. Raises: redis' ConnectionError if it is another process than the last one."""
        await connection.on_connect()
        await connection.send_command("INFO", "server")
        told = await connection.read_response()
        lines = told.decode().splitlines()
        run_id = next((line for line in lines if line.startswith("run_id:")), None)
        before, self._run_id = self._run_id, run_id
        if before not in (None, run_id):
            raise exceptions.ConnectionError("another server process answers")


def connect(url: str, connections: int = 16, same_server: SameServer | None = None) -> RoundTrips:
    """Return a client for any number of tasks, which share round trips and wait for a free connection.

    It never repeats a command by itself: the loops do so, after they have read the state.

    Raises: ValueError for a URL that the client does not understand.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=None,
        socket_timeout=_ANSWER_SECONDS,
        retry=Retry(NoBackoff(), 0),
        decode_responses=False,
        protocol=2,
        redis_connect_func=same_server.greet if same_server is not None else None,
    )
    return RoundTrips(pool)


@contextmanager
def unknown_outcome() -> Iterator[None]:
    """Turn errors of Redis or the network into OSError: the call may or may not have taken effect."""
    try:
        yield
    except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
        raise ConnectionError(f"redis: no answer ({error}), see that its server runs") from error
    except exceptions.RedisError as error:
        raise OSError(f"redis: {error}") from None


class Script:
    """A Lua script. It is run by its digest, and sent in full to a server that does not have it."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._digest = hashlib.sha1(text, usedforsecurity=False).hexdigest()

    async def __call__(
        self, redis: RoundTrips, keys: Sequence[str], arguments: Sequence[Argument]
    ) -> bytes | None:
        """Run the script; scripts reply with text or nothing. Raises: OSError."""
        with unknown_outcome():
            try:
                reply = await execute(redis, "EVALSHA", self._digest, len(keys), *keys, *arguments)
            except exceptions.NoScriptError:
                reply = await execute(redis, "EVAL", self._text, len(keys), *keys, *arguments)
        return cast("bytes | None", reply)


@cache
def script(name: str) -> Script:
    """Return the script of a file in ``lua/``; each file is read once."""
    return Script(script_text(name))


def script_text(name: str) -> bytes:
    """Return the text of a file in ``lua/``, with each line ``#include NAME`` replaced by that file."""
    text = resources.files("stream_app.state").joinpath(f"lua/{name}.lua").read_bytes()
    return re.sub(rb"(?m)^#include (\w+)\n", lambda line: script_text(line[1].decode()), text)


async def execute(redis: RoundTrips, *command: Argument) -> Any:
    """Run one command and return its reply in the client's usual shape."""
    [reply] = await redis.ask([command])
    return reply


async def transaction(redis: RoundTrips, commands: Sequence[Command]) -> list[Any]:
    """Run commands in one atomic step, so that their replies are consistent. Raises: OSError."""
    with unknown_outcome():
        return await redis.ask(commands, atomic=True)


async def batch(redis: RoundTrips, commands: Sequence[Command]) -> list[Any]:
    """Run commands in one round trip, without consistency between their replies. Raises: OSError."""
    with unknown_outcome():
        return await redis.ask(commands)
