"""Which bin an event counts in, and when bins close.

The bin is a pure function of the record, its position and its partition's cuts. If one added record could
move *another* record to a different bin, two bins would change and the guarantee would no longer hold with
this epsilon. So a record's bin is the later of its own bin (by event time) and the first bin whose cut lies
beyond its position. Batch sizes, speed, retries and restarts do not change it. Bins close, and results become
visible, by the clock, never because an event arrived.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from math import gcd
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist.arrays import Int64Array
from stream_app.core.incoming import Reason
from stream_app.core.records import PartitionState

LARGEST_APPLY_CELLS = 5_000  # a longer script would delay all other streams of the store

LatePolicy = Literal["next_bin", "drop", "dead_letter"]

_1970 = date(1970, 1, 1)
_LENGTHS = (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000))

# The longest list of due bins: after a long outage many bins are due at once.
MOST_DUE_BINS = 10_000


@dataclass(frozen=True, slots=True)
class Binning:
    """The time line of a stream, divided into bins: absolute integers; bin 0 begins in 1970.

    Args:
        bin_us: length of a bin (one day where a timezone is given).
        timezone: calendar days of this zone, 23 to 25 hours long; None for bins of fixed length.
    Raises: ValueError for a length below 1.

    >>> hours = Binning(3_600_000_000)
    >>> hours.bin_of([-1, 0, 3_600_000_000]).tolist(), hours.start_us(1)
    ([-1, 0, 1], 3600000000)
    >>> days = Binning(86_400_000_000, "Europe/Paris")
    >>> (days.end_us(19812) - days.start_us(19812)) // 3_600_000_000  # 2024-03-30
    24
    >>> (days.end_us(19813) - days.start_us(19813)) // 3_600_000_000  # clocks go forward on 2024-03-31
    23
    """

    bin_us: int
    timezone: str | None = None

    def __post_init__(self) -> None:
        if self.bin_us < 1:
            raise ValueError(f"bin: {self.bin_us} us is not a length of time; at least 1 microsecond")

    @property
    def text(self) -> str:
        """The length of a bin, in words."""
        return length_in_words(self.bin_us) if self.timezone is None else f"1 day ({self.timezone})"

    def start_us(self, bin: int) -> int:
        """Return the first instant of a bin, in microseconds since 1970 UTC."""
        return bin * self.bin_us if self.timezone is None else midnight_us(self.timezone, bin)

    def end_us(self, bin: int) -> int:
        return self.start_us(bin + 1)

    def latest_shared(self, other: Binning, first: int, last: int, step: int) -> int | None:
        """Return the latest bin that begins where a bin of another time line begins; None if there is none.

        Args: first, last, between which bins it is; step, how many bins apart from ``last`` they are.
        Cost: for bins of fixed lengths, constant; else a search for each day.

        >>> Binning(300).latest_shared(Binning(3600), first=1, last=35, step=1)  # at 10_500
        24
        """
        if self.timezone is None and other.timezone is None:
            apart = gcd(self.bin_us * step, other.bin_us)
            stride, length = self.bin_us * step // apart, other.bin_us // apart
            if self.start_us(last) % apart:
                return None
            steps = self.start_us(last) // apart * pow(stride, -1, length) % length
            latest: int = last - step * steps
            return latest if latest >= first else None
        if self.timezone is None:  # each of the other's days
            [day] = other.bin_of([self.start_us(last)]).tolist()
            while (found := self.start_at(other.start_us(day))) is None or (last - found) % step:
                day -= 1
                if other.start_us(day) < self.start_us(first):
                    return None
            return found if found >= first else None
        bins = range(last, first - 1, -step)
        return next((bin for bin in bins if other.start_at(self.start_us(bin)) is not None), None)

    def start_at(self, time_us: int) -> int | None:
        """Return the bin that begins at an instant; None if it is inside a bin."""
        [bin] = self.bin_of([time_us]).tolist()
        return bin if self.start_us(bin) == time_us else None

    def bin_of(self, times_us: ArrayLike) -> Int64Array:
        """Return the bin of each instant. Args: times, shape (n,), microseconds since 1970 UTC."""
        times = np.asarray(times_us, dtype=np.int64)
        by_length = np.floor_divide(times, self.bin_us)
        if self.timezone is None or times.size == 0:
            return by_length
        # A zone is never a whole day off UTC. Only days near some record are looked up: one event dated in
        # the year 9999 must not delay the others, because the time this takes can be seen from outside.
        days = np.unique(np.unique(by_length)[:, np.newaxis] + np.arange(-1, 3))
        midnights = np.array([midnight_us(self.timezone, day) for day in days.tolist()])
        return days[np.searchsorted(midnights, times, side="right") - 1]


def length_in_words(us: int) -> str:
    """Return a length of time as text in its largest whole unit.

    >>> length_in_words(3_600_000_000), length_in_words(900_000_000), length_in_words(1_500_000)
    ('1 hour', '15 minutes', '1.5 seconds')
    """
    for name, size in _LENGTHS:
        if us % size == 0:
            return f"1 {name}" if us == size else f"{us // size} {name}s"
    return f"{us / 1_000_000:g} seconds"


@lru_cache(maxsize=100_000)
def midnight_us(timezone: str, day: int) -> int:
    """Return when a calendar day begins; if clocks skip midnight, the instant at which they skip it."""
    local = datetime.combine(_1970 + timedelta(days=day), datetime.min.time())
    offset = local.replace(tzinfo=ZoneInfo(timezone)).utcoffset() or timedelta(0)
    return (timedelta(days=day) - offset) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class BinRules:
    """The rules for early, late and future records.

    Args: first_bin, records whose own bin is earlier are refused; max_ahead_bins, how far a record's own bin
        may lie beyond the bin that was next to close when the record arrived; late, the fate of a record
        that lies beyond the cut of its own bin; until_bin, the first bin after the stream's last one, None:
        it has no end; begins_bin, where a successor begins: earlier records belong to the stream before it;
        late_to_next, whether the next segment counts events late at the end.
    """

    first_bin: int
    max_ahead_bins: int
    late: LatePolicy
    until_bin: int | None = None
    begins_bin: int | None = None
    late_to_next: bool = False

    def newest_bins(self, open_bins: Int64Array) -> Int64Array:
        """Return the last bin in which a record may be dated, by the next bin to close when it arrived."""
        return open_bins + self.max_ahead_bins

    def late_is(self, policy: LatePolicy) -> bool:
        return self.late == policy


@dataclass(frozen=True, slots=True)
class Assignment:
    """The bin of each record and whether it counts, in arrays of shape (n,).

    Args:
        bins: the bin of each record; of a record that is refused as late, the first bin that was open.
            Meaningless if the record is refused for another reason.
        kept: which records count in their bin.
        ahead: which records the next cut decides about: they will count in their own bin, or be refused.
        refused: for each reason, which records are refused for it.
    """

    bins: Int64Array
    kept: NDArray[np.bool_]
    ahead: NDArray[np.bool_]
    refused: dict[Reason, NDArray[np.bool_]]


def assign(own: Int64Array, positions: Int64Array, state: PartitionState, rules: BinRules) -> Assignment:
    """Return the bin of every record, and the reason for each record without a bin.

    Guarantee: a record's assignment depends on its own bin and position and on the cuts of its partition. It
        does not depend on other records or on the time of the call: later cuts do not change it. A record
        whose own bin had not closed when it arrived counts in that bin. Proof: docs/decisions/0026.
    Args: own bins and positions, shape (n,); the partition's cuts.

    >>> from stream_app.core.records import Cut
    >>> state = PartitionState(position=0, base_bin=4, cuts=(Cut(5, 100), Cut(7, 300)))
    >>> own, positions = np.array([5, 5, 5, 9]), np.array([99, 100, 300, 100])
    >>> assign(own, positions, state, BinRules(0, 2, "next_bin")).bins.tolist()
    [5, 6, 8, 9]
    """
    cut_bins = np.array([state.base_bin, *(cut.bin for cut in state.cuts)], dtype=np.int64)
    cut_positions = np.array([cut.position for cut in state.cuts], dtype=np.int64)
    passed = np.searchsorted(cut_positions, positions, side="right")
    earliest = cut_bins[passed] + 1
    # The latest bin that may have been the next to close when the record arrived: the open bin of its cut.
    # If the record is beyond all cuts, bin last_cut_bin + 1 may have closed and the bin after it be next.
    open_bins = np.array([*(cut.open_bin for cut in state.cuts), state.last_cut_bin + 2], dtype=np.int64)
    foreign = np.zeros(own.shape, np.bool_)  # records that another stream counts: not counted, not refused
    came_late = foreign  # for the segment before, so they count here
    if rules.begins_bin is not None:
        came_late = _taken_over(own, positions, state, rules.begins_bin)
        foreign = (own < rules.begins_bin) & ~came_late
        own = np.where(came_late, rules.begins_bin, own)
    too_far = own > rules.newest_bins(open_bins)[passed]

    before = own < rules.first_bin
    undecided = passed == len(cut_positions)
    ahead = ~before & too_far & undecided
    future = ~before & too_far & ~undecided
    late = ~before & ~too_far & (came_late | (own < earliest)) & (not rules.late_is("next_bin"))
    bins = np.maximum(own, earliest)
    if rules.until_bin is not None:
        no_bin_left = ~before & ~too_far & (bins >= rules.until_bin)
        foreign = foreign | (own >= rules.until_bin) | (no_bin_left & rules.late_to_next)
        late |= no_bin_left
    refused = {Reason.BEFORE_FIRST_BIN: before, Reason.FUTURE: future, Reason.LATE: late}
    assigned = Assignment(
        bins=bins,
        kept=~(before | too_far | late),
        ahead=ahead,
        refused={reason: mask for reason, mask in refused.items() if mask.any()},
    )
    return only(assigned, ~foreign) if foreign.any() else assigned


def _taken_over(
    own: Int64Array, positions: Int64Array, state: PartitionState, begins_bin: int
) -> NDArray[np.bool_]:
    """Return which records were late for the last bin of the segment before, which did not count them."""
    taken = state.late_before
    if taken is None:
        return np.zeros(own.shape, np.bool_)
    return (own < begins_bin) & (own >= taken.since_bin) & (positions >= taken.position)


def refusing(assignment: Assignment, masks: Mapping[Reason, NDArray[np.bool_]]) -> Assignment:
    """Return the assignment with further records refused, unless they are already too early or too late.

    These reasons take precedence over a date too far ahead, because whether a date is too far ahead is
    sometimes decided later.
    Args: masks, for each reason which records are refused for it. The first reason of a record counts.
    """
    refused = dict(assignment.refused)
    future = refused.pop(Reason.FUTURE, np.zeros_like(assignment.kept))
    kept, ahead = assignment.kept, assignment.ahead
    for reason, mask in masks.items():
        if (hit := mask & (kept | ahead | future)).any():
            refused[reason] = hit
            kept, ahead, future = kept & ~hit, ahead & ~hit, future & ~hit
    if future.any():
        refused[Reason.FUTURE] = future
    return replace(assignment, kept=kept, ahead=ahead, refused=refused)


def only(assignment: Assignment, mask: NDArray[np.bool_]) -> Assignment:
    """Return the assignment with all other records neither counted nor refused. Args: mask, shape (n,)."""
    refused = {reason: hit & mask for reason, hit in assignment.refused.items()}
    return replace(
        assignment,
        kept=assignment.kept & mask,
        ahead=assignment.ahead & mask,
        refused={reason: hit for reason, hit in refused.items() if hit.any()},
    )


def aggregate(
    bins: Int64Array, cells: Int64Array, width: int, numbers: Int64Array | None = None
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return (bins, cells, deltas): each distinct (bin, cell) once, sorted, with its number of records.

    Args: bins and cells of records, shape (n,), cells within [0, width); numbers, added by each record, if
        not 1.

    >>> [column.tolist() for column in aggregate(np.array([7, 5, 7]), np.zeros(3, np.int64), 1)]
    [[5, 7], [0, 0], [1, 2]]
    """
    keys, rows, deltas = np.unique(bins * width + cells, return_inverse=True, return_counts=True)
    if numbers is not None:
        deltas = np.zeros(len(keys), np.int64)
        np.add.at(deltas, rows, numbers)  # in whole numbers, unlike bincount
    return (*np.divmod(keys, width), deltas.astype(np.int64))


def split(keys: Int64Array, most_keys: int = LARGEST_APPLY_CELLS) -> Iterator[slice]:
    """Yield runs of records with at most ``most_keys`` different keys each; one run if there are no records.

    >>> list(split(np.array([1, 1, 2, 3, 3]), most_keys=2))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    edges = [0]
    while len(keys) - edges[-1] > most_keys:
        _, first_seen = np.unique(keys[edges[-1] :], return_index=True)
        if len(first_seen) <= most_keys:
            break
        edges.append(edges[-1] + int(np.partition(first_seen, most_keys)[most_keys]))
    for start, stop in pairwise([*edges, len(keys)]):
        yield slice(start, stop)


@dataclass(frozen=True, slots=True)
class Closing:
    """The closing instants of a stream's bins.

    Args: grace_us, how long after its end a bin closes.
    Raises: ValueError for a negative grace.

    >>> closing = Closing(Binning(bin_us=60), grace_us=5)
    >>> closing.instant_us(0), closing.last_due_bin(64), closing.last_due_bin(65)
    (65, -1, 0)
    >>> closing.due(after_bin=0, now_us=190)
    [(1, 125), (2, 185)]
    """

    binning: Binning
    grace_us: int

    def __post_init__(self) -> None:
        if self.grace_us < 0:
            raise ValueError(f"grace: {self.grace_us} us is negative; a bin cannot close before its end")

    def instant_us(self, bin: int) -> int:
        return self.binning.end_us(bin) + self.grace_us

    def last_due_bin(self, now_us: int) -> int:
        return int(self.binning.bin_of(np.array([now_us - self.grace_us]))[0]) - 1

    def due(self, after_bin: int, now_us: int) -> list[tuple[int, int]]:
        """Return (bin, closing instant) of the first ``MOST_DUE_BINS`` due bins after ``after_bin``."""
        last = min(self.last_due_bin(now_us), after_bin + MOST_DUE_BINS)
        return [(bin, self.instant_us(bin)) for bin in range(after_bin + 1, last + 1)]


def next_public_instant_us(now_us: int, publish_every_us: int) -> int:
    """Return the next instant at which results become visible: a multiple of the period, always after now.

    >>> next_public_instant_us(999, 1000), next_public_instant_us(1000, 1000)
    (1000, 2000)
    """
    return (now_us // publish_every_us + 1) * publish_every_us
