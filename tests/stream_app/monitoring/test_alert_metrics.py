"""The operator sees which target of alerts accepts nothing, and since when; never its address."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import generate_latest

from stream_app.monitoring.alert_metrics import AlertingMetrics, WatchedTarget
from stream_app.ports.alerts import AlertTarget, NotDelivered, Refused


class Target(AlertTarget):
    """A target that refuses while it is down."""

    name, identity, former = "webhooks[0]", "webhook 1234", ""
    shown = "alerts.webhooks[0] (https://hooks.example.org)"
    is_down = False
    answer = "status 200"

    async def send(self, transition: Mapping[str, Any]) -> str:
        if self.is_down:
            raise NotDelivered("503")
        if transition.get("kind") == "refused":
            raise Refused(400)
        return self.answer


def test_deliveries_are_counted_and_a_target_that_is_down_is_known_since_its_first_failure() -> None:
    now_s, inner = [100.0], Target()
    metrics = AlertingMetrics(lambda: now_s[0])
    target = WatchedTarget(inner, metrics)

    def shown(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(
            f"stream_app_alert_{name}", {"target": "webhooks[0]", **labels}
        )

    assert shown("deliveries_total", outcome="failed") == shown("undelivered_seconds") == 0.0
    inner.is_down = True
    for _ in range(3):
        with pytest.raises(NotDelivered):
            asyncio.run(target.send({}))
        now_s[0] += 10
    assert shown("undelivered_seconds") == 30.0
    inner.is_down = False
    asyncio.run(target.send({}))
    assert shown("undelivered_seconds") == 0.0
    assert shown("deliveries_total", outcome="failed") == 3.0
    assert shown("deliveries_total", outcome="delivered") == 1.0
    with pytest.raises(Refused):
        asyncio.run(target.send({"kind": "refused"}))
    assert shown("deliveries_total", outcome="refused") == 1.0
    inner.answer = ""  # nothing was sent, such as a pending alert to a webhook
    asyncio.run(target.send({}))
    assert shown("deliveries_total", outcome="delivered") == 1.0
    assert target.identity == inner.identity  # under which the store remembers what it was sent
    assert b"example.org" not in generate_latest(metrics.registry)


def test_the_age_of_the_last_look_grows_until_the_next_one() -> None:
    now_s = [5.0]
    metrics = AlertingMetrics(lambda: now_s[0])
    metrics.looked()
    now_s[0] += 7
    assert metrics.registry.get_sample_value("stream_app_store_age_seconds") == 7.0
