"""Avro schemas as a registry gives them, and their bounds on the numbers in a record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from stream_app.sources.avro_bounds import is_bounded
from stream_app.sources.avro_decimals import READ_AS, is_decimal
from stream_app.sources.schema_registry import Referenced, SchemaKind

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


@dataclass(frozen=True)
class Schema:
    """A parsed schema without its logical types, except decimals."""

    parsed: Any
    named: Mapping[str, Any]
    bounded: bool  # whether its records need no check before they are decoded (``avro_bounds.py``)
    units: dict[str, Unit] = field(default_factory=dict)  # the results of ``unit``, by path

    def unit(self, path: str) -> Unit:
        """Return the schema's time unit for the number at a path; "none" if its branches differ.

        >>> long = {"type": "long", "logicalType": "timestamp-millis"}
        >>> fields = [{"name": "at", "type": ["null", long]}, {"name": "n", "type": "long"}]
        >>> schema = read_schema([{"type": "record", "name": "Click", "fields": fields}])
        >>> schema.unit("at"), schema.unit("n")
        ('ms', None)
        """
        if path not in self.units:
            units = _units(self.parsed, path.split("."), self.named)
            self.units[path] = units.pop() if len(units) == 1 else "none" if units else None
        return self.units[path]


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


def _units(schema: Any, keys: Sequence[str], named: Mapping[str, Any]) -> set[Unit]:
    """Return the time units of all branches of a schema for the number at a path."""
    if isinstance(schema, list):
        return set().union(*(_units(branch, keys, named) for branch in schema))
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    kind = schema["type"]
    if not isinstance(kind, str):
        return _units(kind, keys, named)
    if not keys:
        return {_UNITS.get(schema.get(_MARK))} if kind in ("int", "long", "float", "double") else set()
    if kind == "map":
        rests = (keys[at:] for at in range(1, len(keys) + 1))  # a map's key may have dots
        return set().union(*(_units(schema["values"], rest, named) for rest in rests))
    inside = [member["type"] for member in schema.get("fields", ()) if member["name"] == keys[0]]
    return set().union(*(_units(member, keys[1:], named) for member in inside))


def _read(text: str, referenced: Sequence[Referenced]) -> Schema | None:
    try:
        return read_schema([json.loads(text) for text in (*(other.text for other in referenced), text)])
    except (ValueError, KeyError, TypeError, RecursionError, SchemaParseException, UnknownType):
        return None


AVRO = SchemaKind("AVRO", "", _read)
