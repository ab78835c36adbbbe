"""Decodes NDJSON and CSV records into typed columns of the configured fields, batch by batch.

The result for a record, and its time to the microsecond, depends on its own bytes only. So every fast path
here is taken per record, or gives the same result as the slow path.
"""

from __future__ import annotations

import asyncio
import csv
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from stream_app.core.incoming import Reason
from stream_app.ports import OperatorError
from stream_app.sources.times import Bools, TimeFormat, times_us

RECORDS_AT_ONCE = 2_000
BYTES_AT_ONCE = 1 << 16
MOST_VALUES = 1 << 16  # of a text record with more bytes than this, estimated from its punctuation

_UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_NUMBER = re.compile(r"[+-]?\d{1,19}(\.\d{1,19})?", flags=re.ASCII)


@dataclass(frozen=True, slots=True)
class TimeField:
    """An event time.

    Args: path, in a record (dots for nested objects), or a CSV column; zone, of texts without an offset.
    """

    path: str
    format: TimeFormat
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class Decoded:
    """Records as columns: times in microseconds since 1970, other values None if a field is missing."""

    kept: Int64Array  # the indices of the n decoded records
    columns: Mapping[str, NDArray[Any]]  # n values of each field, by path
    refused: Sequence[tuple[int, Reason]]  # the indices of the other records


class Decoder(Protocol):
    """Decodes the bytes of one format into columns: the time, and each other configured field by its path."""

    def decode(self, records: Sequence[bytes]) -> Decoded:
        """Decode records, one line each without its end."""


async def decoded_in_turns(decode: Callable[[slice], Decoded], records: Sequence[bytes]) -> Decoded:
    """Return the decoded records; decode in parts, so that other tasks run every few milliseconds.

    The number and size of records must not delay a cut. So a part has at most ``RECORDS_AT_ONCE`` records and
    ``BYTES_AT_ONCE`` bytes, or is one record.
    Args: decode, decodes a part of the records, each independently.
    """
    parts = []
    for start, stop in pairwise(_turns(records)):
        parts.append((start, decode(slice(start, stop))))
        await asyncio.sleep(0)
    if len(parts) == 1:
        return parts[0][1]
    paths = parts[0][1].columns
    return Decoded(
        kept=np.concatenate([part.kept + start for start, part in parts]),
        columns={path: np.concatenate([part.columns[path] for _, part in parts]) for path in paths},
        refused=[(start + index, reason) for start, part in parts for index, reason in part.refused],
    )


def _turns(records: Sequence[bytes]) -> list[int]:
    """Return the start of each part of ``decoded_in_turns``, and the end of the last part."""
    ends = np.cumsum(np.fromiter(map(len, records), dtype=np.int64, count=len(records)))
    turns = [0]
    while turns[-1] < len(records):
        start = turns[-1]
        within = int(ends[start - 1] if start else 0) + BYTES_AT_ONCE
        fitting = int(np.searchsorted(ends, within, side="right"))
        turns.append(min(max(fitting, start + 1), start + RECORDS_AT_ONCE))
    return turns if len(turns) > 1 else [0, 0]


def _has_too_many_values(record: bytes) -> bool:
    """Return whether a record may hold more than ``MOST_VALUES`` values, by counting punctuation.

    Commas, brackets and braces within texts count too, because excluding them is slow. One record must not
    delay a cut, or it would decide in which bin another record counts.
    """
    return len(record) > MOST_VALUES and sum(map(record.count, (b",", b"[", b"{"))) > MOST_VALUES


def nested_value(record: Any, keys: Sequence[str]) -> Any:
    """Return the value under the keys of nested objects, or the reason why a record has none."""
    for key in keys:
        if record is None:
            return Reason.NULL
        if not isinstance(record, dict) or key not in record:
            return Reason.MISSING_FIELD
        record = record[key]
    return Reason.NULL if record is None else record


class NdjsonDecoder(Decoder):
    """Decodes JSON objects, one per line.

    Args: time, None to decode the other fields only: every object is then kept.
    Guarantee: a record that may hold more than ``MOST_VALUES`` values is undecodable. A byte order mark
        before a record is passed over: where it begins a file, it would cost the file its first record.
    Cost: about half a microsecond per record; a batch with an undecodable record takes a little longer.

    >>> decoder = NdjsonDecoder(TimeField("at.s", "s"))
    >>> decoded = decoder.decode([b'{"at": {"s": 1.5}}', b'{"at": {"s": null}}', b'{"at'])
    >>> decoded.columns["at.s"].tolist(), [reason.value for _, reason in decoded.refused]
    ([1500000], ['null', 'undecodable'])
    """

    def __init__(self, time: TimeField | None, others: Sequence[str] = ()) -> None:
        self._time = time
        types: dict[str, Any] = dict.fromkeys(others, Any)
        if time is not None:
            types[time.path] = str if time.format == "iso8601" else int | float
        typed, places = _record_type(types)
        self._decode = msgspec.json.Decoder(typed).decode
        self._time_of = None if time is None else attrgetter(places[time.path][0])
        self._others = {path: _column_getter(*places[path]) for path in others}

    def decode(self, records: Sequence[bytes]) -> Decoded:
        refused: list[tuple[int, Reason]] = []
        try:
            if max(map(len, records), default=0) > MOST_VALUES and any(map(_has_too_many_values, records)):
                raise msgspec.MsgspecError
            found, kept = list(map(self._decode, records)), list(range(len(records)))
        except _UNDECODABLE:
            found, kept = self._decode_each(records, refused)
        others = {path: column(found) for path, column in self._others.items()}
        if self._time is None or self._time_of is None:
            return untimed_columns(kept, others, refused)
        times = times_us(list(map(self._time_of, found)), self._time.format, self._time.zone)
        return decoded_columns(kept, self._time.path, times, others, refused)

    def _decode_each(
        self, records: Sequence[bytes], refused: list[tuple[int, Reason]]
    ) -> tuple[list[Any], list[int]]:
        found, kept = [], []
        for index, record in enumerate(record.removeprefix(BOM_UTF8) for record in records):
            if _has_too_many_values(record):
                refused.append((index, Reason.UNDECODABLE))
                continue
            try:
                found.append(self._decode(record))
                kept.append(index)
            except _UNDECODABLE:
                refused.append((index, self._why(record)))
        return found, kept

    def _why(self, record: bytes) -> Reason:
        """Return the reason why a record could not be decoded as the configured type."""
        try:
            whole = msgspec.json.decode(record)
        except _UNDECODABLE:
            return Reason.UNDECODABLE
        if self._time is None or not isinstance(whole, dict):
            return Reason.UNDECODABLE
        value = nested_value(whole, self._time.path.split("."))
        return value if isinstance(value, Reason) else Reason.BAD_TIME


class CsvDecoder(Decoder):
    """Comma-separated values with a header line; a record is one line, so no value holds a line end.

    Guarantee: a record that may hold more than ``MOST_VALUES`` values is undecodable.
    Args: names, of all columns in order; time, as in ``NdjsonDecoder``.
    Raises: OperatorError if a field has no column.
    Cost: about a microsecond per record.

    >>> decoder = CsvDecoder(["id", "at"], TimeField("at", "iso8601"))
    >>> decoder.decode([b"7,1970-01-01T00:00:01Z", b"8", b"9,"]).refused
    [(1, <Reason.UNDECODABLE: 'undecodable'>), (2, <Reason.NULL: 'null'>)]
    """

    def __init__(self, names: Sequence[str], time: TimeField | None, others: Sequence[str] = ()) -> None:
        timed = [] if time is None else [time.path]
        self._width = len(names)
        self._time, self._others = time, others
        self._places = []
        for path in (*timed, *others):
            # Streams that began with an older version have the file's byte order mark in this name.
            name = path if path in names else path.removeprefix(BOM_UTF8.decode())
            if name not in names:
                key = "time.field" if path in timed else "keys.field, value.field or where"
                raise OperatorError(f"the header line has no column {path}; correct {key}")
            self._places.append(names.index(name))

    def decode(self, records: Sequence[bytes]) -> Decoded:
        refused: list[tuple[int, Reason]] = []
        columns: list[list[Any]] = [[] for _ in self._places]
        kept = []
        for index, record in enumerate(records):
            found = self._found(record)
            if isinstance(found, Reason):
                refused.append((index, found))
                continue
            kept.append(index)
            for column, value in zip(columns, found, strict=True):
                column.append(value)
        if self._time is None:
            return untimed_columns(kept, dict(zip(self._others, columns, strict=True)), refused)
        written, *others = columns
        times = times_us(written, self._time.format, self._time.zone)
        by_path = dict(zip(self._others, others, strict=True))
        return decoded_columns(kept, self._time.path, times, by_path, refused)

    def _found(self, record: bytes) -> list[Any] | Reason:
        """Return the fields' values of one record, or the reason for its refusal."""
        values = csv_values(record)
        if values is None or len(values) != self._width:
            return Reason.UNDECODABLE
        found = [values[place] or None for place in self._places]
        if self._time is None:
            return found
        text, *others = found
        if text is None:
            return Reason.NULL
        time = text if self._time.format == "iso8601" else _number(text)
        return Reason.BAD_TIME if time is None else [time, *others]


def decoded_columns(
    kept: Sequence[int],
    time_path: str,
    times: tuple[Int64Array, Bools],
    others: Mapping[str, Iterable[Any]],
    refused: Sequence[tuple[int, Reason]],
) -> Decoded:
    """Return decoded records; refuse those without a valid time.

    Args: kept, the indices of n decoded records; times, the result of ``times_us`` for these records; others,
        n values for each path.
    """
    indices, columns = np.array(kept, dtype=np.int64), _objects(others, len(kept))
    columns[time_path], good = times
    if not good.all():
        refused = sorted([*refused, *((index, Reason.BAD_TIME) for index in indices[~good].tolist())])
        columns = {path: values[good] for path, values in columns.items()}
        indices = indices[good]
    return Decoded(indices, columns, refused)


def untimed_columns(
    kept: Sequence[int], others: Mapping[str, Iterable[Any]], refused: Sequence[tuple[int, Reason]]
) -> Decoded:
    """Return decoded records without their time. Args: as in ``decoded_columns``."""
    return Decoded(np.array(kept, dtype=np.int64), _objects(others, len(kept)), refused)


def _objects(others: Mapping[str, Iterable[Any]], size: int) -> dict[str, NDArray[Any]]:
    return {path: np.fromiter(values, dtype=object, count=size) for path, values in others.items()}


# Every JSON value but an object, which is decoded as a struct: only the fields that are read cost time.
_NO_OBJECT = str | int | float | bool | list[Any] | None
# A field's place: the attribute path in a struct, and the keys further inside.
_Place = tuple[str, tuple[str, ...]]


def _record_type(types: Mapping[str, Any]) -> tuple[type[msgspec.Struct], dict[str, _Place]]:
    """Return a struct type that has only these paths, and each path's place in the struct.

    A path with the type Any may have any value or be missing.
    """
    below: dict[str, dict[str, Any]] = {}
    for path, typed in types.items():
        key, _, rest = path.partition(".")
        below.setdefault(key, {})[rest] = typed
    members: list[tuple[str, Any, Any]] = []
    places: dict[str, _Place] = {}
    for number, (key, inside) in enumerate(below.items()):
        name = f"field_{number}"
        optional = all(typed is Any for typed in inside.values())
        if "" in inside and optional:
            members.append((name, Any, msgspec.field(name=key, default=None)))
            for path in inside:
                places[f"{key}.{path}" if path else key] = (name, tuple(path.split(".")) if path else ())
        elif "" in inside:
            members.append((name, inside[""], msgspec.field(name=key)))
            places[key] = (name, ())
        else:
            member, inner = _record_type(inside)
            if optional:
                typed, missing = member | _NO_OBJECT, msgspec.field(name=key, default_factory=member)
            else:
                typed, missing = member, msgspec.field(name=key)
            members.append((name, typed, missing))
            places |= {f"{key}.{path}": (f"{name}.{at}", keys) for path, (at, keys) in inner.items()}
    return msgspec.defstruct("Record", members, gc=False, frozen=True, kw_only=True), places


def _column_getter(attributes: str, keys: tuple[str, ...]) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function from records to their values at a place, None for each record without one."""
    get = attrgetter(attributes)

    def value(record: Any) -> Any:
        try:
            found = get(record)
        except AttributeError:  # another JSON value is where the path needs an object
            return None
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def column(records: Sequence[Any]) -> list[Any]:
        if not keys:
            with suppress(AttributeError):
                return list(map(get, records))
        return list(map(value, records))

    return column


def _number(text: str) -> int | float | None:
    if not _NUMBER.fullmatch(text):
        return None
    return float(text) if "." in text else int(text)


def csv_names(header: bytes) -> list[str]:
    """Return the names of a file's columns, without the byte order mark before them; none if not valid."""
    return csv_values(header.removeprefix(BOM_UTF8)) or []


def csv_values(line: bytes) -> list[str] | None:
    """Return the values of one line; None if it is not valid, or may have too many values."""
    if _has_too_many_values(line):
        return None
    try:
        text = line.decode()
        if '"' not in text:
            return text.split(",")
        [values] = csv.reader([text], strict=True)
        return values
    except (ValueError, csv.Error):
        return None
