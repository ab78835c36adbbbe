"""The message type that has only the fields which are read, and a reader for each of their paths.

Every field of this type is optional and holds wire values: texts and bytes as bytes, enums as numbers. A
reader turns a wire value into a value of the field's own type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from stream_app.core.incoming import Reason
from stream_app.sources.registered import of_single

_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_ROOT = "Read"
_LATEST_S = 253_402_300_799  # Source: google/protobuf/timestamp.proto, the year 9999
_EARLIEST_S = -62_135_596_800

# A value of a decoded message, or the reason why it has none.
Read = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Timestamp:
    """An instant that a record holds as google.protobuf.Timestamp, in whole microseconds since 1970."""

    us: int


@dataclass(frozen=True, slots=True)
class MessageReader:
    """Decodes messages of one type; ``values`` reads each path of a decoded message, in the given order."""

    decode: Callable[[bytes], Any]
    values: Sequence[Read]


def message_reader(message: Descriptor, paths: Sequence[str]) -> MessageReader:
    """Return the reader of these paths, names of fields with dots between them.

    A path reads: a number, text, truth value or an enum's name; a wrapper as the value in it; a Timestamp; an
    entry of a map by its key, if the keys are texts. Other types, and lists, have no value: None. A field
    that is not there gives ``Reason.NULL``, or its default if the schema does not tell the two apart. A path
    that the schema does not have gives ``Reason.MISSING_FIELD``.
    """
    file = FileDescriptorProto(name="read.proto", syntax="proto2")
    root = file.message_type.add(name=_ROOT)
    grown = _Grown(root, _ROOT)
    values = [grown.reader(message, path.split(".")) for path in paths]
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return MessageReader(GetMessageClass(pool.FindMessageTypeByName(_ROOT)).FromString, values)


class _Grown:
    """A message type that grows by the fields that are read."""

    def __init__(self, proto: DescriptorProto, full_name: str) -> None:
        self._proto, self._full_name = proto, full_name
        self._inside: dict[int, _Grown] = {}  # by field number

    def reader(self, message: Descriptor, keys: Sequence[str]) -> Read:
        """Add a reader for the field of a message at these keys, and return it."""
        member = message.fields_by_name.get(keys[0])
        if member is None:
            return _always(Reason.MISSING_FIELD)
        inner = member.message_type
        if inner is not None and inner.GetOptions().map_entry:
            return self._map_reader(member, inner, keys[1:])
        if member.is_repeated or (keys[1:] and inner is None):
            return _always(Reason.MISSING_FIELD if keys[1:] else None)
        return self._value_reader(member) if inner is None else self._message_reader(member, inner, keys[1:])

    def _message_reader(self, member: FieldDescriptor, inner: Descriptor, keys: Sequence[str]) -> Read:
        grown = self._member_type(member)
        if keys:
            inside = grown.reader(inner, keys)
        elif inner.full_name == _TIMESTAMP:
            inside = _timestamp(grown.reader(inner, ["seconds"]), grown.reader(inner, ["nanos"]))
        elif inner.full_name in _WRAPPERS:
            inside = grown.reader(inner, ["value"])
        else:
            inside = _always(None)
        name = _name(member)

        def read(found: Message) -> Any:
            return inside(getattr(found, name)) if found.HasField(name) else Reason.NULL

        return read

    def _map_reader(self, member: FieldDescriptor, inner: Descriptor, keys: Sequence[str]) -> Read:
        key, value = (inner.fields_by_name[name] for name in ("key", "value"))
        if not keys or key.type != FieldDescriptor.TYPE_STRING:
            return _always(Reason.MISSING_FIELD if keys else None)
        entry = self._member_type(member, is_map=True)
        entry._add(key, FieldDescriptorProto.TYPE_STRING)
        name, value_name = _name(member), _name(value)
        # A key may have dots: the longest one counts (``json_fields``).
        wanted = [
            (".".join(keys[:end]), entry.reader(inner, ["value", *keys[end:]]))
            for end in range(len(keys), 0, -1)
        ]

        def read(found: Message) -> Any:
            entries = getattr(found, name)
            for one, inside in wanted:
                if one in entries:
                    return inside(_Entry(value_name, entries[one]))
            return Reason.NULL

        return read

    def _value_reader(self, member: FieldDescriptor) -> Read:
        name, present = _name(member), member.has_presence
        as_read: Callable[[Any], Any] | None = None
        kind = member.type
        if kind == FieldDescriptor.TYPE_BYTES:
            return _always(None)
        if kind == FieldDescriptor.TYPE_STRING:
            kind, as_read = FieldDescriptorProto.TYPE_BYTES, bytes.decode
        elif kind == FieldDescriptor.TYPE_FLOAT:
            as_read = of_single
        elif member.enum_type is not None:
            kind, as_read = FieldDescriptorProto.TYPE_INT32, _named(member.enum_type)
        self._add(member, kind)

        def read(found: Any) -> Any:
            if present and not found.HasField(name):
                return Reason.NULL
            value = getattr(found, name)
            return value if as_read is None else as_read(value)

        return read

    def _member_type(self, member: FieldDescriptor, is_map: bool = False) -> _Grown:
        """Return the grown type of a member that holds messages, added if it is new."""
        if member.number not in self._inside:
            name = f"M{member.number}"
            if is_map:  # the name that the specification gives to entries
                name = f"F{member.number}Entry"
            proto = self._proto.nested_type.add(name=name)
            proto.options.map_entry = is_map
            self._add(member, member.type, f".{self._full_name}.{name}", repeated=is_map)
            self._inside[member.number] = _Grown(proto, f"{self._full_name}.{name}")
        return self._inside[member.number]

    def _add(self, member: FieldDescriptor, kind: int, type_name: str = "", repeated: bool = False) -> None:
        if any(added.number == member.number for added in self._proto.field):
            return
        label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
        added = self._proto.field.add(name=_name(member), number=member.number, label=label)
        added.type = kind  # type: ignore[assignment]
        if type_name:
            added.type_name = type_name


class _Entry:
    """A found entry of a map, with its value."""

    def __init__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def HasField(self, name: str) -> bool:
        """Return True: an entry without a value has the default."""
        return True


def _name(member: FieldDescriptor) -> str:
    around = member.containing_type
    return member.name if around is not None and around.GetOptions().map_entry else f"f{member.number}"


def _always(found: Any) -> Read:
    return lambda _message: found


def _named(kind: EnumDescriptor) -> Callable[[int], str | int]:
    names: Mapping[int, str] = {number: value.name for number, value in kind.values_by_number.items()}
    return lambda number: names.get(number, number)


def _timestamp(seconds: Read, nanos: Read) -> Read:
    def read(found: Message) -> Timestamp | Reason:
        whole, rest = seconds(found), nanos(found)
        if type(whole) is not int or type(rest) is not int:  # another message of this name
            return Reason.BAD_TIME
        if not _EARLIEST_S <= whole <= _LATEST_S or not 0 <= rest < 1_000_000_000:
            return Reason.BAD_TIME
        return Timestamp(whole * 1_000_000 + rest // 1_000)

    return read
