"""Hashes and encrypts the names of keys that no list names, for one stream and cap window."""

from __future__ import annotations

import hashlib
import json
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from stream_app.core.epochs import SealedKey
from stream_app.vault.cipher import KEY_BYTES

_HASH_BYTES = 16
_IV_BYTES = 12


class KeyNames:
    """The names of one stream's keys in one window.

    Guarantee: without the key neither hash nor encryption reveals a name. A name has one hash in a window.
    Args: key, of the hashes of users, which the vault holds; window, named by its last bin.
    """

    def __init__(self, key: bytes, stream: str, window: int) -> None:
        derived = HKDF(SHA256(), 2 * KEY_BYTES, salt=None, info=json.dumps(["keys", stream, window]).encode())
        own = derived.derive(key)
        self._hash = hashlib.blake2b(digest_size=_HASH_BYTES, key=own[:KEY_BYTES])
        self._cipher = AESGCM(own[KEY_BYTES:])

    def sealed(self, name: str) -> SealedKey:
        """Return a name as the store may keep it."""
        own, iv = self.hashed(name), secrets.token_bytes(_IV_BYTES)
        return SealedKey(own, iv + self._cipher.encrypt(iv, name.encode(), own))

    def hashed(self, name: str) -> bytes:
        """Return the hash of a name."""
        hashed = self._hash.copy()
        hashed.update(name.encode())
        return hashed.digest()

    def name(self, key: SealedKey) -> str:
        """Return a key's name. Raises: ValueError, without the name, if it was sealed with another key."""
        iv, body = key.name[:_IV_BYTES], key.name[_IV_BYTES:]
        try:
            return self._cipher.decrypt(iv, body, key.hash).decode()
        except InvalidTag:
            raise ValueError("a key's name is damaged, or was not sealed with this key") from None
