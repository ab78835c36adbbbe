"""The two workers of compose.yaml are upgraded one after the other, and the epoch goes on.

No container engine runs here: the test starts the services of compose.yaml as processes. It replaces paths
and addresses of containers, shortens minutes to seconds, and uses an enormous epsilon, so counts are exact.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.ports import free_port
from stream_app.kafka.cluster import Cluster
from stream_app.sinks.witness_topic import WitnessTopic
from stream_app.state.embedded import find_server
from tests.brokers import Topic
from tests.deployment.test_redis import DeployedRedis, deployed
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

DEPLOY = Path(__file__).parents[2] / "deploy"
SHORTER = {
    # Epochs with the same number of bins.
    "bin: 1m, grace: 30s, epoch: 30d": "bin: 1s, grace: 1s, epoch: 12h, first: FIRST",
    "epsilon: 1.0,": "epsilon: 1.0e9, not_private: true,",
}


class Deployment:
    """The services of compose.yaml as processes in one folder."""

    def __init__(self, folder: Path, redis: DeployedRedis, topic: Topic) -> None:
        self.folder, self.topic = folder, topic
        self.redis = redis
        self.compose: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
        self.ports = {name: free_port() for name in ("worker-1", "worker-2")}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.sent = 0
        self.first = time.strftime("'%Y-%m-%dT%H:%M:%SZ'", time.gmtime())

    def make_noise_key(self) -> None:
        """Run the service that makes the secret."""
        self._place("noise-key").mkdir(exist_ok=True)
        service = self.compose["services"]["noise-key"]
        words = [*service["entrypoint"], *service["command"]]
        subprocess.run([self._here(word, service) for word in words], check=True, timeout=PATIENCE_S)

    def start(self, name: str) -> None:
        """Start a worker."""
        service = self.compose["services"][name]
        text = (DEPLOY / "stream-app.yaml").read_text()
        for theirs, ours in {**SHORTER, "port: 9464": f"port: {self.ports[name]}"}.items():
            assert theirs in text
            text = text.replace(theirs, ours)
        text = text.replace("topic: clicks", f"topic: {self.topic.name}").replace("FIRST", self.first)
        configuration = self.folder / f"{name}.yaml"
        configuration.write_text(self._here(text, service))
        command = [word.replace("/etc/private-counts/stream-app.yaml", str(configuration))
                   for word in service["command"]]  # fmt: skip
        environment = {"STREAM_APP_KAFKA_BOOTSTRAP_SERVERS": self.topic.servers}
        for file in service["env_file"]:
            lines = (self.redis.folder / Path(file).name).read_text().splitlines()
            environment |= dict(line.split("=", 1) for line in lines)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "stream_app", *command],
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
            )

    def upgrade(self, name: str) -> None:
        """Stop a worker and start it again, as ``docker compose up -d --build NAME`` does."""
        self.running[name].terminate()
        assert self.running[name].wait(PATIENCE_S) == 0, self.said()
        self.start(name)

    def _here(self, text: str, service: Any) -> str:
        """Return the text with the container paths of a service's volumes replaced by the test's paths."""
        for volume in service["volumes"]:
            source, target, *_ = volume.split(":")
            if not source.startswith("."):
                text = text.replace(target, str(self._place(source)))
        return text

    def _place(self, volume: str) -> Path:
        return self.folder / volume

    def send_and_await(self, events: int) -> list[dict[str, Any]]:
        """Send events dated now; return all rows once the events count. Fail if a worker ends."""
        for partition in range(3):
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            asyncio.run(self.topic.send([json.dumps({"at": now}).encode()] * events, partition))
            self.sent += events
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.check_running()
            rows = asyncio.run(self._rows())
            if rows and rows[-1]["estimate"][0] >= self.sent:
                return rows
            time.sleep(0.3)
        raise AssertionError(self.said())

    async def _rows(self) -> list[dict[str, Any]]:
        witness = await WitnessTopic.open(Cluster(self.topic.servers), f"{self.topic.name}.private")
        try:
            return [json.loads(row.row) for row in await witness.rows("clicks", 0)]
        finally:
            await witness.close()

    def check_running(self) -> None:
        """Raise if a worker has ended by itself."""
        ended = {name: worker.poll() for name, worker in self.running.items()}
        assert set(ended.values()) == {None}, f"{ended}\n{self.said()}"

    def metrics(self, name: str, token: str) -> int:
        """Return the status of a worker's answer to a request for metrics, once the worker listens."""
        url, headers = f"http://127.0.0.1:{self.ports[name]}/metrics", {"Authorization": f"Bearer {token}"}
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(
                    urllib.request.Request(url, headers=headers), timeout=PATIENCE_S
                ) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as refused:
                return refused.code
            except (urllib.error.URLError, ConnectionError):
                self.check_running()
                assert time.monotonic() < deadline_s, self.said()
                time.sleep(0.1)

    def said(self) -> str:
        """Return the output of the workers."""
        return "\n".join(path.read_text()[-2000:] for path in sorted(self.folder.glob("worker-*.log")))

    def close(self) -> None:
        """End all processes."""
        for worker in self.running.values():
            worker.kill()
            worker.wait()


@pytest.fixture
def deployment(tmp_path: Path, bootstrap_servers: str) -> Iterator[Deployment]:
    topic = asyncio.run(Topic.create(bootstrap_servers, partitions=3))
    (tmp_path / "redis").mkdir()
    with deployed(tmp_path / "redis", find_server()) as redis:
        deployment = Deployment(tmp_path, redis, topic)
        try:
            yield deployment
        finally:
            deployment.close()


def test_both_stay_up_through_a_rolling_upgrade_and_the_epoch_goes_on(deployment: Deployment) -> None:
    deployment.make_noise_key()
    for name in deployment.ports:
        deployment.start(name)
    deployment.send_and_await(40)
    for name in deployment.ports:
        deployment.upgrade(name)
        deployment.make_noise_key()  # compose runs it before every start of a worker; an existing key stays
        rows = deployment.send_and_await(20)
    assert {row["epoch"] for row in rows} == {0}
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert rows[-1]["estimate"] == [deployment.sent]
    token = (deployment.folder / "redis" / "worker.token").read_text()
    assert {deployment.metrics(name, token) for name in deployment.ports} == {200}
    assert {deployment.metrics(name, token[::-1]) for name in deployment.ports} == {401}
