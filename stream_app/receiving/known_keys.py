"""The idempotency keys of stored batches, for a bounded time and in bounded number."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from dataclasses import dataclass, replace

log = logging.getLogger(__name__)

_KEPT_DIGITS = 32  # of the digest: 128 bits


@dataclass(frozen=True, slots=True)
class Stored:
    """What is stored of one batch. Args: is_new, whether the call that returns it has stored it."""

    records: int
    crc: int
    length: int
    is_new: bool = False

    def again(self) -> Stored:
        """Return what a repeated call gets."""
        return replace(self, is_new=False)


def digest(sender: str, key: str) -> str:
    """Return the stored form of an idempotency key, separate for each sender.

    >>> digest("a", "1") == digest("b", "1"), len(digest("a", "1"))
    (False, 32)
    """
    return hashlib.sha256(f"{sender}\0{key}".encode()).hexdigest()[:_KEPT_DIGITS]


class KnownKeys:
    """Remembers the batch of each key.

    Args: remember_us, how long after its arrival; most, how many keys: the oldest are forgotten first.
    """

    def __init__(self, remember_us: int, most: int) -> None:
        self._remember_us, self._most = remember_us, most
        self._known: OrderedDict[str, tuple[int, Stored]] = OrderedDict()
        self._warned = False

    def __len__(self) -> int:
        return len(self._known)

    def remembers(self, at_us: int, now_us: int) -> bool:
        """Return whether a key that arrived at an instant is still remembered now."""
        return at_us >= now_us - self._remember_us

    def get(self, key: str | None, now_us: int) -> Stored | None:
        """Return what was stored under a key, or None."""
        self._forget_until(now_us - self._remember_us)
        found = self._known.get(key) if key is not None else None
        return None if found is None else found[1]

    def add(self, key: str, at_us: int, stored: Stored) -> None:
        """Remember a batch that is durable."""
        self._known[key] = at_us, stored
        if len(self._known) > self._most:
            self._known.popitem(last=False)
            if not self._warned:
                log.warning(
                    "a key was forgotten before ingest.remember was over, because there are more than %s; a "
                    "retry of its request would count twice: raise ingest.most_keys, or send larger batches",
                    f"{self._most:,}",
                )
                self._warned = True

    def _forget_until(self, instant_us: int) -> None:
        while self._known:
            key, (at_us, _) = next(iter(self._known.items()))
            if at_us >= instant_us:
                return
            del self._known[key]
