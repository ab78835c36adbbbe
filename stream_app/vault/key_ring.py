"""The file of ``secrets.key_file``, which workers on several machines share.

It has the keys of stored noise, one a line, and the keys of users' hashes:

BASE64          the key that encrypts
BASE64          during a rotation: the key before, which only decrypts
users BASE64    a key of users' hashes, oldest first; without such a line it is derived from the only key

Several keys of users' hashes stay until the cap windows under the older ones are released. A rotation has
begun and is not finished while there are two keys of noise.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stream_app.core.user_keys import mark_of_users
from stream_app.durable import version_of, waited_for, write_durably
from stream_app.ports import NoiseKeys, OperatorError
from stream_app.vault.cipher import KEY_BYTES, derived_chain_key, derived_user_key, mark_of, new_chain_key
from stream_app.vault.key_files import overwrite

_USERS = b"users"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys of a file. SECRET.

    Args: keys, of at least 32 bytes, the first of which encrypts; users, of 32 bytes, oldest first.
    """

    keys: tuple[bytes, ...]
    users: tuple[bytes, ...]

    @classmethod
    def of(cls, *keys: bytes) -> KeyRing:
        """Return these keys, with the key of users' hashes that is derived from the last of them."""
        return cls(keys, (derived_user_key(keys[-1]),))

    @classmethod
    def read(cls, file: Path) -> KeyRing:
        """Return the keys of a file, for example written by ``openssl rand -base64 32``.

        Raises: OperatorError, one line, for a file that others may read or that contains no such keys.
        """
        where = f"secrets.key_file: {file}"
        try:
            status, text = file.stat(), file.read_bytes()
        except OSError as failure:
            raise OperatorError(f"{where}: cannot be read: {failure.strerror}; write one first") from None
        if others_may_read(status, os.geteuid(), os.getegid()):
            raise OperatorError(f"{where}: others may read it; chmod 600 it")
        lines = [line.split() for line in text.splitlines() if line.strip()]
        keys = [_key(where, line[0]) for line in lines if len(line) == 1]
        users = [_key(where, line[1]) for line in lines if len(line) == 2 and line[0] == _USERS]
        if not keys or len(keys) + len(users) < len(lines):
            raise OperatorError(
                f"{where}: holds no {KEY_BYTES} bytes in base64; fill it: openssl rand -base64 {KEY_BYTES}"
            )
        if len(set(keys)) < len(keys) or len(set(users)) < len(users):
            raise OperatorError(f"{where}: holds a key twice; put back the file that rotate-key wrote")
        if len(keys) > 1 and not users:
            raise OperatorError(
                f"{where}: holds several keys and no line users; leave only the old key in the file, and "
                "let stream-app rotate-key begin add the new one"
            )
        return cls(tuple(keys), tuple(users)) if users else cls.of(*keys)

    @property
    def marks(self) -> tuple[bytes, ...]:
        """The mark of each key, by which the store names it; a mark reveals nothing of its key."""
        return tuple(map(mark_of, self.keys))

    @property
    def noted_none(self) -> bytes:
        """The key of users' hashes for streams that note none: not the new one, until all workers have it."""
        return self.users[-2] if len(self.keys) > 1 and len(self.users) > 1 else self.users[-1]

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the file, with the keys of users' hashes."""
        for key in self.keys:
            yield base64.b64encode(key) + b"\n"
        for key in self.users:
            yield _USERS + b" " + base64.b64encode(key) + b"\n"


def create(file: Path, users: bytes | None) -> None:
    """Write a file with a new key and a key of users' hashes. Keep a file that an earlier call wrote.

    Args: users, the key of users' hashes; None: derive one.
    Raises: OperatorError if the file holds another key of users' hashes.
    """
    where = f"secrets.key_file: {file}"
    if file.exists():
        if users not in (None, KeyRing.read(file).noted_none):
            raise OperatorError(
                f"{where}: holds another key of users' hashes than state.dir; name a file that does not exist"
            )
        return
    key = new_chain_key()
    try:
        write_durably(file, (KeyRing.of(key) if users is None else KeyRing((key,), (users,))).lines())
    except OSError as failure:
        raise OperatorError(f"{where}: cannot be written: {failure}") from None


def begin(file: Path) -> None:
    """Put new keys into a file, of noise and of users' hashes. Raises: OperatorError if one has begun."""
    with _changing(file) as ring:
        if len(ring.keys) > 1:
            raise OperatorError(
                f"secrets.key_file: {file}: holds {len(ring.keys)} keys, so a rotation has begun already; "
                "once all workers read this file, run stream-app rotate-key finish"
            )
        _write(file, KeyRing((new_chain_key(), *ring.keys), (*ring.users, new_chain_key())))


def may_be_replaced(file: Path) -> bool:
    """Return whether a new file can take the place of the file."""
    return os.access(file.resolve().parent, os.W_OK)


def keep(file: Path, wanted: KeyRing) -> int:
    """Take all other keys out of a file, and overwrite the old file; return how many left it.

    The caller has checked that nothing stored needs them.
    Args: wanted, the keys that stay. Raises: OperatorError if the file changed otherwise, or on a full disk.
    """
    held = KeyRing.read(file)
    if held == wanted:
        return 0
    if not may_be_replaced(file):
        left = [key for key in (*held.keys, *held.users) if key not in (*wanted.keys, *wanted.users)]
        lines = " and ".join(str([*held.keys, *held.users].index(key) + 1) for key in left)
        raise OperatorError(
            f"secrets.key_file: {file}: nothing stored needs the key(s) in line {lines} any more, but the "
            "file cannot be replaced here; take these lines out where the file comes from"
        )
    with _changing(file) as ring:
        if ring != held:
            raise OperatorError(f"secrets.key_file: {file}: changed meanwhile; run rotate-key finish again")
        _write(file, wanted)
        return len(held.keys) + len(held.users) - len(wanted.keys) - len(wanted.users)


@contextmanager
def _changing(file: Path) -> Iterator[KeyRing]:
    """Yield the keys of a file that nobody else changes during the block."""
    where, directory, status = f"secrets.key_file: {file}", file.resolve().parent, file.stat()
    if status.st_uid != os.geteuid():  # the new file would be ours, and workers could not read it
        raise OperatorError(f"{where}: belongs to user {status.st_uid}; run rotate-key as that user")
    if status.st_nlink > 1:  # the other names would keep the old file, which is overwritten
        raise OperatorError(f"{where}: has {status.st_nlink} names (hard links); make the others symbolic")
    if not os.access(directory, os.W_OK):
        raise OperatorError(
            f"{where}: it cannot be replaced here, because its directory cannot be written; rotate a copy, "
            "and bring it here as the file came here"
        )
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with waited_for(descriptor):
            yield KeyRing.read(file)
    finally:
        os.close(descriptor)


def _write(file: Path, ring: KeyRing) -> None:
    file = file.resolve()  # a symbolic link stays one, for all who share the file
    with file.open("r+b") as old:
        try:
            write_durably(file, ring.lines())
        except OSError as failure:
            raise OperatorError(f"secrets.key_file: {failure}; the old file is unchanged") from None
        overwrite(old.fileno())


def _key(where: str, text: bytes) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) < KEY_BYTES:
        raise OperatorError(
            f"{where}: holds no {KEY_BYTES} bytes in base64; fill it: openssl rand -base64 {KEY_BYTES}"
        )
    return key


def others_may_read(status: os.stat_result, user: int, group: int) -> bool:
    """Return whether anybody may read or change a file but its user, or root and the user's group.

    Kubernetes gives a Secret to root and, for reading only, to the group of the Pod.
    """
    mounted = user != 0 and status.st_uid == 0 and status.st_gid == group
    allowed = stat.S_IRGRP if mounted else 0
    return bool(status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) & ~allowed)


class SharedKey(NoiseKeys):
    """``NoiseKeys`` that are derived from the keys of a ring, which is read again when its file changes.

    No key of an epoch is ever destroyed: a key of the ring and an old copy of the store also reveal spent
    pages.
    """

    def __init__(self, ring: KeyRing, file: Path | None = None) -> None:
        self._ring = ring
        self._file = file
        self._seen = None if file is None else version_of(file)

    @classmethod
    def read(cls, file: Path) -> SharedKey:
        """Return the keys of a file. Raises: as ``KeyRing.read``."""
        seen = version_of(file)  # first: a file that changes meanwhile is read again
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
        if self._file is None or (seen := version_of(self._file)) == self._seen:
            return self._ring
        self._seen = seen
        try:
            self._ring = KeyRing.read(self._file)
        except OperatorError as refusal:
            log.error("%s; the keys that were read before still hold", refusal)
        else:
            log.info("secrets.key_file: read again; it holds %d key(s)", len(self._ring.keys))
        return self._ring
