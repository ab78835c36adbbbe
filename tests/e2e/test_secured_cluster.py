"""A Kafka cluster that admits known clients only: over TLS, by password or by certificate."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.kafka import broker
from deploy.ports import free_port
from stream_app.config import load
from stream_app.kafka_cluster import Cluster
from stream_app.sinks.witness_topic import WitnessTopic
from stream_app.state.embedded import EmbeddedRedis
from tests.certificates import write_certificates
from tests.e2e.service import Service
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]

PASSWORD = "hunter2"
OPEN = ("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT")
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"

CONFIG = """
kafka:
  bootstrap_servers: "{servers}"
  group: secured-{protocol}
  security.protocol: {protocol}
  ssl.ca.location: ca.pem
{more}
redis: {{url: "{redis}"}}
state: {{dir: ./state}}
publish_every: 250ms
streams:
  clicks:
    source: {{topic: {topic}, format: json}}
    time: {{field: at, format: ms, bin: 1s, grace: 1s, epoch: 1h}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
outputs: [{{stream: clicks, topic: {topic}.private}}]
"""
HOW = {
    "sasl_ssl": "  sasl.mechanism: PLAIN\n  sasl.username: worker",
    "ssl": "  ssl.certificate.location: worker.pem\n  ssl.key.location: worker.key",
}


@dataclass(frozen=True)
class Secured:
    """A broker with three listeners. Tests use the listener ``plain`` for their own records."""

    plain: str
    doors: dict[str, str]
    folder: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    write_certificates(folder, "broker", "worker", "stranger")
    doors = {"sasl_ssl": f"127.0.0.1:{free_port()}", "ssl": f"127.0.0.1:{free_port()}"}
    listeners = ",".join(f"{name.upper()}://{address}" for name, address in doors.items())
    more = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": ",".join([*OPEN, "SSL:SSL", "SASL_SSL:SASL_SSL"]),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.both"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN_LOGIN} required user_worker="{PASSWORD}";',
    }
    running = broker.start(folder / "kafka", more=more)
    try:
        yield Secured(running.bootstrap_servers, doors, folder)
    finally:
        running.stop()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "redis") as server:
        yield server


def configure(tmp_path: Path, cluster: Secured, protocol: str, redis_url: str) -> str:
    """Write app.yaml beside copies of the certificates; return the topic's name."""
    topic = f"clicks-{protocol}-{time.time_ns()}"
    for file in [*cluster.folder.glob("*.pem"), *cluster.folder.glob("*.key")]:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    values = {"servers": cluster.doors[protocol], "more": HOW[protocol], "protocol": protocol}
    (tmp_path / "app.yaml").write_text(CONFIG.format(**values, topic=topic, redis=redis_url))
    return topic


def environment(password: str) -> dict[str, str]:
    return {"STREAM_APP_KAFKA_SASL_PASSWORD": password}


async def last_count(servers: str, topic: str) -> float:
    witness = await WitnessTopic.open(Cluster(servers), topic)
    try:
        rows = await witness.rows("clicks", 0)
        return float(json.loads(rows[-1][1])["estimate"][0]) if rows else 0.0
    finally:
        await witness.close()


@pytest.mark.parametrize("protocol", list(HOW))
def test_events_are_sent_counted_and_released(
    tmp_path: Path, cluster: Secured, redis: EmbeddedRedis, protocol: str
) -> None:
    topic = configure(tmp_path, cluster, protocol, redis.worker_url)
    create = ["produce", "e.ndjson", "--topic", topic, "--config", "app.yaml", "--partitions", "2"]
    (tmp_path / "e.ndjson").write_text("")
    with Service([*create, "--limit", "0"], tmp_path, environment(PASSWORD)) as sent:
        assert sent.wait() == 0, sent.output
    with Service(["worker", "--config", "app.yaml"], tmp_path, environment(PASSWORD)) as worker:
        deadline, sent_events = time.monotonic() + PATIENCE_S, 0
        while asyncio.run(last_count(cluster.plain, f"{topic}.private")) < 5:
            # Events from before the worker's first bin are refused, so the test sends more from time to time.
            assert time.monotonic() < deadline, worker.output
            (tmp_path / "e.ndjson").write_text(f'{{"at":{time.time_ns() // 10**6}}}\n' * 5)
            with Service(create, tmp_path, environment(PASSWORD)) as sent:
                assert sent.wait() == 0, sent.output
            sent_events += 5
            time.sleep(1)
        worker.process.terminate()
        assert worker.wait() == 0
    assert PASSWORD not in worker.output + sent.output
    written = tmp_path / "clicks.yaml"
    asked = ["init", "--config", f"{written}", "--kafka-from", "app.yaml", "--events", f"topic:{topic}"]
    asked += ["--time", "at", "--user", "none", "--count", "all", "--epsilon", "1", "--bin", "1m"]
    with Service(asked, tmp_path, environment(PASSWORD)) as init:
        assert init.wait() == 0, init.output
    assert "no sample" not in init.output
    assert PASSWORD not in init.output + written.read_text()
    made, given = (load(file, environment(PASSWORD)) for file in (written, tmp_path / "app.yaml"))
    assert made.kafka is not None
    assert given.kafka is not None
    assert made.kafka.clusters == given.kafka.clusters


@pytest.mark.parametrize("command", ["worker", "produce"])
def test_a_wrong_password_is_one_line(
    tmp_path: Path, cluster: Secured, redis: EmbeddedRedis, command: str
) -> None:
    topic = configure(tmp_path, cluster, "sasl_ssl", redis.worker_url)
    (tmp_path / "e.ndjson").write_text("{}\n")
    words = {"worker": ["worker"], "produce": ["produce", "e.ndjson", "--topic", topic]}[command]
    with Service([*words, "--config", "app.yaml"], tmp_path, environment("wrong-one")) as refused:
        assert refused.wait() == 2, refused.output
    assert len(refused.lines) == 1, refused.output
    assert "kafka.security" in refused.output
    assert "wrong-one" not in refused.output
