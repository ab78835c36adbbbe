"""From an event in Kafka to a real Alertmanager, a webhook and a topic, also over a kill -9 of everything."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from deploy.ports import free_port
from tests.brokers import Topic
from tests.e2e.service import Service, get
from tests.patience import PATIENCE_S
from tests.services import alertmanager, required

CONFIG = """\
kafka: {{bootstrap_servers: "{servers}"}}
streams:
  clicks:
    source: {{topic: {events}}}
    time: {{field: at, format: iso8601, bin: 1s, grace: 1s, epoch: 1h}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
    keys: {{field: country, list: [FR, DE]}}
outputs: [{{stream: clicks, topic: {events}.private}}]
api: {{port: {port}}}
alerts:
  rules:
    busy: {{when: "sum(clicks['FR'], 8s) > 100", labels: {{team: web}}}}
    busier: {{when: "sum(clicks['FR', 'DE'], 8s) > 150", labels: {{team: web}}}}
    never: {{when: "sum(clicks['DE'], 8s) > 100", labels: {{team: web}}}}
  webhooks: ["http://127.0.0.1:{hook}/"]
  alertmanagers: ["http://127.0.0.1:{manager}"]
  topic: {alerts}
"""


class Hook(ThreadingHTTPServer):
    """A webhook that keeps every request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _HookHandler)
        self.got: list[tuple[str, dict[str, Any]]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def kinds(self, rule: str) -> list[str]:
        """Return the kinds of transition that the webhook received about a rule, each key once, in order."""
        told = {key: body["status"] for key, body in self.got if body["groupLabels"]["alertname"] == rule}
        return list(told.values())


class _HookHandler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.got.append((self.headers["Idempotency-Key"], body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


MANAGER = """\
route: {{receiver: hook, group_by: [team], group_wait: 1s, group_interval: 1s}}
receivers: [{{name: hook, webhook_configs: [{{url: "http://127.0.0.1:{hook}/", send_resolved: true}}]}}]
"""


@contextlib.contextmanager
def managing(directory: Path, hook: int) -> Iterator[int]:
    """Run an Alertmanager that groups alerts by team and calls a webhook; yield its port."""
    directory.mkdir()
    config = directory / "alertmanager.yml"
    config.write_text(MANAGER.format(hook=hook))
    port = free_port()
    command = [
        str(required(alertmanager, "prometheus-alertmanager")),
        f"--config.file={config}",
        f"--storage.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    with (directory / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield port
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def groups(port: int) -> list[list[str]]:
    """Return the names of active alerts, one list per group."""
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/api/v2/alerts/groups", timeout=60, verify=False).json()
    except httpx.HTTPError:
        return []
    return [sorted(alert["labels"]["alertname"] for alert in group["alerts"]) for group in answer]


def burst(topic: Topic, french: int, german: int) -> None:
    """Send events dated now."""
    at = (datetime.now(UTC) + timedelta(milliseconds=50)).isoformat()
    countries = ["FR"] * french + ["DE"] * german
    asyncio.run(topic.send([json.dumps({"at": at, "country": country}).encode() for country in countries]))


def told(topic: Topic) -> list[dict[str, Any]]:
    """Return all records of a topic of alert transitions, in order."""

    async def read() -> list[dict[str, Any]]:
        place = TopicPartition(topic.name, 0)
        async with AIOKafkaConsumer(bootstrap_servers=topic.servers, auto_offset_reset="earliest") as client:
            client.assign([place])
            end = (await client.end_offsets([place]))[place]
            records: list[ConsumerRecord[bytes, bytes]] = []
            while len(records) < end:
                records += (await client.getmany(place, timeout_ms=1_000)).get(place, [])
        for record in records:
            assert dict(record.headers) == {"content-type": b"application/cloudevents+json; charset=UTF-8"}
        return [json.loads(record.value) | {"record key": record.key.decode()} for record in records]

    return asyncio.run(read())


def kinds(topic: Topic, rule: str) -> list[str]:
    """Return the kinds of transition that the topic holds about a rule, each id once, in order."""
    events = {event["id"]: event for event in told(topic) if event["subject"] == rule}
    return [event["type"].rpartition(".")[2] for event in events.values()]


def phase(port: int, rule: str) -> str:
    """Return a rule's phase as the API states it."""
    phases = {one["rule"]: str(one["phase"]) for one in get(port, "/v1/alerts")["alerts"]}
    return phases[rule]


def holds_by_now(condition: Any) -> bool:
    """Return whether a condition holds; False if it cannot be asked yet."""
    try:
        return bool(condition())
    except (httpx.HTTPError, IndexError, KeyError, AssertionError):
        return False


@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_event_reaches_all_targets_and_a_restart_loses_and_doubles_nothing(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    events, alerts = (asyncio.run(Topic.create(bootstrap_servers)) for _ in range(2))
    hook, grouped, port = Hook(), Hook(), free_port()
    with managing(tmp_path / "manager", grouped.server_address[1]) as manager:
        names = {"events": events.name, "alerts": alerts.name, "servers": bootstrap_servers}
        names["hook"] = str(hook.server_address[1])
        (tmp_path / "app.yaml").write_text(CONFIG.format(port=port, manager=manager, **names))
        arguments = ["run", "--config", "app.yaml"]
        with Service(arguments, tmp_path) as service:
            released = lambda: get(port, "/v1/streams")["streams"][0]["seq"] >= 3  # noqa: E731
            service.until_true(lambda: holds_by_now(released), "bins are released")
            burst(events, 120, 60)
            service.until_true(lambda: groups(manager) == [["busier", "busy"]], "both alerts in one group")
            service.until_true(lambda: hook.kinds("busy") == ["firing"], "the webhook knows")
            service.kill_everything()
        with Service(arguments, tmp_path) as service:
            service.until_true(
                lambda: holds_by_now(lambda: phase(port, "busy") == "inactive"), "it is resolved"
            )
            service.until_true(lambda: groups(manager) == [], "both are resolved")
            burst(events, 120, 0)
            service.until_true(lambda: phase(port, "busy") == "firing", "it fires again")
            service.until_true(lambda: groups(manager) == [["busy"]], "Alertmanager has it")
            service.until_true(lambda: len(kinds(alerts, "busy")) == 3, "the topic has it")
            service.until_true(
                lambda: hook.kinds("busy") == ["firing", "resolved", "firing"], "the webhook too"
            )
            metrics = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60, verify=False).text
            assert 'private_counts_alert_firing{rule="busy",stream="clicks"} 1.0' in metrics
            shown = get(port, "/v1/streams/clicks/transitions")["transitions"]
            assert [one["kind"] for one in shown if one["rule"] == "busy"] == ["firing", "resolved", "firing"]
            assert service.interrupt() == 0
    found = told(alerts)
    assert kinds(alerts, "busy") == ["firing", "resolved", "firing"]
    assert kinds(alerts, "busier") == ["firing", "resolved"]
    assert kinds(alerts, "never") == []
    # After the crash one record may be there twice, with the same id. No id means two transitions.
    assert Counter(event["id"] for event in found).total() <= 6
    assert len({(event["id"], json.dumps(event, sort_keys=True)) for event in found}) == 5
    for event in found:
        assert event["specversion"] == "1.0"
        assert event["source"] == "/v1/streams/clicks"
        assert event["record key"] == event["subject"] == event["data"]["rule"]
        assert event["type"] == f"private-counts.alert.{event['data']['kind']}"
        assert event["data"]["private"] is False
        assert event["data"]["labels"] == {"team": "web"}
        assert datetime.fromisoformat(event["time"]) >= datetime.fromisoformat(event["data"]["bin_end"])
    assert hook.kinds("busier") == ["firing", "resolved"]
    assert {key for key, _ in hook.got} == {event["id"] for event in found}  # the same key in every target
    statuses = [body["status"] for _, body in grouped.got]
    assert {"firing", "resolved"} <= set(statuses)
    together = [{one["labels"]["alertname"] for one in body["alerts"]} for _, body in grouped.got]
    assert {"busy", "busier"} in together
    for one in (hook, grouped):
        one.shutdown()
        one.server_close()
