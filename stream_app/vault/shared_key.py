"""Keys of stored noise derived from one secret file, which workers on several machines share."""

from __future__ import annotations

import base64
import binascii
import os
import stat
from pathlib import Path

from stream_app.ports import NoiseKeys, OperatorError
from stream_app.vault.cipher import KEY_BYTES, derived_chain_key, derived_user_key


class SharedKey(NoiseKeys):
    """``NoiseKeys`` that are derived from one secret of at least 32 bytes.

    No key is ever destroyed: the secret and an old copy of the store also reveal spent pages.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def read(cls, file: Path) -> SharedKey:
        """Return the keys of a secret file in base64, for example written by ``openssl rand -base64 32``.

        Raises: OperatorError, one line, for a file that others may read or that contains no such secret.
        """
        where = f"secrets.key_file: {file}"
        try:
            status, text = file.stat(), file.read_bytes()
        except OSError as failure:
            raise OperatorError(f"{where}: cannot be read: {failure.strerror}; write one first") from None
        if others_may_read(status, os.geteuid(), os.getegid()):
            raise OperatorError(f"{where}: others may read it; chmod 600 it")
        try:
            secret = base64.b64decode(text.strip(), validate=True)
        except binascii.Error:
            secret = b""
        if len(secret) < KEY_BYTES:
            raise OperatorError(
                f"{where}: holds no {KEY_BYTES} bytes in base64; fill it: openssl rand -base64 {KEY_BYTES}"
            )
        return cls(secret)

    async def user_key(self) -> bytes:
        return derived_user_key(self._secret)

    async def create(self, stream: str, epoch: int, nonce: str) -> bytes:
        return derived_chain_key(self._secret, stream, epoch, nonce)

    async def chain(self, stream: str, epoch: int, nonce: str) -> tuple[int, bytes] | None:
        return 0, derived_chain_key(self._secret, stream, epoch, nonce)

    async def spend(self, stream: str, epoch: int, nonce: str, pages: int) -> None:
        """Do nothing: a derived key cannot be destroyed."""

    async def discard(self, stream: str, epoch: int, nonce: str) -> None:
        """Do nothing: a derived key cannot be destroyed."""

    async def forget(self, stream: str) -> None:
        """Do nothing: a derived key cannot be destroyed."""


def others_may_read(status: os.stat_result, user: int, group: int) -> bool:
    """Return whether anybody may read or change a file but its user, or root and the user's group.

    Kubernetes gives a Secret to root and, for reading only, to the group of the Pod.
    """
    mounted = user != 0 and status.st_uid == 0 and status.st_gid == group
    allowed = stat.S_IRGRP if mounted else 0
    return bool(status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) & ~allowed)
