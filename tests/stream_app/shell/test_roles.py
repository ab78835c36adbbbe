"""What each child of ``run`` is told of the configuration: nothing that it does not need."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_app.config import load_text
from stream_app.shell.supervision import Service, _roles

CONFIG = """
kafka:
  bootstrap_servers: "here:9092"
  security.protocol: sasl_ssl
  sasl.username: counting
  sasl.password: secret-here
  clusters:
    abroad: {{bootstrap_servers: "there:9092", security.protocol: sasl_ssl, sasl.username: alerting, sasl.password: secret-abroad}}
redis: {{url: "redis://:secret-redis@127.0.0.1:1", alerts_url: "redis://:secret-alerts@127.0.0.1:1", api_url: "redis://127.0.0.1:1"}}
streams:
  clicks:
    source: {{topic: clicks}}
    time: {{field: at, format: ms, bin: 5m, grace: 30s, epoch: 1d}}
    privacy: {{epsilon: 1.0}}
alerts:
  rules: {{many: {{when: "sum(clicks, 1h) > 5"}}}}
  {topic}
"""  # noqa: E501


@pytest.mark.parametrize(
    ("topic", "seen"),
    [("topic: a, cluster: abroad", {"abroad"}), ("topic: a", {""}), ("webhooks: []", set())],
)
def test_the_process_that_sends_alerts_is_told_of_its_cluster_only(topic: str, seen: set[str]) -> None:
    text = CONFIG.format(topic="\n  ".join(topic.split(", ")))
    settings = load_text(text, Path("/app/app.yaml"), {})
    roles = _roles(settings, Service())
    kafka = roles["alerts"].kafka
    assert set(kafka.clusters if kafka is not None else ()) == seen
    assert roles["api"].kafka is None
    assert roles["worker"] is settings
