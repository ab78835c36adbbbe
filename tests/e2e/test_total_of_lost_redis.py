"""Redis is lost under a running service whose streams have a total: what was spent remains spent."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from deploy.ports import free_port
from stream_app.state.embedded import find_server
from tests.e2e.service import Service, get
from tests.patience import PATIENCE_S
from tests.redis_servers import Node, until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(1_200)]

# Two logs of one group, so each stream has two ledgers. No epoch ends by itself while the test runs.
CONFIGURATION = """
redis: {{url: "redis://127.0.0.1:{redis}/0"}}
api: {{port: {port}}}
publish_every: 250ms
streams:
  a:
    source: {{file: a.ndjson, group: shop}}
    time: &time {{field: at, format: ms, bin: 1s, grace: 0s, epoch: 12h, max_ahead: 60s}}
    privacy: &privacy
      epsilon: 1
      unit: {{user: name, max_events: 5}}
      accept: "measured again"
      total: {{epsilon: {total}, per: source}}
  b: {{source: {{file: b.ndjson, group: shop}}, time: *time, privacy: *privacy}}
"""
STREAMS = ("a", "b")


@contextmanager
def server(folder: Path) -> Iterator[Node]:
    """Run a Redis whose data are in ``folder``."""
    folder.mkdir()
    port = free_port()
    settings = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    node = Node(folder, port, [*settings, "--appendonly", "yes", "--appendfsync", "always"], find_server())
    start(node)
    try:
        yield node
    finally:
        node.kill()


def start(node: Node) -> None:
    def answers() -> bool:
        with redis.Redis(port=node.port, protocol=2) as client:
            return bool(client.ping())

    node.start()
    until(answers, "the server answers")


def lose(node: Node) -> None:
    """Kill the server, and start it again without its data."""
    node.kill()
    shutil.rmtree(node.folder)
    node.folder.mkdir()
    start(node)


def witnessed(folder: Path, stream: str) -> list[int]:
    """Return the epochs of which readers may have seen a row. The witness outlives the store."""
    file = folder / "state" / "witness" / f"{stream}.ndjson"
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return sorted({json.loads(line.partition(b"\t")[0])["epoch"] for line in lines})


def measured(node: Node) -> set[tuple[str, int]]:
    """Return the epochs in the ledgers of the store."""
    with redis.Redis(port=node.port, protocol=2, decode_responses=True) as client:
        fields = [field for key in client.scan_iter("dp:*ledger*") for field in client.hkeys(key)]
    places = (field.rpartition(":") for field in fields)
    return {(stream, int(epoch)) for stream, _, epoch in places}


def places(epochs: int) -> set[tuple[str, int]]:
    return {(stream, epoch) for stream in STREAMS for epoch in range(epochs)}


def releases(service: Service, folder: Path, epochs: Sequence[int]) -> None:
    """Append events until readers see both streams in the last of these epochs."""
    deadline = time.monotonic() + PATIENCE_S
    while any(witnessed(folder, stream) != list(epochs) for stream in STREAMS):
        assert time.monotonic() < deadline, service.output
        line = json.dumps({"at": int(time.time() * 1000), "name": "ann"}).encode() + b"\n"
        for stream in STREAMS:
            with (folder / f"{stream}.ndjson").open("ab") as file:
                file.write(line)
        time.sleep(0.1)


def refused(service: Service) -> None:
    """Wait until counting has stopped because the total is spent, and end the service."""
    service.until("the store lost the running epoch, and a new one would exceed streams.")
    service.interrupt()


def test_no_loss_of_redis_opens_an_epoch_beyond_the_total(tmp_path: Path) -> None:
    with server(tmp_path / "redis") as node:
        port = free_port()

        def run(total: int) -> Service:
            text = CONFIGURATION.format(redis=node.port, port=port, total=total)
            (tmp_path / "app.yaml").write_text(text)
            return Service(["run", "--config", "app.yaml"], tmp_path)

        for stream in STREAMS:
            (tmp_path / f"{stream}.ndjson").touch()
        with run(total=4) as service:
            releases(service, tmp_path, [0])
            lose(node)
            releases(service, tmp_path, [0, 1])
            assert measured(node) == places(2)
            lose(node)
            refused(service)
        with run(total=4) as service:
            refused(service)
        assert measured(node) == places(2)
        assert [witnessed(tmp_path, stream) for stream in STREAMS] == [[0, 1], [0, 1]]
        with run(total=6) as service:
            releases(service, tmp_path, [0, 1, 2])
            service.until_true(lambda: get(port, "/v1/streams/a/privacy")["total"]["spent"], "all is spent")
            assert get(port, "/v1/streams/a/privacy")["source_epsilon"] == "6"
            assert measured(node) == places(3)
            assert service.interrupt() == 0
