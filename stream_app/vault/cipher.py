"""Encrypts pages of noise, and the names of keys that no list names.

Each page of noise has its own key, from a chain of keys that leads forward only: the chain key of page p
gives the page's key and the chain key of page p + 1; no key gives an earlier key. So the chain key of the
first page that is not spent opens that page and later pages, but no earlier page, even in old copies of the
store.
"""

from __future__ import annotations

import hashlib
import json
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from stream_app.core.epochs import SealedKey

KEY_BYTES = 32
_IV_BYTES = 12
_HASH_BYTES = 16
_MARK_BYTES = 16


def new_chain_key() -> bytes:
    """Return a new chain key from the operating system's entropy."""
    return secrets.token_bytes(KEY_BYTES)


def derived_chain_key(secret: bytes, stream: str, epoch: int, nonce: str) -> bytes:
    """Return the first chain key of an epoch's noise, from a secret that workers share."""
    context = _bound("chain", stream, epoch, nonce)
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=context).derive(secret)


def derived_user_key(secret: bytes) -> bytes:
    """Return the key of the hashes of users, from a secret that workers share."""
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=_bound("users")).derive(secret)


def mark_of(secret: bytes) -> bytes:
    """Return the mark by which stores identify a secret that workers share; it reveals nothing else."""
    return HKDF(SHA256(), _MARK_BYTES, salt=None, info=_bound("mark")).derive(secret).hex().encode()


def later_chain_key(chain_key: bytes, pages: int) -> bytes:
    """Return the chain key of a later page: the one that follows ``pages`` pages after this key's."""
    for _ in range(pages):
        chain_key = HKDFExpand(SHA256(), KEY_BYTES, info=b"next page").derive(chain_key)
    return chain_key


def encrypt_page(chain_key: bytes, stream: str, epoch: int, nonce: str, page: int, data: bytes) -> bytes:
    """Return a page, encrypted with its chain key and bound to its place: elsewhere it cannot be decrypted.

    Source: AES-256-GCM (NIST SP 800-38D); HKDF (RFC 5869).
    """
    iv = secrets.token_bytes(_IV_BYTES)
    return iv + AESGCM(_page_key(chain_key)).encrypt(iv, data, _bound("page", stream, epoch, nonce, page))


def decrypt_page(chain_key: bytes, stream: str, epoch: int, nonce: str, page: int, data: bytes) -> bytes:
    """Return a page's content, decrypted.

    Raises: ValueError if the page is damaged, or was encrypted for another place or key.
    """
    iv, body = data[:_IV_BYTES], data[_IV_BYTES:]
    try:
        return AESGCM(_page_key(chain_key)).decrypt(iv, body, _bound("page", stream, epoch, nonce, page))
    except (InvalidTag, ValueError):
        raise ValueError(f"noise page {page} of {stream}: damaged, or not written under this key") from None


def _page_key(chain_key: bytes) -> bytes:
    return HKDFExpand(SHA256(), KEY_BYTES, info=b"this page").derive(chain_key)


def _bound(*place: str | int) -> bytes:
    return json.dumps(place).encode()


class KeyNames:
    """The names of one stream's keys in one window.

    Guarantee: without the key neither hash nor encryption reveals a name. A name has one hash in a window.
    Args: key, of the hashes of users, which the vault holds; window, named by its last bin.
    """

    def __init__(self, key: bytes, stream: str, window: int) -> None:
        derived = HKDF(SHA256(), 2 * KEY_BYTES, salt=None, info=_bound("keys", stream, window))
        own = derived.derive(key)
        self._hash = hashlib.blake2b(digest_size=_HASH_BYTES, key=own[:KEY_BYTES])
        self._cipher = AESGCM(own[KEY_BYTES:])

    def sealed(self, name: str) -> SealedKey:
        """Return a name as the store may keep it."""
        own, iv = self.hashed(name), secrets.token_bytes(_IV_BYTES)
        return SealedKey(own, iv + self._cipher.encrypt(iv, name.encode(), own))

    def hashed(self, name: str) -> bytes:
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
