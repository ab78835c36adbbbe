"""The keys of visitors' names, one for each day of UTC: drawn when the day comes, destroyed after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from stream_app.durable import write_durably
from stream_app.ports import OperatorError
from stream_app.vault.cipher import KEY_BYTES, new_chain_key
from stream_app.vault.key_files import destroy


class VisitorKeys:
    """Keys in small files of one directory. A day's key is on the disk before the first name is made with it.

    Days are counted since 1970. Who destroys a key makes sure that no event of its day can count any more.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def key(self, day: int) -> bytes:
        """Return the key of a day; the first call for the day draws it.

        Raises: OperatorError for a damaged file: with a new key, visitors' caps would begin anew.
        """
        file = self._directory / f"{day}.key"
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
        """Destroy the keys of all earlier days; return how many."""
        gone = [file for one, file in self._files() if one < day]
        for file in gone:
            destroy(file)
        return len(gone)

    def _files(self) -> Iterator[tuple[int, Path]]:
        for file in self._directory.glob("*.key"):
            with suppress(ValueError):
                yield int(file.stem), file
