"""Opens finished files: decompresses one, reads a sample of one, or joins all files of a list."""

from __future__ import annotations

import csv
import errno
import io
import mmap
import os
import shutil
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from stream_app.core.json_objects import bare
from stream_app.ports import OperatorError
from stream_app.sources.copies import check_copies, first_records
from stream_app.sources.decode import TimeField, csv_names, csv_values
from stream_app.sources.file_list import files_of, is_list
from stream_app.sources.lines import (
    LINE_END,
    LONGEST_RECORD_BYTES,
    MOST_BYTES,
    EmptyFileError,
    FileFormat,
    LineFile,
    csv_decoder,
    open_lines,
)
from stream_app.sources.packed import DAMAGE, is_packed, open_packed

_COPIED_AT_ONCE = 1 << 20
_MOST_UNPACKED = 1 << 28  # of compressed bytes that a check reads


def decompressed(path: Path, directory: Path | None = None, most: int | None = None) -> IO[bytes]:
    """Return the content of a compressed file as a file without a name, which is freed when it is closed.

    Args: most, bytes from its beginning; None for all.
    Raises: OperatorError if the file cannot be read or is damaged.
    """
    copy = TemporaryFile(dir=directory)  # noqa: SIM115 - it is returned
    try:
        with _naming_damage(path, directory):
            with open_packed(path, warns=True) as packed:
                # ``read`` would lose what precedes a failure.
                while (most is None or copy.tell() < most) and (part := packed.read1(_COPIED_AT_ONCE)):
                    copy.write(part[: None if most is None else most - copy.tell()])
            copy.flush()
            copy.seek(0)
    except OperatorError:
        copy.close()
        raise
    return copy


@contextmanager
def _naming_damage(path: Path, directory: Path | None = None) -> Iterator[None]:
    """Turn the errors of a block that decompresses a file into an OperatorError, one line."""
    try:
        yield
    except DAMAGE as failure:
        if isinstance(failure, OSError) and failure.errno in (errno.ENOSPC, errno.EDQUOT):
            where = directory or "the folder of temporary files"
            text = f"{path}: no room is left to decompress it; make room in {where}"
            raise OperatorError(text) from None
        raise OperatorError(
            f"{path}: cannot be decompressed ({failure}); put a whole file there, under its final name"
        ) from None


def open_sample(
    path: Path,
    format: FileFormat,
    time: TimeField,
    others: Sequence[str] = (),
    in_rows: bool = False,
    *,
    newest: bool = False,
) -> LineFile:
    """Return the first records of a file, or of the first file of a list that has one.

    Args: in_rows, whether rows of CSV may have several lines, as in a replay; newest, whether to open the
        last such file.
    Raises: OperatorError if it cannot be read.
    """
    files = list(files_of(path).values()) if is_list(path) else [path]
    if newest:
        files.reverse()
    with_records = (file for file in files if bare(first_records(file, format == "csv")).strip())
    first = next(with_records, files[0])
    lines = open_start(first, format, time, others)
    if in_rows and format == "csv" and (rows := rows_as_lines(lines, most=MOST_BYTES)) is not None:
        lines.close()
        return LineFile(first, rows, format, time, others)
    return lines


def open_start(file: Path, format: FileFormat, time: TimeField, others: Sequence[str] = ()) -> LineFile:
    """Return the first records of one file, which may be compressed. Raises: as ``open_sample``."""
    if not is_packed(file):
        return open_lines(file, format, time, others)
    return LineFile(file, decompressed(file, most=MOST_BYTES), format, time, others)


def rows_as_lines(
    lines: LineFile, directory: Path | None = None, most: int | None = None
) -> IO[bytes] | None:
    """Return an unnamed temporary file with each row of a CSV file on one line; None if each has one already.

    Args: directory, with space for them; most, bytes from the beginning, or somewhat more.
    """
    with mmap.mmap(lines.fileno(), 0, access=mmap.ACCESS_READ) as data:
        data.seek(lines.first_position)
        if data.find(b'"') < 0 or not any(line.count(b'"') % 2 for line in iter(data.readline, b"")):
            return None
        data.seek(lines.first_position)
        header = data[: lines.first_position]
        rows = TemporaryFile(dir=directory)  # noqa: SIM115 - it is returned
        rows.write(header)
        for row in one_line_each(iter(data.readline, b""), len(csv_names(header.rstrip(b"\r\n")))):
            rows.write(row)
            if most is not None and rows.tell() > most:
                break
    rows.flush()
    rows.seek(0)
    return rows


def open_whole(
    path: Path, format: FileFormat, time: TimeField, directory: Path, others: Sequence[str] = ()
) -> LineFile:
    """Return a file of records, or the records of a list of files as one file without a name.

    CSV files may have their columns in different orders: each is read by the names in its own header.
    Args: directory, with space for the records of the whole list.
    Raises: OperatorError if a file cannot be read, a CSV file lacks a field, or two files have the same
        records.
    """
    if not is_list(path):
        return open_lines(path, format, time, others)
    whole = TemporaryFile(dir=directory)  # noqa: SIM115 - it is returned
    try:
        first: list[str] = []
        for part, content in _parts(path, format, directory):
            with content:
                names = _names(part, content, time, others) if format == "csv" else []
                if names and not first:
                    first = names
                    content.seek(0)
                    header = content.readline()
                    # With its mark: positions stay what older versions stored.
                    whole.write(header.rstrip(b"\r\n") + LINE_END)
                if names in ([], first):
                    shutil.copyfileobj(content, whole, _COPIED_AT_ONCE)
                else:
                    whole.writelines(_in_order(content, names, first))
            _end_line(whole)
        whole.seek(0)
    except OSError as failure:
        whole.close()
        raise OperatorError(f"{path}: cannot be read: {failure.strerror}; check source.file") from None
    except OperatorError:
        whole.close()
        raise
    return LineFile(path, whole, format, time, others)


def check_whole(path: Path, format: FileFormat, time: TimeField, others: Sequence[str] = ()) -> int:
    """Check that ``open_whole`` can open a file or a list, without copying it.

    Returns: how many bytes of compressed files were not read, because that would take long.
    Raises: as ``open_whole``.
    """
    if not is_list(path):
        open_lines(path, format, time, others).close()
        return 0
    found, left, unread = 0, _MOST_UNPACKED, 0
    for part, content in _parts(path, format, None, MOST_BYTES):
        with content:
            found += bool(_names(part, content, time, others)) if format == "csv" else 1
        size = part.stat().st_size if is_packed(part) else 0
        if size > left:
            unread += size
        elif size:
            left -= size
            with _naming_damage(part), open_packed(part, warns=True) as packed:
                while packed.read1(_COPIED_AT_ONCE):
                    pass
    if not found:
        raise EmptyFileError(f"{path}: no header line; a CSV file begins with the names of its columns")
    return unread


def _parts(
    path: Path, format: FileFormat, directory: Path | None, most: int | None = None
) -> Iterator[tuple[Path, IO[bytes]]]:
    """Yield the files of a list in order, each with its content. Args: as for ``decompressed``."""
    parts = list(files_of(path).values())
    check_copies(parts, format == "csv")
    for part in parts:
        yield part, decompressed(part, directory, most) if is_packed(part) else part.open("rb")


def _names(part: Path, content: IO[bytes], time: TimeField, others: Sequence[str]) -> list[str]:
    """Read a CSV file's header; return the names of its columns, none for an empty file."""
    line = content.readline(MOST_BYTES)
    if not line.removeprefix(BOM_UTF8).rstrip(b"\r\n") and not content.read(1):
        return []
    csv_decoder(part, line, time, others)
    return csv_names(line.rstrip(b"\r\n"))


def _in_order(lines: Iterable[bytes], names: Sequence[str], wanted: Sequence[str]) -> Iterator[bytes]:
    """Yield the lines of a CSV file with their values in the order of other names; a missing value is empty.

    A line that is not valid stays invalid: it gets more values than there are names.
    """
    places = [names.index(name) if name in names else None for name in wanted]
    for line in one_line_each(lines, len(names)):
        record = bare(line)
        values = csv_values(record)
        if not record.strip():
            yield LINE_END
        elif values is None or len(values) != len(names):
            yield record + b"," * len(wanted) + LINE_END
        else:
            text = io.StringIO()
            csv.writer(text).writerow(["" if at is None else values[at] for at in places])
            yield text.getvalue().encode()


def _end_line(whole: IO[bytes]) -> None:
    """End the last line, so that the next file's first record does not continue it."""
    whole.flush()
    if (length := whole.tell()) and os.pread(whole.fileno(), 1, length - 1) != LINE_END:
        whole.write(LINE_END)


def one_line_each(lines: Iterable[bytes], width: int) -> Iterator[bytes]:
    """Yield the lines of a CSV file, but each row of several lines as one, whose line breaks are CR.

    A line that opens a quote begins such a row only if the next lines close it and give as many values as the
    header has. Otherwise it stays as it is, so that one damaged row takes no other row with it. Only a
    finished file is read so: the line that closes a quote of a growing file may not be written yet.
    Args: lines, each with its end; width, the number of columns.
    Cost: 0.1 microseconds for a line without an odd number of quotes.

    >>> list(one_line_each([b'7,"one\\n', b'two"\\n', b'8,"open\\n', b"9,x\\n"], 2))
    [b'7,"one\\rtwo"\\n', b'8,"open\\n', b'9,x\\n']
    """
    later, ahead = iter(lines), deque[bytes]()
    while (line := ahead.popleft() if ahead else next(later, None)) is not None:
        if line.count(b'"') % 2:
            taken = _row(line, ahead, later, width)
            if len(taken) > 1:
                line = b"\r".join(part.rstrip(b"\r\n") for part in taken) + b"\n"
        yield line


def _row(line: bytes, ahead: deque[bytes], later: Iterator[bytes], width: int) -> list[bytes]:
    """Return the lines of the row that begins with a line; other lines that it took go back to ``ahead``."""
    taken: list[bytes] = []

    def texts() -> Iterator[str]:
        size = 0
        for part in chain([line], _drained(ahead), later):
            taken.append(part)
            size += len(part)
            if size > LONGEST_RECORD_BYTES:
                return
            yield part.decode(errors="surrogateescape")

    try:
        is_row = len(next(csv.reader(texts(), strict=True))) == width
    except csv.Error:
        is_row = False
    keep = len(taken) if is_row else 1
    ahead.extendleft(reversed(taken[keep:]))
    return taken[:keep]


def _drained(waiting: deque[bytes]) -> Iterator[bytes]:
    while waiting:
        yield waiting.popleft()
