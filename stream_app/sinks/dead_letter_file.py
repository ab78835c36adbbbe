"""Dead letters as a file: what was not counted and why, for the operator's eyes only. SECRET."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path

from stream_app.core.records import Refusal
from stream_app.durable import LineLog


class DeadLetterFile:
    """One JSON line a refused record (``ports.DeadLetters``), readable by its owner only.

    A record may stand there twice after a crash: partition and position tell.

    Args: path; the file is made on the first refusal.
    Raises: OperatorError if another process writes to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log: LineLog | None = None

    async def write(self, refusals: Sequence[Refusal]) -> None:
        """Write durably before the apply that passes them."""
        if refusals:
            self._log = self._log or LineLog(self._path)
            self._log.append(_line(refusal) for refusal in refusals)

    def close(self) -> None:
        """Close the file."""
        if self._log is not None:
            self._log.close()
            self._log = None


def _line(refusal: Refusal) -> bytes:
    letter = {
        "partition": refusal.partition,
        "position": refusal.position,
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
