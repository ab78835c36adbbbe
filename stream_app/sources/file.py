"""A file that grows, followed like ``tail -f``: complete lines only, one partition, positions in bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from stream_app.core.incoming import RecordBatch
from stream_app.durable import write_durably
from stream_app.ports import OperatorError
from stream_app.sources.copies import COMPARED_BYTES, beginning_of, notes_more
from stream_app.sources.decode import TimeField
from stream_app.sources.lines import PARTITION, FileFormat, GrowingFile, LineFile, open_lines

_NOTE = "first_bytes.json"


class FileSource(GrowingFile):
    """Follow a file from any position.

    The file may only grow. A truncated, replaced or missing file is refused, because its positions would no
    longer mean the same records.

    Args:
        path, format, time: the file, and where its records have their time.
        directory: of this file only; keeps a note of its first bytes, to recognise the file after a restart.
        others: paths of other fields to decode.
    Raises: OperatorError if the file cannot be read or is a different file.
    """

    def __init__(
        self, path: Path, format: FileFormat, time: TimeField, directory: Path, others: Sequence[str] = ()
    ) -> None:
        self._path = path
        self._lines = open_lines(path, format, time, others)
        self._note = directory / _NOTE
        self._complete = 0  # the position after the last complete line that was seen
        self._noted = 0  # the number of first bytes that the note holds; the file was compared with them
        self._position_checked = False
        try:
            self._advance()
        except BaseException:
            self._lines.close()
            raise

    async def positions_at(
        self, partitions: Sequence[str], instants_us: Sequence[int]
    ) -> Mapping[str, Sequence[int]]:
        return dict.fromkeys(partitions, [self._advance()] * len(instants_us))

    async def _after(self, position: int) -> RecordBatch | None:
        complete = self._advance()
        self._check_position(position)
        return await self._lines.read_in_turns(position, complete)

    def ends(self) -> Mapping[str, int]:
        """Return the file's end when it was last read, for the operator's lag metric."""
        return {PARTITION: self._complete}

    async def close(self) -> None:
        self._lines.close()

    def _advance(self) -> int:
        """Check the file again; return the position after its last complete line."""
        try:
            named = self._path.stat()
        except OSError as failure:
            raise OperatorError(f"{self._path}: it is gone ({failure.strerror}); put it back") from None
        opened = self._lines.stat()
        if (named.st_ino, named.st_dev) != (opened.st_ino, opened.st_dev):
            raise OperatorError(f"{self._path}: it was replaced; put the first file back, it may only grow")
        self._complete = self._lines.grown_to(self._complete)
        most = self._lines.first_position + COMPARED_BYTES
        wanted = min(self._complete, most)
        if notes_more(self._noted, wanted, most):
            self._check_first_bytes(wanted)
        return self._complete

    def _check_position(self, position: int) -> None:
        """Refuse a first position that is not in this file: it belongs to a different file."""
        if not self._position_checked:
            starts_line = position == 0 or self._lines.bytes_at(position - 1, 1) == b"\n"
            if position > self._complete or not starts_line:
                raise OperatorError(f"{self._path}: this is not the file counted so far; put that back")
            self._position_checked = True

    def _check_first_bytes(self, wanted: int) -> None:
        """Compare the file's first bytes with the note of earlier looks, then note more of them if there are.

        A first line alone would not recognise a file of CSV.
        """
        self._noted = check_first_bytes(self._path, self._lines, self._note.parent)
        if self._noted < wanted:
            write_durably(self._note, [json.dumps(beginning_of(self._lines.bytes_at(0, wanted))).encode()])
            self._noted = wanted


def check_first_bytes(path: Path, lines: LineFile, directory: Path) -> int:
    """Return how many first bytes of a file are noted in a directory, and change nothing.

    Raises: OperatorError if the file has other bytes, or the note is damaged.
    """
    note = directory / _NOTE
    try:
        noted = json.loads(note.read_bytes()) if note.exists() else beginning_of(b"")
        count = int(noted["bytes"])
    except (ValueError, LookupError, TypeError):
        raise OperatorError(
            f"{note}: it is damaged; put a copy of it back, or delete it if {path} is the file counted so far"
        ) from None
    if beginning_of(lines.bytes_at(0, count)) != noted:
        raise OperatorError(f"{path}: this is not the file counted so far; put that back")
    return count
