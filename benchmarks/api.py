"""The API with many followers and questions while bins close; JSON under results/.

    python -m benchmarks.api            (make bench-api)

The service runs in separate processes. It serves one stream with a bin a second from its embedded Redis.
Another process holds 500 followers of server-sent events, and this process asks 200 range counts a second.
Every follower drops its connection now and then and resumes. Measured are the time of a count as a client
sees it, whether a follower missed a release or got it twice, and the processor time of the API's process.
Clients use plain sockets, so that nearly all time is the service's. The machine should otherwise be idle; the
result states how busy it was. On a busy machine ``chrt -r 1 make bench-api`` gives the benchmark priority.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import children, cpu_s, running
from deploy.ports import free_port

RESULTS = Path(__file__).parent / "results" / "api.json"
FOLLOWERS, QUESTIONS_PER_S, SECONDS = 500, 200, 30
ASKERS = 32
RESUME_EVERY_S = 10.0
WARM_UP_S = 3.0
CONFIGURATION = """
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: iso8601, bin: 1s, grace: 200ms, epoch: 1h}}
    privacy: {{epsilon: 1.0}}
api:
  port: {port}
  limits: {{connections: 2000, connections_per_address: 1000, followers: 1000}}  # all have one address
"""


def get(port: int, path: str) -> Any:
    """Return the answer to a request."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return json.load(answer)


class Followers:
    """Many followers over plain sockets."""

    def __init__(self, port: int, stream: str) -> None:
        self.seen: list[list[int]] = [[] for _ in range(FOLLOWERS)]
        self.arrived_s: dict[int, list[float]] = defaultdict(list)  # by seq
        self._port, self._stream, self._began_s = port, stream, time.perf_counter()

    def lag_ms(self) -> float:
        """Return how long after the first follower 99 of 100 have a release, over all releases."""
        lags = [np.array(times) - min(times) for times in self.arrived_s.values()]
        return round(1e3 * float(np.quantile(np.concatenate(lags), 0.99)), 2)

    async def follow(self, number: int) -> None:
        """Follow the stream until cancelled; drop the connection every few seconds and resume."""
        await asyncio.sleep(number / FOLLOWERS * RESUME_EVERY_S)  # not all at the same moment
        seen, loop = self.seen[number], asyncio.get_running_loop()
        reading = partial(_Reading, partial(self._note, seen))
        while True:
            transport, _ = await loop.create_connection(reading, "127.0.0.1", self._port)
            path = f"/v1/streams/{self._stream}/events?after={seen[-1] if seen else 0}"
            transport.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            try:
                await asyncio.sleep(RESUME_EVERY_S)
            finally:
                transport.close()

    def _note(self, seen: list[int], seq: int) -> None:
        seen.append(seq)
        now_s = time.perf_counter()
        if now_s - self._began_s > RESUME_EVERY_S + 1:  # all follow
            self.arrived_s[seq].append(now_s)


class _Reading(asyncio.Protocol):
    """Calls a function with the seq of each release that arrives, at once: a reader's task would wait."""

    def __init__(self, note: Callable[[int], None]) -> None:
        self._note, self._rest = note, b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"id: "):
                self._note(int(line[4:]))


async def followed(port: int) -> None:
    """Hold followers until standard input gives the last seq; print what they saw."""
    followers = Followers(port, "clicks")
    tasks = [asyncio.create_task(followers.follow(number)) for number in range(FOLLOWERS)]
    seq = int(await asyncio.to_thread(sys.stdin.readline))
    await asyncio.sleep(3)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    whole = sum(
        seen[:seq] == list(range(1, seq + 1)) and sorted(set(seen)) == seen for seen in followers.seen
    )
    print(json.dumps({"saw_every_release_once": whole, "lag_p99_ms": followers.lag_ms()}))


class Asker:
    """A connection over which questions are asked one by one."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str) -> int:
        """Send a question; return the status once the whole answer has arrived."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
        )
        await reader.readexactly(length)
        return int(head[9:12])


async def asked(port: int, seconds: float) -> tuple[list[float], int]:
    """Ask range counts at a fixed pace; return their times and how many failed.

    A time is counted from the instant at which the question was due, so a pause of the service counts too.
    """
    times_s: list[float] = []
    failed = 0
    first = int(datetime.fromisoformat(get(port, "/v1/streams/clicks")["start"]).astimezone(UTC).timestamp())
    idle: asyncio.Queue[Asker] = asyncio.Queue()
    for _ in range(ASKERS):
        idle.put_nowait(Asker(port))
    start_s = time.perf_counter()

    async def one(due_s: float, number: int) -> None:
        nonlocal failed
        asker = await idle.get()
        path = f"/v1/streams/clicks/count?start={first + number % 3}&end={first + 4 + number % 5}"
        failed += await asker.ask(path) != 200
        idle.put_nowait(asker)
        times_s.append(time.perf_counter() - due_s)

    async with asyncio.TaskGroup() as group:
        for number in range(int(seconds * QUESTIONS_PER_S)):
            due_s = start_s + number / QUESTIONS_PER_S
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            group.create_task(one(due_s, number))
    return times_s, failed


def measured(port: int, api: int) -> dict[str, Any]:
    """Return the measurements of a running service. Args: api, the process that answers."""
    command = [sys.executable, "-m", "benchmarks.api", str(port)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    ) as holding:
        time.sleep(RESUME_EVERY_S + 4)
        asyncio.run(asked(port, WARM_UP_S))
        before_s, start_s, load = cpu_s(api), time.perf_counter(), machine_cpu_s()
        times_s, failed = asyncio.run(asked(port, SECONDS))
        took_s = time.perf_counter() - start_s
        share, busy = (cpu_s(api) - before_s) / took_s, (machine_cpu_s() - load) / took_s
        seq = get(port, "/v1/streams/clicks")["seq"]
        followers = json.loads(holding.communicate(f"{seq}\n", timeout=60)[0])
    milliseconds = np.array(times_s) * 1e3
    return {
        "followers": FOLLOWERS,
        "followers_that_saw_every_release_once": followers["saw_every_release_once"],
        "followers_lag_p99_ms": followers["lag_p99_ms"],
        "releases": seq,
        "questions": len(times_s),
        "questions_per_s": QUESTIONS_PER_S,
        "failed": failed,
        "median_ms": round(float(np.median(milliseconds)), 2),
        "p99_ms": round(float(np.quantile(milliseconds, 0.99)), 2),
        "most_ms": round(float(milliseconds.max()), 2),
        "processors": os.cpu_count(),
        "processors_of_the_api": round(share, 2),
        "processors_of_the_machine": round(busy, 2),
        "waiting_for_one": round(os.getloadavg()[0], 1),
        "before_others": os.sched_getscheduler(0) != os.SCHED_OTHER,  # chrt, on a machine that others use
    }


def machine_cpu_s() -> float:
    """Return the processor time that all processes of the machine have taken."""
    user, nice, system = (int(word) for word in Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def wait_for_bins(port: int, wanted: int) -> None:
    """Wait until this many bins are released."""
    for _ in range(1_800):
        with contextlib.suppress(OSError, KeyError):
            if get(port, "/v1/streams/clicks")["seq"] >= wanted:
                return
        time.sleep(0.1)
    raise AssertionError("the service released nothing in three minutes")


def main() -> None:
    """Measure and write the result."""
    if len(sys.argv) > 1:
        asyncio.run(followed(int(sys.argv[1])))
        return
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "clicks.ndjson").touch()
        (folder / "app.yaml").write_text(CONFIGURATION.format(port=port))
        with running(folder, "run") as service:
            wait_for_bins(port, 12)
            result = measured(port, children(service.pid)["api"])
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
