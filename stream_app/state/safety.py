"""Refuses a Redis that may lose acknowledged writes or evict keys.

Such a loss would release a bin twice. A Redis in which the API may not read released values is refused too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from redis import exceptions
from redis.exceptions import RedisError

from stream_app.ports import ACCEPT_LOSS, OperatorError
from stream_app.state.connection import connect, execute
from stream_app.state.keys import STORED_FORMAT, STREAM_NAMES
from stream_app.state.round_trips import RoundTrips
from stream_app.stored_format import check_format

OLDEST_VERSION = (6, 2)
_SETTINGS = ("appendfsync", "no-appendfsync-on-rewrite")


class Unreachable(OperatorError):
    """The server is unreachable now; the caller may try again later."""


async def check_safety(url: str, accept: str | None = None) -> None:
    """Check that the server behind a URL can be used and keeps acknowledged writes.

    Args: accept, None, or the words of ``ACCEPT_LOSS`` to accept a Redis that may lose writes.
    Raises: OperatorError, one line with what, where and the remedy; Unreachable is a subclass.
    """
    if accept not in (None, ACCEPT_LOSS):
        raise OperatorError(f'redis.accept: {accept!r} is not known; write "{ACCEPT_LOSS}" or leave it out')
    async with _asked("redis.url", url) as redis:
        info = await execute(redis, "INFO")
        for fault in _unusable(info):
            raise OperatorError(f"redis.url: {redis.place} {fault}")
        await _check_format("redis.url", redis)
        settings = await _settings(redis) if accept is None else {}
    if accept is None:
        for fault in _losses(info, settings):
            raise OperatorError(f'redis.url: {redis.place} {fault}, or say redis.accept: "{ACCEPT_LOSS}"')


async def check_reading(name: str, url: str) -> None:
    """Check that released values can be read at the URL. Args: name, of the setting that holds the URL.

    Raises: OperatorError, one line with what, where and the remedy; Unreachable is a subclass.
    """
    async with _asked(name, url) as redis:
        await execute(redis, "SMEMBERS", STREAM_NAMES)
        await _check_format(name, redis)


async def _check_format(name: str, redis: RoundTrips) -> None:
    check_format(f"{name}: {redis.place}", await execute(redis, "GET", STORED_FORMAT))


@asynccontextmanager
async def _asked(name: str, url: str) -> AsyncIterator[RoundTrips]:
    """Yield a client; turn its failures into an OperatorError."""
    try:
        redis = connect(url, connections=1)
    except ValueError as error:
        raise OperatorError(f"{name}: {error}; write redis://host:6379/0 or embedded:./state") from None
    try:
        yield redis
    except (RedisError, OSError) as error:
        refusal = Unreachable if _may_answer_later(error) else OperatorError
        remedy = "correct its user and password" if _refuses_user(error) else "start it or correct the URL"
        raise refusal(f"{name}: no use of {redis.place}: {_one_line(error)}; {remedy}") from None
    finally:
        await redis.aclose()


def _may_answer_later(error: Exception) -> bool:
    """Return whether the same call may succeed later. With a wrong password it never succeeds."""
    return not _refuses_user(error) and isinstance(
        error, OSError | exceptions.ConnectionError | exceptions.TimeoutError
    )


def _refuses_user(error: Exception) -> bool:
    refused = exceptions.AuthenticationError, exceptions.AuthorizationError
    return isinstance(error, refused) or isinstance(error.__cause__, refused)  # the client wraps these errors


def _unusable(info: Mapping[str, Any]) -> Iterator[str]:
    version = str(info.get("redis_version", "0"))
    if feature_version(version) < OLDEST_VERSION:
        yield f"is Redis {version}; use 6.2 or newer"
    if info.get("role") != "master":
        yield "is a replica, which takes no writes; name the master"
    if int(info.get("cluster_enabled", 0)):
        yield "is a node of a cluster, which redirects; use a server that is not in cluster mode"


def feature_version(version: str) -> tuple[int, ...]:
    """Return a version's first two numbers; formats and commands change only with these."""
    return tuple(int(part) for part in version.split(".")[:2])


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
    policy = info.get("maxmemory_policy", "noeviction")
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
