"""The witness as files: one a stream, a released row a line, the bytes that every output repeats."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from stream_app.durable import LineLog
from stream_app.ports import OperatorError


class WitnessFile:
    """Rows on the disk of this machine, outside the store (``ports.Witness``).

    Args: directory, of this service alone; one process may write to it.
    Raises: OperatorError where another process does, or rows differ from those that are here.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._logs: dict[str, LineLog] = {}
        self._heads: dict[str, tuple[int, bytes]] = {}

    async def claim(self, stream: str) -> None:
        """Nothing to do: one process holds the directory."""

    async def resign(self, stream: str) -> None:
        """Nothing to do: one process holds the directory."""

    async def append(self, stream: str, rows: Sequence[tuple[int, bytes]]) -> None:
        """Write rows durably, skipping those it already has; return when they are on disk."""
        log = self._log(stream)
        head_seq, head_row = self._heads.get(stream, (0, b""))
        for seq, row in rows:
            if seq == head_seq and row != head_row:
                raise OperatorError(
                    f"{log.path}: row {seq} differs from the store's; stop every worker of another store"
                )
        new = [(seq, row) for seq, row in rows if seq > head_seq]
        if new:
            log.append(row for _, row in new)
            self._heads[stream] = new[-1]

    async def head(self, stream: str) -> tuple[int, bytes] | None:
        """Return the last (seq, row) of a stream, or None."""
        self._log(stream)
        return self._heads.get(stream)

    async def rows(self, stream: str, after_seq: int) -> list[tuple[int, bytes]]:
        """Return rows with seq > after_seq, in order."""
        numbered = ((_seq(row), row) for row in self._log(stream).lines())
        return [(seq, row) for seq, row in numbered if seq > after_seq]

    def close(self) -> None:
        """Close the files and let another process write."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()
        self._heads.clear()

    def _log(self, stream: str) -> LineLog:
        """Return the stream's file, opened and repaired on first use."""
        if stream not in self._logs:
            log = LineLog(self._directory / f"{quote(stream, safe='')}.ndjson")
            last = log.last_line()
            if last is not None:
                self._heads[stream] = (_seq(last), last)
            self._logs[stream] = log
        return self._logs[stream]


def _seq(row: bytes) -> int:
    return int(json.loads(row)["seq"])
