"""The Kafka clusters of a configuration.

Import it only where a topic is configured: Kafka's clients take as long to import as the rest of a worker.
"""

from __future__ import annotations

from stream_app.config import Settings
from stream_app.kafka.cluster import Cluster


def cluster_of(settings: Settings, name: str) -> Cluster:
    """Return the configured cluster of a name; "" is that of ``kafka`` itself."""
    assert settings.kafka is not None  # the configuration was refused without it
    found = settings.kafka.clusters[name]
    where = f"kafka.clusters.{name}" if name else "kafka"
    return Cluster(found.bootstrap_servers, found.security, where)
