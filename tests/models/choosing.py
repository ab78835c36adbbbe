"""Which of a user's records count, as a plain function: what the scripts of the store are compared with.

``core.counting.bounding`` says the rule, and why no other person moves the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from dphist.arrays import Int64Array
from stream_app.core.coded import Coded
from stream_app.core.counting.bounding import ID_BYTES, Bounds, ByteArray, UserHashes, rank_of, user_ids


def ids_of(
    users: Sequence[str], windows: Int64Array, key_of: Callable[[int], bytes] = lambda window: bytes(32)
) -> tuple[ByteArray, Int64Array]:
    """Return the ids of users, and of each record its row. Args: the user and the window of each record."""
    coded = Coded.of(users)
    return user_ids(coded, windows, lambda window: UserHashes(coded.values, window, key_of(window)))


def chosen(records: Mapping[bytes, int], bounds: Bounds, before: Mapping[int, int]) -> dict[int, int]:
    """Return how many records of one user in one bin count, by place.

    Guarantee: with ``before`` they obey the caps. The result is a function of the arguments alone: the order
        of the mappings plays no part (see the module's first lines).
    Args: records, the number of records by field (``bounding.user_fields``); before, the number of records
        of the user that counted in earlier bins of the window, by key (``by_key``).

    >>> from dphist.caps import Caps
    >>> two_in_each_of_two_keys = Bounds(Caps(max_events=3, max_keys=2, max_per_key=2))
    >>> records = {bytes(16) + bytes([0, 0, 0, cell]): 5 for cell in range(3)}
    >>> chosen(records, two_in_each_of_two_keys, before={1: 1})
    {1: 1, 0: 1}
    """
    caps = bounds.caps
    room = caps.l1 - sum(before.values())
    if caps.max_keys is None or caps.max_per_key is None:
        return counted(records, max(room, 0))
    in_keys, taken = dict(before), dict[int, int]()
    fields = _of_first_keys(records, bounds.key_places, caps.max_keys) if bounds.keyed else list(records)
    for field in sorted(fields, key=lambda field: _order(field, bounds.key_places, before)):
        place = _place(field)
        key = place // bounds.key_places
        number = min(records[field], caps.max_per_key - in_keys.get(key, 0), room)
        if number > 0 and (key in in_keys or len(in_keys) < caps.max_keys):
            taken[place] = number
            in_keys[key] = in_keys.get(key, 0) + number
            room -= number
    return taken


def counted(records: Mapping[bytes, int], room: int) -> dict[int, int]:
    """Return how many records of one user in one bin count, by cell.

    Cells are taken in the order of a hash of the user's id and the cell, so no cell is favoured.
    Args: records, the number of records by field (``user_fields``); room, how many may still count.

    >>> counted({bytes(16) + bytes([0, 0, 0, cell]): 2 for cell in range(3)}, room=3)
    {0: 2, 2: 1}
    """
    taken = {}
    for field in sorted(records, key=rank_of):
        number = min(records[field], room)
        if number == 0:
            break
        taken[int.from_bytes(field[ID_BYTES:], "big")] = number
        room -= number
    return taken


def by_key(places: Iterable[tuple[int, int]], bounds: Bounds, before: Mapping[int, int]) -> dict[int, int]:
    """Return the numbers of records by key after a bin. Args: places, the bin's chosen numbers by place.

    >>> from dphist.caps import Caps
    >>> by_key([(7, 2), (9, 1)], Bounds(Caps(5), key_places=4), before={2: 3})
    {2: 4, 1: 2}
    """
    after = dict(before)
    for place, number in places:
        key = place // bounds.key_places
        after[key] = after.get(key, 0) + number
    return after


def cells_added(chosen: Mapping[int, int], weight: int | None) -> dict[int, int]:
    """Return what a user's chosen records add to the cells of their bin.

    Args: chosen, the number of records by place; weight, of a sum, whose places are those of
        ``core.counting.cells``: the key and the amount, which is counted at the two ends of its range; None
        if places are cells.

    >>> cells_added({3: 2, 9: 1}, weight=5)
    {0: 4, 1: 6, 2: 2, 3: 3}
    """
    if weight is None:
        return dict(chosen)
    added: dict[int, int] = {}
    for place, number in chosen.items():
        key, units = divmod(place, weight + 1)
        for cell, share in ((2 * key, weight - units), (2 * key + 1, units)):
            if share:
                added[cell] = added.get(cell, 0) + number * share
    return added


def _place(field: bytes) -> int:
    return int.from_bytes(field[ID_BYTES:], "big")


def _of_first_keys(records: Iterable[bytes], key_places: int, most: int) -> list[bytes]:
    """Return the fields of the first keys in the order of their hashes."""
    firsts = {field: _first_of_key(field, key_places) for field in records}
    looked_at = set(sorted(set(firsts.values()), key=rank_of)[:most])
    return [field for field, first in firsts.items() if first in looked_at]


def _order(field: bytes, key_places: int, before: Mapping[int, int]) -> tuple[bool, bytes, bytes]:
    """Return the place of a field in the order of choosing: known keys first, then by hashes."""
    key = _place(field) // key_places
    return key not in before, rank_of(_first_of_key(field, key_places)), rank_of(field)


def _first_of_key(field: bytes, key_places: int) -> bytes:
    place = _place(field)
    return field[:ID_BYTES] + (place - place % key_places).to_bytes(len(field) - ID_BYTES)
