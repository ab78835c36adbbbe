"""The API under followers and questions while bins close; JSON under results/.

    python -m benchmarks.api            (make bench-api)

A service of its own process serves one stream with a bin a second from memory-backed Redis; another process
holds 500 followers of server-sent events and asks 200 range counts a second. Every follower drops its
connection now and then and resumes. Measured: the time of a count as its asker sees it, and whether any
follower missed or doubled a release.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np

RESULTS = Path(__file__).parent / "results" / "api.json"
FOLLOWERS, QUESTIONS_PER_S, SECONDS = 500, 200, 30
RESUME_EVERY_S = 10.0
CONFIGURATION = """
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: iso8601, bin: 1s, grace: 200ms, epoch: 1h}}
    privacy: {{epsilon: 1.0}}
api: {{port: {port}}}
"""


@contextlib.contextmanager
def service(directory: Path, port: int):  # type: ignore[no-untyped-def]
    """Run the service until this is left."""
    (directory / "clicks.ndjson").touch()
    (directory / "app.yaml").write_text(CONFIGURATION.format(port=port))
    command = [sys.executable, "-m", "stream_app", "run", "--config", "app.yaml"]
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(20)


class Followers:
    """Many followers over plain sockets: what costs time here must be the service."""

    def __init__(self, port: int, stream: str) -> None:
        self.seen: list[list[int]] = [[] for _ in range(FOLLOWERS)]
        self._port, self._stream = port, stream

    async def follow(self, number: int) -> None:
        """Follow until cancelled, resuming after every few seconds."""
        await asyncio.sleep(number / FOLLOWERS * RESUME_EVERY_S)  # not all at the same moment
        after = 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESUME_EVERY_S):
                    async for seq in self._connection(after):
                        self.seen[number].append(seq)
                        after = seq

    async def _connection(self, after: int) -> AsyncIterator[int]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            path = f"/v1/streams/{self._stream}/events?after={after}"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            while line := await reader.readline():
                if line.startswith(b"id: "):
                    yield int(line[4:])
        finally:
            writer.close()


async def ask(client: httpx.AsyncClient, until_s: float) -> tuple[list[float], int]:
    """Ask range counts at a fixed pace; return their times and how many failed.

    A question is timed from the instant at which it was due, so a service that stalls is not spared.
    """
    times_s: list[float] = []
    failed = 0
    start_s, number = time.perf_counter(), 0
    summary = (await client.get("/v1/streams/clicks")).json()
    first = int(datetime.fromisoformat(summary["start"]).astimezone(UTC).timestamp())

    async def one(due_s: float, seed: int) -> None:
        nonlocal failed
        answer = await client.get(
            "/v1/streams/clicks/count", params={"start": first + seed % 3, "end": first + 4 + seed % 5}
        )
        times_s.append(time.perf_counter() - due_s)
        failed += answer.status_code != 200

    async with asyncio.TaskGroup() as group:
        while time.perf_counter() < until_s:
            due_s = start_s + number / QUESTIONS_PER_S
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            group.create_task(one(due_s, number))
            number += 1
    return times_s, failed


async def measured(port: int) -> dict[str, Any]:
    """Measure a running service."""
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=30) as client:
        await _bins(client, 12)
        followers = Followers(port, "clicks")
        tasks = [asyncio.create_task(followers.follow(number)) for number in range(FOLLOWERS)]
        await asyncio.sleep(RESUME_EVERY_S + 2)
        await ask(client, time.perf_counter() + 2)  # connections are open, answers warm
        times_s, failed = await ask(client, time.perf_counter() + SECONDS)
        seq = (await client.get("/v1/streams/clicks")).json()["seq"]
        await asyncio.sleep(3)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    whole = sum(
        seen[:seq] == list(range(1, seq + 1)) and sorted(set(seen)) == seen for seen in followers.seen
    )
    milliseconds = np.array(times_s) * 1e3
    return {
        "followers": FOLLOWERS,
        "followers_that_saw_every_release_once": whole,
        "releases": seq,
        "questions": len(times_s),
        "questions_per_s": QUESTIONS_PER_S,
        "failed": failed,
        "median_ms": round(float(np.median(milliseconds)), 2),
        "p99_ms": round(float(np.quantile(milliseconds, 0.99)), 2),
        "most_ms": round(float(milliseconds.max()), 2),
    }


async def _bins(client: httpx.AsyncClient, wanted: int) -> None:
    """Wait until so many bins are released."""
    for _ in range(1_800):
        with contextlib.suppress(httpx.TransportError, KeyError):
            if (await client.get("/v1/streams/clicks")).json()["seq"] >= wanted:
                return
        await asyncio.sleep(0.1)
    raise AssertionError("the service released nothing in three minutes")


def main() -> None:
    """Measure, write the result."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with tempfile.TemporaryDirectory() as name, service(Path(name), port):
        result = asyncio.run(measured(port))
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
