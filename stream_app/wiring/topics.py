"""Opens event logs in Kafka topics, and names the cluster.

Import it only where a topic is configured: Kafka's clients take as long to import as the rest of a worker.
"""

from __future__ import annotations

from stream_app.config import Settings, TopicSettings
from stream_app.kafka_cluster import Cluster
from stream_app.ports import Source
from stream_app.sources.kafka import KafkaSource
from stream_app.sources.topic_records import TopicDecoder


def cluster_of(settings: Settings) -> Cluster:
    """Return the configured cluster."""
    assert settings.kafka is not None  # the configuration was refused without it
    return Cluster(settings.kafka.bootstrap_servers, settings.kafka.security)


async def open_topic(source: TopicSettings, settings: Settings, decoder: TopicDecoder) -> Source:
    """Return the open log of a topic. Raises: OperatorError if it cannot be read."""
    assert settings.kafka is not None  # the configuration was refused without it
    return await KafkaSource.open(cluster_of(settings), source.topic, settings.kafka.group, decoder)


def place_of(source: Source) -> dict[str, str]:
    """Return what identifies an open topic: its cluster and its id. A recreated topic has a new id."""
    assert isinstance(source, KafkaSource)
    return {"cluster_id": source.facts.cluster_id, "topic_id": source.facts.topic_id}
