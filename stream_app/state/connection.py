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
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from stream_app.state.address import redis_address
from stream_app.state.cluster import ClusterRoundTrips
from stream_app.state.greeting import Expected, Greeting, Refused, Replaced
from stream_app.state.round_trips import Argument, Command, RoundTrips, ServerRoundTrips
from stream_app.state.sentinels import Primary, PrimaryOverTls, Sentinels

_ANSWER_SECONDS = 15.0
_SENTINEL_SECONDS = 1.0
REPLICAS_MS = 1_000  # how long replicas may take to confirm a write


def connect(url: str, connections: int = 16, expected: Expected | None = None) -> RoundTrips:
    """Return a client for any number of tasks, which share round trips and wait for a free connection.

    It never repeats a command by itself: the loops do so, after they have read the state.

    Args:
        url: one of the forms of ``redis_address``.
        connections: the most connections to each server.
        expected: the checks on each new connection; None for no check.
    Raises: ValueError for a URL that the client does not understand.
    """
    address = redis_address(url)
    if address.kind == "cluster":
        return ClusterRoundTrips(
            address.hosts,
            lambda host: _server(address.of_server(host), connections, expected, in_cluster=True),
        )
    if address.kind == "server":
        return _server(url, connections, expected)
    sentinels = Sentinels(
        [_server(address.of_sentinel(host), 1, None, wait_s=_SENTINEL_SECONDS) for host in address.hosts],
        address.service,
    )
    # The address is a placeholder: each new connection asks the Sentinels for the primary's.
    return _server(address.of_server("primary:0"), connections, expected, sentinels=sentinels)


def _server(
    url: str,
    connections: int,
    expected: Expected | None,
    *,
    in_cluster: bool = False,
    sentinels: Sentinels | None = None,
    wait_s: float = _ANSWER_SECONDS,
) -> ServerRoundTrips:
    """Return a client of one server. Args: sentinels, which name the server; wait_s, for any answer."""
    at: dict[str, Any] = dict(parse_url(url))
    if sentinels is not None:
        over_tls = at.get("connection_class") is SSLConnection
        at["connection_class"] = PrimaryOverTls if over_tls else Primary
        at["sentinels"] = sentinels
    greeting = None if expected is None else Greeting(expected, in_cluster)
    pool = BlockingConnectionPool(
        max_connections=connections,
        timeout=None,
        retry=Retry(NoBackoff(), 0),
        decode_responses=False,
        protocol=2,
        redis_connect_func=None if greeting is None else greeting.greet,
        **{"socket_timeout": wait_s} | at,
    )
    return ServerRoundTrips(pool, greeting, sentinels)


@contextmanager
def unknown_outcome() -> Iterator[None]:
    """Turn errors of Redis or the network into OSError: the call may or may not have taken effect."""
    try:
        yield
    except (Refused, Replaced) as error:
        raise ConnectionError(f"redis: {error}") from error
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
        self, redis: RoundTrips, keys: Sequence[str], arguments: Sequence[Argument], replicas: int = 0
    ) -> bytes | None:
        """Run the script; scripts reply with text or nothing.

        Args: replicas, how many replicas must have its writes before this returns.
        Raises: OSError, also if too few replicas have the writes in time: then the server has them.
        """
        given = len(keys), *keys, *arguments
        waits: list[Command] = [("WAIT", replicas, REPLICAS_MS)] if replicas else []
        with unknown_outcome():
            try:
                reply, *waited = await redis.ask([("EVALSHA", self._digest, *given), *waits])
            except exceptions.NoScriptError:
                reply, *waited = await redis.ask([("EVAL", self._text, *given), *waits])
        if waited and waited[0] < replicas:
            raise ConnectionError(
                f"redis: {waited[0]} of {replicas} replicas have confirmed a write within "
                f"{REPLICAS_MS / 1_000:g} s, nothing is shown before they do; see that they run"
            )
        return cast("bytes | None", reply)

    async def each(
        self, redis: RoundTrips, calls: Sequence[tuple[Sequence[str], Sequence[Argument]]]
    ) -> list[bytes | None]:
        """Run the script once for each (keys, arguments), in one round trip; each run is atomic.

        The script must be one that may be repeated: if a server does not have it, all calls are sent again.
        """
        given = [(len(keys), *keys, *arguments) for keys, arguments in calls]
        with unknown_outcome():
            try:
                return await redis.ask([("EVALSHA", self._digest, *one) for one in given])
            except exceptions.NoScriptError:
                return await redis.ask([("EVAL", self._text, *one) for one in given])


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
