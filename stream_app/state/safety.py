"""Refuses a Redis that may lose acknowledged writes or evict keys.

Such a loss would release a bin twice. A Redis in which the API may not read released values is refused too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from redis import exceptions
from redis.exceptions import RedisError

from stream_app.ports import ACCEPT_LOSS, ACCEPT_MANAGED, OperatorError
from stream_app.state.address import redis_address
from stream_app.state.connection import connect, execute
from stream_app.state.greeting import Expected, Refused, feature_version
from stream_app.state.keys import (
    ALERT_PATTERN,
    ALERT_STATES,
    CLOCK_MARK,
    PUBLIC_PATTERN,
    STORED_FORMAT,
    STREAM_NAMES,
)
from stream_app.state.round_trips import RoundTrips
from stream_app.stored_format import check_format

_SETTINGS = ("appendfsync", "no-appendfsync-on-rewrite")


class Unreachable(OperatorError):
    """The server is unreachable now; the caller may try again later."""


async def check_safety(url: str, accept: str | None = None) -> None:
    """Check that Redis can be used and keeps acknowledged writes; of a cluster, each primary.

    Args: accept, None; the words of ``ACCEPT_LOSS`` to accept a Redis that may lose writes, in any way;
        the words of ``ACCEPT_MANAGED`` to accept one that may lose its last writes, but evicts nothing.
    Raises: OperatorError, one line with what, where and the remedy; Unreachable is a subclass.
    """
    if accept not in (None, ACCEPT_LOSS, ACCEPT_MANAGED):
        raise OperatorError(f'redis.accept: {accept!r} is not known; write "{ACCEPT_LOSS}" or leave it out')
    async with _asked("redis.url", url, Expected(writes=True)) as redis:
        await _check_format("redis.url", redis)
        for server in await redis.primaries():
            info = await execute(server, "INFO")
            settings = await _settings(server) if accept is None else {}
            faults = _losses(info, settings) if accept is None else ()
            for fault in _evictions(info) if accept == ACCEPT_MANAGED else faults:
                raise OperatorError(
                    f'redis.url: {server.place} {fault}, or say redis.accept: "{ACCEPT_LOSS}"'
                )


async def check_reading(name: str, url: str) -> str | None:
    """Check that released values can be read at the URL, of a primary or a replica.

    Args: name, of the setting that holds the URL.
    Returns: a warning if this user can read secret keys, too.
    Raises: OperatorError, one line with what, where and the remedy; Unreachable is a subclass.
    """
    async with _asked(name, url, Expected()) as redis:
        await execute(redis, "SMEMBERS", STREAM_NAMES)
        for command in ("HLEN", "HGET", "HMGET"):  # users that were made for an older build lack these
            await execute(redis, command, ALERT_STATES, *(() if command == "HLEN" else ("rule",)))
        await _check_format(name, redis)
        return await _reads_secrets(redis, name, PUBLIC_PATTERN)


async def check_alerting(name: str, url: str) -> str | None:
    """Check that the states of alerts can be kept at the URL. Args, returns, raises: as ``check_reading``."""
    async with _asked(name, url, Expected(writes=True)) as redis:
        await execute(redis, "HGETALL", ALERT_STATES)
        await execute(redis, "EVAL", "return 0", 1, ALERT_STATES)  # as decisions are stored; changes nothing
        return await _reads_secrets(redis, name, ALERT_PATTERN)


async def _check_format(name: str, redis: RoundTrips) -> None:
    check_format(f"{name}: {redis.place}", await execute(redis, "GET", STORED_FORMAT))


async def _reads_secrets(redis: RoundTrips, name: str, pattern: str) -> str | None:
    for command in ("GET", "HGETALL"):  # one of these is a command that the user has for its own keys
        try:
            await execute(redis, command, CLOCK_MARK)
        except exceptions.NoPermissionError:
            continue
        except exceptions.ResponseError:
            pass  # access was allowed; the key only has another type
        return f"{name}: this user can read secret keys (sec:); name a user of {pattern} only (deploy/redis)"
    return None


@asynccontextmanager
async def _asked(name: str, url: str, expected: Expected) -> AsyncIterator[RoundTrips]:
    """Yield a client; turn its failures into an OperatorError."""
    try:
        redis, address = connect(url, 1, expected), redis_address(url)
    except ValueError as error:
        raise OperatorError(f"{name}: {error}; write redis://host:6379/0 or embedded:./state") from None
    try:
        yield redis
    except Refused as error:
        # Sentinels and clusters may name another server later.
        refusal = OperatorError if address.kind == "server" else Unreachable
        raise refusal(f"{name}: {_one_line(error)}") from None
    except (RedisError, OSError) as error:
        refusal = Unreachable if _may_answer_later(error) else OperatorError
        raise refusal(f"{name}: no use of {redis.place}: {_one_line(error)}; {_remedy(error)}") from None
    finally:
        await redis.aclose()


def _remedy(error: Exception) -> str:
    if _refuses_user(error):
        return "correct its user and password"
    if isinstance(error, exceptions.NoPermissionError):
        return "name the user that deploy/redis/make_users.py makes for it"
    return "start it or correct the URL"


def _may_answer_later(error: Exception) -> bool:
    """Return whether the same call may succeed later. With a wrong password it never succeeds."""
    return not _refuses_user(error) and isinstance(
        error, OSError | exceptions.ConnectionError | exceptions.TimeoutError
    )


def _refuses_user(error: Exception) -> bool:
    refused = exceptions.AuthenticationError, exceptions.AuthorizationError
    return isinstance(error, refused) or isinstance(error.__cause__, refused)  # the client wraps these errors


def _losses(info: Mapping[str, Any], settings: Mapping[str, str]) -> Iterator[str]:
    if not int(info.get("aof_enabled", 0)):
        yield "has appendonly no, so a crash loses releases; set appendonly yes and appendfsync always"
    appendfsync = settings.get("appendfsync")
    if appendfsync is None:
        yield "does not show its appendfsync; grant CONFIG GET to this user"
    elif appendfsync != "always":
        yield f"has appendfsync {appendfsync}, so a crash loses releases; set appendfsync always"
    if settings.get("no-appendfsync-on-rewrite") == "yes":
        yield "has no-appendfsync-on-rewrite yes, so a crash loses releases; set it to no"
    # Scripts are logged as transactions, which Redis 7 reads back as the default user (redis issue 14541).
    restricted = settings.get("default user") == "restricted"
    if restricted and feature_version(str(info.get("redis_version"))) >= (7, 0):
        yield "would lose all scripts' writes at a restart: give the default user ~* +@all (it may stay off)"
    yield from _evictions(info)


def _evictions(info: Mapping[str, Any]) -> Iterator[str]:
    """Yield why keys may be evicted: counts that are evicted are missing, and nobody notices."""
    policy = info.get("maxmemory_policy", "unknown")
    if int(info.get("maxmemory", 0)) and policy != "noeviction":
        yield f"has maxmemory-policy {policy}, which evicts keys; set maxmemory-policy noeviction"


async def _settings(redis: RoundTrips) -> dict[str, str]:
    """Return the settings that INFO does not show; empty if this user may not read them."""
    settings = {}
    for name in _SETTINGS:
        try:
            reply = await execute(redis, "CONFIG GET", name)
        except RedisError:
            continue
        settings.update({_text(key): _text(value) for key, value in dict(reply).items()})
    with suppress(RedisError):
        user = await execute(redis, "ACL GETUSER", "default")
        keys = {_text(key).lstrip("~") for key in user["keys"]}
        if "+@all" not in user["categories"] or "*" not in keys:
            settings["default user"] = "restricted"
    return settings


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
