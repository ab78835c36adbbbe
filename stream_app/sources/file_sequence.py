"""Several files as one log, in the order of their names: rotated, compressed and growing files.

A position is ``number of the file * FILE_SPAN + byte in the decoded file``, so it needs no file's length.
"""

from __future__ import annotations

import asyncio
import logging
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from stream_app.core.incoming import RecordBatch
from stream_app.durable import secret_directory
from stream_app.ports import OperatorError
from stream_app.sources.copies import MOST_COMPARED
from stream_app.sources.decode import NdjsonDecoder, TimeField
from stream_app.sources.file_list import FileList, is_list
from stream_app.sources.finished_files import decompressed
from stream_app.sources.lines import (
    MOST_BYTES,
    PARTITION,
    EmptyFileError,
    FileFormat,
    GrowingFile,
    LineFile,
    moved,
    open_lines,
)
from stream_app.sources.packed import is_packed
from stream_app.sources.rotated import RotatedFiles, UnmeasuredError
from stream_app.sources.web_log import WebLog

FILE_SPAN = 1 << 36  # positions of one file; 131,072 files stay below 2^53, which Lua counts exactly

T = TypeVar("T")

log = logging.getLogger(__name__)


class FileSequence(GrowingFile):
    """Follow a list of files as one log from any position.

    The last file grows until one with a later name appears. No file may change otherwise, but a finished file
    may be compressed in its place, and deleted once it is counted.

    Args:
        pattern, format, time: the files, and where their records have their time.
        directory: of this log only; keeps the notes, and one decompressed file at a time.
        others: paths of other fields to decode.
    Raises: OperatorError if the files cannot be read or are not the ones counted so far.
    """

    def __init__(
        self,
        pattern: Path,
        format: FileFormat,
        time: TimeField,
        directory: Path,
        others: Sequence[str] = (),
    ) -> None:
        self._how = (format, time, others)
        self._format = format
        self._directory = secret_directory(directory)
        rotated = isinstance(format, WebLog) and not is_list(pattern)
        self._list = (
            RotatedFiles(pattern, directory) if rotated else FileList(pattern, directory, format == "csv")
        )
        self._open: dict[int, LineFile] = {}  # the file that is read, and the last file
        self._grown_to: dict[int, int] = {}  # of open plain files: the position after the last complete line
        self._read_at = 0  # the position of the last read
        self.counted: Mapping[str, int] | None = None  # up to where records are counted, if that is not it
        # Of the last ``ends``: file, known files, and the bytes of those between them.
        self._later = (0, 0, 0)
        self._position_checked = False
        try:
            self._advance_from_start()
        except BaseException:
            self._close()
            raise

    async def first_position(self, partition: str, since_us: int | None) -> int:
        """Return the start of the first file that is left, or of the first with records since an instant."""
        number, files = self._list.first_left(), self._list.files
        while since_us is not None and number + 1 < len(files) and files[number + 1].appeared_us < since_us:
            number += 1
        return number * FILE_SPAN

    async def kept_since_us(self) -> int | None:  # type: ignore[override]
        """Return when the first file that is left appeared; None if no file was deleted."""
        number, files = self._list.first_left(), self._list.files
        return None if number == 0 else files[min(number, len(files) - 1)].appeared_us

    async def positions_at(
        self, partitions: Sequence[str], instants_us: Sequence[int]
    ) -> Mapping[str, Sequence[int]]:
        end = await _measuring(lambda: self._advance(self._counted_to()))
        return dict.fromkeys(partitions, [end] * len(instants_us))

    async def _after(self, position: int) -> RecordBatch | None:
        self._read_at = position
        end = await _measuring(lambda: self._advance(position))
        if position > end:
            raise OperatorError(f"{self._list.pattern}: these are not the files counted so far")
        return await self._batch(*divmod(position, FILE_SPAN)) if position < end else None

    def ends(self) -> Mapping[str, int]:
        """Return the position of the last read plus the bytes behind it, for the operator's lag metric.

        A file that was not decompressed yet has the size of its compressed form.
        """
        counted = self._counted_to()
        number, offset = divmod(counted, FILE_SPAN)
        known = len(self._list.files)
        if self._later[:2] != (number, known):
            self._later = (number, known, sum(map(self._size, range(number + 1, known - 1))))
        behind = sum(map(self._size, {number, known - 1})) - offset if number < known else 0
        return {PARTITION: counted + max(behind + self._later[2], 0)}

    async def close(self) -> None:
        self._close()

    def _close(self) -> None:
        for number in list(self._open):
            self._forget(number)
        self._list.close()

    def _advance_from_start(self) -> None:
        while True:
            try:
                self._advance(0)
                return
            except UnmeasuredError as needed:
                needed.measure()

    def _advance(self, least: int) -> int:
        """Look at the files again; return the end of the log, see ``_at_least``."""
        self._refresh()
        try:
            return self._at_least(least, self._end())
        except OperatorError:
            self._refresh(certainly=True)  # a file may have been compressed just now
            return self._at_least(least, self._end())

    def _at_least(self, least: int, end: int) -> int:
        """Return the end of the log: lines before ``least`` are in it, also if a rotation's copy lacks them.

        For a cut these are counted lines. Behind lines that were only read, it could lie behind the next cut.
        """
        number = least // FILE_SPAN
        return max(end, least) if number == end // FILE_SPAN and self._is_copied(number) else end

    def _counted_to(self) -> int:
        return self._read_at if self.counted is None else self.counted[PARTITION]

    def _is_copied(self, number: int) -> bool:
        """Return whether a file may be the copy that a rotation made before it truncated the log.

        The server may have written between the two, and those lines may have been read.
        """
        files = self._list
        return isinstance(files, RotatedFiles) and number < len(files.files) and files.is_rotated(number)

    def _refresh(self, *, certainly: bool = False) -> None:
        """Look at the files again; close those whose records are elsewhere now."""
        self._list.refresh(certainly=certainly)
        for number, lines in list(self._open.items()):
            opened = lines.stat()
            if self._list.has_moved(number, opened.st_dev, opened.st_ino):
                self._forget(number)

    def _end(self) -> int:
        """Return the end of the log, as the files are listed."""
        number = len(self._list.files) - 1
        if number < 0 and isinstance(self._list, RotatedFiles) and self._list.pattern.exists():
            return 0  # its first line is not written yet
        if number < 0:
            raise OperatorError(f"{self._list.pattern}: no such file; create the first one")
        if self._list.is_finished(number):
            return (number + 1) * FILE_SPAN
        return number * FILE_SPAN + self._grown(number)

    def _grown(self, number: int) -> int:
        """Return how far the last file has grown: the end of its last complete line."""
        path = self._list.path(number)
        try:
            named = path.stat()
        except OSError as failure:
            raise OperatorError(f"{path}: it is gone ({failure.strerror}); put it back") from None
        if number not in self._open:
            if self._format == "csv" and not _has_header(path):
                return 0  # its writer has only just begun it
            self._take(number, open_lines(path, *self._how))
        lines, before, opened = self._open[number], self._grown_to[number], self._open[number].stat()
        if (named.st_ino, named.st_dev) != (opened.st_ino, opened.st_dev):
            raise OperatorError(f"{path}: it was replaced; put the first file back, it may only grow")
        after = lines.grown_to(before)
        if after > FILE_SPAN:
            raise OperatorError(f"{path}: it is larger than 64 GiB; begin a new file earlier")
        header = lines.first_position
        is_short = not self._list.is_recognised(number, header) and before < header + MOST_COMPARED
        if (not before or (before < after and is_short)) and not self._list.recognise(number, lines, after):
            return 0  # so far it has only records of an earlier file: its writer may be copying it
        self._grown_to[number] = after
        return after

    async def _batch(self, number: int, offset: int) -> RecordBatch | None:
        """Return the next records of a file, or an empty batch that leads to the next file."""
        finished = self._list.is_finished(number)
        if finished and self._list.files[number].ended_at == 0:
            return self._nothing(number)  # of CSV, an empty file has no header either
        try:
            lines = await self._opened(number)
        except EmptyFileError:  # it is finished: the last file is opened once it has a header
            known, size = self._list.files[number], self._list.path(number).stat().st_size
            if known.first is not None or (known.ended_at or 0) > max(size, len(BOM_UTF8)):
                raise  # it had records
            return self._nothing(number)
        limit = self._limit(number, lines, finished)
        if offset > limit and finished and self._is_copied(number):
            self._forget(number)
            return replace(self._nothing(number), start=number * FILE_SPAN + offset)
        if offset > limit:
            raise _another(self._list.path(number))
        self._check_position(number, lines, offset)
        batch = await lines.read_in_turns(offset, limit)
        if batch is None:
            if not finished:
                return None
            batch = lines.unfinished_line(offset, limit)
        start = number * FILE_SPAN
        ends_here = finished and batch.end >= limit
        in_log = moved(batch, start, (number + 1) * FILE_SPAN if ends_here else start + batch.end)
        if ends_here:
            self._warn_of_growth(number, lines)
            self._forget(number)
        return in_log

    def _nothing(self, number: int) -> RecordBatch:
        """Return an empty batch that leads over an empty file."""
        _, time, others = self._how
        columns = NdjsonDecoder(time, others).decode([]).columns
        start = number * FILE_SPAN
        return RecordBatch(PARTITION, start, start + FILE_SPAN, np.empty(0, np.int64), columns)

    async def _opened(self, number: int) -> LineFile:
        """Return a file, open and recognised; at most the file that is read and the last one are open."""
        is_new = number not in self._open
        if is_new:
            last = len(self._list.files) - 1
            for other in [other for other in self._open if other != last]:
                self._forget(other)
            try:
                lines = await asyncio.to_thread(self._open_file, self._list.path(number))
            except OperatorError:
                # It may have been compressed just now.
                await _measuring(lambda: self._list.refresh(certainly=True))
                lines = await asyncio.to_thread(self._open_file, self._list.path(number))
            self._take(number, lines)
        file, lines, before = self._list.files[number], self._open[number], self._grown_to[number]
        if not is_new and file.first is not None:
            lines.check_kept(before)
            if before >= (file.ended_at or 0):
                return lines
        # A file that has ended is noted again: its last records identify it, too.
        self._list.recognise(number, lines, lines.stat().st_size if file.ended_at is None else file.ended_at)
        self._grown_to[number] = max(before, file.ended_at or 0)
        return lines

    def _open_file(self, path: Path) -> LineFile:
        if not is_packed(path):
            return open_lines(path, *self._how)
        return LineFile(path, decompressed(path, self._directory), *self._how)

    def _take(self, number: int, lines: LineFile) -> LineFile:
        self._open[number], self._grown_to[number] = lines, 0
        return lines

    def _forget(self, number: int) -> None:
        self._open.pop(number).close()
        del self._grown_to[number]

    def _limit(self, number: int, lines: LineFile, finished: bool) -> int:
        """Return where the records of a file end."""
        if not finished:
            return self._grown_to[number]
        size, ended_at = lines.stat().st_size, self._list.files[number].ended_at
        if max(size, ended_at or 0) > FILE_SPAN:
            raise OperatorError(
                f"{self._list.path(number)}: it holds more than 64 GiB; split it into smaller files"
            )
        if ended_at is not None:
            lines.check_kept(ended_at)
        return size if ended_at is None else ended_at

    def _check_position(self, number: int, lines: LineFile, offset: int) -> None:
        """Refuse a first position inside a line: it belongs to a different file."""
        if not self._position_checked and offset and lines.bytes_at(offset - 1, 1) != b"\n":
            raise _another(self._list.path(number))
        self._position_checked = True

    def _warn_of_growth(self, number: int, lines: LineFile) -> None:
        ended_at = self._list.files[number].ended_at
        if ended_at is not None and lines.stat().st_size > ended_at:
            log.warning(
                "%s: it grew after a later file had appeared; what was added is not counted: let the writer "
                "close a file before it begins the next one",
                self._list.path(number),
            )

    def _size(self, number: int) -> int:
        file = self._list.files[number]
        if number in self._open:
            return self._limit(number, self._open[number], self._list.is_finished(number))
        if file.ended_at is not None:
            return file.ended_at
        path = self._list.paths.get(file.name)
        try:
            return 0 if path is None else path.stat().st_size
        except OSError:
            return 0


async def _measuring(ask: Callable[[], T]) -> T:
    """Return an answer about files; unpack the files that it needs in a thread, not between cuts."""
    while True:
        try:
            return ask()
        except UnmeasuredError as needed:
            await asyncio.to_thread(needed.measure)


def _another(path: Path) -> OperatorError:
    return OperatorError(f"{path}: this is not the file counted so far; put that back")


def _has_header(path: Path) -> bool:
    with path.open("rb") as file:
        return b"\n" in file.read(MOST_BYTES)
