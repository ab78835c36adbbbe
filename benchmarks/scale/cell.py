"""One measurement: workers, a Redis and a broker as separate processes, observed from outside."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import signal
import statistics
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import redis
from confluent_kafka import ConsumerGroupState, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.machine import cpu_s, memory_mb, running
from benchmarks.many import Looking
from benchmarks.scale.points import Point
from deploy.ports import free_port
from stream_app.core.ledger import ACCEPTED
from stream_app.state.connection import batch, connect
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.keys import StreamKeys

PATIENCE_S = 280.0
LOOK_EVERY_S = 0.1  # Redis works for each look, too
GRACE_S = 0.5  # a bin closes so long after its end
WARM_UP = 48_000  # events that are read first, because a worker's first ones cost more
CALM_S = 1.0  # until workers that have read these wait for more
BEFORE_S = 0.1  # a measurement begins and ends so long before a closing instant
LOOKS_AT_MEMORY = 9
SETTLE_S = 30.0  # at most, until a worker that has just started has released all bins that are due
TOKEN = "benchmark-of-scale-0123456789abcdef"
CONFIGURATION = """
redis: {{url: "{redis}", api_url: "{api}"}}
state: {{dir: ./state-{number}}}
secrets: {{key_file: ./noise.key}}
operator: {{port: {port}, token: {token}}}
kafka: {{bootstrap_servers: "{servers}", group: scale}}
streams:
{streams}
"""
STREAM = """
  {name}:
    source: {{topic: {topic}, format: json}}
    time: {{field: at, format: ms, bin: {bin}, grace: {grace}, epoch: {epoch}, first: "{first}"}}
    privacy: {{epsilon: 0.01, accept: {accept}}}
    {keys}
"""


def measured(point: Point, folder: Path, servers: str, seconds: float) -> dict[str, float]:
    """Return the costs of a point: seconds of processor time, memory, and delays.

    Args: seconds, how long a live point is measured.
    """
    topic = f"scale-{random.getrandbits(48):x}"
    _make_topic(servers, topic, point.partitions)
    names = [f"s{number:04}" for number in range(point.streams)]
    producing = Producing(servers, topic, point)
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis(folder / "redis"))
        assert server.process is not None
        _write_noise_key(folder / "noise.key")
        ports = [free_port() for _ in range(point.workers)]
        first_s = _first_s(point)
        streams = _streams(point, folder, topic, names, first_s)
        for number, port in enumerate(ports):
            settings = {"redis": server.worker_url, "api": server.api_url, "token": TOKEN, "port": port}
            text = CONFIGURATION.format(number=number, servers=servers, streams=streams, **settings)
            (folder / f"app-{number}.yaml").write_text(text)
        if point.live:
            stack.enter_context(producing.at(point.events))
        workers = [
            stack.enter_context(running(folder, configuration=f"app-{number}.yaml"))
            for number in range(point.workers)
        ]
        redis_pid, url = server.process.pid, server.worker_url
        if point.live:
            found = asyncio.run(_live(point, names, url, workers, redis_pid, ports, seconds, first_s))
        else:
            found = asyncio.run(_reading(point, names, url, workers, redis_pid, producing))
        # The most so far, of the worker that took most: one may draw the noise of an epoch for every stream.
        most = max(memory_mb(worker.pid, "VmHWM") for worker in workers)
        found |= {"worker_mb": most, "redis_mb": _redis_mb(server.operator_url)}
    _delete_topic(servers, topic)
    return asdict(point) | {"epoch_bins": 3_600 / point.bin_s if point.live else 24} | found


async def _reading(
    point: Point,
    names: Sequence[str],
    url: str,
    workers: Sequence[subprocess.Popen[bytes]],
    redis_pid: int,
    producing: Producing,
) -> dict[str, float]:
    """Observe workers that have started from the moment at which all events wait until these are counted."""
    client, deadline = connect(url), time.monotonic() + PATIENCE_S

    async def positions() -> list[list[int]]:
        asked = [("HVALS", StreamKeys(name).positions) for name in names]
        return [[*map(int, of_stream)] for of_stream in await batch(client, asked)]

    def spent() -> tuple[float, float, float]:
        return time.monotonic(), sum(cpu_s(one.pid) for one in workers), cpu_s(redis_pid)

    async def until(reached: Callable[[list[int]], bool]) -> None:
        while not all(map(reached, await positions())):
            _check(workers)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{point}: not read in time")
            await asyncio.sleep(LOOK_EVERY_S * (1 + point.streams / 100))

    try:
        await until(lambda of_stream: len(of_stream) == point.partitions)
        await asyncio.to_thread(producing.until_divided, len(workers))
        await asyncio.to_thread(producing.send, WARM_UP)
        await until(lambda of_stream: sum(of_stream) >= WARM_UP)
        await asyncio.sleep(CALM_S)
        with frozen(workers):
            await asyncio.to_thread(producing.send, point.events)
        began = spent()
        await until(lambda of_stream: sum(of_stream) >= WARM_UP + point.events)
        seconds, cpu, redis_cpu = np.subtract(spent(), began).tolist()
    finally:
        await client.aclose()
    found = {"seconds": seconds, "cpu_s": cpu, "redis_cpu_s": redis_cpu, "read": point.events}
    return found | {"closings": 0, "rows": 0}


@contextmanager
def frozen(workers: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Let workers do nothing during the block: shorter than the consumer group waits for a silent member."""
    try:
        for one in workers:
            one.send_signal(signal.SIGSTOP)
        yield
    finally:
        for one in workers:
            one.send_signal(signal.SIGCONT)


async def _live(
    point: Point,
    names: Sequence[str],
    url: str,
    workers: Sequence[subprocess.Popen[bytes]],
    redis_pid: int,
    ports: Sequence[int],
    seconds: float,
    first_s: int,
) -> dict[str, float]:
    """Observe while bins close, once every stream has released all bins that were due since the start."""
    looking = Looking(url, names)
    try:
        await _settled(point, looking, workers, first_s)
        delays = _delays(ports)
        # From just before a closing instant to just before another one: whole rounds of closings.
        await asyncio.sleep((GRACE_S - BEFORE_S - time.time()) % point.bin_s)
        closed, at_s = sum(await looking.visible()), time.monotonic()
        spent, redis_spent = sum(cpu_s(one.pid) for one in workers), cpu_s(redis_pid)
        whole_bins = max(2 if point.bin_s < 5 else 1, round(seconds / point.bin_s)) * point.bin_s
        await asyncio.sleep(at_s + whole_bins - time.monotonic())
        spent = sum(cpu_s(one.pid) for one in workers) - spent
        redis_spent = cpu_s(redis_pid) - redis_spent
        past_s, visible = time.monotonic() - at_s, await looking.visible()
        rows, behind = sum(visible), _behind(point, first_s, visible)
    finally:
        await looking.close()
    return {
        "seconds": past_s,
        "cpu_s": spent,
        "redis_cpu_s": redis_spent,
        "read": point.events * past_s,
        "closings": rows - closed,
        "rows": rows,
        "delay_s": _mean(delays, _delays(ports)),
        "behind": max(behind, 0.0),
    }


async def _settled(
    point: Point, looking: Looking, workers: Sequence[subprocess.Popen[bytes]], first_s: int
) -> None:
    """Return once every stream has released all bins that are due, but for the last one."""
    deadline, settle_by = time.monotonic() + PATIENCE_S, float("inf")
    while True:
        _check(workers)
        now_s, visible = time.monotonic(), await looking.visible()
        if min(visible):
            settle_by = min(settle_by, now_s + SETTLE_S)
        if now_s > settle_by or (min(visible) and _behind(point, first_s, visible) <= 1):
            return
        if now_s > deadline:
            raise TimeoutError(f"{point}: not every stream released a bin in time")
        await asyncio.sleep(0.5)


def _behind(point: Point, first_s: int, visible: Sequence[int]) -> float:
    """Return how many bins of a stream are due and not visible, in the mean over the streams."""
    return (time.time() - GRACE_S - first_s) // point.bin_s - sum(visible) / len(visible)


def _first_s(point: Point) -> int:
    """Return where a point's first bin begins."""
    bin_s, back_s = (point.bin_s, 0) if point.live else (3_600, 3_600)
    return (int(time.time()) - back_s) // bin_s * bin_s


class Producing:
    """Sends events of one field of time and one of keys, the same sequence of keys each time."""

    def __init__(self, servers: str, topic: str, point: Point) -> None:
        settings = {"bootstrap.servers": servers, "compression.type": "lz4", "linger.ms": 20}
        self._producer = Producer(settings | {"queue.buffering.max.messages": 1_000_000})
        self._topic, self._keys, self._rng = topic, point.keys, random.Random(7)
        self._partitions = point.partitions
        self._sent = 0
        self._admin = AdminClient({"bootstrap.servers": servers})

    def until_divided(self, workers: int) -> None:
        """Return once so many workers have divided the topic's partitions."""
        group = f"scale.{self._topic}"
        while True:
            found = self._admin.describe_consumer_groups([group])[group].result(30)
            if found.state is ConsumerGroupState.STABLE and len(found.members) == workers:
                return
            time.sleep(LOOK_EVERY_S)

    def send(self, events: int) -> None:
        """Send events dated now, spread over the partitions by thousands, and wait until they are stored."""
        for _ in range(events):
            self._one(self._sent // 1_000)
        if self._producer.flush(120):
            raise KafkaException(f"{self._topic}: not all events were delivered")

    def _one(self, partition: int) -> None:
        value = self.value()
        while True:
            try:
                self._producer.produce(self._topic, value, partition=partition % self._partitions)
                break
            except BufferError:
                self._producer.poll(0.05)
        self._sent += 1

    def value(self) -> bytes:
        """Return the next event."""
        return b'{"at":%d,"key":"k%d"}' % (time.time_ns() // 1_000_000, self._rng.randrange(self._keys))

    @contextmanager
    def at(self, per_s: int) -> Iterator[None]:
        """Send so many events a second during the block, each to the next partition."""
        over = threading.Event()

        def work() -> None:
            began = time.monotonic()
            while not over.wait(0.01):
                for _ in range(int((time.monotonic() - began) * per_s) - self._sent):
                    self._one(self._sent)
                self._producer.poll(0)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self._producer.flush(30)


def _redis_mb(url: str) -> float:
    """Return what Redis has allocated, which ``maxmemory`` limits; its resident memory jumps by megabytes.

    The median of some answers: what a connection or the file's buffer holds for a moment comes and goes.
    """
    found = []
    with redis.Redis.from_url(url) as client:
        for _ in range(LOOKS_AT_MEMORY):
            found.append(float(client.info("memory")["used_memory"]) / 1e6)
            time.sleep(LOOK_EVERY_S)
    return statistics.median(found)


def _write_noise_key(path: Path) -> None:
    """Write the key that workers share, so that each can close what another has prepared."""
    path.touch(mode=0o600)
    path.write_text(base64.b64encode(os.urandom(32)).decode())


def _streams(point: Point, folder: Path, topic: str, names: Sequence[str], first_s: int) -> str:
    keys = ""
    if point.keys > 1:
        (folder / "keys.txt").write_text("".join(f"k{number}\n" for number in range(point.keys)))
        keys = "keys: {field: key, list_file: keys.txt}"
    # No bin of events that wait closes: its grace outlasts the measurement.
    grace = f"{GRACE_S * 1_000:.0f}ms"
    bins = (f"{point.bin_s}s", grace, "1h") if point.live else ("1h", "3h", "1d")
    first = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(first_s))
    values = {
        "topic": topic,
        "bin": bins[0],
        "grace": bins[1],
        "epoch": bins[2],
        "first": first,
        "keys": keys,
    }
    return "".join(STREAM.format(name=name, accept=json.dumps(ACCEPTED), **values) for name in names)


def _check(workers: Sequence[subprocess.Popen[bytes]]) -> None:
    ended = [worker.poll() for worker in workers if worker.poll() is not None]
    if ended:
        raise RuntimeError(f"a worker ended with status {ended[0]}")


def _delays(ports: Sequence[int]) -> tuple[float, float]:
    """Return how many releases there were, and their delays after their closing instants together."""
    found = {"count": 0.0, "sum": 0.0}
    for port in ports:
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        for line in urllib.request.urlopen(asked, timeout=30).read().decode().splitlines():
            for what in found:
                if line.startswith(f"stream_app_release_delay_seconds_{what}"):
                    found[what] += float(line.rpartition(" ")[2])
    return found["count"], found["sum"]


def _mean(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Return the mean delay of the releases between two answers of ``_delays``."""
    return (after[1] - before[1]) / max(after[0] - before[0], 1.0)


def _make_topic(servers: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        done.result(60)


def _delete_topic(servers: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.delete_topics([name]).values():
        done.result(60)
