"""Which keys a user brings: the rule of docs/decisions/0055-names-of-keys.md.

A user brings her first keys that are not public, in the order of bins, and within a bin in the order of a
hash of her id and the key. Which keys are public follows from the decisions before the bin. So what she
brings is a function of her own records and of public facts: neither other users nor the numbers of keys play
a part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from stream_app.core.counting.bounding import CELL_BYTES, rank_of
from stream_app.core.counting.unlisted import NO_CELL, place_by_hash
from stream_app.core.found_keys import stays

BROUGHT = 1 << 40  # added to the cell of a key: the cell of the same bin with the users who bring the key


@dataclass(frozen=True, slots=True)
class Slots:
    """What decides which keys the users of a bin bring, and what must be true of the stream then.

    Args: per_user, the keys that a user brings in a cap window, also if an epoch ends early in it;
        first_unlisted, the cell of the first key that no list names; shown, the cells of public keys; epoch,
        and seq of the last released row: the bin follows; thinned, how often the hidden keys have been halved
        (``found_keys.thinned_for``).
    """

    per_user: int
    first_unlisted: int
    shown: Collection[int]
    epoch: int
    seq: int
    thinned: int = 0


def rank(field: bytes, cell: int, slots: Slots | None, hash_of: Mapping[int, bytes]) -> bytes:
    """Return the place of a user's cell in the order of choosing.

    Args: field, as of ``bounding.user_fields``; hash_of, the hash of each key by its number. A number follows
        from the order in which all users' keys came, so it decides nothing.
    """
    if slots is None or not slots.first_unlisted <= cell < NO_CELL:
        return rank_of(field)
    own = hash_of[cell - slots.first_unlisted]
    return rank_of(field[:-CELL_BYTES] + place_by_hash(own).to_bytes(CELL_BYTES)) + own


def brought(
    counted: Iterable[int],
    slots: Slots,
    before: Sequence[int],
    ranks: Mapping[int, bytes],
    hash_of: Mapping[int, bytes],
) -> list[int]:
    """Return the cells of the keys that a user brings in a bin: keys that are hidden and have a cell.

    Args: counted, the cells in which the user counts; before, what the user has brought; ranks, by cell;
        hash_of, as of ``rank``.

    >>> slots = Slots(per_user=2, first_unlisted=5, shown={7}, epoch=0, seq=0, thinned=1)
    >>> hashes = {1: bytes(16), 2: bytes(16), 3: bytes(16), 4: b"x" * 16, 5: b"\\xff" * 16}
    >>> brought([2, 7, 8, 6, 10], slots, before=[9], ranks={6: b"b", 8: b"a", 10: b"0"}, hash_of=hashes)
    [8]
    """
    new = [
        cell
        for cell in counted
        if slots.first_unlisted <= cell < NO_CELL and cell not in slots.shown and cell not in before
        if stays(hash_of[cell - slots.first_unlisted], slots.thinned)
    ]
    return sorted(new, key=lambda cell: ranks[cell])[: slots.per_user - len(before)]
