"""The files of a spool: records that arrived over HTTP or stdin, durable before anybody counts on them.

A spool is a directory of parts, named by the log's position of their first byte. A part is two files:
``.ndjson`` holds the records as they came, ``.batches`` one line for each batch with where it ends. Only the
bytes up to the last good batch are the log. docs/decisions/0032-segments-and-spool.md has every crash.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stream_app.durable import sync_directory

RECORDS, BATCHES = ".ndjson", ".batches"
_NAMED = re.compile(rf"(\d{{20}})({re.escape(RECORDS)}|{re.escape(BATCHES)})")
_CHECKED_AT_ONCE = 1 << 20
_LINE_BYTES = 256  # more than the longest line of a batch has


class Batch(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request's records in the log, as its line in ``.batches`` says.

    Args:
        end: the log's position after its last record; it begins where the batch before it ends.
        records: how many lines it has.
        crc: CRC-32 of its bytes.
        at_us: when it arrived, by the listener's clock.
        key: the digest of its sender and idempotency key; None without a key.
        sender: a mark of the API key that it came with; None without a key, or from an older version.
    """

    end: int
    records: int
    crc: int
    at_us: int
    key: str | None = None
    sender: str | None = None


_decode = msgspec.json.Decoder(Batch).decode
encode_batch = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Part:
    """The place of one part's files. Args: start, the log's position of its first byte."""

    directory: Path
    start: int

    @property
    def records(self) -> Path:
        return self.directory / f"{self.start:020}{RECORDS}"

    @property
    def batches(self) -> Path:
        return self.directory / f"{self.start:020}{BATCHES}"


def parts(directory: Path) -> list[Part]:
    """Return the parts that have records, in order. Other files in the directory are not the spool's."""
    return [Part(directory, start) for start in sorted(_starts(directory, RECORDS))]


def bytes_kept(directory: Path) -> int:
    total = 0
    for entry in os.scandir(directory):
        if _NAMED.fullmatch(entry.name):
            with suppress(FileNotFoundError):  # the worker has just deleted it
                total += entry.stat().st_size
    return total


def _starts(directory: Path, suffix: str) -> list[int]:
    """Return the positions that name the files of one kind."""
    found = (_NAMED.fullmatch(entry.name) for entry in os.scandir(directory))
    return [int(name[1]) for name in found if name is not None and name[2] == suffix]


def noted_batches(part: Part) -> list[Batch]:
    """Return the batches of a part that a later one follows: they were checked before it began."""
    data = part.batches.read_bytes()
    return [_decode(line) for line in data.split(b"\n")[:-1]]


@dataclass(frozen=True, slots=True)
class Kept:
    """The contents of a spool, for its operator. Args: directory, the spool's."""

    directory: Path

    def bytes_kept(self) -> int:
        return bytes_kept(self.directory)

    def kept_since_us(self) -> int | None:
        """Return when the oldest batch that is kept arrived; None if there is none."""
        for part in parts(self.directory):
            try:
                with part.batches.open("rb") as file:
                    line = file.readline()
            except FileNotFoundError:
                continue  # the worker has just deleted it
            if line.endswith(b"\n"):
                return _decode(line).at_us
        return None


def last_batch(part: Part) -> Batch | None:
    """Return the last batch of a part that a later one follows; None if it has none."""
    with part.batches.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LINE_BYTES))
        lines = file.read().splitlines()
    return _decode(lines[-1]) if lines else None


def delete_parts(directory: Path, before_us: int) -> int:
    """Delete the parts whose last batch arrived before an instant, but never the last part.

    The records go first, so a crash leaves no record behind that nothing accounts for.
    Returns: how many parts were deleted.
    """
    found, deleted = parts(directory), 0
    for part in found[:-1]:
        last = last_batch(part)
        if last is not None and last.at_us >= before_us:
            break
        part.records.unlink()
        deleted += 1
    first_left = found[deleted].start if found else 0
    for start in _starts(directory, BATCHES):
        if start < first_left:
            Part(directory, start).batches.unlink()
    if deleted:
        sync_directory(directory)
    return deleted


class OpenPart:
    """The last part while it grows: which of its batches are whole.

    Args: part, whose files exist; mode, of ``os.open``.
    """

    def __init__(self, part: Part, mode: int = os.O_RDONLY) -> None:
        self.part = part
        self.end = part.start  # the position after the last whole batch
        self.noted_bytes = 0  # of ``.batches``: up to the line of that batch
        self.records = os.open(part.records, mode | os.O_CLOEXEC)
        try:
            self.batches = os.open(part.batches, mode | os.O_CLOEXEC)
        except BaseException:
            os.close(self.records)
            raise

    def close(self) -> None:
        os.close(self.records)
        os.close(self.batches)

    def new_batches(self) -> Iterator[Batch]:
        """Yield the batches that follow, as far as they are whole: their line, and all of their bytes.

        A batch that is not whole ends the log here, whatever follows it.
        """
        size = os.fstat(self.batches).st_size
        data = os.pread(self.batches, size - self.noted_bytes, self.noted_bytes)
        *lines, _ = data.split(b"\n")
        for line in lines:
            try:
                batch = _decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return
            if batch.end < self.end or self._crc(batch.end) != batch.crc:
                return
            self.end = batch.end
            self.noted_bytes += len(line) + 1
            yield batch

    def sync(self) -> None:
        """Make the read batches durable: all whole batches survive a power failure from now on."""
        os.fdatasync(self.records)
        os.fdatasync(self.batches)

    def _crc(self, end: int) -> int | None:
        """Return the CRC-32 of the bytes from the last end; None if some are missing."""
        position, crc = self.end, 0
        while position < end:
            offset = position - self.part.start
            data = os.pread(self.records, min(_CHECKED_AT_ONCE, end - position), offset)
            if not data:
                return None
            crc = zlib.crc32(data, crc)
            position += len(data)
        return crc
