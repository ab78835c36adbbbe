"""A sample of a topic that no configuration names yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from stream_app.core.json_objects import is_object
from stream_app.kafka_cluster import Cluster, reach, topic_facts
from stream_app.ports import OperatorError
from stream_app.shell.doctor.topic_sample import newest_records
from stream_app.shell.init.sample import Sample, Told, sample_of
from stream_app.sources.decode import csv_values
from stream_app.sources.registered import HEADER_BYTES, schema_id

Held = Literal["json", "json_schema", "csv", "schema", ""]  # schema: only a registry knows its fields


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
    """Return what most records hold; empty if it is no format that the service reads.

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
        return replace(sample_of(topic, "csv", records, columns), told=Told(columns))
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
