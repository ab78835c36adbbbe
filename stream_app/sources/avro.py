"""Decodes Avro records in Confluent's wire format into columns of the configured fields.

The result for a record depends on its bytes and on the schema that they name, which never changes.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Container, Sequence
from itertools import chain, zip_longest
from typing import Any

import fastavro
import numpy as np

from stream_app.core.records import Reason
from stream_app.sources.avro_bounds import MOST_VALUES, within_bounds
from stream_app.sources.decode import Decoded, TimeField, decoded_columns, nested_value, untimed_columns
from stream_app.sources.schema_registry import SchemaRegistry, Unit
from stream_app.sources.times import TimeFormat, times_us

log = logging.getLogger(__name__)

_MAGIC = 0
_HEADER_BYTES = 5  # the magic byte and the schema's id, big-endian
_LARGEST_ID = 2**31 - 1


class AvroDecoder:
    """Decodes each record by its own schema (``topic_records.TopicDecoder``).

    A field with a timestamp type has its unit in the schema; other numbers and texts are in ``field.format``.
    Local timestamps, dates and times of day are refused, because they are not instants. Decimals are numbers,
    as in JSON. Other bytes become None.
    Args: field, of the time; None to decode the other fields only: every record is then kept.
    Guarantee: a record beyond the bounds of ``avro_bounds.py`` is undecodable.
    Cost: a few microseconds per record, because the whole record is decoded. If neither the schema nor the
    size ensures these bounds, one or two microseconds more per value.
    """

    needs_timestamps = False

    def __init__(self, registry: SchemaRegistry, field: TimeField | None, others: Sequence[str] = ()) -> None:
        self._registry = registry
        self._field = field
        self._keys = [] if field is None else field.path.split(".")
        self._others = {path: path.split(".") for path in others}

    async def prepare(self, logs: Sequence[Sequence[bytes]]) -> list[int]:
        """Fetch the schemas of records; return how many records at the start of each log can be decoded now.

        A record whose schema id got no answer is neither counted nor refused: it and all later records of its
        log wait for the next call. The logs take turns, so a log with many new ids does not block the others.
        Raises: OSError if no record can be decoded.
        """
        ids = [list(map(_schema_id, values)) for values in logs]
        in_turn = chain.from_iterable(zip_longest(*map(dict.fromkeys, ids)))
        unanswered = await self._registry.fetch(
            [found for found in dict.fromkeys(in_turn) if found is not None]
        )
        if not unanswered:
            return [len(values) for values in logs]
        ready = [_first_of(unanswered, found) for found in ids]
        failure = next(iter(unanswered.values()))
        if not any(ready):
            raise failure
        log.warning("%s", failure)
        return ready

    def decode(self, values: Sequence[bytes], timestamps_ms: Sequence[int]) -> Decoded:
        """Decode records whose schemas are fetched."""
        refused: list[tuple[int, Reason]] = []
        kept: list[int] = []
        times: dict[TimeFormat, tuple[list[int], list[Any]]] = {}  # by format: rows of kept, values
        rows: list[list[Any]] = [[] for _ in self._others]
        for index, value in enumerate(values):
            record, unit = self._record(value)
            found = record if isinstance(record, Reason) else self._time(record, unit)
            if isinstance(found, Reason):
                refused.append((index, found))
                continue
            if found is not None:
                time_format, time = found
                at, written = times.setdefault(time_format, ([], []))
                at.append(len(kept))
                written.append(time)
            kept.append(index)
            for row, keys in zip(rows, self._others.values(), strict=True):
                row.append(_plain(record, keys))
        others = dict(zip(self._others, rows, strict=True))
        if self._field is None:
            return untimed_columns(kept, others, refused)
        found_us, good = np.zeros(len(kept), dtype=np.int64), np.zeros(len(kept), dtype=np.bool_)
        for time_format, (at, written) in times.items():
            found_us[at], good[at] = times_us(written, time_format)
        return decoded_columns(kept, self._field.path, (found_us, good), others, refused)

    def _record(self, value: bytes) -> tuple[dict[str, Any] | Reason, Unit]:
        """Return a decoded record with the unit of its time, or the reason for its refusal."""
        schema_id = _schema_id(value)
        if schema_id is not None and schema_id not in self._registry.known:
            return Reason.UNKNOWN_SCHEMA, None
        schema = None if schema_id is None else self._registry.known[schema_id]
        if schema is None:
            return Reason.UNDECODABLE, None
        checked = not schema.bounded or len(value) > MOST_VALUES
        if checked and not within_bounds(value, _HEADER_BYTES, schema.parsed, schema.named):
            return Reason.UNDECODABLE, None
        body = io.BytesIO(value)
        body.seek(_HEADER_BYTES)
        try:
            record = fastavro.schemaless_reader(body, schema.parsed, None)
        except Exception:  # the codec has no error type: bytes of a different schema may raise any
            return Reason.UNDECODABLE, None
        if not isinstance(record, dict) or body.tell() != len(value):
            return Reason.UNDECODABLE, None
        return record, None if self._field is None else schema.unit(self._field.path)

    def _time(self, record: dict[str, Any], unit: Unit) -> tuple[TimeFormat, Any] | Reason | None:
        """Return a record's time with its format, or the reason for its refusal; None if it is not read."""
        if self._field is None:
            return None
        value = nested_value(record, self._keys)
        if isinstance(value, Reason):
            return value
        if type(value) is str and self._field.format == "iso8601":
            return "iso8601", value
        time_format = unit or self._field.format
        if type(value) not in (int, float) or time_format == "iso8601" or time_format == "none":
            return Reason.BAD_TIME
        return time_format, value


def _schema_id(value: bytes) -> int | None:
    """Return the id of a record's schema; None if the bytes are not in the wire format."""
    if len(value) < _HEADER_BYTES or value[0] != _MAGIC:
        return None
    schema_id = int.from_bytes(value[1:_HEADER_BYTES], "big")
    return schema_id if 0 < schema_id <= _LARGEST_ID else None


def _first_of(unanswered: Container[int], ids: Sequence[int | None]) -> int:
    """Return the index of the first record whose schema got no answer; the number of records if none."""
    return next((index for index, found in enumerate(ids) if found in unanswered), len(ids))


def _plain(record: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        record = record.get(key) if isinstance(record, dict) else None
    return None if isinstance(record, bytes) else record
