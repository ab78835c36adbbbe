"""A sample of a log that no configuration describes yet: its fields, and what is in them. It is private."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dphist.arrays import Int64Array
from stream_app.core.declaration import LogFormat
from stream_app.ports import OperatorError
from stream_app.sources.copies import GZIP
from stream_app.sources.decode import CsvDecoder, Decoder, NdjsonDecoder, TimeField, csv_names, csv_values
from stream_app.sources.file_list import files_of, is_list
from stream_app.sources.finished_files import decompressed
from stream_app.sources.lines import MOST_BYTES, FileFormat
from stream_app.wiring.event_logs import why_unreadable

MOST_RECORDS = 2_000
_DEEPEST = 4  # nested objects whose fields are named
_MOST_FIELDS = 200
_FIRST_LINES = 20  # that tell JSON from CSV; some may be damaged
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?", flags=re.ASCII)


@dataclass(frozen=True)
class Told:
    """What records of a topic do not say themselves.

    Args: columns, of CSV, in order; registry, the URL of their schemas; authority, whose certificates are
        trusted for it.
    """

    columns: tuple[str, ...] = ()
    registry: str = ""
    authority: Path | None = None


NOTHING = Told()


@dataclass(frozen=True)
class Sample:
    """Records that were read from the start of a file, or from the end of a topic.

    Args:
        where: the name of the log, for messages.
        form: the format, as a configuration names it.
        lines: the records that can be decoded.
        decoder: of a time in them, as the service decodes it.
        columns: the values of each field that are not null, by path; dots name nested fields.
        undecodable: the number of records that cannot be decoded.
    """

    where: str
    form: LogFormat
    lines: Sequence[bytes]
    decoder: Callable[[TimeField], Decoder]
    columns: Mapping[str, Sequence[Any]]
    undecodable: int
    told: Told = NOTHING

    def times_us(self, time: TimeField) -> Int64Array:
        """Return the times that the service would read from a field, in microseconds since 1970."""
        return np.asarray(self.decoder(time).decode(self.lines).columns[time.path], np.int64)


def file_sample(file: Path) -> Sample:
    """Return the first records of a file, or of the first file of a list.

    Raises: OperatorError if it cannot be read, or is no file of CSV or JSON lines.
    """
    if why := why_unreadable(file):
        raise OperatorError(why)
    first = next(iter(files_of(file).values())) if is_list(file) else file
    named = f"{first}: " if is_list(file) else ""
    if first.suffix == GZIP:
        with decompressed(first, most=MOST_BYTES) as content:
            start = content.read()
    else:
        with first.open("rb") as content:
            start = content.read(MOST_BYTES)
    is_whole, start = len(start) < MOST_BYTES, start.removeprefix(BOM_UTF8)
    if why := _no_lines(start):
        raise OperatorError(f"{named}{why}")
    whole, line_end, rest = start.rpartition(b"\n")
    if not line_end:
        whole = rest if is_whole else b""
    lines = [line.rstrip(b"\r") for line in whole.split(b"\n") if line.strip()]
    if not lines:
        raise OperatorError(f"{named}its first line is longer than {MOST_BYTES:,} bytes")
    if any(line.lstrip().startswith(b"{") for line in lines[:_FIRST_LINES]):
        return sample_of(first.name, "ndjson", lines)
    names = csv_names(lines[0])
    if why := _no_header(lines[0], names):
        raise OperatorError(f"{named}{why}")
    return sample_of(first.name, "csv", lines[1:], names)


def sample_of(where: str, form: FileFormat, lines: Sequence[bytes], names: Sequence[str] = ()) -> Sample:
    """Return a sample of records. Raises: OperatorError if none of them can be decoded."""
    columns: dict[str, list[Any]] = {}
    good = []
    for line in islice(lines, MOST_RECORDS):
        fields = _of_csv(line, names) if form == "csv" else _of_json(line)
        if fields is None:
            continue
        good.append(line)
        for path, value in fields.items():
            if path in columns or len(columns) < _MOST_FIELDS:
                columns.setdefault(path, []).append(value)
    if not good:
        what = "has a header line and no event" if form == "csv" else "has no line with a JSON object"
        raise OperatorError(f"{where} {what}; one event a line is needed to see its fields")
    decoder = partial(CsvDecoder, names) if form == "csv" else NdjsonDecoder
    return Sample(where, form, good, decoder, columns, min(len(lines), MOST_RECORDS) - len(good))


def number_in(value: Any) -> float | None:
    """Return a number, or the number that a text of CSV holds; None for anything else.

    >>> [number_in(value) for value in (3, "2.5", "Paris", True)]
    [3.0, 2.5, None, None]
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return None
    return float(value)


def _no_lines(start: bytes) -> str | None:
    """Return why the start of a file is not a file of lines, with the remedy; None if it may be one."""
    if not start.strip():
        return "it is empty; put one event into it, so that its fields can be seen"
    if start.lstrip().startswith(b"["):
        return "it is one JSON array; write one object a line, for example with: jq -c '.[]'"
    if b"\0" in start:
        return "it is not text; only CSV and JSON lines can be read, plain or .gz"
    return None


def _no_header(line: bytes, names: Sequence[str]) -> str | None:
    """Return why a line is not the header of a CSV file, with the remedy; None if it may be one."""
    if not names:
        return "its first line is neither JSON nor a header of CSV; write one event a line"
    if len(names) == 1 and (other := next((one for one in (b";", b"\t", b"|") if one in line), None)):
        return f"its columns are separated by {other.decode()!r}; separate them by commas"
    if "" in names or len(set(names)) < len(names):
        return "its header has a column without a name, or a name twice; correct the first line"
    if any(name[0].isdigit() for name in names):
        return "its first line looks like an event; a CSV file begins with the names of its columns"
    return None


def _of_csv(line: bytes, names: Sequence[str]) -> dict[str, Any] | None:
    values = csv_values(line)
    if values is None or len(values) != len(names):
        return None
    return {name: value for name, value in zip(names, values, strict=True) if value}


def _of_json(line: bytes) -> dict[str, Any] | None:
    try:
        event = msgspec.json.decode(line.removeprefix(BOM_UTF8))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return dict(_flat(event, "", _DEEPEST)) if isinstance(event, dict) else None


def _flat(event: Mapping[str, Any], above: str, deeper: int) -> Iterator[tuple[str, Any]]:
    """Yield each field that a configuration can name, with its value."""
    for name, value in event.items():
        if not name or "." in name or value is None:
            continue
        if isinstance(value, dict):
            if deeper:
                yield from _flat(value, f"{above}{name}.", deeper - 1)
        elif not isinstance(value, list):
            yield f"{above}{name}", value
