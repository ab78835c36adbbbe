"""Decodes Avro records of a registry's schemas into columns of the configured fields."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import fastavro

from stream_app.core.incoming import Reason
from stream_app.sources.avro_bounds import MOST_VALUES, within_bounds
from stream_app.sources.avro_schema import Schema
from stream_app.sources.decode import TimeField, nested_value
from stream_app.sources.registered import HEADER_BYTES, Fields, RegisteredDecoder, timed
from stream_app.sources.schema_registry import SchemaRegistry
from stream_app.sources.times import TimeFormat


class AvroDecoder(RegisteredDecoder[Schema]):
    """Decodes each record by its own schema.

    A field with a timestamp type has its unit in the schema; other numbers and texts are in ``field.format``.
    Local timestamps, dates and times of day are refused, because they are not instants. Decimals are numbers,
    as in JSON. Other bytes become None.
    Guarantee: a record beyond the bounds of ``avro_bounds.py`` is undecodable.
    Cost: a few microseconds per record, because the whole record is decoded. If neither the schema nor the
    size ensures these bounds, one or two microseconds more per value.
    """

    def __init__(
        self, registry: SchemaRegistry[Schema], field: TimeField | None, others: Sequence[str] = ()
    ) -> None:
        super().__init__(registry, field, others)
        self._keys = [] if field is None else field.path.split(".")
        self._other_keys = [path.split(".") for path in others]

    def _fields(self, schema: Schema, value: bytes) -> Fields | Reason:
        record = _decoded(schema, value)
        if isinstance(record, Reason):
            return record
        time = None if self._field is None else self._time(schema, record, self._field)
        if isinstance(time, Reason):
            return time
        return time, [_plain(record, keys) for keys in self._other_keys]

    def _time(
        self, schema: Schema, record: dict[str, Any], field: TimeField
    ) -> tuple[TimeFormat, Any] | Reason:
        value = nested_value(record, self._keys)
        if isinstance(value, Reason):
            return value
        unit = schema.unit(field.path)
        if unit == "none" and type(value) is not str:
            return Reason.BAD_TIME
        return timed(value, field.format, None if unit == "none" else unit)


def _decoded(schema: Schema, value: bytes) -> dict[str, Any] | Reason:
    checked = not schema.bounded or len(value) > MOST_VALUES
    if checked and not within_bounds(value, HEADER_BYTES, schema.parsed, schema.named):
        return Reason.UNDECODABLE
    body = io.BytesIO(value)
    body.seek(HEADER_BYTES)
    try:
        record = fastavro.schemaless_reader(body, schema.parsed, None)
    except Exception:  # the codec has no error type: bytes of a different schema may raise any
        return Reason.UNDECODABLE
    if not isinstance(record, dict) or body.tell() != len(value):
        return Reason.UNDECODABLE
    return record


def _plain(record: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        record = record.get(key) if isinstance(record, dict) else None
    return None if isinstance(record, bytes) else record
