"""Keys that no list names: as readers see them once they are found, and as the store keeps them."""

from __future__ import annotations

from typing import NamedTuple

ROOM = 1_000_000  # events of hidden keys, unless the configuration says another number
_HASH_BITS = 32  # of a key's hash that decide whether the key stays
MOST_THINNED = _HASH_BITS - 1


class FoundKeys(NamedTuple):
    """Public: keys that are shown from the row of a bin on.

    Args: bin, before the epoch's first one for keys that an earlier epoch found; names, in the order of
        names; thinned, how often the hidden keys have been halved by then (``thinned_for``).
    """

    bin: int
    names: tuple[str, ...]
    thinned: int = 0


class SealedKey(NamedTuple):
    """A key as the store keeps it. SECRET. Args: hash, keyed; name, encrypted."""

    hash: bytes
    name: bytes


def thinned_for(events: float, room: int) -> int:
    """Return how often the hidden keys are halved so that there is room for the cells of the others.

    A hidden key stays if that many of the first bits of its keyed hash are 0. So no key takes another one's
    place, and nobody can choose which keys stay.
    Args: events, released, of all keys that are not shown; room, for how many of them there are cells.

    >>> [thinned_for(events, 100) for events in (-5, 100, 101, 350, 401)]
    [0, 0, 1, 2, 3]
    """
    return next((n for n in range(MOST_THINNED) if events <= room << n), MOST_THINNED)


def stays(key: bytes, thinned: int) -> bool:
    """Return whether a hidden key has a cell. Args: key, its hash; thinned, as ``thinned_for`` returns it."""
    return int.from_bytes(key[: _HASH_BITS // 8]) >> (_HASH_BITS - thinned) == 0
