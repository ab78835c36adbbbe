"""Complete lines of a file as batches of records, with their byte positions."""

from __future__ import annotations

import asyncio
import hashlib
import os
from abc import abstractmethod
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Literal

import numpy as np

from stream_app.core.coded import joined
from stream_app.core.incoming import Reason, RecordBatch, Refusal
from stream_app.ports import OperatorError, Source
from stream_app.sources.decode import (
    BYTES_AT_ONCE,
    RECORDS_AT_ONCE,
    CsvDecoder,
    Decoder,
    NdjsonDecoder,
    TimeField,
    csv_names,
)
from stream_app.sources.shapes import why_no_header, why_no_lines
from stream_app.sources.web_log import WebLog, WebLogDecoder

FileFormat = Literal["ndjson", "csv"] | WebLog

PARTITION = "0"  # a file is one partition
MOST_BYTES = 1 << 20  # of a file's start, or of a search for a line's end
BATCH_BYTES = 1 << 22  # each batch costs each stream a call to the store
ENOUGH_RECORDS = 16_000  # a batch with so many records ends, whatever its bytes
LONGEST_RECORD_BYTES = 1 << 24  # with its line end
_KEPT_OF_LONG_RECORD = 1 << 10
_COMPARED_BYTES = 1 << 10  # at both ends of the lines that were seen
_POLL_S = 0.05
_MOST_SAMPLED = 8  # batches without a record that can be decoded
LINE_END = b"\n"
_NO_HEADER = "no header line; a CSV file begins with the names of its columns"


class EmptyFileError(OperatorError):
    """A CSV file has not even a header line."""


class OneFile(Source):
    """The base of sources over a file: one partition, which keeps all its records."""

    async def partitions(self) -> Sequence[str]:
        return (PARTITION,)

    async def owned(self) -> Sequence[str]:
        return (PARTITION,)

    async def first_position(self, partition: str, since_us: int | None) -> int:
        return 0  # a file does not know when its lines were written

    async def kept_since_us(self) -> None:
        """Return None: nothing is ever removed."""


class GrowingFile(OneFile):
    """A file, or files that are one log, which the source checks again until there is a new record."""

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        if PARTITION not in positions:
            await asyncio.sleep(timeout_s)
            return ()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while (batch := await self._after(positions[PARTITION])) is None:
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                return ()
            await asyncio.sleep(min(_POLL_S, left_s))
        return (batch,)

    @abstractmethod
    async def _after(self, position: int) -> RecordBatch | None:
        """Check the file; return the records after a position, or None if it has none yet.

        Raises: OperatorError if the file is not the one counted so far.
        """


def open_lines(path: Path, format: FileFormat, time: TimeField, others: Sequence[str] = ()) -> LineFile:
    """Return an open file of records.

    Args: others, paths of the fields beside the time.
    Raises: OperatorError, as ``LineFile``, or if it cannot be read.
    """
    try:
        file = path.open("rb", buffering=0)
    except OSError as failure:
        raise OperatorError(f"{path}: cannot be read: {failure.strerror}; check source.file") from None
    return LineFile(path, file, format, time, others)


def _decoder(
    path: Path, file: IO[bytes], format: FileFormat, time: TimeField, others: Sequence[str]
) -> tuple[Decoder, int]:
    """Return the decoder, and the position of the first record."""
    if isinstance(format, WebLog):
        return WebLogDecoder(format, others), 0
    if format == "ndjson":
        return NdjsonDecoder(time, others), 0
    start = file.read(MOST_BYTES)
    header, line_end, _ = start.partition(b"\n")
    if not line_end:
        why = why_no_lines(start) if header.removeprefix(BOM_UTF8) else None
        # Its writer may have only just begun it.
        error = EmptyFileError if why is None and len(start) < MOST_BYTES else OperatorError
        raise error(f"{path}: {why or _NO_HEADER}")
    return csv_decoder(path, header, time, others), len(header) + 1


def csv_decoder(path: Path, header: bytes, time: TimeField, others: Sequence[str]) -> CsvDecoder:
    """Return the decoder of a CSV file. Args: header, its first line; path, for messages.

    Raises: OperatorError if a field has no column, or the line is no text that can be read.
    """
    try:
        return CsvDecoder(csv_names(header.rstrip(b"\r\n")), time, others)
    except OperatorError as failure:
        header = header.removeprefix(BOM_UTF8).rstrip(b"\r\n")
        no_lines = why_no_lines(header + LINE_END) if header.strip() else None
        why = no_lines or why_no_header(header) or f"{failure}{_not_utf_8(header)}"
        raise OperatorError(f"{path}: {why}") from None


def _not_utf_8(header: bytes) -> str:
    try:
        header.decode()
    except UnicodeDecodeError:
        return "; its header is not UTF-8: write it as UTF-8, for example with: iconv -f LATIN1 -t UTF-8"
    return ""


class LineFile:
    """An open file whose complete lines are read from a position and decoded.

    Args: path, for messages; others, paths of the fields beside the time.
    Raises: OperatorError if a CSV file's header lacks a field; EmptyFileError if it lacks the header. The
        file is then closed.
    """

    def __init__(
        self, path: Path, file: IO[bytes], format: FileFormat, time: TimeField, others: Sequence[str]
    ) -> None:
        self._path, self._file = path, file
        self._hides = isinstance(format, WebLog)  # the bytes of its records: they name people
        # Lines of access logs are longer than others, and take less time.
        self._piece_bytes = 2 * BYTES_AT_ONCE if self._hides else BYTES_AT_ONCE
        self._line_end = self._searched = 0  # no line ends between the two
        self._seen: tuple[int, int] | None = None  # size and time of change at the last look
        self._lines_seen: list[tuple[int, bytes]] = []  # the first and the last bytes of complete lines
        try:
            self._decoder, self.first_position = _decoder(path, file, format, time, others)
        except BaseException:
            file.close()
            raise

    def __enter__(self) -> LineFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def fileno(self) -> int:
        return self._file.fileno()

    def bytes_at(self, start: int, count: int) -> bytes:
        """Return at most ``count`` bytes from a position."""
        return os.pread(self.fileno(), count, start)

    def digest(self) -> str:
        """Return the SHA-256 of the whole content, in hex."""
        self._file.seek(0)
        return hashlib.file_digest(self._file, "sha256").hexdigest()  # type: ignore[arg-type]

    def stat(self) -> os.stat_result:
        """Return the system's facts about the open file, which may have been deleted."""
        return os.fstat(self.fileno())

    def grown_to(self, before: int) -> int:
        """Return the position after the last complete line. Args: before, the result of the last call.

        Raises: OperatorError if lines of that look are gone, also if the file is longer than it was.
        """
        now = self.stat()
        self.check_kept(before)
        after = self.after_last_line(before)
        if self._seen != (now.st_size, now.st_mtime_ns):
            self._seen, size = (now.st_size, now.st_mtime_ns), min(after, _COMPARED_BYTES)
            self._lines_seen = [(at, self.bytes_at(at, size)) for at in {0, after - size}]
        return after

    def check_kept(self, before: int) -> None:
        """Check that the lines of the last look are still there. Args: before, their length.

        Raises: OperatorError. Cost: reads nothing while the system says that the file has not changed.
        """
        now = self.stat()
        if now.st_size >= before and self._seen in (None, (now.st_size, now.st_mtime_ns)):
            return
        if now.st_size < before or any(self.bytes_at(at, len(seen)) != seen for at, seen in self._lines_seen):
            raise OperatorError(f"{self._path}: it was truncated; put its records back, it may only grow")

    def after_last_line(self, from_position: int) -> int:
        """Return the position after the last complete line, at least ``from_position``.

        Args: from_position, where a line starts.
        Cost: reads new bytes only, from the end back to the last line end.
        """
        stop = end = self.stat().st_size
        if end < self._searched:
            self._line_end = self._searched = 0
        searched = max(from_position, self._searched)
        while stop > searched:
            start = max(stop - MOST_BYTES, searched)
            line_end = self.bytes_at(start, stop - start).rfind(b"\n")
            if line_end >= 0:
                self._line_end = start + line_end + 1
                break
            stop = start
        self._line_end = max(self._line_end, from_position)
        self._searched = max(end, self._line_end)
        return self._line_end

    def read(self, start: int, limit: int) -> RecordBatch | None:
        """Return the complete lines in [start, limit), as many as fit a batch; None if there are none.

        A continued replay may start beyond its limit, if more was counted than its clock had released.
        """
        return _joined(list(self._parts(start, limit)))

    def first_records(self) -> RecordBatch | None:
        """Return the first records, one that can be decoded among them if it comes soon; None for none.

        A file may begin with bytes that are no record, such as the hole that ``copytruncate`` leaves.
        """
        found: list[RecordBatch] = []
        start = self.first_position
        limit = self.after_last_line(start)
        while len(found) < _MOST_SAMPLED and (batch := self.read(start, limit)) is not None:
            found.append(batch)
            start = batch.end
            if len(batch.positions):
                break
        return _joined(found)

    async def read_in_turns(self, start: int, limit: int) -> RecordBatch | None:
        """Return the result of ``read``, decoded in parts, so that cuts and other tasks run in between."""
        parts = []
        for part in self._parts(start, limit):
            parts.append(part)
            await asyncio.sleep(0)
        return _joined(parts)

    def _parts(self, start: int, limit: int) -> Iterator[RecordBatch]:
        """Yield the batch that starts here in decoded parts, each of a few milliseconds."""
        if start >= limit:
            return
        (data, end), records = self._complete_lines(start, limit), 0
        for offset, lines in _pieces(data, end, self._piece_bytes):
            part = self.decode(start + offset, lines)
            yield part
            records += len(part.positions) + len(part.refused)
            if records >= ENOUGH_RECORDS:
                return
        if not end and (long := self._too_long(start, limit)) is not None:
            yield long

    def _complete_lines(self, start: int, limit: int) -> tuple[bytes, int]:
        """Return bytes for one batch, and where the complete lines in them end.

        The end is 0 if the line that starts here is too long.
        """
        size = BATCH_BYTES
        while True:
            data = self.bytes_at(start, min(size, limit - start))
            line_end = data.rfind(b"\n")
            if line_end >= 0 or len(data) < size or size >= LONGEST_RECORD_BYTES:
                return data, line_end + 1
            size = min(2 * size, LONGEST_RECORD_BYTES)

    def _too_long(self, start: int, limit: int) -> RecordBatch | None:
        """Return a batch that refuses the overlong line that starts here; None if the line has no end yet.

        Ending the stream with an error instead would show everybody that the line came.
        """
        position = start
        while data := self.bytes_at(position, min(MOST_BYTES, limit - position)):
            line_end = data.find(b"\n")
            if line_end >= 0:
                return RecordBatch(
                    partition=PARTITION,
                    start=start,
                    end=position + line_end + 1,
                    positions=np.empty(0, np.int64),
                    columns=self._decoder.decode([]).columns,
                    refused=[self._refused_line(start)],
                )
            position += len(data)
        return None

    def unfinished_line(self, start: int, limit: int) -> RecordBatch:
        """Return the rest of a finished file: its last line without an end, or nothing.

        Args: start, the position after the last complete line; limit, the end of the file.
        """
        if limit - start <= LONGEST_RECORD_BYTES:
            batch = self.decode(start, self.bytes_at(start, limit - start) + b"\n")
            return replace(batch, end=limit)
        return replace(self.decode(start, b"\n"), end=limit, refused=[self._refused_line(start)])

    def decode(self, start: int, data: bytes) -> RecordBatch:
        """Return the decoded lines that begin at a position. Blank lines are not records."""
        lines = data.split(b"\n")[:-1]
        lengths = np.fromiter(map(len, lines), dtype=np.int64, count=len(lines))
        starts = start + np.concatenate([[0], np.cumsum(lengths[:-1] + 1)])
        records = [line.rstrip(b"\r") for line in lines] if b"\r" in data else lines
        if start < self.first_position or not all(map(bytes.strip, records)):
            kept = np.fromiter(map(bool, map(bytes.strip, records)), dtype=np.bool_, count=len(records))
            indices = np.flatnonzero(kept & (starts >= self.first_position))
            records, starts = [records[index] for index in indices.tolist()], starts[indices]
        decoded = self._decoder.decode(records)
        refused = [
            self._refusal(int(starts[index]), reason, records[index]) for index, reason in decoded.refused
        ]
        if self._hides:
            records = []
        return RecordBatch(
            partition=PARTITION,
            start=start,
            end=start + len(data),
            positions=starts[decoded.kept],
            columns=decoded.columns,
            refused=refused,
            records=[records[index] for index in decoded.kept.tolist()] if refused and records else records,
        )

    def _refused_line(self, start: int) -> Refusal:
        """Return the refusal of an overlong line."""
        return self._refusal(start, Reason.UNDECODABLE, self.bytes_at(start, _KEPT_OF_LONG_RECORD))

    def _refusal(self, position: int, reason: Reason, record: bytes) -> Refusal:
        return Refusal(PARTITION, position, reason, b"" if self._hides else record)


def moved(batch: RecordBatch, by: int, end: int) -> RecordBatch:
    """Return a batch of one file with positions of the log. Args: end, of the batch in the log."""
    return replace(
        batch,
        start=batch.start + by,
        end=end,
        positions=batch.positions + np.int64(by),
        refused=[replace(refusal, position=refusal.position + by) for refusal in batch.refused],
    )


def _pieces(data: bytes, stop: int, most: int) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of the lines with their offsets: as much as may be decoded at once, or one long line.

    Args: stop, the end of the last line.
    """
    start = 0
    while start < stop:
        end = data.rfind(b"\n", start, start + most) + 1 or data.index(b"\n", start) + 1
        if data.count(b"\n", start, end) > RECORDS_AT_ONCE:
            *_, rest = data[start:end].split(b"\n", RECORDS_AT_ONCE)
            end -= len(rest)
        yield start, data[start:end]
        start = end


def _joined(parts: Sequence[RecordBatch]) -> RecordBatch | None:
    """Return consecutive parts as one batch; None if there are no parts."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return RecordBatch(
        partition=PARTITION,
        start=parts[0].start,
        end=parts[-1].end,
        positions=np.concatenate([part.positions for part in parts]),
        columns={path: joined([part.columns[path] for part in parts]) for path in parts[0].columns},
        refused=[refusal for part in parts for refusal in part.refused],
        records=[record for part in parts for record in part.records],
    )
