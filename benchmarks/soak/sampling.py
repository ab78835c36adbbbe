"""What a soak samples: processes, folders, Redis, and how late rows are shown."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
import urllib.request
from collections import defaultdict
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
from redis import Redis

from benchmarks.soak.deployment import EXACT, GRACE_S, INTO_TOPIC, PUBLISH_EVERY_S, STREAMS

# Two of these streams release into a topic.
FOLLOWED = (EXACT, "keys-minute", "sum-long", "users-keys")
_TICKS = os.sysconf("SC_CLK_TCK")


def process_now(pid: int) -> dict[str, float]:
    """Return memory, descriptors, threads and processor time of a process and its children, but of no
    child of this process: these are the service.
    """
    total = {"rss_mb": 0.0, "descriptors": 0.0, "threads": 0.0, "cpu_s": 0.0}
    for one in (pid, *([] if pid == os.getpid() else _children(pid))):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            status = Path(f"/proc/{one}/status").read_text()
            if "VmRSS:" not in status:
                continue  # it has ended, and its parent has not noticed yet
            fields = Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
            total["rss_mb"] += int(status.split("VmRSS:")[1].split()[0]) / 1024
            total["threads"] += int(status.split("Threads:")[1].split()[0])
            total["descriptors"] += len(os.listdir(f"/proc/{one}/fd"))
            total["cpu_s"] += (int(fields[11]) + int(fields[12])) / _TICKS
    return {name: round(value, 2) for name, value in total.items()}


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError):
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found + [below for one in found for below in _children(one)]


def folders_now(folder: Path) -> dict[str, float]:
    """Return the megabytes of each part of a run's folder."""
    sizes = defaultdict[str, int](int)
    for root, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                sizes[_part(Path(root, name).relative_to(folder))] += (
                    os.stat(f"{root}/{name}").st_blocks * 512
                )
    return {part: round(size / 1e6, 3) for part, size in sorted(sizes.items())}


def _part(path: Path) -> str:
    """Return the part of the folder that a file belongs to; each topic is one."""
    match path.parts:
        case ("kafka", "data", topic, *_) if "-" in topic:
            return f"topic {topic.rpartition('-')[0]}"
        case ("state", below, _, *_):
            return f"state/{below}"
        case (first, *_) if first.endswith(("log", "ndjson", "json", "yaml")):
            return "logs of the run"
        case (first, *_):
            return first
    return "other"


class Followers:
    """Readers that follow some streams, and note how long after its public instant each row was read."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._delays = defaultdict[str, list[float]](list)
        self.rows, self.connections = 0, 0

    async def run(self) -> None:
        """Follow until cancelled."""
        await asyncio.gather(*(self._follow(name) for name in FOLLOWED))

    def take(self) -> dict[str, list[float]]:
        """Return the delays since the last call, in milliseconds, by stream."""
        taken, self._delays = self._delays, defaultdict(list)
        return {name: [round(delay * 1000, 1) for delay in delays] for name, delays in taken.items()}

    async def _follow(self, stream: str) -> None:
        while True:
            with contextlib.suppress(OSError, EOFError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
                self.connections += 1
                try:
                    writer.write(
                        f"GET /v1/streams/{stream}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
                    )
                    await self._read(reader, stream, time.time())
                finally:
                    writer.close()
            await asyncio.sleep(1)

    async def _read(self, reader: asyncio.StreamReader, stream: str, began_at: float) -> None:
        while line := await reader.readline():
            if line.startswith(b"data: "):
                read_at, told = time.time(), json.loads(line[6:])
                closed_at = told.get("bin", 0) + 1 + GRACE_S
                if closed_at > began_at:  # not one of the rows from before
                    self.rows += 1
                    instant = (closed_at // PUBLISH_EVERY_S + 1) * PUBLISH_EVERY_S
                    self._delays[stream].append(read_at - instant)


def quantiles(delays: dict[str, list[float]]) -> dict[str, Any]:
    """Return quantiles in milliseconds, apart for streams with a witness file and with a topic."""
    found = {}
    for name, chosen in (("file", False), ("topic", True)):
        values = [one for stream, ones in delays.items() if (stream in INTO_TOPIC) == chosen for one in ones]
        if values:
            found[name] = [round(float(one), 1) for one in np.percentile(values, [50, 90, 99, 100])]
    return found


class Sampler:
    """Takes samples of everything."""

    def __init__(self, folder: Path, pids: dict[str, int], url: str, port: int, operator_port: int) -> None:
        self._folder, self._pids = folder, pids
        self._redis = Redis.from_url(url, protocol=2)
        self._api, self._operator = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{operator_port}"

    async def sample(self) -> dict[str, Any]:
        """Return a sample. It reads like a reader and like Prometheus, so these are part of the load."""
        return {
            "at": round(time.time(), 1),
            "load": os.getloadavg()[0],
            "processes": {name: process_now(pid) for name, pid in self._pids.items()},
            "folders": await asyncio.to_thread(folders_now, self._folder),
            "redis": await asyncio.to_thread(self._store),
            "asked": await asyncio.to_thread(self._ask),
        }

    def _ask(self) -> dict[str, float]:
        began, size, failed = time.perf_counter(), 0, 0
        for path in (f"{self._operator}/metrics", f"{self._api}/metrics"):
            size += len(_get(path) or b"")
        for name in STREAMS:
            failed += _get(f"{self._api}/v1/streams/{name}/count") is None
        return {"metrics_bytes": size, "failed": failed, "all_s": round(time.perf_counter() - began, 3)}

    def _store(self) -> dict[str, float]:
        used = self._redis.info("memory")["used_memory"]
        return {"used_mb": round(used / 1e6, 3), "keys": int(self._redis.execute_command("DBSIZE"))}

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()


def _get(url: str) -> bytes | None:
    """Return the answer; None if there is none within a minute, or another status than 200."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return bytes(answer.read())
    except (OSError, HTTPException):
        return None
