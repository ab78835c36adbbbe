"""The operator's metrics and logs of a running service name its faults, but show no event."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path

import httpx
import pytest

from deploy.ports import free_port
from stream_app.config.storage import READ_LETTERS
from tests.brokers import Topic
from tests.e2e.service import Service
from tests.stream_app.sinks.test_dead_letter_topic import letters_in

pytestmark = [pytest.mark.redis, pytest.mark.slow]

SENTINEL = "N14228-Ada-Lovelace"
UNDECODABLE = 1_237  # a number that no other number in this test is equal to

CONFIGURATION = """
redis: {{url: "embedded:./redis"}}
state: {{dir: ./state}}
api: {{port: {port}}}
operator: {{port: {operator_port}}}
publish_every: 250ms
dead_letters: {{content: true}}
streams:
  clicks:
    source: {{file: clicks.ndjson, group: people}}
    time: {{field: at, format: ms, bin: 1s, grace: 500ms, epoch: 1h}}
    privacy: {{epsilon: 1}}
    late: dead_letter
"""


def test_operator_sees_figures_and_no_output_shows_an_event(tmp_path: Path) -> None:
    port, operator_port = free_port(), free_port()
    (tmp_path / "app.yaml").write_text(CONFIGURATION.format(port=port, operator_port=operator_port))
    events = tmp_path / "clicks.ndjson"
    events.touch()
    with Service(["-v", "run", "--config", "app.yaml"], tmp_path) as service, events.open("ab", 0) as log:
        service.until("bins closed")
        time.sleep(1.1)
        log.write(b"".join(_events()))
        service.until_true(
            lambda: _figure(operator_port, "undecodable") == UNDECODABLE, "the bad lines are counted"
        )
        scraped = _scrape(operator_port)
        assert service.kill_child("stream_app.shell.child worker")
        service.until("it again, nothing is lost")
        log.write(b"".join(_events()))
        service.until_true(lambda: _figure(operator_port, "missing_field") == 2, "it goes on")
        scraped += _scrape(operator_port)
        # Each record once, although the worker was killed: the store counts, not the process.
        service.until_true(
            lambda: _figure(operator_port, "undecodable") >= 2 * UNDECODABLE,
            "the bad lines are counted again",
        )
        assert _figure(operator_port, "undecodable") == 2 * UNDECODABLE
        service.until_true(lambda: _figure(operator_port, "future") == 2, "the next cut refuses both")
        assert service.kill_child("redis-server")
        service.until("the embedded Redis ended")
        public = [
            httpx.get(f"http://127.0.0.1:{port}{path}", timeout=60, verify=False).text for path in _PUBLIC
        ]
        assert service.interrupt() == 0

    letters = _letters(tmp_path)
    assert letters.count(SENTINEL) > UNDECODABLE  # dead letters contain it, so other outputs could too
    for shown in (service.output, scraped, *public, (tmp_path / "redis" / "redis.log").read_text()):
        assert SENTINEL not in shown
        assert SENTINEL.lower() not in shown.lower()
    assert str(UNDECODABLE) in scraped  # only the operator's endpoint shows it
    for shown in (service.output, *public):
        assert not _names(shown, UNDECODABLE)
        assert "stream_app_" not in shown

    logged = [json.loads(line) for line in service.lines if line.startswith("{")]
    assert {"released"} <= {line["event"] for line in logged if line["role"] == "worker"}
    for figure in (
        "lag{",
        "batch_seconds_count{",
        "redis_seconds_count{",
        "closing_overdue_seconds{",
        *_LATE,
    ):
        assert f"stream_app_{figure}" in scraped


@pytest.mark.kafka
def test_no_event_of_a_topic_shows_either(tmp_path: Path, bootstrap_servers: str) -> None:
    port, operator_port = free_port(), free_port()
    topic = asyncio.run(Topic.create(bootstrap_servers, 2))
    text = CONFIGURATION.format(port=port, operator_port=operator_port)
    text = text.replace("file: clicks.ndjson", f"topic: {topic.name}")
    letters, accept = f"{topic.name}-letters", f'accept: "{READ_LETTERS}"'
    text = text.replace("content: true", f"content: true, topic: {letters}, {accept}")
    (tmp_path / "app.yaml").write_text(f'{text}kafka: {{bootstrap_servers: "{bootstrap_servers}"}}\n')
    with Service(["-v", "run", "--config", "app.yaml"], tmp_path) as service:
        service.until("bins closed")
        time.sleep(1.1)
        values = [line for block in _events() for line in block.splitlines()]
        asyncio.run(topic.send(values))
        service.until_true(
            lambda: _figure(operator_port, "undecodable") == UNDECODABLE, "the bad records are counted"
        )
        scraped = _scrape(operator_port)
        public = [
            httpx.get(f"http://127.0.0.1:{port}{path}", timeout=60, verify=False).text for path in _PUBLIC
        ]
        in_topic = asyncio.run(letters_in(bootstrap_servers, letters, UNDECODABLE))
        assert service.interrupt() == 0
    assert SENTINEL in _letters(tmp_path)
    assert SENTINEL in json.dumps(in_topic)
    assert {letter["reason"] for letter in in_topic} >= {"undecodable"}
    for shown in (service.output, scraped, *public):
        assert SENTINEL.lower() not in shown.lower()
    assert not _names(service.output, UNDECODABLE)


def test_a_taken_port_is_refused_in_one_line(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "app.yaml").write_text(CONFIGURATION.format(port=free_port(), operator_port=port))
    (tmp_path / "clicks.ndjson").touch()
    with Service(["worker", "--config", "app.yaml"], tmp_path) as first:
        first.until_true(lambda: _scrape(port), "the first worker answers")
        other = tmp_path / "other"
        other.mkdir()
        (other / "app.yaml").write_text(CONFIGURATION.format(port=free_port(), operator_port=port))
        (other / "clicks.ndjson").touch()
        with Service(["worker", "--config", "app.yaml"], other) as second:
            assert second.wait() == 2
            assert second.output.startswith(f"stream-app: operator.port: 127.0.0.1:{port} cannot be served")
            assert len(second.lines) == 1
        assert first.interrupt() == 0


def _letters(directory: Path) -> str:
    files = sorted((directory / "state" / "dead_letters" / "clicks").iterdir())
    return "".join(file.read_text() for file in files)


_LATE = (
    "late_seconds_bucket{",
    "late_share{",
    "set_aside_records_total{",
    'refused_records_total{reason="late"',
)
_PUBLIC = ("/v1/streams", "/v1/streams/clicks", "/v1/streams/clicks/privacy", "/metrics", "/")


def _events() -> list[bytes]:
    """Return records that are counted, late, undecodable, without a time, or from the future."""
    now_ms = int(time.time() * 1000)
    good = f'{{"at":{now_ms},"who":"{SENTINEL}"}}\n'
    late = f'{{"at":{now_ms - 20_000},"who":"{SENTINEL}"}}\n'
    future = f'{{"at":{now_ms + 10**8},"who":"{SENTINEL}"}}\n'
    bad_times = f'{{"at":"{SENTINEL}"}}\n{{"who":"{SENTINEL}"}}\n{{"at":{{"{SENTINEL}":1}}}}\n'
    binary = f"{SENTINEL} ".encode() + b"\xff\xfe\n"
    undecodable = f"{SENTINEL}, not json\n".encode() * (UNDECODABLE - 1)
    return [good.encode() * 50, late.encode(), future.encode(), bad_times.encode(), binary, undecodable]


def _scrape(port: int) -> str:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60, verify=False).text
    except httpx.HTTPError:
        return ""


def _names(text: str, number: int) -> bool:
    """Return whether a text contains a four-digit number as a whole, not inside a time or a port."""
    thousands, rest = divmod(number, 1_000)
    return re.search(rf"(?<![\d.]){thousands},?{rest:03}(?!\d)", text) is not None


def _figure(port: int, reason: str) -> float:
    for line in _scrape(port).splitlines():
        if line.startswith("stream_app_refused_records_total{") and f'"{reason}"' in line:
            return float(line.rpartition(" ")[2])
    return 0.0
