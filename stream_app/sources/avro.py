"""Decodes Avro records of a registry's schemas into columns of the configured fields."""

from __future__ import annotations

import io
from typing import Any

import fastavro

from stream_app.core.incoming import Reason
from stream_app.core.json_objects import nested_value
from stream_app.sources.avro_bounds import MOST_VALUES, within_bounds
from stream_app.sources.avro_schema import Schema
from stream_app.sources.decode import TimeField
from stream_app.sources.registered import HEADER_BYTES, Fields, RegisteredDecoder, timed
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

    def _fields(self, schema: Schema, value: bytes) -> Fields | Reason:
        record = _decoded(schema, value)
        if isinstance(record, Reason):
            return record
        time = None if self._field is None else self._time(schema, record, self._field)
        if isinstance(time, Reason):
            return time
        return time, [_plain(nested_value(record, path)) for path in self._others]

    def _time(
        self, schema: Schema, record: dict[str, Any], field: TimeField
    ) -> tuple[TimeFormat, Any] | Reason:
        value = nested_value(record, field.path)
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


def _plain(value: Any) -> Any:
    return None if isinstance(value, bytes | Reason) else value
