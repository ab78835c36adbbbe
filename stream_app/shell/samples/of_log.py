"""A sample of a log that no configuration describes yet: its fields and their values. It is private."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from dphist.arrays import Int64Array
from stream_app.core.counting.read_values import numbers
from stream_app.core.declaration import LogFormat, WebLogFormat
from stream_app.core.json_objects import UNDECODABLE, bare, is_object, mended
from stream_app.core.visits import FIELDS, TIME
from stream_app.ports import OperatorError
from stream_app.sources.decode import CsvDecoder, Decoder, NdjsonDecoder, TimeField, csv_names, csv_values
from stream_app.sources.file_list import files_of, is_list
from stream_app.sources.finished_files import one_line_each
from stream_app.sources.lines import MOST_BYTES
from stream_app.sources.shapes import why_no_header, why_no_lines
from stream_app.sources.starts import first_line, later_lines, lines_in, start_of
from stream_app.sources.web_log import WebLog, WebLogDecoder, form_of
from stream_app.wiring.event_logs import why_unreadable

MOST_RECORDS = 2_000
DEEPEST = 4  # nested objects whose fields are named
MOST_FIELDS = 200
_FIRST_LINES = 20  # that tell JSON from CSV; some may be damaged
_OF_ERRORS = re.compile(
    rb"(?:\d{4}/\d\d/\d\d [\d:]{8}|\[\w{3} \w{3} \d\d [\d:.]+ \d{4}\]) \[[\w:]+\] "
)  # nginx, Apache
_W3C = (b"#Software:", b"#Version:", b"#Fields:")  # logs of IIS and CloudFront
_LINES_OF_LOG = 200  # that tell the form of an access log; referrers are rare


@dataclass(frozen=True)
class SchemaHints:
    """Facts that records of a topic do not contain: the user gives them."""

    columns: tuple[str, ...] = ()  # of CSV, in order
    registry: str = ""  # the URL of their schemas
    authority: Path | None = None  # whose certificates are trusted for it


NO_HINTS = SchemaHints()


@dataclass(frozen=True)
class Sample:
    """Records that were read from the start of a file, or from the end of a topic."""

    where: str  # the name of the log, for messages
    form: LogFormat  # the format, as a configuration names it
    lines: Sequence[bytes]  # the records that can be decoded
    decoder: Callable[[TimeField], Decoder]  # of a time in them, as the service decodes it
    # the values of each field that are not null, by path; dots name nested fields
    columns: Mapping[str, Sequence[Any]]
    undecodable: int  # the number of records that cannot be decoded
    hints: SchemaHints = NO_HINTS
    later: Sequence[bytes] = ()  # records from later places of the file; some may not be decodable
    log_format: str = ""  # of an access log in a form of its own

    @property
    def is_of_web_server(self) -> bool:
        """Whether this is a sample of an access log."""
        return self.form in get_args(WebLogFormat)

    def times_us(self, time: TimeField, *, with_later: bool = False) -> Int64Array:
        """Return the times that the service would read from a field, in microseconds since 1970."""
        lines = [*self.lines, *(self.later if with_later else ())]
        return np.asarray(self.decoder(time).decode(lines).columns[time.path], np.int64)


def file_sample(file: Path) -> Sample:
    """Return the first records of a file, or of the first file of a list.

    Raises: OperatorError if it cannot be read, or is no file of CSV or JSON lines.
    """
    if why := why_unreadable(file):
        raise OperatorError(why)
    files = list(files_of(file).values()) if is_list(file) else [file]
    try:
        files = [one for one in files if one.stat().st_size] or files
        start = start_of(files[0])
        later = later_lines(files)
    except OSError as failure:
        raise OperatorError(f"{files[0]} cannot be read: {failure.strerror}; correct the path") from None
    named = f"{files[0]}: " if is_list(file) else ""
    if why := why_no_lines(start):
        raise OperatorError(f"{named}{why}")
    lines = lines_in(start)
    if not lines:
        raise OperatorError(f"{named}its first line is longer than {MOST_BYTES:,} bytes")
    if (web := form_of(lines[:_LINES_OF_LOG])) is not None:
        log = files[0].name
        if any(one.name.startswith(f"{log}.") for one in files[1:]):
            raise OperatorError(f"{file.name}: name {log} alone; its rotated files are read, too")
        return _of_web_log(log, web, lines, later)
    if any(line.lstrip().startswith(b"{") for line in lines[:_FIRST_LINES]):
        return sample_of(files[0].name, "ndjson", lines, later=later)
    if any(b" HTTP/" in line for line in lines[:_FIRST_LINES]) or lines[0].startswith(_W3C):
        raise OperatorError(
            f"{named}it looks like an access log in a form that is not known; docs/how-to/web-log.md says "
            "where to write the log_format of your server"
        )
    if _OF_ERRORS.match(lines[0]):
        raise OperatorError(f"{named}it is a web server's log of errors; name its access log")
    if why := why_no_header(first_line(start), b"".join(lines[1:2])):
        raise OperatorError(f"{named}{why}")
    names = csv_names(lines[0])
    rows = one_line_each((line + b"\n" for line in lines[1:]), len(names))
    return sample_of(files[0].name, "csv", [row.rstrip(b"\n") for row in rows], names, later=later)


def sample_of(
    where: str,
    form: Literal["ndjson", "csv"],
    lines: Sequence[bytes],
    names: Sequence[str] = (),
    later: Sequence[bytes] = (),
) -> Sample:
    """Return a sample of records. Args: names, of the columns of CSV; later, as in ``Sample``."""
    columns: dict[str, list[Any]] = {}
    good, of_name = [], Counter(names)
    # A column without a name, or one of several with one name, cannot be chosen.
    chosen = [name if of_name[name] == 1 else "" for name in names]
    for line in islice(lines, MOST_RECORDS):
        fields = _of_csv(line, chosen) if form == "csv" else _of_json(line)
        if fields is None:
            continue
        good.append(line)
        for path, value in fields.items():
            if path in columns or len(columns) < MOST_FIELDS:
                columns.setdefault(path, []).append(value)
    if not good:
        what = "has a header line and no event" if form == "csv" else "has no line with a JSON object"
        raise OperatorError(f"{where} {what}; one event a line is needed to see its fields")
    decoder = partial(CsvDecoder, names) if form == "csv" else NdjsonDecoder
    undecodable = min(len(lines), MOST_RECORDS) - len(good)
    return Sample(where, form, good, decoder, columns, undecodable, later=later)


def _of_web_log(where: str, form: WebLog, lines: Sequence[bytes], later: Sequence[bytes]) -> Sample:
    names = [name for name in FIELDS if name not in (TIME, "browser")]
    some = list(islice(lines, MOST_RECORDS))
    decoded = WebLogDecoder(form, names).decode(some)
    good = [some[row] for row in decoded.kept.tolist()]
    columns = {name: [one for one in decoded.columns[name].tolist() if one is not None] for name in names}
    undecodable = len(some) - len(good)
    decoder = lambda time: WebLogDecoder(form)  # noqa: E731
    return Sample(where, form.kind, good, decoder, columns, undecodable, NO_HINTS, later, form.log_format)


def number_in(value: Any) -> float | None:
    """Return a number, or the number that a text of CSV holds; None for anything else.

    >>> [number_in(value) for value in (3, "2.5", "Paris", True)]
    [3.0, 2.5, None, None]
    """
    [number] = numbers([value]).tolist()
    return number if math.isfinite(number) else None


def _of_csv(line: bytes, names: Sequence[str]) -> dict[str, Any] | None:
    values = csv_values(line)
    if values is None or len(values) != len(names):
        return None
    return {name: value for name, value in zip(names, values, strict=True) if value and name}


def _of_json(line: bytes) -> dict[str, Any] | None:
    if not is_object(line):
        return None
    with suppress(*UNDECODABLE):
        return dict(_flat(msgspec.json.decode(mended(bare(line)).decode(errors="replace")), "", DEEPEST))
    return {}  # the service reads its fields one by one


def _flat(event: Mapping[str, Any], above: str, deeper: int) -> Iterator[tuple[str, Any]]:
    """Yield each field that a configuration can name, with its value."""
    for name, value in event.items():
        if not name or value is None:
            continue
        if isinstance(value, dict):
            if deeper:
                yield from _flat(value, f"{above}{name}.", deeper - 1)
        elif not isinstance(value, list):
            yield f"{above}{name}", value
