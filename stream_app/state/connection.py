"""Connections to Redis, the scripts in ``lua/``, and what their failures look like to a caller."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import Any, cast

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

Argument = bytes | str | int
_ANSWER_SECONDS = 15.0


class SameServer:
    """Refuses the first connection to another server process: a restart or a failover may have lost writes.

    The client connects again without a word, and what a caller knows may then be older than the server.
    """

    def __init__(self) -> None:
        self._run_id: str | None = None

    async def greet(self, connection: AbstractConnection) -> None:
        """Greet the server, and compare it with the last one. Raises: redis' ConnectionError."""
        await connection.on_connect()
        await connection.send_command("INFO", "server")
        told = await connection.read_response()
        lines = told.decode().splitlines()
        run_id = next((line for line in lines if line.startswith("run_id:")), None)
        before, self._run_id = self._run_id, run_id
        if before not in (None, run_id):
            raise exceptions.ConnectionError("another server process answers")


def connect(url: str, connections: int = 16, same_server: SameServer | None = None) -> Redis:
    """Return a client whose tasks never share a connection and wait for a free one.

    It does not repeat a command by itself: the loops do, and they look at the state first.

    Raises: ValueError for a URL that Redis does not know.
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
    return Redis.from_pool(pool)


@contextmanager
def unknown_outcome() -> Iterator[None]:
    """Turn what Redis or the network raises into OSError: the call may or may not have happened."""
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        yield
    except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
        raise ConnectionError(f"redis: no answer ({error}), see that its server runs") from error
    except exceptions.RedisError as error:
        # A pipeline's message repeats the command, which may hold a secret; so would the chained error.
        raise OSError(f"redis: {str(error).rpartition('caused error: ')[2]}") from None
    finally:
        # The client sends under ``asyncio.wait_for``, which before Python 3.12 loses a cancellation that
        # comes as the sending ends; a loop would then go on for ever although it was told to stop. An earlier
        # cancellation was noticed: what cleans up after it may still call Redis.
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


class Script:
    """A script: run by digest, sent in full to a server that does not hold it."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._digest = hashlib.sha1(text, usedforsecurity=False).hexdigest()

    async def __call__(
        self, redis: Redis, keys: Sequence[str], arguments: Sequence[Argument]
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
    """Return the script of a file in ``lua/``, read once."""
    return Script(script_text(name))


def script_text(name: str) -> bytes:
    """Read a file of ``lua/``, with the file of each line ``#include NAME`` in the line's place."""
    text = resources.files("stream_app.state").joinpath(f"lua/{name}.lua").read_bytes()
    return re.sub(rb"(?m)^#include (\w+)\n", lambda line: script_text(line[1].decode()), text)


async def execute(redis: Redis, *command: Argument) -> Any:
    """Run one command; its reply has the shape that the client gives it."""
    return await redis.execute_command(*command)  # type: ignore[no-untyped-call]


async def transaction(redis: Redis, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
    """Run commands in one step, so that their replies belong together. Raises: OSError."""
    return await _pipeline(redis, commands, True)


async def batch(redis: Redis, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
    """Run commands in one round trip, for what does not change between them. Raises: OSError."""
    return await _pipeline(redis, commands, False)


async def _pipeline(redis: Redis, commands: Sequence[tuple[Argument, ...]], atomic: bool) -> list[Any]:
    with unknown_outcome():
        async with redis.pipeline(transaction=atomic) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            return await pipeline.execute()
