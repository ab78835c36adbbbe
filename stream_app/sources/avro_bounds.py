"""Bounds on the number and depth of an Avro record's values, checked before the record is decoded.

Some types take no bytes: null, a record without fields, a fixed of size 0. A record of 11 bytes can announce
30 million of them in an array. A type that contains itself can be nested so deeply that the codec, which is
recursive C, overflows the stack and ends the process. A megabyte can hold a million small values: nothing
else runs while they are decoded, so a cut would wait for this one record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FREE_VALUES = 1_000  # values that a record may hold beyond one per byte
MOST_DEPTH = 200  # of nested types
MOST_VALUES = 1 << 14  # of a checked record, including the records and unions that hold them

_UNBOUNDED = 1 << 40
_LONGEST_SHIFT = 63  # of a number's last byte
_FIXED_BYTES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


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
    """Return whether a record keeps all bounds of this module.

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
