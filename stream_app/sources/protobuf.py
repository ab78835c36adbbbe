"""Protobuf: schemas as a registry gives them, and their records as columns of the configured fields.

A record is decoded by a smaller message type that has only the configured fields (``protobuf_fields``), so
everything else in it is skipped and not created.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import (
    any_pb2,
    api_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from stream_app.core.incoming import Reason
from stream_app.sources.decode import TimeField
from stream_app.sources.protobuf_fields import MessageReader, Timestamp, message_reader
from stream_app.sources.registered import HEADER_BYTES, Fields, RegisteredDecoder, timed
from stream_app.sources.schema_registry import Referenced, SchemaKind, SchemaRegistry

MOST_BYTES = 1 << 20  # of a record; the slowest record of this size takes 25 ms
_MOST_NESTED = 100  # message indexes
_MODULES = (
    any_pb2,
    api_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
_WELL_KNOWN = {module.DESCRIPTOR.name: module.DESCRIPTOR for module in _MODULES}
_OWN_NAME = "the record's own schema"  # no import has a name with spaces
_NOT_SERIALIZED = (
    "gives Protobuf schemas as text, not serialized; it must know ?format=serialized, as Confluent's, "
    "Karapace and Redpanda from 25.2 on do"
)


@dataclass(frozen=True)
class ProtobufSchema:
    """The messages of one schema; ``readers`` holds their decoders, by indexes and paths."""

    messages: Mapping[tuple[int, ...], Descriptor]
    readers: dict[tuple[Any, ...], Any] = field(default_factory=dict)


def _messages(
    inside: Iterable[Descriptor], around: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], Descriptor]]:
    """Yield all messages with their indexes: the place in the file, then inside the message around.

    Source: Confluent's wire format, "message indexes".
    """
    for place, message in enumerate(inside):
        yield (*around, place), message
        yield from _messages(message.nested_types, (*around, place))


def read_schema(text: str, referenced: Sequence[Referenced]) -> ProtobufSchema | None:
    """Return the schema of serialized descriptors; None if they are none.

    Types of files that the registry does not name are read as bytes, which have no value.
    Raises: OSError if the registry gave the schema's text instead.
    """
    named = [(reference.name, reference.text) for reference in referenced]
    files: dict[str, FileDescriptorProto] = {}
    try:
        for name, written in (*named, (_OWN_NAME, text)):
            files[name] = FileDescriptorProto.FromString(base64.b64decode(written, validate=True))
            files[name].name = name
    except (binascii.Error, ValueError):
        raise OSError(_NOT_SERIALIZED) from None
    except DecodeError:
        return None
    pool = DescriptorPool()
    try:
        for known in _well_known(files.values()):
            pool.AddSerializedFile(known.serialized_pb)
        _make_opaque(files)
        for file in files.values():
            pool.AddSerializedFile(file.SerializeToString())
        own = pool.FindFileByName(_OWN_NAME)
        return ProtobufSchema(dict(_messages(own.message_types_by_name.values())))
    except (TypeError, KeyError, ValueError):  # of the pool, which has no error type of its own
        return None


def _well_known(files: Sequence[FileDescriptorProto] | Any) -> Iterator[FileDescriptor]:
    """Yield the files that come with Protobuf itself and are imported, each after its own imports."""
    done: set[str] = set()

    def with_imports(file: FileDescriptor) -> Iterator[FileDescriptor]:
        if file.name not in done:
            done.add(file.name)
            for other in file.dependencies:
                yield from with_imports(other)
            yield file

    for file in list(files):
        for name in file.dependency:
            if name in _WELL_KNOWN:
                yield from with_imports(_WELL_KNOWN[name])


def _make_opaque(files: Mapping[str, FileDescriptorProto]) -> None:
    """Turn fields whose types nobody declares into bytes, which look the same in a record."""
    declared = {name for file in files.values() for name in _type_names(file.message_type, file.enum_type)}
    declared |= {name for file in _WELL_KNOWN.values() for name in file.message_types_by_name}
    for file in files.values():
        kept = [name for name in file.dependency if name in files or name in _WELL_KNOWN]
        if len(kept) == len(file.dependency):
            continue
        del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
        file.dependency.extend(kept)
        del file.extension[:]
        for message in file.message_type:
            _make_fields_opaque(message, declared)


def _type_names(messages: Any, enums: Any) -> Iterator[str]:
    for enum in enums:
        yield enum.name
    for message in messages:
        yield message.name
        yield from _type_names(message.nested_type, message.enum_type)


def _make_fields_opaque(message: DescriptorProto, declared: set[str]) -> None:
    del message.extension[:]
    for member in message.field:
        if member.type_name and member.type_name.rpartition(".")[2] not in declared:
            member.type = FieldDescriptorProto.TYPE_BYTES
            member.ClearField("type_name")
            member.ClearField("default_value")
    for inner in message.nested_type:
        _make_fields_opaque(inner, declared)


PROTOBUF = SchemaKind("PROTOBUF", "?format=serialized", read_schema)


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
