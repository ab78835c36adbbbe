"""An independent recount of the log, one record at a time. The bins must equal it.

It is written from the design's words, not from the service's code. A record counts in its own bin, or in the
first bin whose cut lies beyond the record, if that bin is later. Refused records count in no bin.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from stream_app.core.counting.cells import Amounts
from stream_app.core.records import Cut, LateEvents
from tests.models.choosing import ids_of
from tests.simulator.conditions import EVERYTHING, matches
from tests.simulator.log import Entry, Kind, Log


@dataclass
class PartitionHistory:
    """All cuts of one partition. They decide the bins of its records.

    Args: start, the first position that the stream reads; base_bin, the last bin that was over when the
        partition began; cuts, every cut ever taken; position, the next position to apply; floors, (from
        position, bin): from this position on, records before this bin are refused; late_before, which records
        of the segment before count here.
    """

    start: int
    position: int
    base_bin: int
    cuts: list[Cut] = field(default_factory=list)
    floors: list[tuple[int, int]] = field(default_factory=list)
    late_before: LateEvents | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """The declared settings that decide a record's bin."""

    bin_us: int
    max_ahead_bins: int
    late: str
    keys: int = 1
    buckets: int = 1
    max_events: int = 0  # events of a user that count in a window of the cap; 0: all
    max_keys: int = 0  # keys of a user that count in a window of the cap; 0: all
    max_per_key: int = 0  # events of a user that count in each of them
    window_end: int = 0  # the last bin of one of the cap's windows
    window_bins: int = 1
    grace_us: int = 0
    where: str = EVERYTHING
    sums: Amounts | None = None
    sides: tuple[str, ...] = ()  # the values of a second key field; all others are one more key
    begins_bin: int | None = None  # where a segment begins; None: it is the first one

    def closes_us(self, bin: int) -> int:
        """Return when a bin closes."""
        return (bin + 1) * self.bin_us + self.grace_us

    def newest(self, open_bin: int) -> int:
        """Return the last bin in which a record may be dated when this bin is next to close."""
        return open_bin + self.max_ahead_bins

    @property
    def is_capped(self) -> bool:
        """Return whether a user's events are capped."""
        return bool(self.max_events or self.max_keys)

    @property
    def key_places(self) -> int:
        """Return how many places belong to one key."""
        return self.buckets if self.sums is None else self.units + 1

    def place(self, entry: Entry) -> int | None:
        """Return the place of an event: its key's row, and its value's bucket or amount; None if it has none.

        Under a cap it is places, of one user, that are chosen.
        """
        key, bucket = 0, 0
        if (self.is_capped and entry.user is None) or not matches(self.where, entry):
            return None
        if self.keys > 1 or self.sides:
            key = "abc".index(entry.key)
            if key >= self.keys:
                return None
        if self.sides:
            side = self.sides.index(entry.side) if entry.side in self.sides else len(self.sides)
            key = key * (len(self.sides) + 1) + side
        if self.sums is not None:
            if entry.amount is None:
                return None
            low, high, unit = self.sums.low, self.sums.high, self.sums.unit
            return key * (self.units + 1) + round((min(max(Fraction(entry.amount), low), high) - low) / unit)
        if self.buckets > 1:
            if entry.value is None:
                return None
            bucket = entry.value * self.buckets // 10
        return key * self.buckets + bucket

    @property
    def units(self) -> int:
        """Return the number of units between the ends of an amount's range."""
        return 0 if self.sums is None else int((self.sums.high - self.sums.low) / self.sums.unit)

    def added(self, place: int) -> dict[int, int]:
        """Return what an event at a place adds to which cells when it counts."""
        if self.sums is None:
            return {place: 1}
        key, amount = divmod(place, self.units + 1)
        return {2 * key: self.units - amount, 2 * key + 1: amount}


Place = tuple[str, int]  # partition and position of a record
_Records = tuple[str | None, int, int]  # the equal records of a user: the user, the bin and the place


def recount(log: Log, histories: Mapping[str, PartitionHistory], rules: Rules) -> dict[Place, int]:
    """Return the bin of every applied record of the log that counts."""
    bins: dict[Place, int] = {}
    for partition, history in histories.items():
        for position in range(history.start, history.position):
            entry = log.partitions[partition][position]
            if entry.kind is Kind.EVENT and rules.place(entry) is not None:
                bin = bin_of_record(entry.time_us // rules.bin_us, position, history, rules)
                if bin is not None:
                    bins[partition, position] = bin
    return bins


def counted(log: Log, placed: Mapping[Place, int], rules: Rules) -> Counter[tuple[int, int]]:
    """Return the number of records that count in each (bin, cell).

    Under a cap, users are counted one by one. A user's earlier bins come first, and the places of a bin come
    in the order of a hash of user and place.
    """
    records = Counter[_Records]()
    for (partition, position), bin in placed.items():
        entry = log.partitions[partition][position]
        place = rules.place(entry)
        assert place is not None
        records[entry.user if rules.is_capped else None, bin, place] += 1
    chosen = records
    if rules.max_keys:
        chosen = _chosen_by_key(records, rules)
    elif rules.max_events:
        chosen = _chosen(records, rules)
    found: Counter[tuple[int, int]] = Counter()
    for (_, bin, place), taken in chosen.items():
        found.update({(bin, cell): taken * units for cell, units in rules.added(place).items()})
    return found


def _chosen(records: Counter[_Records], rules: Rules) -> Counter[_Records]:
    """Return what counts under a cap on each user's events."""
    chosen, used = Counter[_Records](), Counter[tuple[str | None, int]]()
    for user, bin, place in sorted(records, key=_order_of_counting(rules)):
        window = _window(bin, rules)
        taken = min(records[user, bin, place], rules.max_events - used[user, window])
        used[user, window] += taken
        chosen[user, bin, place] = taken
    return chosen


def _chosen_by_key(records: Counter[_Records], rules: Rules) -> Counter[_Records]:
    """Return what counts under caps on keys, record by record: known keys first, then new ones by hash."""
    chosen = Counter[_Records]()
    counted: dict[tuple[str | None, int], Counter[int]] = {}
    for user, bin in sorted({(user, bin) for user, bin, _ in records}, key=lambda one: (one[1], str(one[0]))):
        keys = counted.setdefault((user, _window(bin, rules)), Counter())
        places = [place for name, at, place in records if (name, at) == (user, bin)]
        for place in sorted(places, key=_order_of_keys(user, bin, frozenset(keys), rules)):
            key = place // rules.key_places
            for _ in range(records[user, bin, place]):
                is_new = key not in keys
                full = rules.max_events and keys.total() >= rules.max_events
                if full or keys[key] >= rules.max_per_key or (is_new and len(keys) >= rules.max_keys):
                    continue
                keys[key] += 1
                chosen[user, bin, place] += 1
    return chosen


def _order_of_counting(rules: Rules) -> Callable[[_Records], tuple[int, str]]:
    def order(records: _Records) -> tuple[int, str]:
        user, bin, place = records
        ids, _ = ids_of([str(user)], np.array([_window(bin, rules)]))
        return bin, hashlib.sha1(ids.tobytes() + place.to_bytes(4, "big")).hexdigest()

    return order


def _order_of_keys(
    user: str | None, bin: int, known: frozenset[int], rules: Rules
) -> Callable[[int], tuple[bool, str, str]]:
    def order(place: int) -> tuple[bool, str, str]:
        key = place // rules.key_places
        return key not in known, rank(key * rules.key_places), rank(place)

    def rank(place: int) -> str:
        return _order_of_counting(rules)((user, bin, place))[1]

    return order


def _window(bin: int, rules: Rules) -> int:
    """Return the last bin of the cap's window that holds a bin."""
    return bin + (rules.window_end - bin) % rules.window_bins


def bin_of_record(own: int, position: int, history: PartitionHistory, rules: Rules) -> int | None:
    """Return the bin of one record, or None for a refused record."""
    came_late = is_taken_over(own, position, history, rules)
    if came_late:
        assert rules.begins_bin is not None
        own = rules.begins_bin
    if own < floor_at(position, history):
        return None
    if own > rules.newest(_latest_open_bin(position, history)):
        return None
    earliest_open = (
        max([history.base_bin, *(cut.bin for cut in history.cuts if cut.position <= position)]) + 1
    )
    if (came_late or own < earliest_open) and rules.late != "next_bin":
        return None
    return max(own, earliest_open)


def is_taken_over(own: int, position: int, history: PartitionHistory, rules: Rules) -> bool:
    """Return whether a record was late for the last bin of the segment before this one."""
    taken, begins_bin = history.late_before, rules.begins_bin
    if taken is None or begins_bin is None:
        return False
    return taken.since_bin <= own < begins_bin and position >= taken.position


def floor_at(position: int, history: PartitionHistory) -> int:
    """Return the bin before which a record at this position is refused."""
    return [bin for start, bin in history.floors if start <= position][-1]


def _latest_open_bin(position: int, history: PartitionHistory) -> int:
    """Return the latest bin that may have been the next to close when the record arrived.

    A record beyond all cuts may have arrived after bin ``last cut + 1`` closed. For such a record the result
    is ``last cut + 2``.
    """
    last_cut_bin = max([history.base_bin, *(cut.bin for cut in history.cuts)])
    return next((cut.open_bin for cut in history.cuts if position < cut.position), last_cut_bin + 2)
