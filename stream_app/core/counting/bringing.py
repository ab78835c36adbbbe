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


def settled(
    records: Mapping[bytes, int], slots: Slots | None, hash_of: Mapping[int, bytes]
) -> Mapping[bytes, int]:
    """Return a user's records of a bin, where keys that do not stay have their places by hash.

    So it plays no part whether the reader knew that.
    Args: records, by field; hash_of, as of ``rank``.
    """
    if slots is None or not slots.thinned:
        return records
    found: dict[bytes, int] = {}
    for field, number in records.items():
        place = int.from_bytes(field[-CELL_BYTES:])
        if slots.first_unlisted <= place < NO_CELL and place not in slots.shown:
            own = hash_of[place - slots.first_unlisted]
            if not stays(own, slots.thinned):
                field = field[:-CELL_BYTES] + place_by_hash(own).to_bytes(CELL_BYTES)
        found[field] = found.get(field, 0) + number
    return found


def brought(
    counted: Iterable[int], slots: Slots, before: Sequence[int], ranks: Mapping[int, bytes]
) -> list[int]:
    """Return the cells of the keys that a user brings in a bin: keys that are hidden and have a cell.

    Args: counted, the cells in which the user counts; before, what the user has brought; ranks, by cell.

    >>> slots = Slots(per_user=2, first_unlisted=5, shown={7}, epoch=0, seq=0)
    >>> brought([2, 7, 8, 6, NO_CELL], slots, before=[9], ranks={6: b"b", 8: b"a"})
    [8]
    """
    new = [
        cell
        for cell in counted
        if slots.first_unlisted <= cell < NO_CELL and cell not in slots.shown and cell not in before
    ]
    return sorted(new, key=lambda cell: ranks[cell])[: slots.per_user - len(before)]
