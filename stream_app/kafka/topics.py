"""Facts about a cluster's topics, new topics, and all records of a partition."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition, errors
from kafka import KafkaAdminClient
from kafka import errors as admin_errors
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

from stream_app.kafka.cluster import Cluster, answered, reach, stop_reader, translating_errors
from stream_app.ports import OperatorError

COMPACTED = {"cleanup.policy": "compact"}
_ASK_TIMEOUT_MS = 15_000
_FETCH_TIMEOUT_MS = 1_000
_LOOKS, _LOOK_AGAIN_S = 6, 0.2


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A cluster's facts about one topic; "" and 0 if this user may not read them."""

    cluster_id: str
    topic_id: str
    partitions: int
    cleanup_policy: str
    largest_message_bytes: int
    retention_ms: int | None = None


async def topic_facts(cluster: Cluster, topic: str) -> TopicFacts | None:
    """Return a topic's facts, or None if it does not exist. Raises: OSError if unreachable; OperatorError."""
    await reach(cluster)
    return await asyncio.to_thread(_topic_facts, cluster, topic)


def check_keeps_records(topic: str, facts: TopicFacts) -> None:
    """Check that no record can remove another record before it is counted, as far as the cluster says.

    Raises: OperatorError for a compacted topic: what, where, remedy.
    """
    if "compact" in facts.cleanup_policy:
        # One more record with a key removes earlier ones, so logs could then differ by more than one event.
        raise OperatorError(
            f"topic {topic}: it has cleanup.policy={facts.cleanup_policy}, so a record may remove earlier "
            "ones before they are counted; use a topic with cleanup.policy=delete"
        )


async def facts_soon(
    cluster: Cluster, topic: str, settings: Mapping[str, str] | None = None
) -> TopicFacts | None:
    """Return a topic's facts. Brokers may learn of a new topic at different times, so it looks several times.

    Args: settings, with which a missing topic is created; None: it is not.
    """
    for _ in range(_LOOKS):
        if (facts := await topic_facts(cluster, topic)) is not None:
            return facts
        if settings is not None:
            await create_topic(cluster, topic, settings)
        await asyncio.sleep(_LOOK_AGAIN_S)
    return None


async def made_topic(cluster: Cluster, topic: str, settings: Mapping[str, str]) -> TopicFacts:
    """Return a topic's facts; create it with these settings if it is missing. Raises: OSError."""
    facts = await facts_soon(cluster, topic, settings)
    if facts is None:
        raise ConnectionError(f"topic {topic}: it was created and is not there yet")
    return facts


async def create_topic(cluster: Cluster, topic: str, settings: Mapping[str, str]) -> None:
    """Create a topic with one partition and these settings; an existing topic stays as it is."""
    await reach(cluster)
    await asyncio.to_thread(_create_topic, cluster, topic, settings)


async def records_of(
    cluster: Cluster,
    place: TopicPartition,
    start: int | None = None,
    end: int | None = None,
    isolation_level: str = "read_committed",
) -> list[ConsumerRecord[bytes, bytes]]:
    """Return the records of a partition between two offsets, oldest first.

    Args: start, end: offsets; None: where the log begins and ends. If only committed records are read, the
        log ends before the first open transaction.
    Raises: OSError if Kafka does not answer, or sends nothing more for ``LONGEST_ANSWER_S``; OperatorError
        if it refuses this user.
    """
    records: list[ConsumerRecord[bytes, bytes]] = []
    if start is not None and end is not None and start >= end:
        return records  # aiokafka fails to stop a consumer that asked nothing
    reader = AIOKafkaConsumer(isolation_level=isolation_level, auto_offset_reset="none", **cluster.client())
    try:
        await answered(cluster, place.topic, reader.start())
        position, last = await answered(cluster, place.topic, _placed(reader, place, start, end))
        while position < last:
            position = await answered(cluster, place.topic, _read_on(reader, place, records))
    finally:
        await stop_reader(cluster, place.topic, reader)
    return [record for record in records if record.offset < last]


async def _placed(
    reader: AIOKafkaConsumer, place: TopicPartition, start: int | None, end: int | None
) -> tuple[int, int]:
    """Let a consumer read from ``start``; return where its reading starts and ends."""
    reader.assign([place])
    first = int((await reader.beginning_offsets([place]))[place] if start is None else start)
    last = int((await reader.end_offsets([place]))[place] if end is None else end)
    reader.seek(place, first)
    return first, last


async def _read_on(
    reader: AIOKafkaConsumer, place: TopicPartition, records: list[ConsumerRecord[bytes, bytes]]
) -> int:
    """Read more records; return the next position as soon as it has moved."""
    before = await reader.position(place)
    while True:
        fetched = await reader.getmany(place, timeout_ms=_FETCH_TIMEOUT_MS)
        records += fetched.get(place, [])
        if (position := int(await reader.position(place))) > before:
            return position


@contextmanager
def _admin(cluster: Cluster) -> Iterator[KafkaAdminClient]:
    with translating_errors(cluster):
        client = KafkaAdminClient(request_timeout_ms=_ASK_TIMEOUT_MS, **cluster.blocking_client())
        try:
            yield client
        finally:
            client.close()


def _topic_facts(cluster: Cluster, topic: str) -> TopicFacts | None:
    with _admin(cluster) as client:
        [described] = client.describe_topics([topic])
        if described["error_code"] == errors.UnknownTopicOrPartitionError.errno:
            return None
        wanted = ["cleanup.policy", "max.message.bytes", "retention.ms"]
        asked = ConfigResource(ConfigResourceType.TOPIC, topic, wanted)
        settings = client.describe_configs([asked], config_filter="all")
        values = {name: entry["value"] for name, entry in settings["topic"][topic].items()}
        return TopicFacts(
            cluster_id=str(client.describe_cluster()["cluster_id"]),
            topic_id=str(described["topic_id"]),
            partitions=len(described["partitions"]),
            # A user without the right to describe settings gets none of them.
            cleanup_policy=values.get("cleanup.policy", ""),
            largest_message_bytes=int(values.get("max.message.bytes", 0)),
            retention_ms=int(values["retention.ms"]) if "retention.ms" in values else None,
        )


def _create_topic(cluster: Cluster, topic: str, settings: Mapping[str, str]) -> None:
    with _admin(cluster) as client:
        try:
            client.create_topics([NewTopic(topic, 1, -1, topic_configs=dict(settings))])
        except admin_errors.TopicAlreadyExistsError:
            return
