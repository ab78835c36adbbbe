"""``make engines``: Kafka Streams and Flink SQL count events, and the service counts their rows.

The examples run as they are, against a real broker. Each engine is killed with SIGKILL while events arrive,
and starts again. Every bin and key must equal our own recount, and a stream over the events themselves. It is
not a part of ``make test``, because Maven fetches the engines, and each takes a minute.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from deploy.kafka.broker import JARS, install, jvm, start
from stream_app.config.source import SIGNED_EVENT
from stream_app.core.instants import format_instant
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.reader import RedisReader
from tests.brokers import Topic
from tests.e2e.test_move import worker
from tests.ending import end_all_with_this_run
from tests.patience import eventually
from tests.world.surfaces import view_from

EXAMPLES = Path(__file__).parents[2] / "examples" / "engines"
PARTITIONS, PAGES, EPOCH = 2, ("a", "b", "c"), "7"  # as of an engine that lost its state before
# Flink serialises by reflection.
OPENS = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.util", "java.nio")]
CONFIG = """
kafka: {{bootstrap_servers: "{servers}", group: "{events}"}}
redis: {{url: "{redis}"}}
state: {{dir: ./state}}
publish_every: 250ms
streams:
  clicks:
    source: {{counts: {counts}, origins: {partitions}, group: "topic:{events}"}}
    time: &time {{field: at, format: ms, bin: 1s, grace: 4s, epoch: 1h, first: "{first}"}}
    privacy: {{epsilon: 1.0e9, not_private: true, signed: "{signed}"}}
    keys: &keys {{field: page, list: [a, b]}}
  direct:
    source: {{topic: {events}}}
    time: *time
    privacy: {{epsilon: 1.0e9, not_private: true, accept: measured again}}
    keys: *keys
"""
Cells = Counter[tuple[int, str]]


@dataclass
class Engine:
    """An engine in a process. Args: command, starts it in ``folder``."""

    folder: Path
    command: list[str]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and let it log to engine.log."""
        with (self.folder / "engine.log").open("ab") as log:
            self.process = subprocess.Popen(self.command, cwd=self.folder, stdout=log, stderr=log)

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def kafka_streams(folder: Path, servers: str, events: str, counts: str) -> Engine:
    """Return the example of Kafka Streams."""
    jars = install(JARS.with_name("streams-engine"), EXAMPLES / "streams.xml")
    run = [str(EXAMPLES / "Counts.java"), servers, events, counts, EPOCH]
    return Engine(folder, [*jvm("256m", jars), *run])


def flink_sql(folder: Path, servers: str, events: str, counts: str) -> Engine:
    """Return the example of Flink SQL."""
    jars = install(JARS.with_name("flink-engine"), EXAMPLES / "flink.xml")
    places = {"SERVERS": servers, "EVENTS": events, "COUNTS": counts}
    places |= {"ORIGINS": str(PARTITIONS), "EPOCH": EPOCH}
    java, *options = jvm("700m", jars)
    run = [str(EXAMPLES / "RunSql.java"), str(EXAMPLES / "counts.sql"), "checkpoints"]
    return Engine(folder, [java, *OPENS, *options, *run, *(f"{name}={at}" for name, at in places.items())])


ENGINES: dict[str, Callable[[Path, str, str, str], Engine]] = {
    "Kafka Streams": kafka_streams,
    "Flink SQL": flink_sql,
}


@dataclass
class Sender:
    """Sends events, some of them up to two seconds old, and counts them by hand."""

    topic: Topic
    counts: Cells = field(default_factory=Cells)
    random: random.Random = field(default_factory=lambda: random.Random("events"))

    def send(self, seconds: float) -> None:
        """Send events for some seconds."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            for partition in range(PARTITIONS):
                values = []
                for _ in range(self.random.randrange(50)):
                    at, page = (
                        time.time_ns() // 10**6 - self.random.randrange(2_000),
                        self.random.choice(PAGES),
                    )
                    self.counts[at // 1000, page if page in "ab" else "other"] += 1
                    values.append(json.dumps({"at": at, "page": page}).encode())
                asyncio.run(self.topic.send(values, partition=partition))
            time.sleep(0.1)


def counted(redis: EmbeddedRedis, stream: str) -> tuple[Cells, int]:
    """Return what readers see of a stream by bin and key, and the bin after the last one."""

    async def read() -> tuple[Cells, int]:
        reader = RedisReader(redis.api_url)
        try:
            if await reader.public_state(stream) is None:
                return Cells(), 0
            view, found = await view_from(reader, stream), Cells()
        finally:
            await reader.close()
        if view.span.stop == view.span.start:
            return found, 0
        for page in ("a", "b", "other"):
            points = view.of_key(page).series("bin", view.span)
            for span, number in zip(points.spans, np.rint(points.values).astype(int), strict=True):
                found[span.start, page] = int(number)
        return +found, view.span.stop

    return asyncio.run(read())


def check(name: str, folder: Path, servers: str, redis: EmbeddedRedis) -> str:
    """Count events by an engine that is killed once; return what was found."""
    events = asyncio.run(Topic.create(servers, PARTITIONS, message_timestamp_type="LogAppendTime"))
    rows = Topic(servers, f"{events.name}.counts")
    asyncio.run(rows.create_again())
    places = {"servers": servers, "events": events.name, "counts": rows.name, "partitions": PARTITIONS}
    first = format_instant((int(time.time()) - 5) * 10**6)
    settings = CONFIG.format(**places, redis=redis.worker_url, signed=SIGNED_EVENT, first=first)
    (folder / "app.yaml").write_text(settings)
    engine, sender = ENGINES[name](folder, servers, events.name, rows.name), Sender(events)
    try:
        with worker(folder):
            engine.start()
            sender.send(3)
            eventually(lambda: counted(redis, "clicks")[0], lambda: f"{name} counts: {log_of(folder)}")
            sender.send(5)
            engine.kill()
            sender.send(5)  # these wait in the topic
            engine.start()
            sender.send(5)
            end = int(time.time()) + 1
            streams = "clicks", "direct"
            eventually(
                lambda: all(counted(redis, stream)[1] >= end for stream in streams),
                lambda: log_of(folder),
                0.5,
            )
            for stream in streams:
                found, _ = counted(redis, stream)
                assert found == sender.counts, (name, stream, found - sender.counts, sender.counts - found)
    finally:
        engine.kill()
    return f"{name}: {sender.counts.total()} events, killed once: each bin and page equals the recount"


def log_of(folder: Path) -> str:
    """Return the end of the engine's log."""
    return (folder / "engine.log").read_text(errors="replace")[-3_000:]


def main() -> int:
    """Let each engine count; return 0 if all numbers equal the recount."""
    with TemporaryDirectory(prefix="engines-") as place:
        broker = start(Path(place) / "broker", heap="256m")
        try:
            for name in sys.argv[1:] or ENGINES:
                folder = Path(place) / name.replace(" ", "-")
                folder.mkdir()
                with EmbeddedRedis(folder / "redis") as redis:
                    print(check(name, folder, broker.bootstrap_servers, redis), flush=True)
        finally:
            broker.stop()
    return 0


if __name__ == "__main__":
    end_all_with_this_run()
    sys.exit(main())
