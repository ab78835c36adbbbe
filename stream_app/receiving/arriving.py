"""Bounds the memory of bodies that have arrived and are not answered yet."""

from __future__ import annotations

from collections import Counter

MOST_BYTES = 256 << 20
MOST_OF_ONE_BYTES = 64 << 20


class ArrivingBytes:
    """Counts the bytes of unanswered requests, in all and by sender.

    Bytes count when they are here, not when a request announces them: an announcement costs nothing.
    """

    def __init__(self) -> None:
        self._bytes: Counter[str] = Counter()
        self._total = 0

    def take(self, sender: str, count: int) -> bool:
        """Count bytes that have arrived; return whether they may stay. The caller gives them back later."""
        self._bytes[sender] += count
        self._total += count
        return self._bytes[sender] <= MOST_OF_ONE_BYTES and self._total <= MOST_BYTES

    def give_back(self, sender: str, count: int) -> None:
        """Free bytes that were counted."""
        self._total -= count
        self._bytes[sender] -= count
        if not self._bytes[sender]:
            del self._bytes[sender]
