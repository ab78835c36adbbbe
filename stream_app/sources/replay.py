"""Replays a finished file in the order of event time: each record arrives at its event time.

So no record is late, and disorder in the file cannot move a count.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import mmap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

import numpy as np

from dphist.arrays import Int64Array
from stream_app.core.incoming import RecordBatch
from stream_app.durable import secret_directory, write_durably
from stream_app.ports import OperatorError
from stream_app.sources.copies import beginning
from stream_app.sources.decode import TimeField
from stream_app.sources.file_list import files_of, is_list
from stream_app.sources.finished_files import open_whole, rows_as_lines
from stream_app.sources.lines import PARTITION, FileFormat, LineFile, OneFile

_RECORDS_PER_PIECE = 10_000
_NOT_A_TIME = np.iinfo(np.int64).min
POLL_S = 0.005


class ReplaySource(OneFile):
    """Replay a file, or a sorted copy of it, on a virtual clock.

    Args:
        path, format, time: the file, and where its records have their time.
        directory: of this file only, with space for the index and a sorted copy.
        reached_us: returns the instant that the replay has reached.
        others: paths of other fields to decode.
    Raises: OperatorError if the file cannot be read, is not the file replayed so far, or changes meanwhile.
    Cost: see ``in_order_of_time``.
    """

    def __init__(
        self,
        path: Path,
        format: FileFormat,
        time: TimeField,
        directory: Path,
        reached_us: Callable[[], int],
        others: Sequence[str] = (),
    ) -> None:
        self._lines, self._times_us, self._positions = in_order_of_time(path, format, time, directory, others)
        self._path, self._reached_us = path, reached_us
        self._opened = self._lines.stat()
        self._end = self._opened.st_size

    async def positions_at(
        self, partitions: Sequence[str], instants_us: Sequence[int]
    ) -> Mapping[str, Sequence[int]]:
        positions = [self._first_from(instant_us) for instant_us in instants_us]
        return dict.fromkeys(partitions, positions)

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        loop = asyncio.get_running_loop()
        deadline_s, began_us = loop.time() + timeout_s, self._reached_us()
        while True:
            if PARTITION in positions:
                self._check_unchanged()
                limit = self._first_from(self._reached_us())
                batch = await self._lines.read_in_turns(positions[PARTITION], limit)
                if batch is not None:
                    return (batch,)
            # When the replay's time moves on, a cut may be due, and the next stride waits for it.
            if loop.time() >= deadline_s or self._reached_us() > began_us:
                return ()
            await asyncio.sleep(POLL_S)

    def ends(self) -> Mapping[str, int]:
        """Return the position that the replay has reached by its clock, for the operator's lag metric."""
        return {PARTITION: self._first_from(self._reached_us())}

    async def close(self) -> None:
        self._lines.close()  # deletes the index and the sorted copy, which have no names
        self._times_us = self._positions = np.empty(0, np.int64)

    def _check_unchanged(self) -> None:
        """Check that nobody has written into the file; a sorted copy has no name, so nobody can.

        Raises: OperatorError. The next opening compares the whole content.
        """
        now = self._lines.stat()
        if (now.st_size, now.st_mtime_ns) != (self._opened.st_size, self._opened.st_mtime_ns):
            raise OperatorError(f"{self._path}: it changed while it was replayed; put its records back")

    def _first_from(self, instant_us: int) -> int:
        """Return the position of the first record that is not before an instant."""
        index = int(np.searchsorted(self._times_us, instant_us))
        return int(self._positions[index]) if index < len(self._positions) else self._end


class Ordered(NamedTuple):
    """A file in order of time. SECRET, like its index: ``times_us`` and ``positions``, shape (n,), rising."""

    lines: LineFile
    times_us: Int64Array
    positions: Int64Array


def in_order_of_time(
    path: Path, format: FileFormat, field: TimeField, directory: Path, others: Sequence[str] = ()
) -> Ordered:
    """Return the records of a file or list in order of event time; records with equal times keep their order.

    A row of CSV may have several lines (``one_line_each``). A record that does not decode stays behind the
    record before it. The index, and the sorted copy if one is needed, are files without a name: the system
    frees them when this process closes them or ends. Every start makes them again with the same content.
    Args: directory, of this file only, with space for both, and for a note about the file at the first start;
        others, paths of fields to decode beside the time.
    Raises: OperatorError if the file cannot be read, or differs from the file at an earlier start.
    Cost: one or two microseconds and 24 bytes of memory per record; sorting costs the same again.
    """
    for left in [*secret_directory(directory).glob("*.sorted"), *directory.glob("*.index")]:
        left.unlink()  # left by an earlier version of the service, which kept its sorted copies
    lines = open_whole(path, format, field, directory, others)
    try:
        content = {
            "sha256": lines.digest(),
            "format": str(format),
            "field": field.path,
            "time_format": field.format,
        }
        _check_note(path, directory, content)
        if format == "csv" and (rows := rows_as_lines(lines, directory)) is not None:
            lines.close()
            lines = LineFile(path, rows, format, field, others)
        times_us, positions, ends_whole = _scan(lines, field)
        by_time = np.argsort(times_us, kind="stable")
        copied = not ends_whole or bool((np.diff(times_us) < 0).any())
        times_us, positions = times_us[by_time], positions[by_time]
        order = hashlib.sha256(times_us.tobytes() + positions.tobytes()).hexdigest()
        # How the files begin recognises them if somebody renames them and measures them again.
        files = list(files_of(path).values()) if is_list(path) else [path]
        begin = [beginning(file, format == "csv") for file in files]
        _check_note(path, directory, {**content, "order": order}, begin)
        if copied:
            copy, positions = _write_copy(lines, positions, directory)
            lines.close()
            lines = LineFile(path, copy, format, field, others)
        return Ordered(lines, *_on_disk(directory, times_us, positions))
    except BaseException:
        lines.close()
        raise


def _check_note(
    path: Path, directory: Path, content: Mapping[str, str], files: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Compare a file's content and order with the note of its first start, or write that note.

    Positions depend on the order. A version that could read one more record's time would have another order,
    and would count other records twice.
    """
    note = directory / "replay.json"
    noted = json.loads(note.read_bytes()) if note.exists() else {}
    differing = [key for key, value in content.items() if noted.get(key, value) != value]
    if differing == ["order"]:
        raise OperatorError(
            f"{path}: it is unchanged, but this version reads more of its records than the one that began "
            "its replay; end the replay with that version, or give its streams new names to count it anew"
        )
    if differing:
        raise OperatorError(f"{path}: it is not the file whose replay began; put that back, or start again")
    if "order" in content and noted != {**content, "files": files}:
        write_durably(note, [json.dumps({**content, "files": files}).encode()])


def _on_disk(directory: Path, *columns: Int64Array) -> list[Int64Array]:
    """Move columns from memory to a file without a name; return them as views of that file."""
    if columns[0].size == 0:
        return list(columns)
    with TemporaryFile(dir=directory) as file:
        for column in columns:
            file.write(column.astype("<i8").tobytes())
        file.flush()
        return list(np.memmap(file, dtype="<i8", mode="r").reshape(len(columns), -1))


def _scan(lines: LineFile, field: TimeField) -> tuple[Int64Array, Int64Array, bool]:
    """Return times and positions of the records in file order, and whether the last line is complete."""
    size = lines.stat().st_size
    found: list[tuple[Int64Array, Int64Array]] = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    start = 0
    while (batch := lines.read(start, size)) is not None:
        found.append(_times_and_positions(batch, field))
        start = batch.end
    rest = lines.bytes_at(start, size - start)
    if rest.strip():
        found.append(_times_and_positions(lines.decode(start, rest + b"\n"), field))
    times_us, positions = (np.concatenate(column) for column in zip(*found, strict=True))
    return _filled(times_us), positions, not rest.strip()


def _times_and_positions(batch: RecordBatch, field: TimeField) -> tuple[Int64Array, Int64Array]:
    refused = np.array([refusal.position for refusal in batch.refused], dtype=np.int64)
    positions = np.concatenate([batch.positions, refused])
    times_us = np.concatenate([batch.columns[field.path], np.full(len(refused), _NOT_A_TIME)])
    by_position = np.argsort(positions)
    return times_us[by_position], positions[by_position]


def _filled(times_us: Int64Array) -> Int64Array:
    """Return the times, where a record without a time gets the time of the last record with one."""
    last_timed = np.maximum.accumulate(np.where(times_us == _NOT_A_TIME, 0, np.arange(len(times_us))))
    return times_us[last_timed]


def _write_copy(lines: LineFile, positions: Int64Array, directory: Path) -> tuple[IO[bytes], Int64Array]:
    """Return an unnamed file with the records in the order of ``positions``, and their new positions."""
    lengths: list[int] = []
    copy = TemporaryFile(dir=directory)  # noqa: SIM115 - it is returned
    with mmap.mmap(lines.fileno(), 0, access=mmap.ACCESS_READ) as data:
        copy.write(data[: lines.first_position])
        for first in range(0, len(positions), _RECORDS_PER_PIECE):
            starts = positions[first : first + _RECORDS_PER_PIECE].tolist()
            records = [data[start : _line_end(data, start)] + b"\n" for start in starts]
            lengths.extend(map(len, records))
            copy.write(b"".join(records))
    copy.flush()
    copy.seek(0)
    return copy, lines.first_position + np.cumsum([0, *lengths[:-1]])


def _line_end(data: mmap.mmap, start: int) -> int:
    end = data.find(b"\n", start)
    return len(data) if end < 0 else end
