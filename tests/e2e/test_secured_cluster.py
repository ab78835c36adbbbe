"""A Kafka cluster that admits known clients only: by password, certificate, or tokens of an OpenID provider.

The broker verifies tokens itself.
"""

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
from stream_app.kafka.cluster import Cluster
from stream_app.kafka.topics import topic_facts
from stream_app.ports import OperatorError
from stream_app.sinks.witness_topic import WitnessTopic
from stream_app.state.embedded import EmbeddedRedis
from tests.certificates import write_certificates
from tests.e2e.service import Service
from tests.openid import AUDIENCE, CLIENT, SECRET, Provider, providing
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]

PASSWORD = "hunter2-of-the-worker"
SECURITY = "org.apache.kafka.common.security"
DOORS = ("ssl", "sasl_ssl", "sasl_plaintext")
CONFIG = """
kafka:
  bootstrap_servers: "{servers}"
  group: secured
  security.protocol: {door}
{login}
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
TLS = "  ssl.ca.location: ca.pem\n"
TOKEN = "  sasl.mechanism: OAUTHBEARER\n  sasl.oauthbearer."
OF_CLIENT = f"""  sasl.oauthbearer.client.id: {CLIENT}
  sasl.oauthbearer.token.endpoint.url: {{url}}
  sasl.oauthbearer.scope: topics"""
HOW = {  # the listener, and what the configuration says beside it
    "password": ("sasl_ssl", f"{TLS}  sasl.mechanism: PLAIN\n  sasl.username: worker"),
    "certificate": (
        "ssl",
        f"{TLS}  ssl.certificate.location: worker.pem\n  ssl.key.location: worker.key",
    ),
    "token of a client": ("sasl_plaintext", f"{TOKEN}method: oidc\n{OF_CLIENT}"),
    "token in a file": ("sasl_plaintext", f"{TOKEN}token.file: token"),
}


@dataclass(frozen=True)
class Secured:
    """A broker with three listeners. Tests use the listener ``plain`` for their own records."""

    plain: str
    doors: dict[str, str]
    folder: Path
    provider: Provider

    def configure(self, folder: Path, how: str, redis: EmbeddedRedis) -> str:
        """Write app.yaml beside copies of the certificates and a token; return the topic's name."""
        for file in [*self.folder.glob("*.pem"), *self.folder.glob("*.key")]:
            (folder / file.name).write_bytes(file.read_bytes())
        (folder / "token").write_text(self.provider.token(life_s=3_600))
        (folder / "e.ndjson").write_text("")
        door, login = HOW[how]
        topic = f"clicks-{time.time_ns()}"
        values = {"servers": self.doors[door], "door": door, "redis": redis.worker_url, "topic": topic}
        text = CONFIG.format(login=login.format(url=self.provider.token_url), **values)
        (folder / "app.yaml").write_text(text)
        return topic


def listeners(doors: dict[str, str], folder: Path, provider: Provider) -> dict[str, str]:
    """Return the broker's settings."""
    named = ",".join(f"{name.upper()}://{address}" for name, address in doors.items())
    protocols = ("PLAINTEXT", "CONTROLLER:PLAINTEXT", *(name.upper() for name in doors))
    tokens = "listener.name.sasl_plaintext.oauthbearer"
    return {
        "listeners": named,
        "advertised.listeners": named,
        "listener.security.protocol.map": ",".join(
            one if ":" in one else f"{one}:{one}" for one in protocols
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.both"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{SECURITY}.plain.PlainLoginModule required user_worker="{PASSWORD}";'
        ),
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{tokens}.sasl.server.callback.handler.class": (
            f"{SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        f"{tokens}.sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
        f"{tokens}.sasl.jaas.config": f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    write_certificates(folder, "broker", "worker", "stranger")
    doors = {name: f"127.0.0.1:{free_port()}" for name in DOORS}
    with providing(Provider()) as provider:
        running = broker.start(
            folder / "kafka",
            more=listeners(doors, folder, provider),
            java_options=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.keys_url}"],
        )
        try:
            yield Secured(running.bootstrap_servers, doors, folder, provider)
        finally:
            running.stop()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "redis") as server:
        yield server


def environment(password: str = PASSWORD, secret: str = SECRET) -> dict[str, str]:
    return {
        "STREAM_APP_KAFKA_SASL_PASSWORD": password,
        "STREAM_APP_KAFKA_OAUTH_CLIENT_SECRET": secret,
    }


async def last_count(servers: str, topic: str) -> float:
    witness = await WitnessTopic.open(Cluster(servers), topic)
    try:
        rows = await witness.rows("clicks", 0)
        return float(json.loads(rows[-1][1])["estimate"][0]) if rows else 0.0
    finally:
        await witness.close()


@pytest.mark.parametrize("how", list(HOW))
def test_events_are_sent_counted_and_released(
    tmp_path: Path, cluster: Secured, redis: EmbeddedRedis, how: str
) -> None:
    topic = cluster.configure(tmp_path, how, redis)
    create = ["produce", "e.ndjson", "--topic", topic, "--config", "app.yaml", "--partitions", "2"]
    secret = {"password": PASSWORD, "token of a client": SECRET}.get(how, "no secret at all")
    # Only the secret that this login needs: another one would be refused.
    given = {name: value for name, value in environment().items() if value == secret}
    with Service([*create, "--limit", "0"], tmp_path, given) as sent:
        assert sent.wait() == 0, sent.output
    with Service(["worker", "--config", "app.yaml"], tmp_path, given) as worker:
        deadline = time.monotonic() + PATIENCE_S
        while asyncio.run(last_count(cluster.plain, f"{topic}.private")) < 5:
            # Events from before the worker's first bin are refused, so the test sends more from time to time.
            assert time.monotonic() < deadline, worker.output
            (tmp_path / "e.ndjson").write_text(f'{{"at":{time.time_ns() // 10**6}}}\n' * 5)
            with Service(create, tmp_path, given) as sent:
                assert sent.wait() == 0, sent.output
            time.sleep(1)
        assert worker.terminate() == 0
    assert secret not in worker.output + sent.output
    if how in ("password", "certificate"):
        a_new_configuration_reaches_the_cluster(tmp_path, topic, given)


def a_new_configuration_reaches_the_cluster(folder: Path, topic: str, given: dict[str, str]) -> None:
    """Check that ``init`` takes the way to the cluster from another configuration, without its password."""
    written = folder / "clicks.yaml"
    asked = ["init", "--config", f"{written}", "--kafka-from", "app.yaml", "--events", f"topic:{topic}"]
    asked += ["--time", "at", "--user", "none", "--count", "all", "--epsilon", "1", "--bin", "1m"]
    with Service(asked, folder, given) as init:
        assert init.wait() == 0, init.output
    assert "no sample" not in init.output
    assert PASSWORD not in init.output + written.read_text()
    made, old = (load(file, given) for file in (written, folder / "app.yaml"))
    assert made.kafka is not None
    assert old.kafka is not None
    assert made.kafka.clusters == old.kafka.clusters


@pytest.mark.parametrize(
    ("how", "command", "said"),
    [
        ("password", "worker", "kafka.security"),
        ("password", "produce", "kafka.security"),
        ("token of a client", "worker", f"refuses client {CLIENT} (invalid_client)"),
    ],
)
def test_a_wrong_secret_is_one_line(
    tmp_path: Path, cluster: Secured, redis: EmbeddedRedis, how: str, command: str, said: str
) -> None:
    topic = cluster.configure(tmp_path, how, redis)
    (tmp_path / "e.ndjson").write_text("{}\n")
    words = {"worker": ["worker"], "produce": ["produce", "e.ndjson", "--topic", topic]}[command]
    wrong = {
        name: "wrong-one" for name, value in environment().items() if (value == SECRET) != (how == "password")
    }
    with Service([*words, "--config", "app.yaml"], tmp_path, wrong) as refused:
        assert refused.wait() == 2, refused.output
    assert len(refused.lines) == 1, refused.output
    assert said in refused.output
    assert "wrong-one" not in refused.output


@pytest.mark.parametrize("wrong", ["expired", "of another provider"])
def test_broker_refuses_a_wrong_token_in_one_line(tmp_path: Path, cluster: Secured, wrong: str) -> None:
    issuer, life_s = (cluster.provider, -3_600) if wrong == "expired" else (Provider(), 3_600)
    (tmp_path / "token").write_text(issuer.token(life_s=life_s))
    security = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.file": str(tmp_path / "token"),
    }
    with pytest.raises(OperatorError, match=r"refuses this user .*; correct kafka.security"):
        asyncio.run(topic_facts(Cluster(cluster.doors["sasl_plaintext"], security), "clicks"))
