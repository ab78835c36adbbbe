"""Dead letters as files: the records that were not counted and why, for the operator only. SECRET.

They are kept up to an age and a total size. The oldest are deleted first, a whole file at a time.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stream_app.core.incoming import Refusal
from stream_app.durable import LineLog
from stream_app.ports import DeadLetters, OperatorError

_FILES = 8  # the longest age, and the size, are divided into this many files
_REMEMBERED = 100_000  # letters, plus all letters of the last write
_SUFFIX = ".ndjson"
LOOK_EVERY_S = 30.0  # for letters that are too old, also while none are written

log = logging.getLogger(__name__)
_json = msgspec.json.Encoder().encode

_Place = tuple[str | None, str, int]  # stream, partition, position
_New = Sequence[tuple[Refusal, Sequence[str | None]]]  # refusals, each with the streams that get a letter
Copy = Callable[[Refusal, str | None, bytes], None]


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
        self,
        refusals: Sequence[Refusal],
        streams: tuple[str | None, ...] = (None,),
        copy: Copy | None = None,
    ) -> Sequence[int]:
        """Write letters. Args: copy, takes each letter in the writing thread, also if the disk fails."""
        try:
            return await asyncio.to_thread(self._write, refusals, streams, copy)
        except (OSError, OperatorError) as failure:
            log.warning("dead letters: %s; records are refused without a letter", failure)
            return [0] * len(streams)

    def close(self) -> None:
        """Close the file."""
        with self._alone:
            self._close()

    def _write(
        self, refusals: Sequence[Refusal], streams: Sequence[str | None], copy: Copy | None
    ) -> Sequence[int]:
        with self._alone:
            places, new = self._new(refusals, streams)
            if new:
                self._append(self._lines(new, copy))
                self._newer |= places
                if len(self._newer) >= _REMEMBERED:
                    self._older, self._newer = self._newer, set()
        written = Counter(stream for _, getting in new for stream in getting)
        return [written[stream] for stream in streams]

    def _new(self, refusals: Sequence[Refusal], streams: Sequence[str | None]) -> tuple[set[_Place], _New]:
        """Return the places without a letter so far, and their refusals."""
        places, new = set[_Place](), list[tuple[Refusal, Sequence[str | None]]]()
        for refusal in refusals:
            getting = list[str | None]()
            for stream in streams:
                place = stream, refusal.partition, refusal.position
                if not (place in self._newer or place in self._older or place in places):
                    places.add(place)
                    getting.append(stream)
            if getting:
                new.append((refusal, getting))
        return places, new

    def _append(self, lines: Iterator[bytes]) -> None:
        try:
            for part in self._parts(lines):
                self._file_for(sum(map(len, part)) + len(part)).append(part)
        finally:
            deque(lines, maxlen=0)  # a disk that fails keeps no letter from being copied

    def _lines(self, new: _New, copy: Copy | None) -> Iterator[bytes]:
        names = {stream: _json({"stream": stream})[1:-1] for _, streams in new for stream in streams}
        names[None] = b""
        for refusal, streams in new:
            for stream, line in zip(streams, self._of(refusal, map(names.__getitem__, streams)), strict=True):
                if copy is not None:
                    copy(refusal, stream, line)
                yield line

    def _of(self, refusal: Refusal, names: Iterable[bytes]) -> Iterator[bytes]:
        """Yield a refusal's letter for each stream. Args: names, the member that names each; may be empty."""
        place = _json({"partition": refusal.partition, "position": refusal.position})[:-1] + b","
        why = {"reason": str(refusal.reason)}
        without = _json(why | ({"bytes": len(refusal.record)} if refusal.record else {}))[1:]
        whole = _json(why | _text(refusal.record))[1:] if self._keeping.content else without
        for name in names:
            begin = place + name + b"," if name else place
            yield begin + (whole if len(begin) + len(whole) < self._most_bytes else without)

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


def _text(record: bytes) -> dict[str, str]:
    """Return the record as text, or in base64 if its bytes are not valid text."""
    try:
        return {"record": record.decode()}
    except UnicodeDecodeError:
        return {"record_base64": base64.b64encode(record).decode()}
