"""How fast events arrive over HTTP and are on the disk, and what reading a spool costs beside reading a file.

    python -m benchmarks.receiving [SECONDS]

Requests go to a real listener in another process, over 1 and over 8 connections, with 1 and with 100 records
each. Each reply comes after two syncs (records and batches). A bare sync of two files on the same disk is
measured between them. Then the same records are read as a spool and as a file, in turns.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from deploy.ports import free_port
from stream_app.ports import Source
from stream_app.receiving.known_keys import KnownKeys
from stream_app.receiving.spool_writer import Incoming, SpoolWriter
from stream_app.sources.decode import TimeField
from stream_app.sources.file import FileSource
from stream_app.sources.lines import PARTITION
from stream_app.sources.spool_log import SpoolSource

RESULTS = Path(__file__).parent / "results" / "receiving.json"
LINE = b'{"at": 1700000000000000, "page": "/shop/cart", "country": "FR", "seconds": 12}\n'
RECORDS, ROUNDS = 500_000, 5
CONFIGURATION = """
ingest: {{port: {port}}}
streams:
  clicks:
    source: {{http: clicks}}
    time: {{field: at, format: us, bin: 1m, grace: 30s, epoch: 1d}}
    privacy: {{epsilon: 1.0}}
"""


@contextmanager
def listener(folder: Path) -> Iterator[int]:
    """Run a listener in another process; yield its port."""
    port = free_port()
    (folder / "app.yaml").write_text(CONFIGURATION.format(port=port))
    command = [sys.executable, "-m", "stream_app", "ingest", "--config", "app.yaml"]
    process = subprocess.Popen(command, cwd=folder)
    try:
        yield port
    finally:
        process.terminate()
        process.wait()


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection, as soon as the listener accepts one."""
    while True:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)


async def send(port: int, name: int, records: int, end_s: float) -> list[float]:
    """Send requests over one connection, one after another; return the seconds of each."""
    reader, writer = await connected(port)
    body, took = LINE * records, list[float]()
    while time.perf_counter() < end_s:
        head = (
            f"POST /v1/ingest/clicks HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            f"Idempotency-Key: {name}-{records}-{end_s}-{len(took)}\r\n\r\n"
        )
        began_s = time.perf_counter()
        writer.write(head.encode() + body)
        answered = await reader.readuntil(b"}")
        took.append(time.perf_counter() - began_s)
        assert answered.startswith(b"HTTP/1.1 200"), answered
    writer.close()
    return took


async def arrival(port: int, connections: int, records: int, seconds: float) -> dict[str, float]:
    """Return what some connections achieve that send as fast as they can."""
    (await connected(port))[1].close()
    end_s = time.perf_counter() + seconds
    sent = await asyncio.gather(*(send(port, number, records, end_s) for number in range(connections)))
    took = np.concatenate(sent) * 1e3
    return {
        "connections": connections,
        "records_per_request": records,
        "requests_per_s": round(len(took) / seconds),
        "records_per_s": round(len(took) * records / seconds),
        "median_ms": round(float(np.median(took)), 2),
        "p99_ms": round(float(np.quantile(took, 0.99)), 2),
    }


def bare_syncs(folder: Path, seconds: float) -> dict[str, float]:
    """Return how long a write and a sync of two files take, without a listener."""
    files = [os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in ("a", "b")]
    took, end_s = list[float](), time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        began_s = time.perf_counter()
        for file in files:
            os.write(file, LINE)
        for file in files:
            os.fdatasync(file)
        took.append((time.perf_counter() - began_s) * 1e3)
    return {"median_ms": round(median(took), 2), "p99_ms": round(float(np.quantile(took, 0.99)), 2)}


async def read(source: Source) -> float:
    """Return the seconds in which a source yields all records."""
    position = records = 0
    began_s = time.perf_counter()
    while records < RECORDS:
        for batch in await source.read({PARTITION: position}, 1.0):
            position, records = batch.end, records + len(batch.positions)
    took_s = time.perf_counter() - began_s
    await source.close()
    return took_s


def reading(folder: Path) -> dict[str, float]:
    """Return how many records a second are read from a spool and from a file."""
    (folder / "events.ndjson").write_bytes(LINE * RECORDS)
    writer = SpoolWriter(folder / "spool", 1 << 40, KnownKeys(0, 1))
    for _ in range(RECORDS // 1_000):
        writer.append([Incoming(LINE * 1_000)])
    writer.close()
    at, of_file, of_spool = TimeField("at", "us"), list[float](), list[float]()
    for number in range(ROUNDS):
        file = FileSource(folder / "events.ndjson", "ndjson", at, folder / f"notes-{number}")
        of_file.append(asyncio.run(read(file)))
        of_spool.append(asyncio.run(read(SpoolSource(folder / "spool", at, folder / "notes"))))
    ratios = [spool / file for spool, file in zip(of_spool, of_file, strict=True)]
    return {
        "file_records_per_s": round(RECORDS / median(of_file)),
        "spool_records_per_s": round(RECORDS / median(of_spool)),
        "spool_seconds_per_file_second": round(median(ratios), 2),
    }


def main() -> None:
    """Measure arrival and reading; print and store both."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 8.0
    arrivals = []
    with TemporaryDirectory(dir=RESULTS.parent) as name:
        folder = Path(name)
        with listener(folder) as port:
            for connections, records in ((1, 1), (8, 1), (1, 100), (8, 100)):
                arrivals.append(asyncio.run(arrival(port, connections, records, seconds)))
            syncs = bare_syncs(folder, seconds)
        results = {"arrival": arrivals, "two_syncs": syncs, "reading": reading(folder)}
    print(json.dumps(results, indent=1))
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
