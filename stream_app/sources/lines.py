"""Complete lines of a file as batches of records, with their byte positions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np

from stream_app.core.records import RecordBatch, Refusal
from stream_app.ports import OperatorError
from stream_app.sources.decode import CsvDecoder, Decoder, NdjsonDecoder, TimeField

FileFormat = Literal["ndjson", "csv"]

PARTITION = "0"  # a file is one partition
MOST_BYTES = 1 << 20  # a batch: a fraction of a second to decode, so that cuts are never far behind
LONGEST_RECORD_BYTES = 1 << 24


def open_lines(path: Path, format: FileFormat, fields: list[TimeField]) -> LineFile:
    """Open a file of records.

    Raises: OperatorError where it cannot be read, or a CSV file's header lacks a field.
    """
    try:
        file = path.open("rb", buffering=0)
    except OSError as failure:
        raise OperatorError(f"{path}: cannot be read: {failure.strerror}; check source.file") from None
    try:
        return LineFile(path, file, *_decoder(path, file, format, fields))
    except BaseException:
        file.close()
        raise


def _decoder(path: Path, file: BinaryIO, format: FileFormat, fields: list[TimeField]) -> tuple[Decoder, int]:
    """Return the decoder, and where the first record starts."""
    if format == "ndjson":
        return NdjsonDecoder(fields), 0
    start = file.read(MOST_BYTES)
    header, line_end, _ = start.partition(b"\n")
    if not line_end:
        raise OperatorError(f"{path}: no header line; a CSV file begins with the names of its columns")
    try:
        return CsvDecoder(header.rstrip(b"\r"), fields), len(header) + 1
    except OperatorError as failure:
        raise OperatorError(f"{path}: {failure}") from None


class LineFile:
    """An open file: read from a position, decoded, whole lines only."""

    def __init__(self, path: Path, file: BinaryIO, decoder: Decoder, first_position: int) -> None:
        self.path = path
        self.first_position = first_position
        self._file = file
        self._decoder = decoder

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def stat(self) -> os.stat_result:
        """Return what the system says about the open file, which may have lost its name."""
        return os.fstat(self._file.fileno())

    def after_last_line(self, from_position: int) -> int:
        """Return the position after the last complete line, at least ``from_position``."""
        stop = self.stat().st_size
        while stop > from_position:
            start = max(stop - MOST_BYTES, from_position)
            line_end = os.pread(self._file.fileno(), stop - start, start).rfind(b"\n")
            if line_end >= 0:
                return start + line_end + 1
            stop = start
        return from_position

    def starts_line(self, position: int) -> bool:
        """Say whether a line starts at a position (or would, at the end of the file)."""
        return position == 0 or os.pread(self._file.fileno(), 1, position - 1) == b"\n"

    def read(self, start: int, limit: int) -> RecordBatch | None:
        """Return the complete lines in [start, limit), as many as fit a batch; None if there are none."""
        size, data, line_end = MOST_BYTES, b"", -1
        while line_end < 0:
            data = os.pread(self._file.fileno(), min(size, limit - start), start)
            line_end = data.rfind(b"\n")
            if line_end < 0 and len(data) < size:
                return None
            if size > LONGEST_RECORD_BYTES:
                raise OperatorError(
                    f"{self.path}: a line is longer than {LONGEST_RECORD_BYTES} bytes; split it"
                )
            size *= 2
        return self.decode(start, data[: line_end + 1])

    def decode(self, start: int, data: bytes) -> RecordBatch:
        """Decode whole lines that begin at a position. Blank lines are no records."""
        lines = data.split(b"\n")[:-1]
        lengths = np.fromiter(map(len, lines), dtype=np.int64, count=len(lines))
        starts = start + np.concatenate([[0], np.cumsum(lengths[:-1] + 1)])
        records = [line.rstrip(b"\r") for line in lines]
        positions, kept = starts.tolist(), starts >= self.first_position
        kept &= np.fromiter((bool(record.strip()) for record in records), dtype=np.bool_, count=len(records))
        if not kept.all():
            indices = np.flatnonzero(kept).tolist()
            records, positions = [records[i] for i in indices], [positions[i] for i in indices]
        decoded = self._decoder.decode(records)
        refused = [
            Refusal(PARTITION, positions[index], reason, records[index]) for index, reason in decoded.refused
        ]
        return RecordBatch(
            partition=PARTITION,
            start=start,
            end=start + len(data),
            positions=np.array(positions, dtype=np.int64)[decoded.kept],
            columns=decoded.columns,
            refused=refused,
            records=[records[index] for index in decoded.kept.tolist()] if refused else records,
        )
