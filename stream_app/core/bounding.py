"""How much one person may count: a window of bins for each epoch, and an id that nobody can read back.

Without a cap one person's events would change a count by any number, and no noise would hide them. Of each
user the first ``max_events`` records of a window count, whatever partitions they are in. A record's window
depends on its own bin alone, so one user's records never change which records of another user count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_app.core.records import Int64Array

ID_BYTES = 16  # 128 bits: two users of a window meet in one id with a probability nobody needs to fear
KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Windows:
    """Time cut into windows of an epoch's length; every epoch ends where a window ends.

    An epoch that was ended early is followed by one that fills the rest of its window, so that no epoch
    ever counts more than ``max_events`` of a user.

    Args: end_bin, the last bin of any epoch of the stream; bins in a window; last_bin of a replay.
    """

    end_bin: int
    bins: int
    last_bin: int | None = None

    def of(self, bins: Int64Array) -> Int64Array:
        """Return the window of each bin: the last bin that is in it.

        >>> Windows(end_bin=9, bins=5).of(np.array([0, 4, 5, 9, 10])).tolist()
        [4, 4, 9, 9, 14]
        >>> Windows(end_bin=9, bins=5, last_bin=12).of(np.array([9, 10, 12])).tolist()
        [9, 12, 12]
        """
        ends = self.end_bin - np.floor_divide(self.end_bin - bins, self.bins) * self.bins
        return ends if self.last_bin is None else np.minimum(ends, self.last_bin)

    def left(self, first_bin: int) -> int:
        """Return how many bins an epoch that begins here has: to the end of its window.

        >>> Windows(end_bin=9, bins=5).left(10), Windows(end_bin=9, bins=5).left(7)
        (5, 3)
        """
        return (self.end_bin - first_bin) % self.bins + 1


@dataclass(frozen=True, slots=True)
class PerUser:
    """The declared cap: where a record names its user, and how many events of one count in a window."""

    field: str
    max_events: int

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> PerUser | None:
        """Read the declared part of a strategy; None where the unit is the event."""
        unit = declared["privacy"].get("unit", "event")
        return None if unit == "event" else cls(unit["user"], unit["max_events"])

    def without_user(self, column: NDArray[Any]) -> NDArray[np.bool_]:
        """Say which records name no user: they are refused, for pooled they would have no cap.

        Args: users as they were read: texts and whole numbers; all else is no user.

        >>> PerUser("u", 1).without_user(np.array(["ann", 7, None, "", True, 1.5], dtype=object)).tolist()
        [False, False, True, True, True, True]
        """
        kinds = [type(user) is int or (type(user) is str and user != "") for user in column.tolist()]
        return ~np.array(kinds, dtype=np.bool_)


def key_mark(key: bytes) -> bytes:
    """Return what tells two keys apart and gives neither away."""
    return hashlib.blake2b(b"mark", digest_size=ID_BYTES, key=key).digest()


def user_ids(users: Sequence[str], windows: Int64Array, key: bytes) -> list[bytes]:
    """Return a keyed hash of each record's user and window: one user's windows do not meet.

    Guarantee: without the key an id tells nothing about the user; the same user of the same window always
        has the same id, in every partition: the cap holds also where partitions are added, or a producer
        spreads a user's records.
    Args: users, a text for each record; windows, shape (n,); key of 32 bytes, kept outside the store.

    >>> key = bytes(32)
    >>> a, b, c, d = user_ids(["ann", "ann", "ann", "bob"], np.array([9, 9, 14, 9]), key)
    >>> (a == b, a == c, a == d, len(a))
    (True, False, False, 16)
    """
    if len(key) != KEY_BYTES:
        raise ValueError(f"the key of user ids has {len(key)} bytes; it needs {KEY_BYTES}")
    keyed = {
        window: hashlib.blake2b(f"{window}:".encode(), digest_size=ID_BYTES, key=key)
        for window in np.unique(windows).tolist()
    }
    seen: dict[tuple[int, str], bytes] = {}
    ids = []
    for pair in zip(windows.tolist(), users, strict=True):
        if pair not in seen:
            digest = keyed[pair[0]].copy()
            digest.update(pair[1].encode("utf-8", "surrogatepass"))
            seen[pair] = digest.digest()
        ids.append(seen[pair])
    return ids
