"""Keys of stored noise derived from the keys of one file, which workers on several machines share."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from stream_app.core.user_keys import mark_of_users
from stream_app.ports import NoiseKeys, OperatorError
from stream_app.vault.cipher import derived_chain_key, mark_of
from stream_app.vault.key_ring import KeyRing

log = logging.getLogger(__name__)


class SharedKey(NoiseKeys):
    """``NoiseKeys`` that are derived from the keys of a ring, which is read again when its file changes.

    No key of an epoch is ever destroyed: a key of the ring and an old copy of the store also reveal spent
    pages.
    """

    def __init__(self, ring: KeyRing, file: Path | None = None) -> None:
        self._ring = ring
        self._file = file
        self._seen = None if file is None else _mark(file)

    @classmethod
    def read(cls, file: Path) -> SharedKey:
        """Return the keys of a file. Raises: as ``KeyRing.read``."""
        seen = _mark(file)  # first: a file that changes meanwhile is read again
        keys = cls(KeyRing.read(file), file)
        keys._seen = seen
        return keys

    def user_key(self, stream: str, mark: bytes = b"") -> bytes:
        ring = self._now()
        key = (
            next((one for one in ring.users if mark_of_users(one) == mark), None) if mark else ring.noted_none
        )
        if key is None:
            raise OperatorError(
                f"stream {stream}: its users are hashed with a key that {self._file or 'this worker'} does "
                "not hold; copy the secrets.key_file of a worker that runs, then start this worker again; if "
                "this key is lost, run stream-app rotate-key lost"
            )
        return key

    async def mark(self, stream: str, stored: bytes) -> bytes:
        ring = self._now()
        if not stored or stored in ring.marks:
            return stored or ring.marks[0]
        raise OperatorError(
            f"stream {stream}: its noise is encrypted with a key that {self._file or 'this worker'} does not "
            "hold; copy the secrets.key_file of a worker that runs, then start this worker again; if this "
            "key is lost, run stream-app rotate-key lost"
        )

    async def create(self, stream: str, epoch: int, nonce: str, mark: bytes = b"") -> bytes:
        ring = self._now()
        key = next((one for one in ring.keys if mark_of(one) == mark), ring.keys[0])
        return derived_chain_key(key, stream, epoch, nonce)

    async def chains(self, stream: str, epoch: int, nonce: str) -> Sequence[tuple[int, bytes]]:
        return [(0, derived_chain_key(key, stream, epoch, nonce)) for key in self._now().keys]

    async def spend(self, stream: str, epoch: int, nonce: str, pages: int) -> None:
        """Do nothing: a derived key cannot be destroyed."""

    async def discard(self, stream: str, epoch: int, nonce: str) -> None:
        """Do nothing: a derived key cannot be destroyed."""

    async def forget(self, stream: str) -> None:
        """Do nothing: a derived key cannot be destroyed."""

    def _now(self) -> KeyRing:
        """Return the keys that the file holds now; while it cannot be used, the keys from before stay."""
        if self._file is None or (seen := _mark(self._file)) == self._seen:
            return self._ring
        self._seen = seen
        try:
            self._ring = KeyRing.read(self._file)
        except OperatorError as refusal:
            log.error("%s; the keys that were read before still hold", refusal)
        else:
            log.info("secrets.key_file: read again; it holds %d key(s)", len(self._ring.keys))
        return self._ring


def _mark(file: Path) -> tuple[int, ...] | None:
    """Return a value that changes with the file; None without a file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns, status.st_size
