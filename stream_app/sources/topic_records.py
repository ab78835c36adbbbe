"""Turns records of a topic into columns, timed by a field of their value or by the record's timestamp."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from stream_app.core.incoming import Reason
from stream_app.ports import OperatorError
from stream_app.sources.decode import CsvDecoder, Decoded, Decoder, NdjsonDecoder, TimeField, decoded_columns
from stream_app.sources.registered import HEADER_BYTES, schema_id
from stream_app.sources.times import times_us

TopicFormat = Literal["json", "csv", "avro", "protobuf", "json_schema"]
TIMESTAMP = "@timestamp"  # as a time field, it means the record's own timestamp


class TopicDecoder(Protocol):
    """Decodes the values and timestamps of records into columns."""

    needs_timestamps: bool  # whether ``decode`` uses timestamps; otherwise they may be left out

    async def prepare(self, logs: Sequence[Sequence[bytes]]) -> Sequence[int]:
        """Fetch the schemas for decoding; return how many records at the start of each log can be decoded.

        Raises: OSError if none can be decoded now.
        """
        return [len(values) for values in logs]

    def decode(self, values: Sequence[bytes], timestamps_ms: Sequence[int]) -> Decoded:
        """Return decoded records; each has a value and was passed to ``prepare``."""


def topic_decoder(
    format: TopicFormat,
    field: TimeField,
    columns: Sequence[str] = (),
    others: Sequence[str] = (),
    schema_registry: str | None = None,
    schema_registry_ca: Path | None = None,
) -> TopicDecoder:
    """Return the decoder of a topic.

    Args: columns, of a CSV topic, whose records have no header line; others, paths of fields beside the time;
        schema_registry, the URL of schemas of Avro or Protobuf; schema_registry_ca, see ``SchemaRegistry``.
    Raises: OperatorError for columns without the field, and for a format without its package or authority.

    >>> by_value = topic_decoder("csv", TimeField("at", "s"), ["id", "at"])
    >>> by_value.decode([b"7,2"], [0]).columns["at"].tolist()
    [2000000]
    >>> topic_decoder("json", TimeField(TIMESTAMP, "ms")).decode([b"any"], [2]).columns[TIMESTAMP].tolist()
    [2000]
    """
    by_timestamp = field.path == TIMESTAMP
    if by_timestamp and not others:
        return _ByTimestamp(None)
    time = None if by_timestamp else field
    decoder = _by_value(format, time, columns, others, schema_registry, schema_registry_ca)
    return _ByTimestamp(decoder, others) if by_timestamp else decoder


def _by_value(
    format: TopicFormat,
    time: TimeField | None,
    columns: Sequence[str],
    others: Sequence[str],
    schema_registry: str | None,
    schema_registry_ca: Path | None,
) -> TopicDecoder:
    """Return the decoder of values. Args: time, None if it is not read from values; others: see above."""
    if format == "json":
        return _ByValue(NdjsonDecoder(time, others))
    if format == "csv":
        return _ByValue(CsvDecoder(columns, time, others))
    if format == "json_schema":
        return _BehindHeader(NdjsonDecoder(time, others))
    from stream_app.sources.schema_registry import SchemaRegistry

    url = schema_registry or ""
    try:
        if format == "avro":
            from stream_app.sources.avro import AVRO, AvroDecoder

            return AvroDecoder(SchemaRegistry(url, schema_registry_ca, AVRO), time, others)
        from stream_app.sources.protobuf import PROTOBUF, ProtobufDecoder
    except ImportError:
        package = "fastavro" if format == "avro" else format
        said = f'source.format: {format} needs {package}; pip install "private-counts[{format}]"'
        raise OperatorError(said) from None
    return ProtobufDecoder(SchemaRegistry(url, schema_registry_ca, PROTOBUF), time, others)


class _ByValue(TopicDecoder):
    needs_timestamps = False

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def decode(self, values: Sequence[bytes], timestamps_ms: Sequence[int]) -> Decoded:
        return self._decoder.decode(values)


class _BehindHeader(_ByValue):
    """Decodes values behind a registry's header. It needs no schema, so no record waits for one."""

    def decode(self, values: Sequence[bytes], timestamps_ms: Sequence[int]) -> Decoded:
        whole = [b"" if schema_id(value) is None else value[HEADER_BYTES:] for value in values]
        return super().decode(whole, timestamps_ms)


class _ByTimestamp(TopicDecoder):
    """Counts every record by its timestamp, whatever its value.

    A record whose value cannot be decoded has none of the other fields. If it were refused, a stream that
    reads no field would count fewer records as soon as another stream of the topic reads one.
    Args: fields, decodes the other fields; None: no value is read; others, the paths of these fields.
    """

    needs_timestamps = True

    def __init__(self, fields: TopicDecoder | None, others: Sequence[str] = ()) -> None:
        self._fields, self._others = fields, others

    async def prepare(self, logs: Sequence[Sequence[bytes]]) -> Sequence[int]:
        if self._fields is None:
            return await super().prepare(logs)
        return await self._fields.prepare(logs)

    def decode(self, values: Sequence[bytes], timestamps_ms: Sequence[int]) -> Decoded:
        times, is_time = times_us(list(timestamps_ms), "ms")
        is_time &= np.array(timestamps_ms, dtype=np.int64) >= 0  # -1 means a record without a timestamp
        columns = {path: np.full(len(values), None, dtype=object) for path in self._others}
        if self._fields is not None:
            found = self._fields.decode(values, timestamps_ms)
            for path, column in columns.items():
                column[found.kept] = found.columns[path]
        found_us = times, is_time
        return decoded_columns(range(len(times)), TIMESTAMP, found_us, columns, [], lambda _: Reason.BAD_TIME)
