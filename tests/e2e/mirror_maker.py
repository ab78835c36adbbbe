"""``make mirror``: a stream moves to another cluster by MirrorMaker 2, as docs/how-to/move.md says.

Two real brokers and the page's settings of MirrorMaker. Each event counts once, and the ledger adds up. It is
not a part of ``make test``: MirrorMaker alone takes a minute to start on a busy machine.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from aiokafka.admin import AIOKafkaAdminClient

from deploy.kafka.broker import JARS, install, jvm, start
from stream_app.core.instants import format_instant
from stream_app.core.ledger import statement
from stream_app.state.embedded import EmbeddedRedis
from tests.brokers import Topic
from tests.e2e.test_move import ledger, rows, until, worker
from tests.ending import end_all_with_this_run
from tests.patience import eventually

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "move.md"
COPIES = [  # of topics; each of the clusters is one broker
    "replication.factor",
    *(f"{topic}.topic.replication.factor" for topic in ("heartbeats", "checkpoints", "offset-syncs")),
    *(f"{kept}.storage.replication.factor" for kept in ("offset", "config", "status")),
]
HERE = """
kafka:
  bootstrap_servers: "{old}"
  group: "{topic}"
  clusters: {{new: {{bootstrap_servers: "{new}"}}}}
redis: {{url: "{redis}"}}
state: {{dir: ./state}}
publish_every: 250ms
streams:
  clicks:
    source: {{topic: {topic}}}
    time: {{field: at, format: us, bin: 1s, grace: 3s, epoch: 1h, first: "{first}"}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
"""
THERE = """
  clicks-moved:
    source: {{topic: {topic}, cluster: new, group: "topic:{topic}"}}
    time: {{field: at, format: us, bin: 1s, grace: 15s, epoch: 1h, first: "{edge}"}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
    successor_of: clicks
"""


@contextmanager
def mirrored(folder: Path, old: str, new: str, topic: str) -> Iterator[None]:
    """Copy a topic from one cluster to another with the settings of the page."""
    [settings] = re.findall(r"```properties\n(.*?)```", PAGE.read_text(), re.DOTALL)
    text = settings.replace("old.example.org:9092", old).replace("new.example.org:9092", new)
    text = text.replace("= clicks", f"= {topic}") + "".join(f"{key} = 1\n" for key in COPIES)
    (folder / "mirror.properties").write_text(text)
    jars = install(JARS.with_name("mirror-maker-4.3.0"), Path(__file__).with_suffix(".xml"))
    with (folder / "mirror.log").open("wb") as log:
        command = [*jvm("256m", jars), "org.apache.kafka.connect.mirror.MirrorMaker", "mirror.properties"]
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def move(folder: Path, redis: EmbeddedRedis, old: Topic, new: Topic) -> int:
    """Count in the old cluster until the edge, then in the new one; return how many events were sent."""
    sent: list[int] = []  # the times of all events, in seconds

    def send(topic: Topic, partition: int) -> None:
        now_us = time.time_ns() // 1000
        times = [now_us, now_us, now_us - 10**6]
        sent.extend(at // 10**6 for at in times)
        asyncio.run(topic.send([json.dumps({"at": at}).encode() for at in times], partition=partition))
        time.sleep(0.2)

    def copied() -> bool:
        return new.name in asyncio.run(names_of(new.servers))

    first_s = int(time.time()) - 5
    places = {"old": old.servers, "new": new.servers, "topic": old.name, "redis": redis.worker_url}
    text = HERE.format(first=format_instant(first_s * 10**6), **places)
    (folder / "app.yaml").write_text(text)
    send(old, 0)
    eventually(copied, "MirrorMaker has made the topic")
    with worker(folder):
        send(old, 1)
        eventually(lambda: bool(rows(folder, "clicks")), "the stream counts")
    edge_s = int(time.time()) + 15
    (folder / "app.yaml").write_text(text + THERE.format(edge=format_instant(edge_s * 10**6), **places))
    with worker(folder):
        while time.time() < edge_s + 5:  # beyond the edge and the old stream's grace
            send(old, len(sent) % 2)
        for _ in range(5):  # the programs that write have moved
            send(new, 0)
        end_s = int(time.time()) + 1
        eventually(lambda: until(folder, "clicks-moved", end_s), "the new stream has counted all")
    before, after = rows(folder, "clicks"), rows(folder, "clicks-moved")
    assert (before[-1]["bin"], after[0]["bin"]) == (edge_s - 1, edge_s)
    assert before[-1]["estimate"] == [sum(at < edge_s for at in sent)]
    assert after[-1]["estimate"] == [sum(at >= edge_s for at in sent)]
    entries = asyncio.run(ledger(redis, old))
    assert {entry.stream for entry in entries} == {"clicks", "clicks-moved"}
    assert statement(f"topic:{old.name}", entries).epsilon == 10**9
    return len(sent)


async def names_of(servers: str) -> list[str]:
    """Return the names of a cluster's topics."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        return list(await admin.list_topics())
    finally:
        await admin.close()


def main() -> int:
    """Move a stream between two brokers; return 0 if each event counted once."""
    with TemporaryDirectory(prefix="mirror-") as place:
        folder = Path(place)
        brokers = []
        try:
            for name in ("old", "new"):
                brokers.append(start(folder / name, heap="256m"))
            old, new = (broker.bootstrap_servers for broker in brokers)
            topic = asyncio.run(Topic.create(old, partitions=2))
            with mirrored(folder, old, new, topic.name), EmbeddedRedis(folder / "redis") as redis:
                sent = move(folder, redis, topic, Topic(new, topic.name))
        finally:
            for broker in brokers:
                broker.stop()
    print(f"{sent} events: each counted once, before or after the edge; the ledger adds up")
    return 0


if __name__ == "__main__":
    end_all_with_this_run()
    sys.exit(main())
