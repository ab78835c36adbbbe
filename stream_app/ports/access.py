"""API keys and limits, as the configuration reads them and the API enforces them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

MOST_SERIES = 20_000


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One API key, stored as the SHA-256 of its text; 256 random bits need no slow hash.

    Args: streams that it may read; None for all. boards: a key of boards opens these boards only: what
        their panels ask, and no other key of a stream; None for a key of streams.
    """

    name: str
    sha256: str
    streams: frozenset[str] | None
    boards: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on readers' connections.

    Args:
        connections, connections_per_address: open at once; the proxy's connections count only in the total.
        followers: event streams that one reader may follow at once.
        idle_s: how long a connection may be silent between two requests.
        slow_s: time limit for a request to arrive, and for a reader to receive part of an answer.
    """

    connections: int = 1_000
    connections_per_address: int = 64
    followers: int = 50
    idle_s: float = 5.0
    slow_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Scrapes:
    """The streams and keys that a scrape of ``/metrics`` gets.

    Args:
        keys_of: the streams whose keys have series of their own, several for each key.
        most_series: of all streams and keys together.
    """

    keys_of: frozenset[str] = frozenset()
    most_series: int = MOST_SERIES


def digest_of(key: str) -> str:
    """Return the stored form of a key: its SHA-256."""
    return hashlib.sha256(key.encode()).hexdigest()
