"""Finished files: one that is decompressed, a sample of one, and all of a list joined."""

from __future__ import annotations

import errno
import gzip
import logging
import os
import shutil
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from stream_app.ports import OperatorError
from stream_app.sources.copies import GZIP, check_copies
from stream_app.sources.decode import TimeField
from stream_app.sources.file_list import files_of, is_list
from stream_app.sources.lines import MOST_BYTES, FileFormat, LineFile, open_lines

_COPIED_AT_ONCE = 1 << 20
_MAGIC = b"\x1f\x8b"  # begins each member of a gzip file

log = logging.getLogger(__name__)


def decompressed(path: Path, directory: Path | None = None, most: int | None = None) -> IO[bytes]:
    """Return the content of a gzip file as a file without a name, which the system frees when it is closed.

    Args: most, bytes from its beginning; None for all.
    Raises: OperatorError if the file cannot be read or is damaged.
    """
    copy = TemporaryFile(dir=directory)  # noqa: SIM115 - it is returned
    try:
        for part in _unpacked(path):
            copy.write(part[: None if most is None else most - copy.tell()])
            if most is not None and copy.tell() >= most:
                break
        copy.flush()
        copy.seek(0)
    except (OSError, EOFError, zlib.error) as failure:
        copy.close()
        if isinstance(failure, OSError) and failure.errno in (errno.ENOSPC, errno.EDQUOT):
            where = directory or "the folder of temporary files"
            text = f"{path}: no room is left to decompress it; make room in {where}"
            raise OperatorError(text) from None
        raise OperatorError(
            f"{path}: cannot be decompressed ({failure}); put a whole file there, under its final name"
        ) from None
    return copy


def _unpacked(path: Path) -> Iterator[bytes]:
    """Yield the content of the members of a gzip file; log a warning if other bytes follow them.

    Zeros behind the last member, as tapes have them, are passed over. Raises: as ``gzip``, if a member has no
    end, or none begins the file.
    """
    with path.open("rb") as file:
        begins = file.read(len(_MAGIC)) == _MAGIC
        file.seek(0)
        with gzip.GzipFile(fileobj=file) as packed:
            while True:
                try:
                    part = packed.read1(_COPIED_AT_ONCE)  # ``read`` would lose what precedes a failure
                except gzip.BadGzipFile as failure:
                    if not begins or not str(failure).startswith("Not a gzipped file"):
                        raise
                    log.warning("%s: bytes follow the end of its gzip data; they are not read", path)
                    return
                if not part:
                    return
                yield part


def open_sample(path: Path, format: FileFormat, time: TimeField, others: Sequence[str] = ()) -> LineFile:
    """Return the first records of a file, or of the first file of a list.

    Raises: OperatorError if it cannot be read.
    """
    first = next(iter(files_of(path).values())) if is_list(path) else path
    if first.suffix != GZIP:
        return open_lines(first, format, time, others)
    return LineFile(first, decompressed(first, most=MOST_BYTES), format, time, others)


def open_whole(
    path: Path, format: FileFormat, time: TimeField, directory: Path, others: Sequence[str] = ()
) -> LineFile:
    """Return a file of records, or the records of a list of files as one file without a name.

    Args: directory, with space for the records of the whole list.
    Raises: OperatorError if a file cannot be read, two CSV files have different headers, or two files have
        the same records.
    """
    if not is_list(path):
        return open_lines(path, format, time, others)
    whole = TemporaryFile(dir=directory)  # noqa: SIM115 - it is returned
    try:
        names, parts = b"", list(files_of(path).values())
        check_copies(parts, format == "csv")
        for part in parts:
            with decompressed(part, directory) if part.suffix == GZIP else part.open("rb") as content:
                if format == "csv":
                    names = _pass_header(part, content, whole, names)
                shutil.copyfileobj(content, whole, _COPIED_AT_ONCE)
            _end_line(whole)
        whole.seek(0)
    except OSError as failure:
        whole.close()
        raise OperatorError(f"{path}: cannot be read: {failure.strerror}; check source.file") from None
    except OperatorError:
        whole.close()
        raise
    return LineFile(path, whole, format, time, others)


def _pass_header(part: Path, content: IO[bytes], whole: IO[bytes], first_names: bytes) -> bytes:
    """Read a CSV file's header; write it if it is the first. Return the column names of the first header."""
    line = content.readline().rstrip(b"\r\n")
    names = line.removeprefix(BOM_UTF8)
    if not names:
        return first_names
    if not first_names:
        whole.write(line + b"\n")  # with its mark: positions stay what older versions stored
    elif names != first_names:
        raise OperatorError(f"{part}: its header is not that of the first file; give all files one header")
    return first_names or names


def _end_line(whole: IO[bytes]) -> None:
    """End the last line, so that the next file's first record does not continue it."""
    whole.flush()
    if (length := whole.tell()) and os.pread(whole.fileno(), 1, length - 1) != b"\n":
        whole.write(b"\n")
