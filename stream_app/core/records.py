"""The records that travel between the loops, the store and the readers: plain frozen data.

Numbers: a *position* counts records of one partition (of a file: bytes); a *bin* is an absolute index on the
stream's time line; *seq* numbers the released bins of a stream from 1, across epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from stream_app.core.epochs import EpochRecord as EpochRecord
from stream_app.core.segments.names import base_of
from stream_app.core.user_keys import NONE_NOTED, UserKeys

GENESIS = "0" * 64  # the head hash of a stream that has released nothing


class Reply(StrEnum):
    """A store script's answer. After any but DONE and ALREADY the caller must read the state again."""

    DONE = "done"  # this call did it: applied, cut, sealed, released or opened
    ALREADY = "already"  # an earlier call with the same content did it (a retry after a lost reply)
    CONFLICT = "conflict"  # another worker moved the position, the cuts or the head
    CUTS_CHANGED = "cuts_changed"  # the caller binned against outdated cuts, or a cut is due by the clock
    SEALED = "sealed"  # a target bin is sealed: sealed bins never change
    NOT_SEALED = "not_sealed"  # a release of a bin that is not sealed
    NOT_TALLIED = "not_tallied"  # a release of a bin whose users' records are not all tallied
    STRATEGY = "strategy"  # the stream runs under another strategy
    SET_ASIDE = "set_aside"  # a late cut decides about records that were set aside: take it by itself
    BEHIND = "behind"  # another worker holds the lease, whose witness has rows that the store lost
    USER_KEY = "user_key"  # users of an open window were counted under another key


@dataclass(frozen=True, slots=True)
class Cut:
    """A position of a partition's log, with bounds on when records before and after it arrived.

    Args:
        bin: records at or beyond ``position`` arrived after this bin closed: they are too late for it and
            for all earlier bins.
        position: the end of the log, asked for after ``bin`` had closed.
        overdue: how many more bins had closed when the answer came. Records below ``position`` arrived
            before bin ``open_bin`` closed. No earlier bin is certain, because the worker may have paused.
    """

    bin: int
    position: int
    overdue: int = 0

    @property
    def open_bin(self) -> int:
        """Return the bin that was next to close when the answer came."""
        return self.bin + 1 + self.overdue


class LateEvents(NamedTuple):
    """Which records that are dated before a segment it counts in one partition: they came too late before.

    Args: position, of the last cut of the segment before; since_bin, the first bin in which they are dated.
    """

    position: int
    since_bin: int


class Origin(NamedTuple):
    """SECRET: how far the rows of one partition of origin have come in a partition of an engine's topic.

    Args: epoch and sequence, of its last row; closed_us, up to which instant it is closed; None: to none.
    """

    number: int
    epoch: int
    sequence: int
    closed_us: int | None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """SECRET: a stream's position and cuts in one partition.

    Args:
        position: the next position to apply.
        base_bin: every bin up to this one has its cut at or below ``position``.
        cuts: later cuts, rising in bin and in position; the last one is for the last bin with a cut.
        late_before: late records of the segment before; None: there are none.
        origins: of an engine's rows, in the order of their numbers.

    Records that are set aside (``Ahead``) are below ``position`` and undecided until the next cut.
    """

    position: int
    base_bin: int
    cuts: tuple[Cut, ...] = ()
    late_before: LateEvents | None = None
    origins: tuple[Origin, ...] = ()

    @property
    def last_cut_bin(self) -> int:
        return self.cuts[-1].bin if self.cuts else self.base_bin

    def with_cuts(self, cuts: Sequence[Cut]) -> PartitionState:
        """Return the state after these cuts, as the store keeps it."""
        new = tuple(cut for cut in cuts if cut.bin > self.last_cut_bin)
        return replace(self, cuts=(*self.cuts, *new)).moved(self.position)

    def moved(self, position: int) -> PartitionState:
        """Return the state at a later position; cuts at or below that position move into the base bin."""
        passed = [cut.bin for cut in self.cuts if cut.position <= position]
        base_bin = passed[-1] if passed else self.base_bin
        return replace(self, position=position, base_bin=base_bin, cuts=self.cuts[len(passed) :])


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Public: the last row that retention removed from the store; the first row that stays continues it.

    Args: bin, the last one of the epoch; hash, of the row; seq, 0 if no row was removed.
    """

    epoch: int = -1
    bin: int = 0
    seq: int = 0
    hash: str = GENESIS

    def __bool__(self) -> bool:
        """Whether any row was removed."""
        return self.seq > 0


@dataclass(frozen=True, slots=True)
class StreamState:
    """SECRET: the small state of a stream, read in one step."""

    strategy: bytes  # Strategy.to_json
    epoch: EpochRecord
    seq: int  # released bins so far
    head: str  # hash of the last released row
    released_bin: int  # the last released bin; first_bin - 1 before the first
    sealed_bin: int  # every bin up to here is sealed
    counter: bytes  # the counter's snapshot after released_bin; empty at the start of an epoch
    partitions: Mapping[str, PartitionState] = field(default_factory=dict)
    noise: str = ""  # the nonce of the epoch's stored noise; empty if none was drawn ahead
    stopped: bool = False  # no record is counted until an epoch opens
    until_bin: int | None = None  # the first bin that is never counted; None: the stream has no end
    late_from: Mapping[str, int] | None = None  # positions from which on events are the next segment's
    user_keys: UserKeys = NONE_NOTED  # by which users are hashed, if a rotation has noted it
    earlier: tuple[bytes, ...] = ()  # the texts of the stream's strategies before its settings changed
    announced: bytes | None = None  # a change that an older release announced (segments/strategies.py)
    trimmed: Trimmed = Trimmed()  # what retention removed
    halted: bool = False  # a worker stopped counting it because of a fault (docs/decisions/0056)

    @property
    def texts(self) -> tuple[bytes, ...]:
        """The texts of all strategies of the stream, the running epoch's last."""
        return *self.earlier, self.strategy

    @property
    def has_ended(self) -> bool:
        """Whether the bins up to the stream's end are released."""
        return self.until_bin is not None and self.released_bin + 1 >= self.until_bin

    @property
    def is_over(self) -> bool:
        """Whether the stream counts nothing more, for good."""
        return self.stopped and self.has_ended

    @property
    def is_spent(self) -> bool:
        """Whether the stream's total allows no epoch, so that its records are passed over."""
        return self.stopped and not self.has_ended


class WitnessRow(NamedTuple):
    """A released row as the witness keeps it.

    Args: values, the released values for which the row holds only hashes (``row_values.py``).
    """

    seq: int
    row: bytes
    values: bytes = b""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One measurement of one source: a stream's epoch over a period, and its cost.

    Args:
        until_us: the end of the epoch's stream; None for a live stream, which has no end.
        lost: whether only the ledger outside the store knew the entry when a worker started.
        user: the field that names the user; None for the unit event, and in entries of older versions.
        log: the log's own name if the source is a group: the log then has a ledger under this name as well.
        time: the field that holds an event's time, its format, and the zone of times without an offset if
            the stream has one; None in entries of older versions.
        delta: exact text; None for a pure promise.
        mu: exact text; None for a pure promise. The epoch's outputs tell two neighbouring streams apart no
            better than one draw of a normal distribution of variance 1 tells whether its mean is 0 or mu.
            ``epsilon`` and ``delta`` follow from it; epochs with a mu compose better by their mu.
        per: the period and its time zone (``PERIODS``) if the unit is a user's hour, day or week; None
            if it is the user, or the event.
        period_us: the start of the period in which the epoch begins; None without a period.
        periods: how many periods the epoch touches; 0 without a period.
        changed_from: the hash of the strategy before, in the first epoch after a stream's settings changed.
        successor_of: the stream that counts nothing from this stream's first epoch on; None: there is none.
        signed: whether an engine counted the events; the promise then needs the conditions that the operator
        signs.
    """

    source: str
    stream: str
    epoch: int
    start_us: int
    end_us: int
    epsilon: str  # exact fraction, "p/q"
    unit: str  # "event" or "user"
    strategy_hash: str
    private: bool = True
    neighbours: str = "add_remove"
    until_us: int | None = None
    lost: bool = False
    user: str | None = None
    log: str | None = None
    time: str | None = None
    delta: str | None = None
    mu: str | None = None
    per: str | None = None
    period_us: int | None = None
    periods: int = 0
    changed_from: str | None = None
    successor_of: str | None = None
    signed: bool = False

    @property
    def base(self) -> str:
        """The configured name of the stream: all its segments have it."""
        return base_of(self.stream)


@dataclass(frozen=True, slots=True)
class History:
    """Public: since when nobody counts a stream. It was retired, imported from another store, or both."""

    retired_us: int | None = None
    imported_us: int | None = None


@dataclass(frozen=True, slots=True)
class PublicState:
    """Everything that readers may know about a stream: a pure function of its visible rows and epochs.

    Args: epochs, those whose values the store keeps; earlier, the other strategies of these epochs, if an
        older release changed the settings; trimmed, the rows that retention removed; halted,
        whether a fault of its log or its own has stopped it, which changes no value.
    """

    strategy: bytes
    epochs: tuple[EpochRecord, ...]
    visible_seq: int
    history: History | None = None  # None: a worker may count the stream
    earlier: tuple[bytes, ...] = ()
    trimmed: Trimmed = Trimmed()
    halted: bool = field(default=False, compare=False)

    @property
    def texts(self) -> tuple[bytes, ...]:
        """The texts of all strategies of these epochs, the last epoch's last."""
        return *self.earlier, self.strategy
