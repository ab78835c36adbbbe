"""Dead letters as files: what was not counted and why, for the operator's eyes only. SECRET.

They are kept for a time and up to a size, whichever ends first. The oldest go first, a file at a time.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stream_app.core.records import Refusal
from stream_app.durable import LineLog
from stream_app.ports import OperatorError

_FILES = 8  # that the time, and the size, are divided into
_REMEMBERED = 100_000  # letters, to which all of the last write are added
_SUFFIX = ".ndjson"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Keeping:
    """What is kept of refused records.

    Args:
        keep_s: no letter is older.
        most_bytes: of all letters of one source; a letter that has no room is kept without its record.
        content: whether letters hold the records, or only where they are and why they were refused.
    """

    keep_s: float
    most_bytes: int
    content: bool


class DeadLetterFiles:
    """One JSON line for each refused record (``ports.DeadLetters``), readable by its owner only.

    A letter without a stream is the source's: no stream could count that record. A letter may be written
    again after a crash; its partition, position and stream are then those of the first one.

    Guarantee: letters never hold up counting. A disk that takes none is logged, and their records are lost.
    Args: directory, of this source alone; it is made on the first refusal, its files are named by the
        microsecond in which they begin.
    """

    def __init__(self, directory: Path, keeping: Keeping, wall_s: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._keeping = keeping
        self._wall_s = wall_s
        self._file: LineLog | None = None
        self._lately = _Lately()
        self._alone = threading.Lock()

    async def write(self, refusals: Sequence[Refusal], stream: str | None = None) -> int:
        """Write durably, before the apply that passes them, the letters that were not written lately."""
        new = [refusal for refusal in refusals if (stream, refusal) not in self._lately]
        if new:
            try:
                await asyncio.to_thread(self._append, new, stream)
            except (OSError, OperatorError) as failure:
                log.warning("dead letters: %s; records are refused without a letter", failure)
                return 0
            self._lately.add(stream, new)
        return len(new)

    def close(self) -> None:
        """Close the file."""
        with self._alone:
            self._close()

    def _append(self, refusals: Sequence[Refusal], stream: str | None) -> None:
        with self._alone:
            for lines in self._parts(self._line(refusal, stream) for refusal in refusals):
                self._file_for(sum(map(len, lines)) + len(lines)).append(lines)

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
        """Return a file with room for so many bytes; delete the oldest files beyond the limit."""
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


def expire(directory: Path, keep_s: float, now_s: float) -> None:
    """Delete the files of dead letters, of any source below a directory, whose oldest letter is too old.

    So is one that seems to come as much too early: a clock that was ahead must not keep it for longer.
    """
    for file in directory.rglob(f"*{_SUFFIX}"):
        with suppress(FileNotFoundError):
            if abs(now_s - _began_us(file) / 1e6) >= keep_s:
                file.unlink()


def _began_us(file: Path) -> int:
    """Return when a file begins; of one with another name, when it was written last."""
    return int(file.stem) if file.stem.isdecimal() else file.stat().st_mtime_ns // 1_000


class _Lately:
    """The letters that were written last.

    The ingest loop reads a batch again when it does not know what became of it, or when one stream is behind
    the others. A repeat comes soon after the first letter, so the oldest letters may be forgotten.
    """

    def __init__(self) -> None:
        self._older: set[tuple[str | None, str, int]] = set()
        self._newer: set[tuple[str | None, str, int]] = set()

    def __contains__(self, letter: tuple[str | None, Refusal]) -> bool:
        stream, refusal = letter
        place = (stream, refusal.partition, refusal.position)
        return place in self._newer or place in self._older

    def add(self, stream: str | None, refusals: Sequence[Refusal]) -> None:
        """Remember letters; forget the oldest."""
        self._newer.update((stream, refusal.partition, refusal.position) for refusal in refusals)
        if len(self._newer) >= _REMEMBERED:
            self._older, self._newer = self._newer, set()


def _json(letter: dict[str, object]) -> bytes:
    return json.dumps(letter, ensure_ascii=False).encode()


def _text(record: bytes) -> dict[str, str]:
    """Return the record as text where it is text, else so that its bytes can be had back."""
    try:
        return {"record": record.decode()}
    except UnicodeDecodeError:
        return {"record_base64": base64.b64encode(record).decode()}
