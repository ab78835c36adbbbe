"""How much memory a Redis uses, and may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stream_app.state.connection import batch, unknown_outcome
from stream_app.state.round_trips import RoundTrips


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
