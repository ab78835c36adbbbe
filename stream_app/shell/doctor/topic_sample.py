"""Reads the newest records of a topic."""

from __future__ import annotations

import time
from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from stream_app.kafka_cluster import Cluster, TopicFacts, translating_errors

SAMPLE_RECORDS = 2_000
_READ_MS = 5_000


async def newest_records(cluster: Cluster, topic: str, facts: TopicFacts) -> list[ConsumerRecord]:
    """Return some of the newest committed records of each partition, except records without a value."""
    consumer = AIOKafkaConsumer(isolation_level="read_committed", **cluster.client())
    with translating_errors(cluster):
        await consumer.start()
        try:
            partitions = [TopicPartition(topic, number) for number in range(facts.partitions)]
            each = -(-SAMPLE_RECORDS // len(partitions))
            consumer.assign(partitions)
            first = await consumer.beginning_offsets(partitions)
            ends = await consumer.end_offsets(partitions)
            for partition in partitions:
                consumer.seek(partition, max(first[partition], ends[partition] - each))
            if not any(ends[partition] > first[partition] for partition in partitions):
                return []
            records = await _read_to(consumer, ends)
        finally:
            await consumer.stop()
    return [record for record in records if record.value is not None]


async def _read_to(consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]) -> list[ConsumerRecord]:
    """Read every partition to its end, in several polls if necessary."""
    records: list[ConsumerRecord] = []
    deadline_s = time.monotonic() + _READ_MS / 1000
    while time.monotonic() < deadline_s:
        behind = [place for place, end in ends.items() if await consumer.position(place) < end]
        if not behind:
            break
        fetched = await consumer.getmany(*behind, timeout_ms=500)
        records += [record for some in fetched.values() for record in some]
    return records


async def lacks_records(cluster: Cluster, topic: str, positions: Mapping[str, int]) -> bool:
    """Return whether a topic no longer has the records at positions, by partition: a worker would end."""
    consumer = AIOKafkaConsumer(**cluster.client())
    with translating_errors(cluster):
        await consumer.start()
        try:
            places = {TopicPartition(topic, int(name)): at for name, at in positions.items()}
            first, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        finally:
            await consumer.stop()
    return any(not first[place] <= at <= ends[place] for place, at in places.items())
