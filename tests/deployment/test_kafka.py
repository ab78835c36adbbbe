"""The broker as compose.yaml starts it: start.sh with the server.properties of the other tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from deploy.kafka.broker import answers, install, java, start
from deploy.ports import free_port
from tests.patience import PATIENCE_S

DEPLOY = Path(__file__).parents[2] / "deploy"


@contextmanager
def started(environment: dict[str, str]) -> Iterator[KafkaAdminClient]:
    """Run start.sh until the block ends, as the container's only process."""
    process = subprocess.Popen(
        ["/bin/sh", DEPLOY / "kafka" / "start.sh"], env=environment, stdout=subprocess.DEVNULL
    )
    try:
        client = _client(f"{environment['HOST']}:{environment['PORT']}", process)
        try:
            yield client
        finally:
            client.close()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) in (0, 143)


def _client(servers: str, process: subprocess.Popen[bytes]) -> KafkaAdminClient:
    host, _, port = servers.partition(":")
    deadline = time.monotonic() + PATIENCE_S
    while not answers(host, int(port)):
        assert process.poll() is None, "the broker ended at once"
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return KafkaAdminClient(bootstrap_servers=servers)


@pytest.mark.kafka
@pytest.mark.slow
def test_the_broker_starts_in_an_empty_folder_and_again_with_its_topics(tmp_path: Path) -> None:
    compose: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    given = compose["services"]["kafka"]["environment"]
    loopback = {
        "JARS": str(install()),
        "JAVA_OPTIONS": "-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "LOG_DIR": str(tmp_path / "data"),
        "HOST": "127.0.0.1",
        "LISTEN": "127.0.0.1",
        "PORT": str(free_port()),
        "CONTROLLER_PORT": str(free_port()),
    }
    assert set(given) == {*loopback, "CLUSTER_ID"}  # it has everything that start.sh needs
    cluster_id = given["CLUSTER_ID"].partition(":-")[2].rstrip("}")
    path = f"{Path(java()).parent}:{os.environ['PATH']}"
    environment = {**os.environ, **loopback, "CLUSTER_ID": cluster_id, "PATH": path}
    with started(environment) as client:
        assert client.describe_cluster()["cluster_id"] == cluster_id
        client.create_topics([NewTopic("clicks", 3, 1)])
    with started(environment) as client:
        assert "clicks" in client.list_topics()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Return the folder of a broker that ran before, and its port."""
    folder = tmp_path_factory.mktemp("kafka")
    broker = start(folder)
    broker.stop()
    return folder, int(broker.bootstrap_servers.rpartition(":")[2])


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "ending", "status"),
    [
        ([], signal.SIGHUP, 0),
        (["--", "sh", "-c", "echo runs; exec sleep 600"], signal.SIGTERM, -signal.SIGTERM % 256),
    ],
)
def test_ending_the_command_ends_the_broker(
    stopped: tuple[Path, int], command: list[str], ending: signal.Signals, status: int
) -> None:
    folder, port = stopped
    running = [sys.executable, "-m", "deploy.kafka.broker", str(folder), *command]
    with subprocess.Popen(running, cwd=DEPLOY.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "Ctrl-C ends it" in process.stdout.readline()
        if command:
            assert process.stdout.readline() == "runs\n"
        assert answers("127.0.0.1", port)
        process.send_signal(ending)
        assert process.wait(PATIENCE_S) == status
    assert not answers("127.0.0.1", port)


IMPATIENT = """
import os, signal, sys
from deploy.kafka import broker
broker.print = lambda *words, **how: (print(*words, **how), os.kill(os.getpid(), signal.SIGHUP))
sys.exit(broker.main())
"""


@pytest.mark.kafka
@pytest.mark.slow
def test_a_signal_right_after_the_line_ends_the_broker(stopped: tuple[Path, int]) -> None:
    folder, port = stopped
    running = [sys.executable, "-c", IMPATIENT, str(folder)]
    done = subprocess.run(running, cwd=DEPLOY.parent, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert not answers("127.0.0.1", port)
