"""From an event in Kafka through a release to a real Alertmanager and to a topic, over a kill -9 of all."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.brokers import Topic
from tests.e2e.service import Service, free_port, get
from tests.e2e.test_alerts import Hook, groups, managing, quietly

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
  alertmanagers: ["http://127.0.0.1:{manager}"]
  topic: {alerts}
"""


def burst(topic: Topic, french: int, german: int) -> None:
    """Send events of this moment."""
    at = (datetime.now(UTC) + timedelta(milliseconds=50)).isoformat()
    countries = ["FR"] * french + ["DE"] * german
    asyncio.run(topic.send([json.dumps({"at": at, "country": country}).encode() for country in countries]))


def told(topic: Topic) -> list[dict[str, Any]]:
    """Return all records of a topic of alerts, in order."""

    async def read() -> list[dict[str, Any]]:
        place = TopicPartition(topic.name, 0)
        async with AIOKafkaConsumer(bootstrap_servers=topic.servers, auto_offset_reset="earliest") as client:
            client.assign([place])
            end = (await client.end_offsets([place]))[place]
            records = []
            while len(records) < end:
                records += (await client.getmany(place, timeout_ms=1_000)).get(place, [])
        for record in records:
            assert dict(record.headers) == {"content-type": b"application/cloudevents+json; charset=UTF-8"}
        return [json.loads(record.value) | {"record key": record.key.decode()} for record in records]

    return asyncio.run(read())


def kinds(topic: Topic, rule: str) -> list[str]:
    """Return what was told of a rule, each id once, in order."""
    events = {event["id"]: event for event in told(topic) if event["subject"] == rule}
    return [event["type"].rpartition(".")[2] for event in events.values()]


def phase(port: int, rule: str) -> str:
    """Return where a rule stands."""
    phases = {one["rule"]: str(one["phase"]) for one in get(port, "/v1/alerts")["alerts"]}
    return phases[rule]


@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_an_event_in_kafka_reaches_alertmanager_and_a_topic_and_a_restart_loses_nothing(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    events, alerts = (asyncio.run(Topic.create(bootstrap_servers)) for _ in range(2))
    hook, port = Hook(), free_port()
    with managing(tmp_path / "manager", hook.server_address[1]) as manager:
        names = {"events": events.name, "alerts": alerts.name, "servers": bootstrap_servers}
        (tmp_path / "app.yaml").write_text(CONFIG.format(port=port, manager=manager, **names))
        arguments = ["run", "--config", "app.yaml"]
        with Service(arguments, tmp_path) as service:
            released = lambda: get(port, "/v1/streams")["streams"][0]["seq"] >= 3  # noqa: E731
            service.until_true(lambda: quietly(released), "bins are released")
            burst(events, 120, 60)
            service.until_true(lambda: groups(manager) == [["busier", "busy"]], "both alerts in one group")
            service.kill_everything()
        with Service(arguments, tmp_path) as service:
            service.until_true(lambda: quietly(lambda: phase(port, "busy") == "inactive"), "it is resolved")
            service.until_true(lambda: groups(manager) == [], "both are resolved")
            burst(events, 120, 0)
            service.until_true(lambda: phase(port, "busy") == "firing", "it fires again")
            service.until_true(lambda: groups(manager) == [["busy"]], "Alertmanager has it")
            service.until_true(lambda: len(kinds(alerts, "busy")) == 3, "the topic has it")
            assert service.interrupt() == 0
    found = told(alerts)
    assert kinds(alerts, "busy") == ["firing", "resolved", "firing"]
    assert kinds(alerts, "busier") == ["firing", "resolved"]
    assert kinds(alerts, "never") == []
    # The crash may have sent one record again, under its old id; no id stands for two transitions.
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
    statuses = [body["status"] for _, body in hook.got]
    assert {"firing", "resolved"} <= set(statuses)
    together = [{one["labels"]["alertname"] for one in body["alerts"]} for _, body in hook.got]
    assert {"busy", "busier"} in together
    hook.shutdown()
    hook.server_close()
