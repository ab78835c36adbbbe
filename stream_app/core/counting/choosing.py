"""Which of a user's records count, where caps bound the keys of a user and the events in each key.

*The rule.* A user's records of a cap window are taken bin by bin, earlier bins first. In a bin the keys are
taken one after the other: first the keys in which the user already counts, then new ones, each group in the
order of a hash. A new key is taken only while fewer than ``max_keys`` keys count. Of each key at most
``max_per_key`` records count over the window, and at most ``max_events`` over all keys. Within a key the
places (buckets, amounts) come in the order of a hash. Where keys are found, only the first ``max_keys`` keys
of a bin in the order of the hash may count, so that a store need not keep more of them.

*Why no other person moves the choice.* ``chosen`` reads three things: the user's own numbers of records by
place in this bin, the user's own numbers of earlier bins of the window (``before``), and hashes of the
user's id. The numbers of a bin are a sum over all partitions and batches (``apply.lua``), so neither their
order nor the other records in them play a part. The records' bins do not depend on other records
(``core.counting.bins``). The id is a keyed hash of the user and the window. ``before`` is empty at the start
of the window, and after each bin it is the result of this rule. So by induction over the bins the choice is a
function of the user's own records, by bin and place, and of the key of the hashes.

*Why the caps hold in every window.* By induction over the bins ``before`` obeys the caps. ``chosen`` adds a
key to ``before`` only while fewer than ``max_keys`` are in it or chosen. It adds at most ``max_per_key`` less
the key's number, and at most ``max_events`` less the sum of all numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dphist.caps import Caps
from stream_app.core.counting.bounding import ID_BYTES, MOST_AMOUNTS, counted, rank_of
from stream_app.core.records import Waiting

LARGEST_TRIMMED_CAP = 8_192


@dataclass(frozen=True, slots=True)
class Bounds:
    """What decides which of a user's records count: the caps, and how a place gives its key and its cells.

    Args:
        caps: of each user and cap window.
        key_places: consecutive places that belong to one key: its buckets, or its amounts.
        weight: of an event of a sum (``bounding.cells_added``); None without a sum.
        places: of a bin; 0 if there are few.
        keyed: whether places are keyed (``bounding.keyed_places``), because keys are found.
    """

    caps: Caps
    key_places: int = 1
    weight: int | None = None
    places: int = 0
    keyed: bool = False

    @property
    def waiting(self) -> Waiting:
        """How many of a user's places in a bin may count, the first ones by hash; no bound if none is needed.

        Only a user of a stream with many places has so many records that leaving out the others saves time.
        With a larger cap than ``LARGEST_TRIMMED_CAP`` too few would be left out.
        """
        caps = self.caps
        if self.keyed:
            return Waiting(caps.max_keys or caps.l1, caps.max_per_key or 0, keyed=True)
        few = self.places <= MOST_AMOUNTS or caps.max_keys is not None
        return Waiting(0 if few or caps.l1 > LARGEST_TRIMMED_CAP else caps.l1)


def chosen(records: Mapping[bytes, int], bounds: Bounds, before: Mapping[int, int]) -> dict[int, int]:
    """Return how many records of one user in one bin count, by place.

    Guarantee: with ``before`` they obey the caps. The result is a function of the arguments alone: the order
        of the mappings plays no part (see the module's first lines).
    Args: records, the number of records by field (``bounding.user_fields``); before, the number of records
        of the user that counted in earlier bins of the window, by key (``by_key``).

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


def by_key(places: Iterable[tuple[int, int]], bounds: Bounds, before: Mapping[int, int]) -> dict[int, int]:
    """Return the numbers of records by key after a bin. Args: places, the bin's chosen numbers by place.

    >>> by_key([(7, 2), (9, 1)], Bounds(Caps(5), key_places=4), before={2: 3})
    {2: 4, 1: 2}
    """
    after = dict(before)
    for place, number in places:
        key = place // bounds.key_places
        after[key] = after.get(key, 0) + number
    return after


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
