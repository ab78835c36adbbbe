"""``run`` says where it listens once it listens, and serves readers on when counting has stopped."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import httpx
import pytest

from deploy.ports import free_port
from tests.e2e.service import Service, get

pytestmark = [pytest.mark.redis, pytest.mark.slow]

CONFIGURATION = """
redis: {{url: "embedded:./redis"}}
api: {{port: {port}}}
publish_every: 250ms
streams:
  clicks:
    source: {{file: clicks-*.ndjson}}
    time: {{field: at, format: s, bin: 1s, grace: 0s, epoch: 1h}}
    privacy: {{epsilon: 1}}
"""


def write_event(file: Path) -> None:
    file.write_text(json.dumps({"at": int(time.time())}) + "\n")


def seq(port: int, stream: str) -> int:
    """Return how many rows of a stream are visible; 0 while the API has none."""
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/v1/streams/{stream}")
    except httpx.HTTPError:
        return 0
    return int(answer.json().get("seq", 0))


def start(folder: Path, port: int) -> Service:
    write_event(folder / "clicks-b.ndjson")
    (folder / "app.yaml").write_text(CONFIGURATION.format(port=port))
    return Service(["run", "--config", "app.yaml"], folder)


def test_the_address_is_said_when_it_answers_and_readers_are_served_on_when_counting_has_stopped(
    tmp_path: Path,
) -> None:
    port = free_port()
    with start(tmp_path, port) as service:
        service.until(f"page and API: http://127.0.0.1:{port}/")
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
        service.until("released until")
        write_event(tmp_path / "clicks-a.ndjson")  # sorts before clicks-b
        service.until("counting has stopped")
        assert "its name sorts before clicks-b.ndjson" in service.output
        before = get(port, "/v1/streams/clicks/count")
        time.sleep(1.5)  # more than a bin
        assert get(port, "/v1/streams/clicks/count") == before
        assert service.interrupt() == 2
    with start(tmp_path, port) as again:  # it has nothing to add to what it served before
        assert again.wait() == 2, again.output


def test_a_fault_of_one_log_is_said_at_once_and_at_the_end(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "lone.ndjson").write_text(json.dumps({"at": int(time.time()), "of": "lone"}) + "\n")
    more = """
  lone:
    source: {file: lone.ndjson}
    time: {field: at, format: s, bin: 1s, grace: 0s, epoch: 1h}
    privacy: {epsilon: 1}
"""
    write_event(tmp_path / "clicks-b.ndjson")
    (tmp_path / "app.yaml").write_text(CONFIGURATION.format(port=port) + more)
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        for stream in ("clicks", "lone"):
            service.until_true(lambda name=stream: seq(port, name) > 0, f"{stream} has released")
        (tmp_path / "lone.ndjson").unlink()
        service.until("stopped: lone; all other streams go on")
        assert "counting has stopped" not in service.output
        before = seq(port, "clicks")
        service.until_true(lambda: seq(port, "clicks") > before + 1, "clicks goes on")
        assert service.interrupt() == 2
        # Without the words about other streams, because all have stopped.
        assert any("lone.ndjson" in line and "stopped: lone" not in line for line in service.lines)


def test_a_replay_does_not_wait_for_readers_when_it_is_refused(tmp_path: Path) -> None:
    write_event(tmp_path / "clicks-b.ndjson")
    text = CONFIGURATION.format(port=free_port())
    (tmp_path / "app.yaml").write_text(text)
    with Service(["run", "--config", "app.yaml", "--until-complete"], tmp_path) as service:
        service.until("released until")
        write_event(tmp_path / "clicks-a.ndjson")
        assert service.wait() == 2
