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
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from stream_app.core.coded import Coded, joined
from stream_app.core.incoming import Reason
from stream_app.core.json_objects import (
    MOST_VALUES,
    UNDECODABLE,
    bare,
    has_too_many_values,
    is_plain,
    mended,
)
from stream_app.ports import OperatorError
from stream_app.sources.json_fields import readers
from stream_app.sources.times import Bools, TimeFormat, times_us, why_no_time

RECORDS_AT_ONCE = 2_000
BYTES_AT_ONCE = 1 << 16
_LONGEST_IN_QUOTES = 1 << 22  # characters of a row; a longer one would hold up cuts
csv.field_size_limit(_LONGEST_IN_QUOTES)  # Python's own limit for one value is 128 KiB

# Calls by which decoding a batch is deeper than decoding each record, so that a record which fits the former
# fits the latter: a damaged neighbour then changes nothing for a deeply nested record.
_ROOM = 10
_LOST = re.compile("[\udc80-\udcff]")  # what ``surrogateescape`` makes of bytes that are not UTF-8


@dataclass(frozen=True, slots=True)
class TimeField:
    """An event time.

    Args: path, in a record (``json_fields``), or a CSV column; zone, of texts without an offset.
    """

    path: str
    format: TimeFormat
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class Decoded:
    """Records as columns: times in microseconds since 1970, other values None if a field is missing."""

    kept: Int64Array  # the indices of the n decoded records
    columns: Mapping[str, Any]  # n values of each field, by path: an array, or coded
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
        columns={path: joined([part.columns[path] for _, part in parts]) for path in paths},
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


class NdjsonDecoder(Decoder):
    """Decodes JSON objects, one per line.

    Args: time, None to decode the other fields only: every object is then kept.
    Guarantee: which records are decodable depends on their bytes alone, not on the fields that are read. A
        field that cannot be read (not UTF-8, for instance) has no value. A record that may hold more than
        ``MOST_VALUES`` values is undecodable.
    Cost: about half a microsecond per record; a batch with an unusual record takes three times as long.

    >>> decoder = NdjsonDecoder(TimeField("at.s", "s"))
    >>> decoded = decoder.decode([b'{"at": {"s": 1.5}}', b'{"at": {"s": null}}', b'{"at'])
    >>> decoded.columns["at.s"].tolist(), [reason.value for _, reason in decoded.refused]
    ([1500000], ['null', 'undecodable'])
    """

    def __init__(self, time: TimeField | None, others: Sequence[str] = ()) -> None:
        self._time = time
        timed = None if time is None else time.path
        self._readers = readers(timed, others)
        self._alone = {path: _FieldAlone(path, path == timed) for path in self._readers[0][1]}

    def decode(self, records: Sequence[bytes]) -> Decoded:
        refused: list[tuple[int, Reason]] = []
        kept: Sequence[int] = range(len(records))
        columns = None
        if max(map(len, records), default=0) <= MOST_VALUES:
            columns = _with_less_room(_ROOM, self._together, records)
        if columns is None:
            kept, columns = self._decode_each(records, refused)
        return _timed_columns(kept, self._time, columns, refused)

    def _together(self, records: Sequence[bytes]) -> dict[str, list[Any]] | None:
        """Return the values of each field; None if a record is unusual."""
        for decode, columns in self._readers:
            with suppress(*UNDECODABLE):
                found = list(map(decode, records))
                return {path: column(found) for path, column in columns.items()}
        return None

    def _decode_each(
        self, records: Sequence[bytes], refused: list[tuple[int, Reason]]
    ) -> tuple[list[int], dict[str, list[Any]]]:
        kept, rows = [], []
        for index, record in enumerate(map(bare, records)):
            row = None if has_too_many_values(record) else self._row(record)
            if row is None:
                refused.append((index, Reason.UNDECODABLE))
            else:
                kept.append(index)
                rows.append(row)
        return kept, {path: [row[path] for row in rows] for path in self._alone}

    def _row(self, record: bytes) -> dict[str, Any] | None:
        """Return the values of one record; None if it is no JSON object."""
        columns = self._together([record])
        if columns is None and (clean := mended(record)) is not record:
            columns = self._together([clean])
        if columns is not None:
            return {path: value for path, [value] in columns.items()}
        return {path: alone.value(clean) for path, alone in self._alone.items()} if is_plain(clean) else None


def _with_less_room(calls: int, decode: Callable[[Sequence[bytes]], Any], records: Sequence[bytes]) -> Any:
    """Return the result of a call that has less room for nested values: each call of Python takes some."""
    return decode(records) if not calls else _with_less_room(calls - 1, decode, records)


class _FieldAlone:
    """Decodes one field, so that no other field of a record can fail.

    Args: is_time, whether it is the time's field.
    """

    def __init__(self, path: str, is_time: bool) -> None:
        # By the hook a number beyond all doubles is infinite, as in CSV.
        *_, reader = readers(path if is_time else None, () if is_time else (path,), float_hook=float)
        self._decode, columns = reader
        self._column = columns[path]
        self._unreadable = Reason.BAD_TIME if is_time else None

    def value(self, record: bytes) -> Any:
        """Return the field's value. If it cannot be read: for a time the reason, else None."""
        try:
            return self._column([self._decode(record)])[0]
        except UNDECODABLE:
            return self._unreadable


class CsvDecoder(Decoder):
    """Comma-separated values with a header line; a record is one line, or one record of a topic.

    Guarantee: a record that may hold more than ``MOST_VALUES`` values, or has quotes and more than 4 Mi
        characters, is undecodable. A value that is not UTF-8 is no value; the others of its record are read.
    Args: names, of all columns in order; time, as in ``NdjsonDecoder``.
    Raises: OperatorError if a field has no column, or two.
    Cost: about a microsecond per record.

    >>> decoder = CsvDecoder(["id", "at"], TimeField("at", "iso8601"))
    >>> decoder.decode([b"7,1970-01-01T00:00:01Z", b"8", b"9,"]).refused
    [(1, <Reason.UNDECODABLE: 'undecodable'>), (2, <Reason.NULL: 'null'>)]
    """

    def __init__(self, names: Sequence[str], time: TimeField | None, others: Sequence[str] = ()) -> None:
        self._width = len(names)
        self._time = time
        self._paths = ([] if time is None else [time.path]) + list(others)
        self._places = [_place_of(path, names, time) for path in self._paths]

    def decode(self, records: Sequence[bytes]) -> Decoded:
        refused: list[tuple[int, Reason]] = []
        rows: list[list[Any]] = []
        kept = []
        for index, record in enumerate(records):
            values = csv_values(bare(record))
            if values is None or len(values) != self._width:
                refused.append((index, Reason.UNDECODABLE))
                continue
            kept.append(index)
            rows.append(values)
        columns = {
            path: [values[place] or None for values in rows]
            for path, place in zip(self._paths, self._places, strict=True)
        }
        return _timed_columns(kept, self._time, columns, refused)


def _place_of(path: str, names: Sequence[str], time: TimeField | None) -> int:
    """Return the place of a field's column; spaces around a name count only if a name has no others."""
    # Streams that began with an older version have the file's byte order mark in this path.
    known = (path, path.removeprefix(BOM_UTF8.decode()))
    places = [place for place, name in enumerate(names) if name in known] or [
        place for place, name in enumerate(names) if name.strip() in known
    ]
    if len(places) == 1:
        return places[0]
    if places:
        raise OperatorError(f"the header line has the column {path} {len(places)} times; rename all but one")
    key = "time.field" if time is not None and path == time.path else "keys.field, value.field or where"
    raise OperatorError(f"the header line has no column {path}; correct {key}")


def _timed_columns(
    kept: Sequence[int],
    time: TimeField | None,
    columns: Mapping[str, Sequence[Any]],
    refused: Sequence[tuple[int, Reason]],
) -> Decoded:
    """Return decoded records; refuse those without a valid time. Args: columns, values by path, as read."""
    if time is None:
        return untimed_columns(kept, columns, refused)
    written = columns[time.path]

    def why(row: int) -> Reason:
        return why_no_time(written[row], time.format, time.zone)

    others = {path: values for path, values in columns.items() if path != time.path}
    return decoded_columns(kept, time.path, times_us(written, time.format, time.zone), others, refused, why)


def decoded_columns(
    kept: Sequence[int],
    time_path: str,
    times: tuple[Int64Array, Bools],
    others: Mapping[str, Iterable[Any]],
    refused: Sequence[tuple[int, Reason]],
    why: Callable[[int], Reason],
) -> Decoded:
    """Return decoded records; refuse those without a valid time.

    Args: kept, the indices of n decoded records; times, the result of ``times_us`` for these records; others,
        n values for each path; why, returns the reason for the refusal of one of the n.
    """
    indices, columns = np.array(kept, dtype=np.int64), _objects(others, len(kept))
    columns[time_path], good = times
    if not good.all():
        bad = np.flatnonzero(~good).tolist()
        refused = sorted([*refused, *((kept[row], why(row)) for row in bad)])
        columns = {path: values[good] for path, values in columns.items()}
        indices = indices[good]
    return Decoded(indices, columns, refused)


def untimed_columns(
    kept: Sequence[int], others: Mapping[str, Iterable[Any]], refused: Sequence[tuple[int, Reason]]
) -> Decoded:
    """Return decoded records without their time. Args: as in ``decoded_columns``."""
    return Decoded(np.array(kept, dtype=np.int64), _objects(others, len(kept)), refused)


def _objects(others: Mapping[str, Iterable[Any]], size: int) -> dict[str, NDArray[Any] | Coded]:
    return {
        path: values if isinstance(values, Coded) else np.fromiter(values, dtype=object, count=size)
        for path, values in others.items()
    }


def csv_names(header: bytes) -> list[str]:
    """Return the names of a file's columns, without the byte order mark before them; none if not valid."""
    return csv_values(header.removeprefix(BOM_UTF8)) or []


def csv_values(line: bytes) -> list[str] | None:
    """Return the values of one line; None if it is not valid, or may have too many values.

    A value that is not UTF-8 is empty.
    """
    if has_too_many_values(line):
        return None
    try:
        return _split(line.decode())
    except UnicodeDecodeError:
        values = _split(line.decode(errors="surrogateescape"))
        return None if values is None else ["" if _LOST.search(value) else value for value in values]


def _split(text: str) -> list[str] | None:
    if '"' not in text:
        return text.split(",")
    if len(text) > _LONGEST_IN_QUOTES:
        return None
    try:
        [values] = csv.reader([text], strict=True)
        # A row of several lines has CR for its line breaks (``one_line_each``); a value has LF.
        return [value.replace("\r", "\n") for value in values] if "\r" in text else values
    except (ValueError, csv.Error):
        return None
