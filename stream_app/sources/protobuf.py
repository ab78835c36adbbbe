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
    What a path reads is said at ``message_reader``.
    Guarantee: a record of more than ``MOST_BYTES`` is undecodable, because it could delay a cut.
    Cost: two or three microseconds per record, whatever else it holds.
    """

    def __init__(
        self, registry: SchemaRegistry[ProtobufSchema], field: TimeField | None, others: Sequence[str] = ()
    ) -> None:
        super().__init__(registry, field, others)
        self._paths = ([] if field is None else [field.path]) + list(others)

    def _fields(self, schema: ProtobufSchema, value: bytes) -> Fields | Reason:
        found = _indexes(value)
        if found is None or len(value) > MOST_BYTES:
            return Reason.UNDECODABLE
        indexes, body = found
        reader = self._reader(schema, indexes)
        if reader is None:
            return Reason.UNDECODABLE
        try:
            message = reader.decode(value[body:])
            values = [read(message) for read in reader.values]
        except (DecodeError, UnicodeDecodeError):
            return Reason.UNDECODABLE
        if self._field is None:
            return None, [_plain(other) for other in values]
        time, *others = values
        plain = [_plain(other) for other in others]
        if isinstance(time, Timestamp):
            return ("us", time.us), plain
        in_format = time if isinstance(time, Reason) else timed(time, self._field.format)
        return in_format if isinstance(in_format, Reason) else (in_format, plain)

    def _reader(self, schema: ProtobufSchema, indexes: tuple[int, ...]) -> MessageReader | None:
        """Return the reader of a message; None if the schema does not have it."""
        if indexes not in schema.messages:
            return None
        if indexes not in schema.readers:
            schema.readers[indexes] = message_reader(schema.messages[indexes], self._paths)
        reader: MessageReader = schema.readers[indexes]
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
