"""Checks of ``stream-app doctor`` on room: free space of disks, and memory and disk of Redis."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlsplit

from redis.exceptions import RedisError

from stream_app.config.access import is_loopback
from stream_app.state.address import redis_address
from stream_app.state.connection import connect, execute
from stream_app.state.round_trips import RoundTrips
from stream_app.state.servers import ServerMemory, servers_memory
from stream_app.wiring.checks import Finding

MIB = 1 << 20
LEAST_FREE_BYTES = 256 * MIB  # with less, a release may fail to be written
FEW_FREE_BYTES = 2048 * MIB
MUCH_USED, NEARLY_FULL = 0.8, 0.95
FRAGMENTED = 1.5  # memory that the process takes for each byte of data
_SMALL_BYTES = 100 * MIB  # below this the process itself takes most


def free_space(what: str, directory: Path) -> Finding:
    """Return whether the disk of a directory has room for releases."""
    free = shutil.disk_usage(directory).free
    said = f"{directory}: {free // MIB:,} MiB are free on its disk"
    if free < LEAST_FREE_BYTES:
        return Finding(what, "fail", f"{said}; make room, or releases stop")
    if free < FEW_FREE_BYTES:
        return Finding(what, "warn", f"{said}; make room soon")
    return Finding(what, "ok", said)


async def redis_room(url: str) -> list[Finding]:
    """Return findings about the memory and the disk of the store's servers."""
    redis = connect(url, connections=1)
    try:
        found = [_memory(place, memory) for place, memory in (await servers_memory(redis)).items()]
        return [*found, await _disk(redis, url)]
    except (RedisError, OSError) as failure:
        return [Finding("redis memory", "warn", f"it cannot be asked ({failure}); grant +info")]
    finally:
        await redis.aclose()


def _memory(place: str, memory: ServerMemory) -> Finding:
    """Return whether a server has room for more releases."""
    what, said = "redis memory", f"{place} uses {memory.used / MIB:,.0f} MiB"
    if memory.limit is None:
        return Finding(what, "warn", f"{said}, and its limit is unknown: watch it where the service is run")
    said += f" of {memory.limit / MIB:,.0f} MiB ({memory.policy or 'policy unknown'})"
    share = memory.used / memory.limit
    if share > NEARLY_FULL:
        return Finding(what, "fail", f"{said}; give it more memory, or releases stop")
    if share > MUCH_USED:
        return Finding(what, "warn", f"{said}; give it more memory soon")
    if memory.resident > _SMALL_BYTES and memory.resident > FRAGMENTED * memory.used:
        spread = f"its process takes {memory.resident / MIB:,.0f} MiB: memory is fragmented"
        return Finding(what, "warn", f"{said}; {spread}; set activedefrag yes, or restart it when it suits")
    return Finding(what, "ok", said)


async def _disk(redis: RoundTrips, url: str) -> Finding:
    """Return whether the disk of the append-only file has room, if that disk is of this machine."""
    what = "redis disk"
    try:
        settings = await execute(redis, "CONFIG GET", "dir")
    except RedisError:
        return Finding(what, "ok", "not checked: this service does not say where its files are")
    [directory] = [Path(_text(value)) for value in dict(settings).values()]
    address, host = redis_address(url), urlsplit(url).hostname
    here = address.kind == "server" and (host is None or is_loopback(host)) and directory.is_dir()
    if not here:
        return Finding(what, "ok", f"not checked: {directory} is on another machine; watch its free space")
    return free_space(what, directory)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
