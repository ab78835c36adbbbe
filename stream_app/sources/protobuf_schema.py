"""Protobuf schemas as a registry gives them, and the part of their messages that is read.

A schema becomes a smaller message type that has only the configured fields, under the same numbers. A record
is decoded by this type, so that everything else in it is skipped and not created.
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

from stream_app.sources.schema_registry import Referenced, SchemaKind

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
