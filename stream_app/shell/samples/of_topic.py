"""Newest records of a topic, and a sample of one that no configuration names yet."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from stream_app.core.json_objects import is_object
from stream_app.kafka_cluster import Cluster, TopicFacts, reach, topic_facts, translating_errors
from stream_app.ports import OperatorError
from stream_app.shell.samples.of_log import Sample, SchemaHints, sample_of
from stream_app.sources.decode import csv_values
from stream_app.sources.registered import HEADER_BYTES, schema_id

SAMPLE_RECORDS = 2_000
_READ_MS = 5_000
Held = Literal["json", "json_schema", "csv", "schema", ""]  # schema: only a registry knows its fields


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


async def topic_records(cluster: Cluster, topic: str) -> list[bytes]:
    """Return the newest records of a topic.

    Raises: OSError if the cluster is unreachable, or the topic has no record; OperatorError if the client
        cannot log in with the settings.
    """
    await reach(cluster)
    facts = await topic_facts(cluster, topic)
    if facts is None:
        raise FileNotFoundError(f"the topic {topic} does not exist on {cluster.bootstrap_servers}")
    records = [record.value for record in await newest_records(cluster, topic, facts)]
    if not records:
        raise FileNotFoundError(f"the topic {topic} has no records yet")
    return records


def held(records: Sequence[bytes]) -> Held:
    """Return the format of most records; empty if the service does not read it.

    >>> held([b'{"at": 1}']), held([bytes(5) + b'{}']), held([b"a,1", b"b,2"])
    ('json', 'json_schema', 'csv')
    >>> held([bytes([0, 0, 0, 0, 7, 2, 4])]), held([b"lost"])
    ('schema', '')
    """
    return Counter(map(_held, records)).most_common(1)[0][0]


def width(records: Sequence[bytes]) -> int:
    """Return the number of values in most records of CSV."""
    return Counter(len(csv_values(record) or ()) for record in records).most_common(1)[0][0]


def sample_of_topic(topic: str, form: Held, records: Sequence[bytes], columns: tuple[str, ...]) -> Sample:
    """Return a sample of records that need no schema. Raises: OperatorError if none can be decoded."""
    if form == "csv":
        return replace(sample_of(topic, "csv", records, columns), hints=SchemaHints(columns))
    if form == "json":
        return replace(sample_of(topic, "ndjson", records), form="json")
    behind = [record[HEADER_BYTES:] for record in records if record[:1] == b"\0"]
    return replace(sample_of(topic, "ndjson", behind), form="json_schema")


def refused(topic: str) -> OperatorError:
    """Return the error for records that are in no format."""
    return OperatorError(
        f"--events topic:{topic}: its records are neither JSON objects nor lines of CSV, and name no schema "
        "of a registry; docs/configuration.md, source.format, says what can be read"
    )


def _held(record: bytes) -> Held:
    if record[:1] == b"\0" and is_object(record[HEADER_BYTES:]):
        return "json_schema"
    if is_object(record):
        return "json"
    if record[:1] == b"\0":
        return "schema" if schema_id(record) is not None else ""
    values = csv_values(record)
    return "csv" if values is not None and len(values) > 1 and b"\0" not in record else ""
