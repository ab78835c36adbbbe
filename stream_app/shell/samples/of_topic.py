"""Newest records of a topic, and a sample of a topic that no configuration names yet."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from stream_app.core.instants import format_instant
from stream_app.core.json_objects import is_object
from stream_app.kafka.cluster import Cluster, reach, translating_errors
from stream_app.kafka.topics import TopicFacts, topic_facts
from stream_app.ports import OperatorError
from stream_app.shell.samples.of_log import DEEPEST, MOST_FIELDS, Sample, SchemaHints, sample_of
from stream_app.sources.decode import Decoded, Decoder, TimeField, csv_values
from stream_app.sources.registered import HEADER_BYTES, RegisteredDecoder, schema_id
from stream_app.sources.schema_registry import SchemaRegistry

SAMPLE_RECORDS = 2_000
_READ_S = 5.0
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPED = "google.protobuf."
Held = Literal["json", "json_schema", "csv", "schema"]  # schema: only a registry knows its fields
Fields = dict[str, bool]  # the paths of a schema, and whether each is a time of its own type


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
            records = await _read_to(consumer, ends)
        finally:
            await consumer.stop()
    return [record for record in records if record.value is not None]


async def _read_to(consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]) -> list[ConsumerRecord]:
    """Read every partition to its end, in several polls if necessary."""
    records: list[ConsumerRecord] = []
    deadline_s = time.monotonic() + _READ_S
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
    """Return the newest records of a topic. Raises: OSError if there is none, or no cluster."""
    await reach(cluster)
    facts = await topic_facts(cluster, topic)
    if facts is None:
        raise FileNotFoundError(f"the topic {topic} does not exist on {cluster.bootstrap_servers}")
    records = [record.value for record in await newest_records(cluster, topic, facts)]
    if not records:
        raise FileNotFoundError(f"the topic {topic} has no records yet")
    return records


def held(topic: str, records: Sequence[bytes]) -> Held:
    """Return the format of most records. Raises: OperatorError if the service does not read it.

    >>> held("t", [b'{"at": 1}']), held("t", [bytes(5) + b'{}']), held("t", [b"a,1", b"b,2"])
    ('json', 'json_schema', 'csv')
    >>> held("t", [bytes([0, 0, 0, 0, 7, 2, 4])])
    'schema'
    """
    found = Counter(map(_held, records)).most_common(1)[0][0]
    if found is None:
        raise OperatorError(
            f"--events topic:{topic}: its records are neither JSON objects nor lines of CSV, and name no "
            "schema of a registry; docs/configuration.md, source.format, says what can be read"
        )
    return found


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


def _held(record: bytes) -> Held | None:
    if record[:1] == b"\0" and is_object(record[HEADER_BYTES:]):
        return "json_schema"
    if is_object(record):
        return "json"
    if record[:1] == b"\0":
        return "schema" if schema_id(record) is not None else None
    values = csv_values(record)
    return "csv" if values is not None and len(values) > 1 and b"\0" not in record else None


async def sample_of_schemas(where: str, records: Sequence[bytes], url: str, authority: Path | None) -> Sample:
    """Return a sample of records, by the schemas that they name."""
    ids = [found for found in dict.fromkeys(map(schema_id, records)) if found is not None]
    for read in (_of_avro, _of_protobuf):
        found = await read(url, authority, ids)
        if found is not None:
            form, decoder, fields = found
            return _sample(where, form, records, decoder, fields, SchemaHints((), url, authority))
    raise OperatorError(f"--schema-registry: it has no schema of Avro or Protobuf for the records of {where}")


_Read = tuple[Any, Callable[[TimeField | None, Sequence[str]], RegisteredDecoder[Any]], Fields]


async def _of_avro(url: str, authority: Path | None, ids: Sequence[int]) -> _Read | None:
    from stream_app.sources.avro import (
        AVRO,
        AvroDecoder,  # its package may not be installed
    )

    registry = SchemaRegistry(url, authority, AVRO)
    schemas = await _schemas(registry, ids)
    fields = dict.fromkeys((path for one in schemas for path in _avro_paths(one.parsed, one.named)), False)
    if not schemas:
        return None
    return "avro", lambda time, others: AvroDecoder(registry, time, others), fields


async def _of_protobuf(url: str, authority: Path | None, ids: Sequence[int]) -> _Read | None:
    from stream_app.sources.protobuf import (
        PROTOBUF,
        ProtobufDecoder,  # its package may not be installed
    )

    registry = SchemaRegistry(url, authority, PROTOBUF)
    schemas = await _schemas(registry, ids)
    messages = [message for one in schemas for message in one.messages.values()]
    fields: Fields = dict(path for message in messages for path in _message_paths(message))
    if not schemas:
        return None
    return "protobuf", lambda time, others: ProtobufDecoder(registry, time, others), fields


async def _schemas(registry: SchemaRegistry[Any], ids: Sequence[int]) -> list[Any]:
    """Return the schemas of one kind that records name. Raises: OSError if the registry does not answer."""
    unanswered = await registry.fetch(ids)
    if failure := next(iter(unanswered.values()), None):
        raise failure
    return [schema for found in ids if (schema := registry.known.get(found)) is not None]


def _sample(
    where: str,
    form: Any,
    records: Sequence[bytes],
    decoder: Callable[[TimeField | None, Sequence[str]], RegisteredDecoder[Any]],
    fields: Fields,
    hints: SchemaHints,
) -> Sample:
    nothing = [0] * len(records)
    paths = list(fields)[:MOST_FIELDS]
    found = decoder(None, paths).decode(records, nothing)
    columns = {path: _values(found.columns[path]) for path in paths}
    for path in (path for path in paths if fields[path]):
        times = decoder(TimeField(path, "us"), ()).decode(records, nothing).columns[path]
        columns[path] = [format_instant(us) for us in times.tolist()]
    good = [records[index] for index in found.kept.tolist()]
    if not good:
        raise OperatorError(f"--events topic:{where}: none of its records can be decoded by its schema")
    held = {path: values for path, values in columns.items() if values}
    return Sample(
        where, form, good, lambda time: _Timed(decoder(time, ())), held, len(records) - len(good), hints
    )


class _Timed(Decoder):
    """Decodes times of records that carry no time beside their value."""

    def __init__(self, decoder: RegisteredDecoder[Any]) -> None:
        self._decoder = decoder

    def decode(self, records: Sequence[bytes]) -> Decoded:
        return self._decoder.decode(records, [0] * len(records))


def _values(column: np.ndarray[Any, Any]) -> list[Any]:
    return [value for value in column.tolist() if value is not None and not isinstance(value, dict | list)]


def _avro_paths(
    schema: Any, named: Mapping[str, Any], above: str = "", deeper: int = DEEPEST
) -> Iterator[str]:
    """Yield the paths of the fields of an Avro record, of all branches of a union."""
    for branch in schema if isinstance(schema, list) else [schema]:
        inner = named.get(branch) if isinstance(branch, str) else branch
        if not isinstance(inner, dict) or inner.get("type") != "record":
            continue
        for field in inner["fields"]:
            path, typed = f"{above}{field['name']}", field["type"]
            yield path
            if deeper:
                yield from _avro_paths(typed, named, f"{path}.", deeper - 1)


def _message_paths(message: Any, above: str = "", deeper: int = DEEPEST) -> Iterator[tuple[str, bool]]:
    """Yield the paths of the fields of a message, and whether each is a Timestamp."""
    for member in message.fields:
        path, inner = f"{above}{member.name}", member.message_type
        if member.is_repeated:
            continue
        if inner is None or inner.full_name.startswith(_WRAPPED):
            yield path, inner is not None and inner.full_name == _TIMESTAMP
        elif deeper:
            yield from _message_paths(inner, f"{path}.", deeper - 1)
