"""Rewrites Redis's append-only file, so that it no longer holds deleted counts."""

from __future__ import annotations

import asyncio

from stream_app.ports.errors import WorkerError
from stream_app.state.connection import batch, unknown_outcome
from stream_app.state.round_trips import RoundTrips

_POLL_S = 0.1


class AppendOnlyFiles:
    """The append-only files of all servers that take writes. Raises: OSError if one does not answer."""

    def __init__(self, redis: RoundTrips) -> None:
        self._redis = redis
        self._files: dict[str, AppendOnlyFile] = {}  # by server

    async def forget(self) -> None:
        """Rewrite all files without the values deleted before this call. Raises: as ``AppendOnlyFile``."""
        with unknown_outcome():
            servers = await self._redis.primaries()
        files = [self._files.setdefault(one.place, AppendOnlyFile(one)) for one in servers]
        await asyncio.gather(*(file.forget() for file in files))


class AppendOnlyFile:
    """The append-only file of one Redis server. Raises: OSError if Redis does not answer."""

    def __init__(self, redis: RoundTrips) -> None:
        self._redis = redis
        self._rewriting = asyncio.Lock()
        self._rewritings_begun = self._rewritten = 0  # how many began; the last that succeeded

    async def forget(self) -> None:
        """Rewrite the append-only file without the values deleted before this call; return when it is done.

        Calls that wait together share one rewriting. Raises: WorkerError if this user may not start it;
        OSError if the server could not write it.
        """
        begun_before = self._rewritings_begun
        async with self._rewriting:
            if self._rewritten <= begun_before:
                await self._rewrite()

    async def _rewrite(self) -> None:
        while not await self._start_rewriting():  # the one under way may have begun before the deletions
            await self._rewritten_once()
        begun = self._rewritings_begun
        if await self._rewritten_once() != "ok":
            raise OSError("redis: rewriting the append-only file failed, so it still holds deleted counts")
        self._rewritten = begun

    async def _rewritten_once(self) -> str:
        """Wait until no rewriting runs or is scheduled; return the status of the last one."""
        while True:
            [told] = await batch(self._redis, [("INFO", "persistence")])
            if not (told["aof_rewrite_in_progress"] or told["aof_rewrite_scheduled"]):
                return str(told["aof_last_bgrewrite_status"])
            await asyncio.sleep(_POLL_S)

    async def _start_rewriting(self) -> bool:
        """Start rewriting the append-only file; return False if the server is writing it already."""
        self._rewritings_begun += 1
        try:
            await batch(self._redis, [("BGREWRITEAOF",)])
        except OSError as failure:
            said = str(failure)
            if "permission" in said or "unknown command" in said:
                raise WorkerError(
                    "redis.url: this user may not run BGREWRITEAOF, so exact counts of released bins would "
                    "stay on disk; grant +bgrewriteaof"
                ) from None
            if "in progress" in said:
                return False
            raise
        return True
