"""A Kafka cluster that admits clients by tokens of an OpenID provider, which the broker verifies itself."""

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
from stream_app.kafka_cluster import Cluster, topic_facts
from stream_app.ports import OperatorError
from stream_app.sinks.witness_topic import WitnessTopic
from stream_app.state.embedded import EmbeddedRedis
from tests.e2e.service import Service
from tests.openid import AUDIENCE, CLIENT, SECRET, Provider, providing

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]

LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
CONFIG = """
kafka:
  bootstrap_servers: "{servers}"
  security.protocol: sasl_plaintext
  sasl.mechanism: OAUTHBEARER
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
BY_CLIENT = f"""sasl.oauthbearer.method: oidc
  sasl.oauthbearer.client.id: {CLIENT}
  sasl.oauthbearer.token.endpoint.url: {{url}}
  sasl.oauthbearer.scope: topics"""
BY_FILE = "sasl.oauthbearer.token.file: token"


@dataclass(frozen=True)
class Guarded:
    """A broker with a listener for tokens. Tests use the listener ``plain`` for their own records."""

    plain: str
    by_token: str
    provider: Provider

    def cluster(self, file: Path) -> Cluster:
        """Return the cluster as a client sees it that has its token in a file."""
        return Cluster(
            self.by_token,
            {
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.file": str(file),
            },
        )


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    address = f"127.0.0.1:{free_port()}"
    with providing(Provider()) as provider:
        mechanism = "listener.name.sasl_plaintext.oauthbearer"
        more = {
            "listeners": f"SASL_PLAINTEXT://{address}",
            "advertised.listeners": f"SASL_PLAINTEXT://{address}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            f"{mechanism}.sasl.server.callback.handler.class": VALIDATOR,
            f"{mechanism}.sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
            f"{mechanism}.sasl.jaas.config": f"{LOGIN} required;",
        }
        options = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.keys_url}"]
        running = broker.start(tmp_path_factory.mktemp("guarded") / "kafka", more=more, java_options=options)
        try:
            yield Guarded(running.bootstrap_servers, address, provider)
        finally:
            running.stop()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "redis") as server:
        yield server


async def last_count(servers: str, topic: str) -> float:
    witness = await WitnessTopic.open(Cluster(servers), topic)
    try:
        rows = await witness.rows("clicks", 0)
        return float(json.loads(rows[-1][1])["estimate"][0]) if rows else 0.0
    finally:
        await witness.close()


def configure(folder: Path, guarded: Guarded, redis: EmbeddedRedis, login: str) -> str:
    """Write app.yaml; return the topic's name."""
    topic = f"clicks-{time.time_ns()}"
    values = {"servers": guarded.by_token, "redis": redis.worker_url, "topic": topic, "login": login}
    (folder / "app.yaml").write_text(CONFIG.format(**values))
    return topic


@pytest.mark.parametrize("how", ["client", "file"])
def test_events_are_sent_counted_and_released(
    tmp_path: Path, guarded: Guarded, redis: EmbeddedRedis, how: str
) -> None:
    login = BY_FILE if how == "file" else BY_CLIENT.format(url=guarded.provider.token_url)
    topic = configure(tmp_path, guarded, redis, login)
    (tmp_path / "token").write_text(guarded.provider.token(life_s=3_600))
    environment = {"STREAM_APP_KAFKA_OAUTH_CLIENT_SECRET": SECRET} if how == "client" else {}
    create = ["produce", "e.ndjson", "--topic", topic, "--config", "app.yaml", "--partitions", "2"]
    (tmp_path / "e.ndjson").write_text("")
    with Service([*create, "--limit", "0"], tmp_path, environment) as sent:
        assert sent.wait() == 0, sent.output
    with Service(["worker", "--config", "app.yaml"], tmp_path, environment) as worker:
        deadline = time.monotonic() + 240
        while asyncio.run(last_count(guarded.plain, f"{topic}.private")) < 5:
            # Events from before the worker's first bin are refused, so the test sends more from time to time.
            assert time.monotonic() < deadline, worker.output
            (tmp_path / "e.ndjson").write_text(f'{{"at":{time.time_ns() // 10**6}}}\n' * 5)
            with Service(create, tmp_path, environment) as sent:
                assert sent.wait() == 0, sent.output
            time.sleep(1)
        worker.process.terminate()
        assert worker.wait(120) == 0
    assert SECRET not in worker.output + sent.output


def test_a_wrong_secret_is_one_line(tmp_path: Path, guarded: Guarded, redis: EmbeddedRedis) -> None:
    configure(tmp_path, guarded, redis, BY_CLIENT.format(url=guarded.provider.token_url))
    environment = {"STREAM_APP_KAFKA_OAUTH_CLIENT_SECRET": "wrong-one"}
    with Service(["worker", "--config", "app.yaml"], tmp_path, environment) as refused:
        assert refused.wait() == 2, refused.output
    assert len(refused.lines) == 1, refused.output
    assert "refuses client counter (invalid_client)" in refused.output
    assert "wrong-one" not in refused.output


@pytest.mark.parametrize("wrong", ["expired", "of another provider"])
def test_broker_refuses_a_wrong_token_in_one_line(tmp_path: Path, guarded: Guarded, wrong: str) -> None:
    issuer, life_s = (guarded.provider, -3_600) if wrong == "expired" else (Provider(), 3_600)
    (tmp_path / "token").write_text(issuer.token(life_s=life_s))
    with pytest.raises(OperatorError, match=r"refuses this user .*; correct kafka.security"):
        asyncio.run(topic_facts(guarded.cluster(tmp_path / "token"), "clicks"))
