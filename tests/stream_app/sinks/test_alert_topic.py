"""A topic as a target gets one record per transition, sent again until the cluster acknowledges it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deploy.ports import free_port
from stream_app.kafka.cluster import Cluster
from stream_app.loops.alert_delivery import send_waiting
from stream_app.ports.alerts import NotDelivered
from stream_app.sinks import topics
from stream_app.sinks.alert_topic import TopicTarget, cloud_event
from tests.brokers import Topic
from tests.e2e.test_alerts import told
from tests.models.memory_alerts import MemoryAlertStore

pytestmark = pytest.mark.anyio

TOLD: dict[str, Any] = {
    "key": "k1",
    "kind": "firing",
    "rule": "busy",
    "condition": "sum(a b, 1h) > 5",
    "confidence": 0.95,
    "stream": "a b",
    "seq": 7,
    "at_us": 3_600_000_000,
    "now_us": 3_601_000_000,
    "since_us": 3_600_000_000,
    "fired_us": 3_601_000_000,
    "value": 9.5,
    "stderr": None,
    "private": True,
    "labels": {"team": "web"},
    "summary": "",
}


def test_a_transition_in_the_words_of_cloud_events() -> None:
    event = cloud_event(TOLD)
    data = event.pop("data")
    assert event == {
        "specversion": "1.0",
        "id": "k1",
        "source": "/v1/streams/a%20b",
        "type": "private-counts.alert.firing",
        "subject": "busy",
        "time": "1970-01-01T01:00:01Z",
        "datacontenttype": "application/json",
    }
    assert data["bin_end"] == data["since"] == "1970-01-01T01:00:00Z"
    assert (data["value"], data["stderr"], data["private"]) == (9.5, None, True)
    assert "against" not in data
    assert cloud_event(TOLD | {"against": 19.0})["data"]["against"] == 19.0
    assert all(isinstance(value, str | float | int | bool | dict | None) for value in data.values())


async def test_unreachable_cluster_is_tried_again() -> None:
    port = free_port()
    target = TopicTarget(Cluster(f"127.0.0.1:{port}"), "alerts")
    with pytest.raises(NotDelivered, match=str(port)):
        await target.send(TOLD)
    await target.close()


@pytest.mark.kafka
async def test_waiting_transitions_are_sent_in_order_and_once(bootstrap_servers: str) -> None:
    topic = await Topic.create(bootstrap_servers)
    steps = list(enumerate(["pending", "firing", "resolved", "inactive"]))
    store, target = MemoryAlertStore(), TopicTarget(Cluster(bootstrap_servers), topic.name)
    await store.register(target.identity)
    await store.commit("a b", None, 1, {}, [TOLD | {"key": f"k{n}", "kind": kind} for n, kind in steps])
    assert await send_waiting(store, target) == 4
    assert await send_waiting(store, target) == 0
    await target.remind([TOLD])
    await target.close()
    await target.send(TOLD | {"key": "k9"})  # a closed target opens again
    await target.close()
    events = await asyncio.to_thread(told, topic)
    assert [event["id"] for event in events] == ["k0", "k1", "k2", "k3", "k9"]
    assert [event["data"]["kind"] for event in events][:4] == [kind for _, kind in steps]


@pytest.mark.kafka
async def test_sending_waits_for_a_missing_topic(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "_ANSWER_MS", 1_000)
    target = TopicTarget(Cluster(bootstrap_servers), "nobody-made-this")
    try:
        with pytest.raises(NotDelivered):
            await asyncio.wait_for(target.send(TOLD), 60)
    finally:
        await target.close()
