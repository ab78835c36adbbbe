"""Keys that no list names: as readers see them once they are found, and as the store keeps them."""

from __future__ import annotations

from typing import NamedTuple


class FoundKeys(NamedTuple):
    """Public: keys that are shown from the row of a bin on.

    Args: bin, before the epoch's first one for keys that an earlier epoch found; names, in the order of
        names; thinned, how often the hidden keys have been halved by then (``unlisted.thinned_for``).
    """

    bin: int
    names: tuple[str, ...]
    thinned: int = 0


class SealedKey(NamedTuple):
    """A key as the store keeps it. SECRET. Args: hash, keyed; name, encrypted."""

    hash: bytes
    name: bytes
