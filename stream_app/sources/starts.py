"""Judges a file by its first bytes: why it is no file of events, with the remedy."""

from __future__ import annotations

import os
from codecs import BOM_UTF8
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from stream_app.core.json_objects import is_object
from stream_app.sources.finished_files import decompressed
from stream_app.sources.lines import MOST_BYTES
from stream_app.sources.packed import is_packed

_FIRST_LINES = 20  # that tell JSON from other files; some may be damaged
_PLACES, _PLACE_BYTES, _PLACE_LINES = 16, 1 << 16, 500
_MOST_PACKED_BYTES, _MOST_UNPACKED_BYTES = 1 << 23, 1 << 26  # more are not unpacked to see their end


def start_of(file: Path) -> bytes:
    """Return the first bytes of a file, decompressed, at most ``MOST_BYTES``.

    Bytes of zero at its beginning, such as the hole that ``copytruncate`` leaves, are passed over but two.
    Raises: OSError; OperatorError if it cannot be decompressed.
    """
    with decompressed(file, most=MOST_BYTES) if is_packed(file) else file.open("rb") as content:
        start = content.read(MOST_BYTES)
        while start and not start.strip(b"\0"):
            with suppress(OSError):  # there is no hole, or nothing behind it
                content.seek(os.lseek(content.fileno(), content.tell(), os.SEEK_DATA))
            start = content.read(MOST_BYTES)
            if start.strip(b"\0"):
                start = b"\0\0" + start.lstrip(b"\0")
    return start


def later_lines(files: Sequence[Path]) -> list[bytes]:
    """Return some lines of later places of a log, its last ones among them.

    Args: files, in order: of one file several places are read, of several files their ends.
    Raises: OSError; OperatorError if a file cannot be decompressed.
    """
    places = {(file, 1.0) for file in files[:: -(-len(files) // _PLACES)]} | {(files[-1], 1.0)}
    if len(files) == 1:
        places = {(files[0], number / _PLACES) for number in range(1, _PLACES + 1)}
    lines: list[bytes] = []
    for file, share in sorted(places):
        if not is_packed(file):
            with file.open("rb") as content:
                lines += _lines_before(content, share)
        elif file == files[-1] and share == 1 and file.stat().st_size <= _MOST_PACKED_BYTES:
            with decompressed(file, most=_MOST_UNPACKED_BYTES) as content:
                lines += _lines_before(content, share)
    return lines


def _lines_before(content: IO[bytes], share: float) -> list[bytes]:
    """Return the lines before a place in a file. Args: share, of its bytes that are before the place."""
    size = os.fstat(content.fileno()).st_size
    end = int(size * share)
    start = max(end - _PLACE_BYTES, 0)
    lines = os.pread(content.fileno(), end - start, start).split(b"\n")
    whole = lines[1 if start else 0 : None if end == size else -1]
    return [line.rstrip(b"\r") for line in whole if line.strip(b"\0 \r")][-_PLACE_LINES:]


def lines_in(start: bytes) -> list[bytes]:
    """Return the whole lines at the start of a file, without blank ones. Args: start, from ``start_of``."""
    start = start.removeprefix(BOM_UTF8)
    whole = start if len(start) < MOST_BYTES - len(BOM_UTF8) else start.rpartition(b"\n")[0]
    return [line.rstrip(b"\r") for line in whole.split(b"\n") if line.strip()]


def first_line(start: bytes) -> bytes:
    """Return the first line of a file, blank or not: the header of CSV. Args: start, from ``start_of``."""
    return start.removeprefix(BOM_UTF8).partition(b"\n")[0].rstrip(b"\r")


def has_objects(lines: Sequence[bytes]) -> bool:
    """Return whether some of the first lines are JSON objects."""
    return any(map(is_object, lines[:_FIRST_LINES]))
