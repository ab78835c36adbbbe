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
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import NamedTuple

import msgspec

from stream_app.core.incoming import Refusal
from stream_app.durable import LineLog
from stream_app.ports import DeadLetters, OperatorError

_FILES = 8  # the longest age, and the size, are divided into this many files
_REMEMBERED = 100_000  # refused records, plus all records of the last write
_SUFFIX = ".ndjson"
LOOK_EVERY_S = 30.0  # for letters that are too old, also while none are written

log = logging.getLogger(__name__)
_json = msgspec.json.Encoder().encode

_Place = tuple[str, int]  # partition, position
Copy = Callable[[Refusal, bytes], None]


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long, how many and which parts of refused records are kept."""

    keep_s: float  # the longest age of a letter
    most_bytes: int  # the total size per source; a letter that does not fit is kept without its record
    content: bool  # whether letters contain the records, or only their positions and reasons


class _Letter(NamedTuple):
    """A line about a record, and the streams that it names: one bit for each."""

    place: _Place
    streams: int
    line: bytes


class DeadLetterFiles(DeadLetters):
    """One JSON line for each refused record and the streams that refused it, readable by its owner only.

    A line without streams is about a record that the source could not decode. After a restart or a
    rebalance a stream may be named again, with the same partition and position. Letters that were still
    waiting are lost in a crash.
    Guarantee: letters never delay counting. If the disk fails, that is logged and the records are lost.
    Args: directory, of this source only; it is made on the first refusal, and its files are named by the
        microsecond in which they begin.
    """

    def __init__(self, directory: Path, keeping: Keeping, wall_s: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._keeping = keeping
        self._wall_s = wall_s
        self._file: LineLog | None = None
        self._bits: dict[str | None, int] = {}  # a bit for each stream
        # The streams that the last letters name, by record. The ingest loop reads a batch again if its
        # outcome is unknown, or if one stream is behind the others. It does so soon, so the oldest may be
        # forgotten.
        self._older: dict[_Place, int] = {}
        self._newer: dict[_Place, int] = {}
        self._alone = threading.Lock()

    async def write(
        self,
        refusals: Sequence[Refusal],
        streams: tuple[str | None, ...] = (None,),
        copy: Copy | None = None,
    ) -> Sequence[int]:
        """Write letters. Args: copy, which gets each letter in the writing thread, also if the disk fails."""
        return await asyncio.to_thread(self._write, refusals, streams, copy)

    def close(self) -> None:
        with self._alone:
            self._close()

    def _write(
        self, refusals: Sequence[Refusal], streams: Sequence[str | None], copy: Copy | None
    ) -> Sequence[int]:
        written = Counter[int]()  # letters, by the streams that they name
        with self._alone:
            letters = self._letters_of(refusals, streams, copy)
            try:
                for part in self._parts(letters):
                    self._append(part)
                    written.update(letter.streams for letter in part)
            except (OSError, OperatorError) as failure:
                log.warning("dead letters: %s; records are refused without a letter", failure)
            finally:
                deque(letters, maxlen=0)  # a disk that fails keeps no letter from being copied
            if len(self._newer) >= _REMEMBERED:
                self._older, self._newer = self._newer, {}
            own = [self._bit(stream) for stream in streams]
        return [sum(number for named, number in written.items() if named & bit) for bit in own]

    def _bit(self, stream: str | None) -> int:
        return self._bits.setdefault(stream, 1 << len(self._bits))

    def _letters_of(
        self, refusals: Sequence[Refusal], streams: Sequence[str | None], copy: Copy | None
    ) -> Iterator[_Letter]:
        """Yield a letter for each refusal about which some streams have none yet; it names these streams."""

        @cache
        def member(lacking: int) -> bytes:
            names = [name for name in streams if name is not None and self._bit(name) & lacking]
            return _json({"streams": names})[1:-1] + b"," if names else b""

        for refusal, lacking in self._lacking(refusals, streams):
            line = self._line(refusal, member(lacking))
            if copy is not None:
                copy(refusal, line)
            yield _Letter((refusal.partition, refusal.position), lacking, line)

    def _lacking(
        self, refusals: Sequence[Refusal], streams: Sequence[str | None]
    ) -> Iterator[tuple[Refusal, int]]:
        """Yield refusals, each with the streams that have no letter about it."""
        every = reduce(or_, map(self._bit, streams), 0)
        seen = set[_Place]()
        for refusal in refusals:
            place = refusal.partition, refusal.position
            lacking = every & ~(self._newer.get(place, 0) | self._older.get(place, 0))
            if lacking and place not in seen:
                seen.add(place)
                yield refusal, lacking

    def _line(self, refusal: Refusal, streams: bytes) -> bytes:
        """Return a letter. Args: streams, the member that names them, with a comma; or empty."""
        place = _json({"partition": refusal.partition, "position": refusal.position})[:-1] + b"," + streams
        why = {"reason": str(refusal.reason)}
        if self._keeping.content:
            with_record = place + _json(why | _text(refusal.record))[1:]
            if len(with_record) < self._most_bytes:
                return with_record
        return place + _json(why | ({"bytes": len(refusal.record)} if refusal.record else {}))[1:]

    @property
    def _most_bytes(self) -> int:
        return self._keeping.most_bytes // _FILES

    def _parts(self, letters: Iterable[_Letter]) -> Iterator[list[_Letter]]:
        """Yield the letters in parts that each have room in a file."""
        part: list[_Letter] = []
        size = 0
        for letter in letters:
            if part and size + len(letter.line) + 1 > self._most_bytes:
                yield part
                part, size = [], 0
            part.append(letter)
            size += len(letter.line) + 1
        if part:
            yield part

    def _append(self, part: Sequence[_Letter]) -> None:
        """Write letters durably and remember them. Raises: OSError, OperatorError; none is then written."""
        lines = [letter.line for letter in part]
        self._file_for(sum(map(len, lines)) + len(lines)).append(lines)
        for place, streams, _ in part:
            self._newer[place] = self._newer.get(place, 0) | streams

    def _file_for(self, size: int) -> LineLog:
        """Return a file with room for ``size`` bytes; delete the oldest files beyond the limit."""
        sizes = self._sizes()
        last = max(sizes, default=None)
        if last is None or not self._takes(last, sizes[last] + size):
            self._close()
            began_us = max(int(self._wall_s() * 1e6), _began_us(last) + 1 if last else 0)
            last = self._directory / f"{began_us}{_SUFFIX}"
        if self._file is None or self._file.path != last:
            self._close()
            self._file = LineLog(last)
        left = self._keeping.most_bytes - size - self._file.size
        for file in sorted(sizes, reverse=True):
            if file != last:
                left -= sizes[file]
                if left < 0:
                    file.unlink(missing_ok=True)
        return self._file

    def _sizes(self) -> dict[Path, int]:
        """Return the size of each file, without files that are deleted meanwhile because they are too old."""
        sizes = dict[Path, int]()
        for file in self._directory.glob(f"*{_SUFFIX}"):
            with suppress(FileNotFoundError):
                sizes[file] = file.stat().st_size
        return sizes

    def _takes(self, file: Path, size: int) -> bool:
        ends_s = _began_us(file) / 1e6 + self._keeping.keep_s / _FILES
        return self._wall_s() < ends_s and size <= self._most_bytes

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
