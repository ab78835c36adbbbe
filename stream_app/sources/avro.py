"""Avro: schemas as a registry gives them, and their records as columns of the configured fields."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple

import fastavro
from fastavro.read import LOGICAL_READERS
from fastavro.schema import SchemaParseException, UnknownType

from stream_app.core.incoming import Reason
from stream_app.core.json_objects import nested_value
from stream_app.sources.decode import TimeField
from stream_app.sources.registered import HEADER_BYTES, Fields, RegisteredDecoder, of_single, timed
from stream_app.sources.schema_registry import Referenced, SchemaKind
from stream_app.sources.times import TimeFormat

_MARK = "written_as"  # replaces logicalType, which would turn numbers into objects that may be out of range
_UNITS: Mapping[Any, Unit] = {
    "timestamp-millis": "ms",
    "timestamp-micros": "us",
    "timestamp-nanos": "ns",
    "local-timestamp-millis": "none",
    "local-timestamp-micros": "none",
    "local-timestamp-nanos": "none",
    "date": "none",
    "time-millis": "none",
    "time-micros": "none",
}

# A schema's statement about a number: its unit as a time, "none" for not a time, or None for no statement.
Unit = Literal["ms", "us", "ns", "none"] | None

# Some types take no bytes: null, a record without fields, a fixed of size 0. A record of 11 bytes can
# announce 30 million of them in an array. A type that contains itself can be nested so deeply that the codec,
# which is recursive C, overflows the stack and ends the process. A megabyte can hold a million small values:
# nothing else runs while they are decoded, so a cut would wait for this one record.
FREE_VALUES = 1_000  # values that a record may hold beyond one per byte
MOST_DEPTH = 200  # of nested types
MOST_VALUES = 1 << 14  # of a checked record, including the records and unions that hold them

_UNBOUNDED = 1 << 40
_LONGEST_SHIFT = 63  # of a number's last byte
_FIXED_BYTES = {"null": 0, "boolean": 1, "float": 4, "double": 8}

# fastavro's own reader of decimals rounds to the precision that a schema states, and fails on some schemas.
# The reader here is registered with fastavro under another name. It gives the nearest number for any digits.
LOGICAL_TYPE = "decimal"
READ_AS = "number-of-decimal"  # the logical type that replaces it in parsed schemas
MOST_DIGITS = 1_000  # far beyond a double's range; Python itself refuses to write numbers of 4,301 digits
MOST_BYTES = 416  # the bytes that hold this many digits


class Number(NamedTuple):
    """What a schema says about a number.

    Args: unit, "none" if branches differ; is_single, whether it is a float of 32 bits.
    """

    unit: Unit
    is_single: bool


@dataclass(frozen=True)
class Schema:
    """A parsed schema without its logical types, except decimals."""

    parsed: Any
    named: Mapping[str, Any]
    bounded: bool  # whether its records need no check before they are decoded (``is_bounded``)
    numbers: dict[str, Number] = field(default_factory=dict)  # the results of ``number``, by path

    def number(self, path: str) -> Number:
        """Return what the schema says about the number at a path.

        >>> long = {"type": "long", "logicalType": "timestamp-millis"}
        >>> fields = [{"name": "at", "type": ["null", long]}, {"name": "n", "type": "float"}]
        >>> schema = read_schema([{"type": "record", "name": "Click", "fields": fields}])
        >>> schema.number("at"), schema.number("n")
        (Number(unit='ms', is_single=False), Number(unit=None, is_single=True))
        """
        if path not in self.numbers:
            found = set(_numbers(self.parsed, path.split("."), self.named))
            units = {unit for _, unit in found}
            unit = units.pop() if len(units) == 1 else "none" if units else None
            kinds = {kind for kind, _ in found}
            self.numbers[path] = Number(unit, "float" in kinds and "double" not in kinds)
        return self.numbers[path]


def read_schema(documents: Sequence[Any]) -> Schema:
    """Parse the last document as a schema; the earlier documents are the schemas it refers to, in order.

    Raises: errors of fastavro, ValueError, KeyError, TypeError if it is not an Avro schema.
    """
    named: dict[str, Any] = {}
    for document in documents:
        parsed = fastavro.parse_schema(_marked(document), named)
    return Schema(parsed, named, is_bounded(parsed, named))


def _marked(document: Any) -> Any:
    if isinstance(document, dict):
        marked = {_MARK if key == "logicalType" else key: _marked(value) for key, value in document.items()}
        return marked | {"logicalType": READ_AS} if is_decimal(document) else marked
    return [_marked(value) for value in document] if isinstance(document, list) else document


def _numbers(schema: Any, keys: Sequence[str], named: Mapping[str, Any]) -> Iterator[tuple[str, Unit]]:
    """Yield the type of the number at a path, and its unit as a time, of all branches of a schema."""
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    kind = schema if isinstance(schema, list) else schema["type"]
    if isinstance(kind, list):
        for branch in kind:
            yield from _numbers(branch, keys, named)
    elif not isinstance(kind, str):
        yield from _numbers(kind, keys, named)
    elif not keys and kind in ("int", "long", "float", "double"):
        mark = schema.get(_MARK)
        yield kind, _UNITS.get(mark) if isinstance(mark, str) else None
    elif kind == "map":
        for at in range(1, len(keys) + 1):  # a map's key may have dots
            yield from _numbers(schema["values"], keys[at:], named)
    elif keys:
        for member in schema.get("fields", ()):
            if member["name"] == keys[0]:
                yield from _numbers(member["type"], keys[1:], named)


def _read(text: str, referenced: Sequence[Referenced]) -> Schema | None:
    try:
        return read_schema([json.loads(text) for text in (*(other.text for other in referenced), text)])
    except (ValueError, KeyError, TypeError, RecursionError, SchemaParseException, UnknownType):
        return None


AVRO = SchemaKind("AVRO", "", _read)


class AvroDecoder(RegisteredDecoder[Schema]):
    """Decodes each record by its own schema.

    A field with a timestamp type has its unit in the schema; other numbers and texts are in ``field.format``.
    Local timestamps, dates and times of day are refused, because they are not instants. Decimals are numbers,
    as in JSON. Other bytes become None.
    Guarantee: a record beyond the bounds (``within_bounds``) is undecodable.
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
        return time, [_plain(nested_value(record, path), schema, path) for path in self._others]

    def _time(
        self, schema: Schema, record: dict[str, Any], field: TimeField
    ) -> tuple[TimeFormat, Any] | Reason:
        value = nested_value(record, field.path)
        if isinstance(value, Reason):
            return value
        unit = schema.number(field.path).unit
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


def _plain(value: Any, schema: Schema, path: str) -> Any:
    if type(value) is float and schema.number(path).is_single:
        return of_single(value)
    return None if isinstance(value, bytes | Reason) else value


def is_bounded(schema: Any, named: Mapping[str, Any]) -> bool:
    """Return whether the schema keeps every record within the bounds, so that no record needs a check.

    Args: a parsed schema, and its named types.

    >>> is_bounded({"type": "array", "items": "int"}, {}), is_bounded({"type": "array", "items": "null"}, {})
    (True, False)
    """
    return _free_values(schema, named, {}, 0) <= FREE_VALUES


def _free_values(schema: Any, named: Mapping[str, Any], known: dict[str, int], depth: int) -> int:
    """Return by how much a record's values of this type can outnumber its bytes.

    An empty record counts as a value. So does every list.

    Args: known, results for named types seen so far; a type that contains itself is unbounded.
    """
    if depth > MOST_DEPTH:
        return _UNBOUNDED
    if isinstance(schema, list):  # a byte says which branch it is
        return max((_free_values(branch, named, known, depth + 1) for branch in schema), default=1) - 1
    name = schema if isinstance(schema, str) else schema.get("name")
    if name in known:
        return known[name]
    if isinstance(schema, str):
        return _free_values(named[schema], named, known, depth) if schema in named else int(schema == "null")
    kind = schema["type"]
    if kind in ("array", "map"):
        of_one = _free_values(schema["items" if kind == "array" else "values"], named, known, depth + 1)
        return _UNBOUNDED if of_one > 0 else 0
    if kind == "fixed":
        return int(schema["size"] == 0)
    if kind not in ("record", "error"):
        return 0 if kind == "enum" else _free_values(kind, named, known, depth + 1)
    known[name] = _UNBOUNDED
    members = [_free_values(member["type"], named, known, depth + 1) for member in schema["fields"]]
    known[name] = min(sum(members), _UNBOUNDED) if members else 1
    return known[name]


def within_bounds(data: bytes, start: int, schema: Any, named: Mapping[str, Any]) -> bool:
    """Return whether a record keeps the bounds on values, on values without bytes, and on depth.

    Cost: one or two microseconds for each value, and no more values than the bound.
    """
    try:
        return _Walk(data, start, named).holds(schema)
    except (IndexError, KeyError, TypeError):
        return False  # it ends too early, or names a branch that its schema does not have


class _Walk:
    """Walks over the values of a record without creating them."""

    def __init__(self, data: bytes, start: int, named: Mapping[str, Any]) -> None:
        self._data = data
        self._at = start
        self._named = named
        self._left = len(data) + FREE_VALUES
        self._steps = MOST_VALUES

    def holds(self, schema: Any) -> bool:
        """Return whether the next value, of this type, is within the bounds."""
        ahead: list[tuple[Any, int, int]] = [(schema, 0, -1)]  # a type, its depth, elements left in a block
        while ahead:
            kind, depth, elements = ahead.pop()
            if elements >= 0:
                if elements == 0:
                    elements = self._block()
                    if elements == 0:
                        continue
                ahead.append((kind, depth, elements - 1))
                if kind["type"] == "map":
                    self._skip(self._long())
                kind = kind["items" if kind["type"] == "array" else "values"]
            self._left -= 1
            self._steps -= 1
            if min(self._left, self._steps) < 0 or depth > MOST_DEPTH or self._at > len(self._data):
                return False
            ahead.extend((inner, depth + 1, left) for inner, left in self._inside(kind))
        return self._at <= len(self._data)

    def _inside(self, kind: Any) -> list[tuple[Any, int]]:
        """Skip one value; return the types nested in it, the last one first."""
        while not isinstance(kind, list):
            if isinstance(kind, str):
                if kind not in self._named:
                    self._primitive(kind)
                    return []
                kind = self._named[kind]
                continue
            name = kind["type"]
            if name in ("record", "error"):
                self._left += bool(kind["fields"])  # a record is a value only where it is empty
                return [(member["type"], -1) for member in reversed(kind["fields"])]
            if name in ("array", "map"):
                return [(kind, 0)]
            if name == "fixed":
                self._skip(kind["size"])
                return []
            kind = "int" if name == "enum" else name
        index = self._long()
        if index < 0:
            raise IndexError
        self._left += 1  # the branch is the value
        return [(kind[index], -1)]

    def _primitive(self, name: str) -> None:
        if name in _FIXED_BYTES:
            self._skip(_FIXED_BYTES[name])
            return
        number = self._long()
        if name in ("bytes", "string"):
            self._skip(number)

    def _block(self) -> int:
        """Return how many elements the next block has; 0 at the end."""
        count = self._long()
        if count < 0:
            self._long()  # skips the block's size in bytes
        return abs(count)

    def _skip(self, count: int) -> None:
        if count < 0:
            raise IndexError
        self._at += count

    def _long(self) -> int:
        shift = found = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 127) << shift
            if byte < 128:
                return (found >> 1) ^ -(found & 1)
            shift += 7
            if shift > _LONGEST_SHIFT:
                raise IndexError


def is_decimal(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema is a valid decimal; with invalid attributes it is plain bytes.

    Source: Avro specification 1.12, "Decimal".

    >>> is_decimal({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})
    True
    >>> is_decimal({"type": "fixed", "size": 1, "logicalType": "decimal", "precision": 3})
    False
    """
    precision, scale, size = schema.get("precision"), schema.get("scale", 0), schema.get("size")
    if schema.get("logicalType") != LOGICAL_TYPE or type(precision) is not int or type(scale) is not int:
        return False
    if not 0 < precision <= MOST_DIGITS or not 0 <= scale <= precision:
        return False
    if schema.get("type") == "fixed":
        return type(size) is int and size > 0 and 10**precision <= 1 << 8 * size - 1
    return schema.get("type") == "bytes"


def number(data: bytes, scale: int) -> int | float | None:
    """Return a decimal as a number: exact if the scale is 0, otherwise the nearest double.

    Args: data, the digits as a big-endian two's complement; no bytes, or too many, are no number.

    >>> number(b"\\x04\\xd2", 2), number(b"\\xff", 0), number(b"\\x05", 1), number(b"", 0)
    (12.34, -1, 0.5, None)
    """
    if not 0 < len(data) <= MOST_BYTES:
        return None
    digits = int.from_bytes(data, "big", signed=True)
    if not scale:
        return digits
    try:
        return digits / _power_of_ten(scale)
    except OverflowError:
        return math.inf if digits > 0 else -math.inf


@cache
def _power_of_ten(scale: int) -> int:
    return int(10**scale)


def _read_number(data: bytes, schema: Mapping[str, Any], _reader_schema: Any = None) -> int | float | None:
    return number(data, schema.get("scale", 0))


LOGICAL_READERS |= {f"bytes-{READ_AS}": _read_number, f"fixed-{READ_AS}": _read_number}
