"""The ledger outside the store as a file: one entry per line, after a first line that identifies the file."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from stream_app.core.ledger import entry_from_json, entry_to_json
from stream_app.core.records import LedgerEntry
from stream_app.durable import LineLog, NoRoomError, write_durably
from stream_app.ports import OutsideLedger
from stream_app.ports.errors import WorkerError
from stream_app.stored_format import check_format

HEADER = b'{"private_counts_ledger":1}'  # the number is the ledger's stored format
_HEADER = re.compile(rb'\{"private_counts_ledger":(\d+)\}')
PATIENCE_S = 10.0


class LedgerFile(OutsideLedger):
    """Entries in a file, on a different disk than the store.

    Workers of one machine may share it: each opens it only while it reads or writes.

    Raises (every method): WorkerError for a file that is missing or is not a ledger.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = f"ledger.file: {path}"

    @classmethod
    def create(cls, path: Path) -> LedgerFile:
        """Create and return a new ledger.

        Guarantee: after a failure there is no file, so that the command can be given again.
        Raises: WorkerError if the file exists already, or cannot be written.
        """
        if path.exists():
            raise WorkerError(f"ledger.file: {path} is there already; a ledger is begun once: keep it")
        try:
            write_durably(path, [HEADER + b"\n"])  # whole or not at all: an empty file is no ledger
        except NoRoomError as failure:
            raise WorkerError(f"ledger.file: {failure}") from None
        except OSError as failure:
            remedy = "check that this user may"
            raise WorkerError(f"ledger.file: {path} cannot be made: {failure.strerror}; {remedy}") from None
        return cls(path)

    def check_there(self) -> None:
        """Check that the ledger exists. Raises: WorkerError."""
        if not self.path.is_file():
            raise WorkerError(missing(self.name))

    async def entries(self) -> tuple[LedgerEntry, ...]:
        return await asyncio.to_thread(self._entries)

    async def append(self, entries: Sequence[LedgerEntry]) -> None:
        await asyncio.to_thread(self._append, entries)

    def _entries(self) -> tuple[LedgerEntry, ...]:
        with self._opened() as log:
            return tuple(map(self._entry, self._lines(log)))

    def _append(self, entries: Sequence[LedgerEntry]) -> None:
        with self._opened() as log:
            known = set(self._lines(log))
            new = [text for text in dict.fromkeys(map(entry_to_json, entries)) if text not in known]
            if new:
                log.append(new)

    def _opened(self) -> closing[LineLog]:
        """Return the open ledger; wait until other processes have closed it."""
        self.check_there()
        return closing(LineLog(self.path, PATIENCE_S))

    def _lines(self, log: LineLog) -> list[bytes]:
        header, *lines = [*log.lines()] or [b""]
        if not is_ledger(self.name, header):
            raise WorkerError(f"{self.name} is not a ledger of this service; restore it from a backup")
        return lines

    def _entry(self, line: bytes) -> LedgerEntry:
        try:
            return entry_from_json(line)
        except (ValueError, TypeError):
            raise WorkerError(
                f"{self.name} holds a line that is no entry; restore it from a backup, or update the service"
            ) from None


def is_ledger(name: str, header: bytes) -> bool:
    """Return whether a first line begins a ledger. Raises: WorkerError if a newer build wrote it."""
    found = _HEADER.fullmatch(header)
    if found is not None:
        check_format(name, found[1])
    return found is not None


def missing(name: str) -> str:
    """Return the error for a ledger that does not exist."""
    return (
        f"{name} does not exist, so it is unknown what was measured before; restore it, or, before the very "
        "first start with it, make it with stream-app new-ledger"
    )
