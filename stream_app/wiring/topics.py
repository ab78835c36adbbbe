"""The Kafka cluster of a configuration.

Import it only where a topic is configured: Kafka's clients take as long to import as the rest of a worker.
"""

from __future__ import annotations

from stream_app.config import Settings
from stream_app.kafka_cluster import Cluster


def cluster_of(settings: Settings) -> Cluster:
    """Return the configured cluster."""
    assert settings.kafka is not None  # the configuration was refused without it
    return Cluster(settings.kafka.bootstrap_servers, settings.kafka.security)
