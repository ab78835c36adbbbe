"""Dead letters as files: the records that were not counted and why, for the operator only. SECRET.

They are kept up to an age and a total size. The oldest are deleted first, a whole file at a time.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from stream_app.core.incoming import Refusal
from stream_app.durable import LineLog
from stream_app.ports import DeadLetters, OperatorError

_FILES = 8  # the longest age, and the size, are divided into this many files
_REMEMBERED = 100_000  # letters, plus all letters of the last write
_SUFFIX = ".ndjson"
LOOK_EVERY_S = 30.0  # for letters that are too old, also while none are written

log = logging.getLogger(__name__)

_Place = tuple[str | None, str, int]  # stream, partition, position
Copy = Callable[[Refusal, bytes], None]


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long, how many and which parts of refused records are kept."""

    keep_s: float  # the longest age of a letter
    most_bytes: int  # the total size per source; a letter that does not fit is kept without its record
    content: bool  # whether letters contain the records, or only their positions and reasons


class DeadLetterFiles(DeadLetters):
    """One JSON line for each refused record, readable by its owner only.

    A letter without a stream belongs to the source: no stream could count that record. A letter may be
    written again after a crash, with the same partition, position and stream. Letters that were still waiting
    are lost with the process.
    Guarantee: letters never delay counting. If the disk fails, that is logged and the records are lost.
    Args: directory, of this source only; it is made on the first refusal, and its files are named by the
        microsecond in which they begin.
    """

    def __init__(self, directory: Path, keeping: Keeping, wall_s: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._keeping = keeping
        self._wall_s = wall_s
        self._file: LineLog | None = None
        # The places of the last letters. The ingest loop reads a batch again if its outcome is unknown, or if
        # one stream is behind the others. It does so soon, so the places of the oldest may be forgotten.
        self._older: set[_Place] = set()
        self._newer: set[_Place] = set()
        self._alone = threading.Lock()

    async def write(
        self, refusals: Sequence[Refusal], stream: str | None = None, copy: Copy | None = None
    ) -> int:
        """Write letters. Args: copy, takes each record and its letter in the writing thread, on any disk."""
        new = self._new(refusals, stream)
        if new:
            try:
                await asyncio.to_thread(self._append, list(new.values()), stream, copy)
            except (OSError, OperatorError) as failure:
                log.warning("dead letters: %s; records are refused without a letter", failure)
                return 0
            self._newer.update(new)  # in place; |= with keys would copy all of them
            if len(self._newer) >= _REMEMBERED:
                self._older, self._newer = self._newer, set()
        return len(new)

    def _new(self, refusals: Sequence[Refusal], stream: str | None) -> dict[_Place, Refusal]:
        placed = {(stream, refusal.partition, refusal.position): refusal for refusal in refusals}
        return {
            place: refusal
            for place, refusal in placed.items()
            if place not in self._newer and place not in self._older
        }

    def close(self) -> None:
        """Close the file."""
        with self._alone:
            self._close()

    def _append(self, refusals: Sequence[Refusal], stream: str | None, copy: Copy | None) -> None:
        lines = self._lines(refusals, stream, copy)
        with self._alone:
            try:
                for part in self._parts(lines):
                    self._file_for(sum(map(len, part)) + len(part)).append(part)
            finally:
                deque(lines, maxlen=0)  # a disk that fails keeps no letter from being copied

    def _lines(self, refusals: Sequence[Refusal], stream: str | None, copy: Copy | None) -> Iterator[bytes]:
        for refusal in refusals:
            line = self._line(refusal, stream)
            if copy is not None:
                copy(refusal, line)
            yield line

    def _line(self, refusal: Refusal, stream: str | None) -> bytes:
        place = {"partition": refusal.partition, "position": refusal.position}
        why = place | ({} if stream is None else {"stream": stream}) | {"reason": str(refusal.reason)}
        if self._keeping.content:
            line = _json(why | _text(refusal.record))
            if len(line) < self._most_bytes:
                return line
        return _json(why | ({"bytes": len(refusal.record)} if refusal.record else {}))

    @property
    def _most_bytes(self) -> int:
        return self._keeping.most_bytes // _FILES

    def _parts(self, lines: Iterator[bytes]) -> Iterator[list[bytes]]:
        """Yield the lines in parts that each have room in a file."""
        part: list[bytes] = []
        size = 0
        for line in lines:
            if part and size + len(line) + 1 > self._most_bytes:
                yield part
                part, size = [], 0
            part.append(line)
            size += len(line) + 1
        yield part

    def _file_for(self, size: int) -> LineLog:
        """Return a file with room for ``size`` bytes; delete the oldest files beyond the limit."""
        files = sorted(self._directory.glob(f"*{_SUFFIX}"))
        last = files[-1] if files else None
        if last is None or not self._takes(last, size):
            self._close()
            began_us = max(int(self._wall_s() * 1e6), _began_us(last) + 1 if last else 0)
            last = self._directory / f"{began_us}{_SUFFIX}"
        if self._file is None or self._file.path != last:
            self._close()
            self._file = LineLog(last)
        left = self._keeping.most_bytes - size - self._file.size
        for file in reversed(files):
            if file != last:
                left -= file.stat().st_size
                if left < 0:
                    file.unlink()
        return self._file

    def _takes(self, file: Path, size: int) -> bool:
        ends_s = _began_us(file) / 1e6 + self._keeping.keep_s / _FILES
        return self._wall_s() < ends_s and file.stat().st_size + size <= self._most_bytes

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@asynccontextmanager
async def expiring_letters(state_dir: Path, keep_s: float) -> AsyncIterator[None]:
    """While the context is open, delete dead letters that are too old, whichever worker wrote them."""

    async def look() -> None:
        while True:
            try:
                await asyncio.to_thread(_expire_all, state_dir, keep_s)
            except OSError as failure:
                log.warning("dead letters: %s; those that are too old stay until it is mended", failure)
            await asyncio.sleep(LOOK_EVERY_S)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()


def _expire_all(state_dir: Path, keep_s: float) -> None:
    for directory in (state_dir / "dead_letters", *state_dir.glob("worker-*/dead_letters")):
        expire(directory, keep_s, time.time())


def expire(directory: Path, keep_s: float, now_s: float) -> None:
    """Delete the files of dead letters below a directory, of all sources, whose oldest letter is too old.

    A file dated more than that age in the future is deleted too: a clock that was ahead must not keep it.
    """
    for file in directory.rglob(f"*{_SUFFIX}"):
        with suppress(FileNotFoundError):
            if abs(now_s - _began_us(file) / 1e6) >= keep_s:
                file.unlink()


def _began_us(file: Path) -> int:
    """Return when a file was begun, by its name; if the name says nothing, when it was last written."""
    return int(file.stem) if file.stem.isdecimal() else file.stat().st_mtime_ns // 1_000


def _json(letter: dict[str, object]) -> bytes:
    return json.dumps(letter, ensure_ascii=False).encode()


def _text(record: bytes) -> dict[str, str]:
    """Return the record as text, or in base64 if its bytes are not valid text."""
    try:
        return {"record": record.decode()}
    except UnicodeDecodeError:
        return {"record_base64": base64.b64encode(record).decode()}
