"""The keys of visitors' names, one for each day of UTC: drawn when the day comes, destroyed after it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stream_app.durable import secret_directory, waited_for, write_durably
from stream_app.ports import OperatorError
from stream_app.vault.cipher import KEY_BYTES, new_chain_key
from stream_app.vault.key_files import destroy


class VisitorKeys:
    """Keys in small files of one directory. A day's key is on the disk before the first name is made with it.

    Days are counted since 1970.
    Guarantee: no day gets a second key, by which its visitors' caps would begin anew: not after a crash, in
        another process, for a stream that was away, or with a clock that is set back.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = directory / "lock"
        self.note = directory / "gone_before"

    def key(self, day: int) -> bytes | None:
        """Return the key of a day; the first call for the day draws it. None: the day's keys are gone.

        Raises: OperatorError for a damaged file: with a new key, visitors' caps would begin anew.
        """
        with self._alone():
            return None if day < self.gone_before() else self._drawn(self._directory / f"{day}.key")

    def gone_before(self) -> int:
        """Return the first day whose key is not destroyed. Raises: OperatorError for a damaged file."""
        try:
            return int(self.note.read_bytes())
        except FileNotFoundError:
            return 0
        except ValueError:
            raise OperatorError(
                f"{self.note}: holds no day; put the right file back, or write into it the number of "
                "days since 1970 before which no visitor shall count"
            ) from None

    def _drawn(self, file: Path) -> bytes:
        if not file.exists():
            write_durably(file, [new_chain_key()])
        key = file.read_bytes()
        if len(key) != KEY_BYTES:
            raise OperatorError(
                f"{file}: holds no key of visitors' names; put the right one back, or start the streams that "
                "count visitors under other names"
            )
        return key

    def destroy_before(self, day: int) -> int:
        """Destroy the keys of all earlier days; return how many.

        Before that the day is noted on the disk, also if no earlier day has a key: which days are refused
        must not depend on visitors.
        """
        with self._alone():
            if day > (noted := self.gone_before()):
                write_durably(self.note, [b"%d\n" % day])
            gone = [file for one, file in self._files() if one < max(day, noted)]
            for file in gone:
                destroy(file)
        return len(gone)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep others from drawing or destroying during the block."""
        if not self._directory.is_dir():
            secret_directory(self._directory)
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with waited_for(lock):
                yield
        finally:
            os.close(lock)

    def _files(self) -> Iterator[tuple[int, Path]]:
        for file in self._directory.glob("*.key"):
            with suppress(ValueError):
                yield int(file.stem), file
