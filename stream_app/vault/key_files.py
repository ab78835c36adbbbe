"""Keys of stored noise in files, for the workers of one machine; destroyed as pages are spent."""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from stream_app.durable import write_durably
from stream_app.ports import NoiseKeys, OperatorError
from stream_app.together import in_thread_to_its_end
from stream_app.vault.cipher import later_chain_key, new_chain_key

Result = TypeVar("Result")


class KeyFiles(NoiseKeys):
    """``NoiseKeys`` in small files: one for each epoch's noise, with the chain key of its first unspent page.

    A file that is replaced or removed is overwritten as well. Copies that the disk itself keeps of
    overwritten blocks (copy on write, spare flash, snapshots) remain.

    Files are written in threads, so that the file system joins the syncs of many streams.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._users = b""
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by stream: one change at a time

    def user_key(self, stream: str, mark: bytes = b"") -> bytes:
        """Return the key of the hashes of users, one for all streams; the first call draws it.

        Raises: OperatorError for a file without a valid key: with a new key, users' caps would begin anew.
        """
        if not self._users:
            self._users = self._read_users()
        return self._users

    @property
    def users_file(self) -> Path:
        """The file of the key of users' hashes; it is missing if no stream counts users."""
        return self._directory / "users.key"

    @property
    def holds_keys(self) -> bool:
        """Whether there is any key; those of visitors' names (``visitor_keys.py``) are not in this class."""
        return self.users_file.exists() or any(self._directory.glob("*/*.key"))

    async def forget_users(self) -> None:
        """Destroy the key of users' hashes, which another place has."""
        if self.users_file.exists():
            await in_thread_to_its_end(partial(destroy, self.users_file))

    def _read_users(self) -> bytes:
        file = self.users_file
        if not file.exists():
            write_durably(file, [json.dumps({"key": new_chain_key().hex()}).encode()])
        try:
            return bytes.fromhex(json.loads(file.read_bytes())["key"])
        except (ValueError, KeyError, TypeError):
            raise OperatorError(
                f"{file}: holds no key of user ids; put the right one back, or start the streams that count "
                "users under other names"
            ) from None

    async def mark(self, stream: str, stored: bytes) -> bytes:
        return b""

    async def create(self, stream: str, epoch: int, nonce: str, mark: bytes = b"") -> bytes:
        key = new_chain_key()
        await self._change(stream, partial(self._write, self._file(stream, epoch, nonce), 0, key))
        return key

    async def chains(self, stream: str, epoch: int, nonce: str) -> Sequence[tuple[int, bytes]]:
        chain = self._read(self._file(stream, epoch, nonce))
        return [] if chain is None else [chain]

    async def spend(self, stream: str, epoch: int, nonce: str, pages: int) -> None:
        if pages:  # otherwise the first page is not spent yet
            await self._change(stream, partial(self._spend, self._file(stream, epoch, nonce), pages))

    async def discard(self, stream: str, epoch: int, nonce: str) -> None:
        await self._change(stream, partial(self._discard, self._file(stream, epoch, nonce), epoch))

    async def forget(self, stream: str) -> None:
        directory = self._directory / quote(stream, safe="")

        def destroy_all() -> None:
            for file in directory.glob("*.key"):
                destroy(file)

        await self._change(stream, destroy_all)

    async def _change(self, stream: str, change: Callable[[], Result]) -> Result:
        async with self._locks[stream]:
            return await in_thread_to_its_end(change)

    def _spend(self, file: Path, pages: int) -> None:
        held = self._read(file)
        if held is not None and held[0] < pages:
            self._write(file, pages, later_chain_key(held[1], pages - held[0]))

    def _discard(self, own: Path, epoch: int) -> None:
        # Keys of later epochs stay, because another worker may be about to open one.
        for file in own.parent.glob("*.key"):
            number = file.name.split("-", 1)[0]
            if file != own and number.isdigit() and int(number) <= epoch:
                destroy(file)

    def _file(self, stream: str, epoch: int, nonce: str) -> Path:
        return self._directory / quote(stream, safe="") / f"{epoch}-{nonce}.key"

    def _read(self, file: Path) -> tuple[int, bytes] | None:
        try:
            fields = json.loads(file.read_bytes())
            return int(fields["page"]), bytes.fromhex(fields["key"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None  # missing or damaged: its noise is lost

    def _write(self, file: Path, page: int, key: bytes) -> None:
        text = json.dumps({"page": page, "key": key.hex()}).encode()
        if not file.exists():
            write_durably(file, [text])
            return
        with file.open("r+b") as old:
            write_durably(file, [text])
            overwrite(old.fileno())


def destroy(file: Path) -> None:
    """Remove a file and overwrite its content."""
    with file.open("r+b") as old:
        file.unlink()
        overwrite(old.fileno())


def overwrite(descriptor: int) -> None:
    """Overwrite an open file, so that its blocks no longer hold its content."""
    os.pwrite(descriptor, bytes(os.fstat(descriptor).st_size), 0)
    os.fsync(descriptor)
