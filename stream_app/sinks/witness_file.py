"""The witness as files: one per stream, with a line per released row, in the same bytes as every output.

If a row holds only hashes of its bin's values, the values follow the row after a tab, in base64.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from stream_app.core.records import WitnessRow
from stream_app.durable import LineLog
from stream_app.ports import OperatorError, Witness
from stream_app.stored_format import check_directory_format

_TAB = b"\t"  # never in a row: JSON escapes it


class WitnessFile(Witness):
    """Rows on the disk of this machine, outside the store.

    Args: directory, of this service only; one process may write to it.
    Raises: OperatorError if another process writes to it, or rows differ from the rows that it has.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._logs: dict[str, LineLog] = {}
        self._heads: dict[str, tuple[int, bytes]] = {}

    async def claim(self, stream: str) -> None:
        """Nothing to do: one process holds the directory."""

    async def resign(self, stream: str) -> None:
        """Nothing to do: one process holds the directory."""

    async def append(self, stream: str, rows: Sequence[WitnessRow]) -> None:
        log = self._log(stream)
        head_seq, head_row = self._heads.get(stream, (0, b""))
        for row in rows:
            if row.seq == head_seq and row.row != head_row:
                raise OperatorError(
                    f"{log.path}: row {row.seq} differs from the store's; stop every worker of another store"
                )
        new = [row for row in rows if row.seq > head_seq]
        if new:
            log.append(map(_line, new))
            self._heads[stream] = new[-1].seq, new[-1].row

    async def head(self, stream: str) -> tuple[int, bytes] | None:
        self._log(stream)
        return self._heads.get(stream)

    async def rows(self, stream: str, after_seq: int) -> list[WitnessRow]:
        return [row for row in map(_read, self._log(stream).lines()) if row.seq > after_seq]

    def close(self) -> None:
        """Close the files, so that another process can write."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()
        self._heads.clear()

    def _log(self, stream: str) -> LineLog:
        """Return the stream's file, opened and repaired on first use."""
        if stream not in self._logs:
            log = LineLog(_file(self._directory, stream))
            last = log.last_line()
            if last is not None:
                row = _read(last)
                self._heads[stream] = row.seq, row.row
            self._logs[stream] = log
        return self._logs[stream]


def witnessed_rows(directory: Path, stream: str) -> list[WitnessRow]:
    """Return every row that a file holds, in the order of writing; none without a file.

    It only reads, so a worker may be writing. A last line that is not whole yet is left out.
    """
    check_directory_format("state.dir", directory)
    file = _file(directory, stream)
    if not file.exists():
        return []
    return [_read(line[:-1]) for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def _file(directory: Path, stream: str) -> Path:
    return directory / f"{quote(stream, safe='')}.ndjson"


def _line(row: WitnessRow) -> bytes:
    return row.row + _TAB + b64encode(row.values) if row.values else row.row


def _read(line: bytes) -> WitnessRow:
    row, _, values = line.partition(_TAB)
    return WitnessRow(int(json.loads(row)["seq"]), row, b64decode(values))
