"""Questions to each server that takes writes: its append-only file, its memory and its clock."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stream_app.ports import ClockDoubt
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
            [info] = await batch(self._redis, [("INFO", "persistence")])
            if not (info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"]):
                return str(info["aof_last_bgrewrite_status"])
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


@dataclass(frozen=True, slots=True)
class ServerMemory:
    """The memory of one server, in bytes.

    Args:
        used: for its data.
        resident: the memory that its process takes from the machine.
        limit: the most that it may use: ``maxmemory``, or the machine's memory; None if neither is known.
        policy: its policy when ``maxmemory`` is reached.
    """

    used: int
    resident: int
    limit: int | None
    policy: str


async def servers_memory(redis: RoundTrips) -> dict[str, ServerMemory]:
    """Return the memory of each server that takes writes, by its address. Raises: OSError."""
    with unknown_outcome():
        servers = await redis.primaries()
    found = {}
    for server in servers:
        [info] = await batch(server, [("INFO", "memory")])
        found[server.place] = _memory_of(info)
    return found


def _memory_of(info: Mapping[str, Any]) -> ServerMemory:
    limit = int(info.get("maxmemory", 0)) or int(info.get("total_system_memory", 0)) or None
    used, policy = int(info["used_memory"]), str(info.get("maxmemory_policy", ""))
    return ServerMemory(used, int(info.get("used_memory_rss", used)), limit, policy)


MOST_APART_US = 1_000_000


async def check_clocks(redis: RoundTrips, now_us: int) -> None:
    """Compare the clocks of all primaries with the one that closes bins; one server has one clock.

    Args: now_us, the time that closes bins.
    Raises: ClockDoubt if they differ too much; OSError if a node does not answer.
    """
    with unknown_outcome():
        servers = await redis.primaries()
    if len(servers) == 1:
        return
    times = await asyncio.gather(*(batch(one, [("TIME",)]) for one in servers))
    for server, [(seconds, microseconds)] in zip(servers, times, strict=True):
        apart_us = int(seconds) * 1_000_000 + int(microseconds) - now_us
        if abs(apart_us) > MOST_APART_US:
            raise ClockDoubt(
                f"clocks: the clock of {server.place} is {abs(apart_us) / 1e6:.1f} s "
                f"{'ahead of' if apart_us > 0 else 'behind'} the one that closes bins in this cluster; "
                "nothing is closed until they agree, set the wrong one"
            )
