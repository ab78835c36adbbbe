"""Connections to the primary that Sentinels name, asked anew for each connection."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis.asyncio.connection import Connection, SSLConnection
from redis.exceptions import ConnectionError, RedisError

from stream_app.state.round_trips import RoundTrips


class Sentinels:
    """The Sentinels that watch one primary. Args: service, the name by which they know it."""

    def __init__(self, sentinels: Sequence[RoundTrips], service: str) -> None:
        self._sentinels = sentinels
        self._service = service

    @property
    def place(self) -> str:
        """The primary's name and the Sentinels' addresses, for messages."""
        return f"{self._service} of the Sentinels {', '.join(one.place for one in self._sentinels)}"

    async def primary(self) -> tuple[str, int]:
        """Return the host and port that most Sentinels name; the others' answers are not awaited.

        One Sentinel alone may be cut off, together with an old primary that still takes writes.
        Raises: redis' ConnectionError if none names a primary.
        """
        asking = [asyncio.create_task(self._named_by(one)) for one in self._sentinels]
        named: Counter[tuple[str, int]] = Counter()
        failures = []
        try:
            for answer in asyncio.as_completed(asking):
                try:
                    named[await answer] += 1
                except (RedisError, OSError) as failure:
                    failures.append(str(failure))
                    continue
                [(first, votes)] = named.most_common(1)
                if 2 * votes > len(asking):
                    return first
        finally:
            for task in asking:
                task.cancel()
        if named:
            return named.most_common(1)[0][0]
        raise ConnectionError(f"no Sentinel names a primary ({'; '.join(dict.fromkeys(failures))})")

    async def _named_by(self, sentinel: RoundTrips) -> tuple[str, int]:
        [found] = await sentinel.ask([("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)])
        if not found:
            raise ConnectionError(f"{sentinel.place} knows no primary {self._service!r}")
        host, port = found
        return host.decode(), int(port)

    async def aclose(self) -> None:
        with suppress(RedisError, OSError):
            await asyncio.gather(*(one.aclose() for one in self._sentinels))


class Primary(Connection):
    """A connection to the server that is the primary when the connection is made."""

    def __init__(self, *, sentinels: Sentinels, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._sentinels = sentinels

    async def connect(self) -> None:
        if not self.is_connected:
            self.host, self.port = await self._sentinels.primary()
        await super().connect()  # type: ignore[no-untyped-call]


class PrimaryOverTls(Primary, SSLConnection):
    """The same over TLS."""
