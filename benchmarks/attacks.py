"""How long a reader waits while another address attacks the API; JSON under results/.

    python -m benchmarks.attacks [SECONDS [ATTACK ...]]       (a part of make bench-api)

The service runs in separate processes. It serves a stream of 300 keys and a stream of windows. A reader at
127.0.0.2 asks five counts a second. Attackers at 127.0.0.1 have one processor for themselves, with lower
priority. A count's time begins at the instant at which it was due. All attacks follow each other on one
running service.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import running
from deploy.ports import free_port

RESULTS = Path(__file__).parent / "results" / "attacks.json"
SECONDS, ASKS_PER_S = 20.0, 5.0
READER, KEYS, HOURS = "127.0.0.2", 300, 240
START_S = 1_704_067_200  # 2024-01-01T00:00:00Z
CONFIGURATION = """
api: {{port: {port}}}
streams:
  many:
    source: {{file: a.ndjson, replay: {{from: 2024-01-01T00:00:00Z, to: 2024-01-11T00:00:00Z}}}}
    time: {{field: at, format: iso8601, bin: 1h, epoch: 10d}}
    privacy: {{epsilon: 1.0}}
    keys: {{field: k, list: {keys}}}
  windows:
    source: {{file: b.ndjson, replay: {{from: 2024-01-01T00:00:00Z, to: 2024-01-11T00:00:00Z}}}}
    time: {{field: at, format: iso8601, bin: 1h, epoch: 10d}}
    privacy: {{epsilon: 1.0}}
    value: {{field: v, min: 0, max: 100, buckets: 64, mode: window, window: 1d, mechanism: hb}}
"""
FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"
QUESTIONS = (
    "/v1/streams/many/series?key=k{key:05}&confidence=0.9{random}",
    "/v1/streams/many/keys?step=2&limit=48&confidence=0.9{random}",
    "/v1/streams/many/preview?epsilon=0.{random}1",
    "/v1/streams/many/count?confidence=0.9{random}",
    '/api/v1/query_range?query=private_counts_key_bin{{stream="many"}}&start=1704067200&end=1704500000&step=36000',
    "/metrics",
)


@contextlib.contextmanager
def service(directory: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the service for the block, with its history released."""
    keys = [f"k{number:05}" for number in range(KEYS)]
    for first, name in enumerate(("a.ndjson", "b.ndjson")):  # equal files would be one log
        events = (
            json.dumps({"at": f"2024-01-0{1 + n % 9}T{n % 24:02}:00:00Z", "k": keys[n % KEYS], "v": n % 100})
            for n in range(first, first + 500)
        )
        (directory / name).write_text("\n".join(events) + "\n")
    (directory / "app.yaml").write_text(CONFIGURATION.format(port=port, keys=json.dumps(keys)))
    with running(directory, "run") as process:
        _wait_for_history(port)
        yield process


def _wait_for_history(port: int) -> None:
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        with contextlib.suppress(OSError, urllib.error.HTTPError):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/streams", timeout=5) as answer:
                seqs = {one["stream"]: one["seq"] for one in json.load(answer)["streams"]}
            if seqs == {"many": HOURS, "windows": HOURS}:
                return
        time.sleep(0.2)
    raise AssertionError("the history was not released in two minutes")


# -- the reader --------------------------------------------------------------------------------------


async def reader_times_s(
    port: int, seconds: float, per_s: float = ASKS_PER_S, patience_s: float = 60.0
) -> list[float]:
    """Ask counts at a fixed pace from a separate address, each over a new connection; return their times.

    Raises: TimeoutError if one answer takes longer than the patience.
    """
    times_s: list[float] = []

    async def one(due_s: float, number: int) -> None:
        path = f"/v1/streams/many/count?start={START_S + 3600 * (number % 50)}"
        status = await asyncio.wait_for(_ask(port, path, READER), patience_s)
        assert status == 200, status
        times_s.append(time.perf_counter() - due_s)

    start_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(seconds * per_s)):
            due_s = start_s + number / per_s
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            group.create_task(one(due_s, number))
    return times_s


async def _ask(port: int, path: str, address: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        return int(answer[9:12])
    finally:
        writer.close()


# -- attackers ---------------------------------------------------------------------------------------

Attacker = Callable[[int], Awaitable[None]]


async def _exchange(port: int, request: Callable[[], bytes]) -> None:
    """Send one request after another over a connection. Open a new connection when it is closed."""
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.01)
            continue
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
            while True:
                writer.write(request())
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or b"0"))
                if b"connection: close" in head:
                    break
        writer.close()


def _get(path: str, host: str = "localhost") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


def _selectors() -> bytes:
    body = "&".join(f'match[]={{a=~"x{random.randrange(10**6)}"}}' for _ in range(16)).encode()
    many = "&".join(f'match[]={{a=~"x{number}"}}' for number in range(600)).encode()
    body = random.choice((body, many[:16_000]))
    return (
        b"POST /api/v1/series HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n" % (FORM, len(body))
    ) + body


def _question() -> bytes:
    numbers = {"key": random.randrange(KEYS), "random": random.randrange(10**6)}
    return _get(random.choice(QUESTIONS).format(**numbers).replace('"', "%22"))


async def _crowd(port: int, request: Callable[[], bytes], connections: int = 100) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(_exchange(port, request))


async def _held(port: int, sent: bytes, connections: int = 1_500) -> None:
    """Open connections, send the same part of a request over each, and replace the closed ones."""

    async def one() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(sent)
                while await reader.read(65_536):
                    pass
                writer.close()
            await asyncio.sleep(random.uniform(0.0, 0.2))

    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(one())


ATTACKS: dict[str, Attacker | None] = {
    "nobody attacks": None,
    "match[]": lambda port: _crowd(port, _selectors),
    "window confidence": lambda port: _crowd(
        port,
        lambda: _get(
            "/v1/streams/windows/window?confidence="
            + random.choice(("0.5", "0.8", "0.9", "0.975", "0.98", "0.99", f"0.9{random.randrange(10**6)}"))
        ),
    ),
    "every long question": lambda port: _crowd(port, _question),
    "half-open connections": lambda port: _held(port, b"GET /v1/streams HTTP/1.1\r\nHost: localhost\r\nX: "),
    "slow bodies": lambda port: _held(
        port,
        b"POST /api/v1/query HTTP/1.1\r\nHost: localhost\r\n" + FORM + b"Content-Length: 9000\r\n\r\nquery",
    ),
    "many followers": lambda port: _held(port, _get("/v1/streams/many/events?after=0")),
    "keep-alive flood": lambda port: _crowd(port, lambda: _get("/v1/streams")),
    "bad hosts": lambda port: _crowd(port, lambda: _get("/v1/streams", "evil.example")),
}


@contextlib.contextmanager
def attacked(port: int, name: str) -> Iterator[None]:
    """Let another process attack for the block."""
    if ATTACKS[name] is None:
        yield
        return
    command = [sys.executable, "-m", "benchmarks.attacks", "attack", name, str(port)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1]) as process:
        try:
            time.sleep(1.0)
            yield
            assert process.poll() is None, "the attacker has ended"
        finally:
            process.kill()


def _attack(name: str, port: int) -> None:
    """Attack until killed, on one processor and with lower priority than the service."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.nice(5)
    attacker = ATTACKS[name]
    assert attacker is not None

    async def run() -> None:
        await attacker(port)

    asyncio.run(run())


def described(times_s: list[float]) -> dict[str, Any]:
    """Return the statistics of a reader's times."""
    milliseconds = np.array(times_s) * 1e3
    return {
        "counts": len(times_s),
        "median_ms": round(float(np.median(milliseconds)), 2),
        "p99_ms": round(float(np.quantile(milliseconds, 0.99)), 2),
        "most_ms": round(float(milliseconds.max()), 2),
    }


def measured(seconds: float, *names: str) -> dict[str, Any]:
    """Return the measurements of some attacks. Args: names, of the attacks; none means all."""
    port = free_port()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, service(Path(name), port):
        asyncio.run(reader_times_s(port, 2.0))
        for attack in names or ATTACKS:
            with attacked(port, attack):
                found[attack] = described(asyncio.run(reader_times_s(port, seconds)))
            print(attack, json.dumps(found[attack]), flush=True)
            time.sleep(1.0)
    return found


def main() -> None:
    """Measure attacks and write the results beside those of the other attacks; or run one attack."""
    match sys.argv[1:]:
        case ["attack", name, port]:
            _attack(name, int(port))
        case given:
            known = json.loads(RESULTS.read_text())["attacks"] if len(given) > 1 else {}
            found = measured(float(given[0]) if given else SECONDS, *given[1:])
            result: dict[str, Any] = {"processors": os.cpu_count(), "attacks": known | found}
            result["waiting_for_one"] = round(os.getloadavg()[0], 1)
            RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
