"""Which keys a user brings: the rule of docs/decisions/0055-names-of-keys.md.

A user brings her first keys that are not public, in the order of bins, and within a bin in the order of a
hash of her id and the key. Which keys are public follows from the decisions before the bin. So the keys
that she brings are a function of her own records and of public facts: neither other users nor the numbers of
keys play a part.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

BROUGHT = 1 << 40  # added to the place of a key: the cell of the same bin with the users who bring the key


@dataclass(frozen=True, slots=True)
class Slots:
    """The facts that decide which keys the users of a bin bring, and the state that the stream must have.

    Args: per_user, the keys that a user brings in a cap window, also if an epoch ends early in it;
        first_unlisted, the place in the list of the first key that no list names; shown, the numbers of
        public keys; epoch, and seq of the last released row: the bin follows; thinned, how often the hidden
        keys have been halved (``found_keys.thinned_for``).
    """

    per_user: int
    first_unlisted: int
    shown: Collection[int]
    epoch: int
    seq: int
    thinned: int = 0
