"""API keys, as the configuration reads them and the API checks them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One API key, stored as the SHA-256 of its text; 256 random bits need no slow hash.

    Args: streams that it may read; None for all.
    """

    name: str
    sha256: str
    streams: frozenset[str] | None


def digest_of(key: str) -> str:
    """Return the stored form of a key: its SHA-256."""
    return hashlib.sha256(key.encode()).hexdigest()
