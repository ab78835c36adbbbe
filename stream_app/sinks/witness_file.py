"""The witness as files: one per stream, with a line per released row, in the same bytes as every output.

If a row holds only hashes of its bin's values, the values follow the row after a tab, in base64.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote, unquote

from stream_app.core.records import WitnessRow
from stream_app.core.releases.release import RowLink
from stream_app.core.segments.names import number_of
from stream_app.core.segments.strategies import is_change
from stream_app.durable import LineLog
from stream_app.ports import OperatorError, Witness
from stream_app.ports.errors import StreamError
from stream_app.stored_format import CHANGES, GENERATIONS, check_directory_format, mark_directory
from stream_app.together import in_thread_to_its_end

_TAB = b"\t"  # never in a row: JSON escapes it
_FIELDS = {"seq": int, "epoch": int, "bin": int, "start": str, "strategy": str, "prev": str}  # what is read


class WitnessFile(Witness):
    """Rows on the disk of this machine, outside the store.

    A slow disk delays only the streams that wait for it: files are opened and synced in threads, several at a
    time, so that the file system joins their syncs.
    Args: directory, of this service only; one process may write to it.
    Raises: OperatorError if another process writes to it, or rows differ from the rows that it has;
        StreamError for a damaged file.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._logs: dict[str, LineLog] = {}
        self._heads: dict[str, tuple[int, bytes]] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def claim(self, stream: str) -> None:
        """Nothing to do: one process holds the directory."""

    async def resign(self, stream: str) -> None:
        """Nothing to do: one process holds the directory."""

    async def append(self, stream: str, rows: Sequence[WitnessRow]) -> None:
        async with self._locks[stream]:
            log = await self._log(stream)
            head_seq, head_row = self._heads.get(stream, (0, b""))
            if any(row.seq == head_seq and row.row != head_row for row in rows):
                raise OperatorError(
                    f"{log.path}: row {head_seq} differs from the store's; stop every worker of another store"
                )
            new = [row for row in rows if row.seq > head_seq]
            if new:
                await in_thread_to_its_end(partial(self._write, stream, log, new))

    async def head(self, stream: str) -> tuple[int, bytes] | None:
        async with self._locks[stream]:
            await self._log(stream)
            return self._heads.get(stream)

    async def rows(self, stream: str, after_seq: int) -> list[WitnessRow]:
        async with self._locks[stream]:
            log = await self._log(stream)
            return [row for row in _chained(log.path, stream, log.lines()) if row.seq > after_seq]

    def close(self) -> None:
        """Close the files, so that another process can write."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()
        self._heads.clear()

    async def _log(self, stream: str) -> LineLog:
        """Return the stream's file, opened and repaired on first use. The caller holds its lock."""
        if stream not in self._logs:
            await in_thread_to_its_end(partial(self._open, stream))
        return self._logs[stream]

    # These two run in threads. They note what they did themselves, because their caller may be cancelled.

    def _open(self, stream: str) -> None:
        log = LineLog(_file(self._directory, stream))
        if (last := log.last_line()) is not None:
            try:
                row = _read(log.path, stream, "its last line", last)
            except BaseException:
                log.close()
                raise
            self._heads[stream] = row.seq, row.row
        self._logs[stream] = log

    def _write(self, stream: str, log: LineLog, rows: Sequence[WitnessRow]) -> None:
        if number_of(stream) > 1:
            mark_directory("state.dir", self._directory, GENERATIONS)
        elif any(is_change(row.row) for row in rows):
            mark_directory("state.dir", self._directory, CHANGES)
        log.append(map(_line, rows))
        self._heads[stream] = rows[-1].seq, rows[-1].row


def each_witnessed(directory: Path, stream: str) -> Iterator[WitnessRow]:
    """Yield every row that a file holds, in the order of writing; none without a file.

    It only reads, so a worker may be writing. A last line that is not whole yet is left out.
    """
    check_directory_format("state.dir", directory)
    path = _file(directory, stream)
    if path.exists():
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    yield _read(path, stream, f"line {number}", line[:-1])


def witnessed_rows(directory: Path, stream: str) -> list[WitnessRow]:
    """Return every row that a file holds. Raises: StreamError for a damaged line."""
    return list(each_witnessed(directory, stream))


def first_witnessed(directory: Path, stream: str) -> bytes | None:
    """Return the first row that a file holds; None without a file, or a whole line in it. It only reads."""
    return next((row.row for row in each_witnessed(directory, stream)), None)


def with_files(directory: Path) -> set[str]:
    """Return the streams that have a file, maybe without a row."""
    return {unquote(file.stem) for file in directory.glob("*.ndjson")}


def _file(directory: Path, stream: str) -> Path:
    return directory / f"{quote(stream, safe='')}.ndjson"


def _line(row: WitnessRow) -> bytes:
    return row.row + _TAB + b64encode(row.values) if row.values else row.row


def _read(file: Path, stream: str, place: str, line: bytes) -> WitnessRow:
    """Return the row that a line holds. Raises: StreamError if it holds no row of the stream."""
    row, _, values = line.partition(_TAB)
    try:
        message = json.loads(row)
        if message["stream"] == stream and all(type(message[key]) is kind for key, kind in _FIELDS.items()):
            return WitnessRow(message["seq"], row, b64decode(values, validate=True))
        is_others = type(message["stream"]) is str and message["stream"] != stream
    except (ValueError, LookupError, TypeError, RecursionError):
        is_others = False
    raise _damaged(file, stream, f"{place} is {'of another stream' if is_others else 'no row of a release'}")


def _chained(file: Path, stream: str, lines: Iterable[bytes]) -> Iterator[WitnessRow]:
    """Yield all rows. Raises: StreamError if one does not follow the row before.

    Rows before a later epoch may be missing: retention removed them before this witness had them, or another
    worker released others over a store that was set back.
    """
    before: RowLink | None = None
    for number, line in enumerate(lines, 1):
        row = _read(file, stream, f"line {number}", line)
        link = RowLink.of(row.row)
        if before is not None:
            follows = link.prev == before.hash and link.seq == before.seq + 1
            if not follows and (link.seq <= before.seq or link.epoch <= before.epoch):
                raise _damaged(file, stream, f"line {number} does not follow the line before")
        yield row
        before = link


def _damaged(file: Path, stream: str, what: str) -> StreamError:
    return StreamError(
        f"{file}: {what}, so the file was damaged; put a copy of it back, or, if Redis has lost nothing, "
        "move it away and run stream-app new-witness",
        stream,
    )
