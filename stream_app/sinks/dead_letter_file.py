"""Dead letters as a file: what was not counted and why, for the operator's eyes only. SECRET."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path

from stream_app.core.records import Refusal
from stream_app.durable import LineLog

_REMEMBERED = 100_000  # letters, to which all of the last write are added


class DeadLetterFile:
    """One JSON line for each refused record (``ports.DeadLetters``), readable by its owner only.

    A letter without a stream is the source's: no stream could count that record. A letter may be written
    again after a crash; its partition, position and stream are then those of the first one.

    Args: path; the file is made on the first refusal.
    Raises: OperatorError if another process writes to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log: LineLog | None = None
        self._lately = _Lately()

    async def write(self, refusals: Sequence[Refusal], stream: str | None = None) -> int:
        """Write durably, before the apply that passes them, the letters that were not written lately."""
        new = [refusal for refusal in refusals if (stream, refusal) not in self._lately]
        if new:
            self._log = self._log or LineLog(self._path)
            self._log.append(_line(refusal, stream) for refusal in new)
            self._lately.add(stream, new)
        return len(new)

    def close(self) -> None:
        """Close the file."""
        if self._log is not None:
            self._log.close()
            self._log = None


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


def _line(refusal: Refusal, stream: str | None) -> bytes:
    letter = {
        "partition": refusal.partition,
        "position": refusal.position,
        **({} if stream is None else {"stream": stream}),
        "reason": str(refusal.reason),
        **_text(refusal.record),
    }
    return json.dumps(letter, ensure_ascii=False).encode()


def _text(record: bytes) -> dict[str, str]:
    """Return the record as text where it is text, else so that its bytes can be had back."""
    try:
        return {"record": record.decode()}
    except UnicodeDecodeError:
        return {"record_base64": base64.b64encode(record).decode()}
