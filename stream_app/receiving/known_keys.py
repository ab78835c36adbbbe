"""The idempotency keys of stored batches, for a bounded time and in bounded number for each sender."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

_KEPT_DIGITS = 32  # of the digest: 128 bits
_MARK_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Stored:
    """The place of one stored batch. Args: is_new, whether the call that returns it has stored it."""

    records: int
    crc: int
    length: int
    is_new: bool = False


def digest(sender: str, key: str) -> str:
    """Return the stored form of an idempotency key, separate for each sender.

    >>> digest("a", "1") == digest("b", "1"), len(digest("a", "1"))
    (False, 32)
    """
    return hashlib.sha256(f"{sender}\0{key}".encode()).hexdigest()[:_KEPT_DIGITS]


def mark(sender: str) -> str:
    """Return the stored form of a sender, by which its keys are counted.

    >>> mark("a") == mark("b"), len(mark("a"))
    (False, 16)
    """
    return hashlib.sha256(sender.encode()).hexdigest()[:_MARK_DIGITS]


class KnownKeys:
    """Remembers the batch of each key, in a separate pool for each sender.

    Guarantee: no sender's requests make this object forget another sender's key.

    Args: remember_us, how long after its arrival; most, how many keys of one sender.
    """

    def __init__(self, remember_us: int, most: int) -> None:
        self._remember_us, self._most = remember_us, most
        self._pools: dict[str | None, OrderedDict[str, tuple[int, Stored]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._pools.values()))

    def remembers(self, at_us: int, now_us: int) -> bool:
        """Return whether a key that arrived at an instant is still remembered now."""
        return at_us >= now_us - self._remember_us

    def get(self, sender: str | None, key: str | None) -> Stored | None:
        """Return the batch of a key, or None. Args: sender, its mark; None if it has no name."""
        if key is None:
            return None
        pools = (self._pools.get(pool) for pool in (sender, None))  # an older version stored no marks
        return next((pool[key][1] for pool in pools if pool and key in pool), None)

    def has_room(self, sender: str | None, coming: int) -> bool:
        """Return whether a sender may have one more key. Args: coming, its keys that are not stored yet."""
        return len(self._pools.get(sender, ())) + coming < self._most

    def add(self, sender: str | None, key: str, at_us: int, stored: Stored) -> None:
        """Remember a batch that is durable. A pool that is too large already forgets its own oldest key.

        A pool can only be too large when it is read from the files: the limit was lowered, or an older
        version wrote them.
        """
        pool = self._pools.setdefault(sender, OrderedDict())
        pool[key] = at_us, stored
        if len(pool) > self._most:
            pool.popitem(last=False)

    def forget_old(self, now_us: int) -> None:
        """Forget the keys that have been remembered long enough."""
        for sender, pool in list(self._pools.items()):
            while pool and not self.remembers(next(iter(pool.values()))[0], now_us):
                pool.popitem(last=False)
            if not pool:
                del self._pools[sender]
