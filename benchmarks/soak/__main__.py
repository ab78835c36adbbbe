"""A soak of the whole service, sampled every ten seconds; JSON under results/, a picture under docs/figures.

    python -m benchmarks.soak [--folder state/soak] [--seconds 7200]        (make soak SOAK_SECONDS=7200)
    python -m benchmarks.soak --report [--folder state/soak]

A real broker, a Redis, one worker and one API run in separate processes. The worker counts 20 streams with
bins of one second over one topic; epochs of one to ten minutes roll over. The folder keeps everything, so
another call goes on where the last one ended, and the report adds their hours. At the end of each run the
exact stream (its noise is far below one event) is compared with what the producer has sent, bin by bin.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import commit, running
from benchmarks.soak.deployment import EXACT, GRACE_S, STREAMS, Producer, configuration, make_topic, ports_of
from benchmarks.soak.report import write_report
from benchmarks.soak.sampling import Followers, Sampler, quantiles
from deploy.kafka import broker
from stream_app.state.embedded import EmbeddedRedis

SAMPLE_EVERY_S = 10.0
AT_ONCE = 500  # bins in one question
PATIENCE_S = 600.0


async def soak(folder: Path, seconds: float) -> None:
    """Run the deployment and write samples into its folder. SIGTERM and SIGINT end it early."""
    port, operator_port = ports_of(folder)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    cluster = await asyncio.to_thread(broker.start, folder / "kafka")
    redis = EmbeddedRedis(folder / "redis")
    redis.start()
    try:
        await make_topic(cluster.bootstrap_servers)
        (folder / "app.yaml").write_text(configuration(cluster.bootstrap_servers, redis, port, operator_port))
        with running(folder) as worker, running(folder, "api") as api:
            await _until_all_count(port, (worker, api))
            assert redis.process is not None
            pids = {"worker": worker.pid, "api": api.pid, "redis": redis.process.pid}
            pids |= {"broker": cluster.process.pid, "producer": os.getpid()}
            sampler = Sampler(folder, pids, redis.operator_url, port, operator_port)
            try:
                await _sampled(folder, seconds, ended, cluster.bootstrap_servers, sampler, port)
            finally:
                sampler.close()
            exact = await asyncio.to_thread(compared, folder, port)
            _append(folder / "runs.ndjson", {"ended": round(time.time(), 1), "exact": exact})
    finally:
        redis.stop()
        cluster.stop()


async def _sampled(
    folder: Path, seconds: float, ended: asyncio.Event, servers: str, sampler: Sampler, port: int
) -> None:
    """Produce, follow and sample until the time is over, then let the worker count what was sent."""
    producer, followers = Producer(servers, seed=int(time.time())), Followers(port)
    tasks = [asyncio.create_task(producer.run()), asyncio.create_task(followers.run())]
    run, began = round(time.time()), time.monotonic()
    _append(folder / "runs.ndjson", {"began": run, "commit": commit()})
    known = Counter[int]()
    try:
        while (past_s := time.monotonic() - began) < seconds and not ended.is_set():
            with contextlib.suppress(TimeoutError):
                next_s = SAMPLE_EVERY_S - past_s % SAMPLE_EVERY_S
                await asyncio.wait_for(ended.wait(), next_s)
            for task in tasks:
                if task.done():
                    task.result()
            delays = followers.take()
            sample = {"run": run, "past_s": round(time.monotonic() - began, 1)} | await sampler.sample()
            sample |= {"delays_ms": quantiles(delays), "rows": followers.rows}
            sample |= {"connections": followers.connections, "slowest_send_s": round(producer.slowest_s, 3)}
            _append(folder / "samples.ndjson", sample)
            _append(folder / "delays.ndjson", {"run": run, "past_s": sample["past_s"], "ms": delays})
            known = _note_sent(folder, producer, known)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        _note_sent(folder, producer, known)


def _note_sent(folder: Path, producer: Producer, known: Counter[int]) -> Counter[int]:
    """Write how many events were sent since the last call; return how many there are in all."""
    now = producer.sent.copy()
    _append(folder / "sent.ndjson", {str(bin): number for bin, number in sorted((now - known).items())})
    return now


def compared(folder: Path, port: int) -> dict[str, Any]:
    """Compare the exact stream with what was sent, of all runs of this folder."""
    sent = Counter[int]()
    for line in (folder / "sent.ndjson").read_text().splitlines():
        sent.update({int(bin): number for bin, number in json.loads(line).items()})
    last, until = max(sent), time.monotonic() + PATIENCE_S
    while _visible_end(port, EXACT) <= last + GRACE_S and time.monotonic() < until:
        time.sleep(1)
    counted, first = Counter[int](), min(sent)
    for start in range(first, _visible_end(port, EXACT), AT_ONCE):
        end = min(start + AT_ONCE, _visible_end(port, EXACT))
        asked = urllib.parse.urlencode({"kind": "bin", "start": _text(start), "end": _text(end)})
        found = _read(port, f"/v1/streams/{EXACT}/series?{asked}")
        counted.update(dict(zip(range(start, end), map(round, found["value"]), strict=True)))
    differ = [bin for bin in sent.keys() | counted.keys() if sent[bin] != counted[bin]]
    return {
        "sent": sent.total(),
        "counted": counted.total(),
        "bins": len(counted),
        "bins_that_differ": len(differ),
    }


async def _until_all_count(port: int, processes: tuple[subprocess.Popen[bytes], ...]) -> None:
    """Wait until every stream has shown a row of the last ten seconds."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        await asyncio.sleep(1)
        if any(child.poll() is not None for child in processes):
            raise SystemExit("a process of the service has ended: read worker.log and api.log")
        with contextlib.suppress(OSError, KeyError, ValueError, TypeError):
            ends = await asyncio.to_thread(lambda: [_visible_end(port, name) for name in STREAMS])
            if min(ends) > time.time() - 10:
                return
    raise SystemExit("not all streams show rows")


def _visible_end(port: int, stream: str) -> int:
    """Return the first second that a stream does not show yet."""
    return round(datetime.fromisoformat(_read(port, f"/v1/streams/{stream}")["released_until"]).timestamp())


def _read(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return json.load(answer)


def _text(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _append(path: Path, row: object) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def main() -> None:
    """Run, and report all runs of the folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("state/soak"))
    parser.add_argument("--seconds", type=float, default=7200)
    parser.add_argument("--report", action="store_true", help="write the report of the runs so far")
    asked = parser.parse_args()
    folder = asked.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if not asked.report:
        asyncio.run(soak(folder, asked.seconds))
    write_report(folder)


if __name__ == "__main__":
    main()
