"""Topics of the same name in two clusters are two logs, and each topic is written where it is configured."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from deploy.kafka.broker import start
from stream_app.kafka.cluster import Cluster
from stream_app.sinks.witness_topic import WitnessTopic
from stream_app.state.embedded import EmbeddedRedis
from tests.brokers import Topic
from tests.e2e.service import Service
from tests.patience import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

CONFIG = """
kafka:
  bootstrap_servers: "{here}"
  group: "{topic}"
  clusters: {{abroad: {{bootstrap_servers: "{abroad}"}}}}
redis: {{url: "{redis}"}}
state: {{dir: ./state}}
publish_every: 250ms
ledger: {{topic: costs, cluster: abroad}}
streams:
  home:
    source: {{topic: {topic}}}
    time: &seconds {{field: at, format: us, bin: 1s, grace: 1s, epoch: 1h, first: "{first}"}}
    privacy: &exact {{epsilon: 1.0e9, not_private: true}}
  away:
    source: {{topic: {topic}, cluster: abroad}}
    time: *seconds
    privacy: *exact
outputs:
  - {{stream: home, topic: {topic}.private, cluster: abroad}}
  - {{stream: away, topic: {topic}.private}}
"""


def test_two_clusters_are_read_and_written_side_by_side(tmp_path: Path, bootstrap_servers: str) -> None:
    other = start(tmp_path / "other", heap="256m")
    try:
        here = asyncio.run(Topic.create(bootstrap_servers))
        abroad = Topic(other.bootstrap_servers, here.name)
        asyncio.run(abroad.create_again())
        with EmbeddedRedis(tmp_path / "redis") as redis:
            _count(tmp_path, redis, here, abroad)
    finally:
        other.stop()


def _count(folder: Path, redis: EmbeddedRedis, here: Topic, abroad: Topic) -> None:
    places = {"here": here.servers, "abroad": abroad.servers, "topic": here.name, "redis": redis.worker_url}
    first = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 5))
    (folder / "app.yaml").write_text(CONFIG.format(first=first, **places))
    for topic, events in ((here, 7), (abroad, 11)):
        value = json.dumps({"at": time.time_ns() // 1000}).encode()
        asyncio.run(topic.send([value] * events))
    _run(folder, "new-ledger")
    doctor = _run(folder, "doctor")
    assert f"kafka.clusters.abroad.bootstrap_servers: {abroad.servers} answers" in doctor, doctor
    assert f"kafka.bootstrap_servers: {here.servers} answers" in doctor, doctor
    with Service(["worker", "--config", "app.yaml"], folder) as worker:
        written = f"{here.name}.private"
        eventually(lambda: _last(abroad.servers, written, "home") == 7, "home is counted, and written abroad")
        eventually(lambda: _last(here.servers, written, "away") == 11, "away is counted, and written at home")
        assert worker.terminate() == 0, worker.output
        # The other cluster is new. Its first answers make the client try again, which is nobody's business.
        told = [json.loads(line) for line in worker.lines]
        assert [line for line in told if line["logger"].startswith("aiokafka")] == []
    assert "costs" in asyncio.run(_topics(abroad.servers))
    assert "costs" not in asyncio.run(_topics(here.servers))


def _run(folder: Path, command: str) -> str:
    """Run a command, which must succeed; return what it prints."""
    with Service([command, "--config", "app.yaml"], folder) as done:
        assert done.wait() == 0, done.output
    return done.output


def _last(servers: str, topic: str, stream: str) -> float:
    """Return the last running count of a stream in a topic for releases; -1 without one."""

    async def read() -> float:
        witness = await WitnessTopic.open(Cluster(servers), topic)
        try:
            rows = await witness.rows(stream, 0)
        finally:
            await witness.close()
        return float(json.loads(rows[-1].row)["estimate"][0]) if rows else -1.0

    return asyncio.run(read())


async def _topics(servers: str) -> list[str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        return list(await admin.list_topics())
    finally:
        await admin.close()
