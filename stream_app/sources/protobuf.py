"""Decodes Protobuf records of a registry's schemas into columns of the configured fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from stream_app.core.incoming import Reason
from stream_app.sources.decode import TimeField
from stream_app.sources.protobuf_fields import MessageReader, Timestamp, message_reader
from stream_app.sources.protobuf_schema import ProtobufSchema
from stream_app.sources.registered import HEADER_BYTES, Fields, RegisteredDecoder, timed
from stream_app.sources.schema_registry import SchemaRegistry

MOST_BYTES = 1 << 20  # of a record; the slowest record of this size takes 25 ms
_MOST_NESTED = 100  # message indexes


class ProtobufDecoder(RegisteredDecoder[ProtobufSchema]):
    """Decodes each record by the message that it names, as far as its fields are read.

    A field of type google.protobuf.Timestamp is a time; other numbers and texts are in ``field.format``.
    ``message_reader`` describes paths.
    Guarantee: a record of more than ``MOST_BYTES`` is undecodable, because it could delay a cut.
    Cost: two or three microseconds per record, whatever else it holds.
    """

    def __init__(
        self, registry: SchemaRegistry[ProtobufSchema], field: TimeField | None, others: Sequence[str] = ()
    ) -> None:
        super().__init__(registry, field, others)
        self._paths = (() if field is None else (field.path,)) + tuple(others)

    def _fields(self, schema: ProtobufSchema, value: bytes) -> Fields | Reason:
        found = _indexes(value)
        if found is None or len(value) > MOST_BYTES:
            return Reason.UNDECODABLE
        indexes, body = found
        if indexes not in schema.messages:
            return Reason.UNDECODABLE
        reader = _reader(schema, indexes, self._paths)
        try:
            message = reader.decode(value[body:])
            values = [read(message) for read in reader.values]
        except (DecodeError, UnicodeDecodeError):
            values = self._each_alone(schema, indexes, value[body:])
            if not values:
                return Reason.UNDECODABLE
        if self._field is None:
            return None, [_plain(other) for other in values]
        time, *others = values
        plain = [_plain(other) for other in others]
        if isinstance(time, Timestamp):
            return ("us", time.us), plain
        in_format = time if isinstance(time, Reason) else timed(time, self._field.format)
        return in_format if isinstance(in_format, Reason) else (in_format, plain)

    def _each_alone(self, schema: ProtobufSchema, indexes: tuple[int, ...], body: bytes) -> list[Any]:
        """Return the values of a damaged record; none if it is no message. A damaged field has no value."""
        found: list[Any] = []
        for paths in ((), *((path,) for path in self._paths)):
            alone = _reader(schema, indexes, paths)
            try:
                whole = alone.decode(body)
                found += [read(whole) for read in alone.values]
            except (DecodeError, UnicodeDecodeError):
                if not paths:
                    return []
                found.append(Reason.BAD_TIME)
        return found


def _reader(schema: ProtobufSchema, indexes: tuple[int, ...], paths: tuple[str, ...]) -> MessageReader:
    """Return the reader of these paths in a message that the schema has."""
    if (indexes, paths) not in schema.readers:
        schema.readers[indexes, paths] = message_reader(schema.messages[indexes], paths)
    reader: MessageReader = schema.readers[indexes, paths]
    return reader


def _plain(value: Any) -> Any:
    return None if isinstance(value, (Reason, Timestamp)) else value


def _indexes(value: bytes) -> tuple[tuple[int, ...], int] | None:
    """Return a record's message indexes, and where its message begins; None if there are none.

    Source: Confluent's wire format: a count and as many indexes, as zigzag numbers; a single 0 is (0,).

    >>> _indexes(bytes([0, 0, 0, 0, 7, 0, 9])), _indexes(bytes([0, 0, 0, 0, 7, 4, 2, 0, 9]))
    (((0,), 6), ((1, 0), 8))
    """
    count, at = _number(value, HEADER_BYTES)
    if count == 0:
        return (0,), at
    indexes = []
    for _ in range(min(count, _MOST_NESTED + 1)):
        index, at = _number(value, at)
        indexes.append(index)
    return (tuple(indexes), at) if 0 < count <= _MOST_NESTED and min(indexes) >= 0 else None


def _number(value: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag number and the place behind it; -1 if there is none."""
    found = 0
    for place, byte in enumerate(value[at : at + 5]):
        found |= (byte & 127) << 7 * place
        if byte < 128:
            return (found >> 1) ^ -(found & 1), at + place + 1
    return -1, at
