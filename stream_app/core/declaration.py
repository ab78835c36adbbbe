"""The declaration of a stream: the public part of its configuration, with its stored text.

The configuration makes a declaration once. A strategy stores its text, every start compares that text with
the configuration, and the loops and readers read its fields. Attributes are named as the text names them
where Python allows it; ``rename`` lists the other names.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import Literal, get_args

import msgspec
from msgspec import structs

from dphist.caps import Caps
from dphist.privacy import Neighbours
from dphist.tree.design import Release
from dphist.workloads import Workload
from stream_app.core.counting.bins import Binning, BinRules, Closing, LatePolicy
from stream_app.core.counting.bounding import STEPS, Bounds, CapWindows, PerUser
from stream_app.core.counting.cells import Amounts, Buckets, Cells
from stream_app.core.counting.count_rows import FIELDS as ROW_FIELDS
from stream_app.core.counting.count_rows import RowRules
from stream_app.core.counting.keys import Axis, KeyList
from stream_app.core.counting.where import Condition
from stream_app.core.instants import PERIODS
from stream_app.core.kinds.kind import Asked
from stream_app.core.records import EpochRecord
from stream_app.core.visits import DAY_US, VISITOR

WebLogFormat = Literal["combined", "log_format", "caddy", "traefik"]
LogFormat = Literal["ndjson", "json", "csv", "avro", "protobuf", "json_schema"] | WebLogFormat
TimeFormat = Literal["s", "ms", "us", "ns", "iso8601"]
Counted = Literal["users"] | None


class Replay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A replay of the past: bins from ``from_us`` to ``to_us``."""

    from_us: int
    to_us: int


class Log(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The event log, without the place where this configuration finds it.

    Args:
        name: the source's name in the ledger, which adds up its measurements.
        format: of a record; a file has ndjson, csv or that of a web server, a topic json, csv or avro.
        replay: None for a live stream.
        log_format: of the format of that name, as the web server's configuration writes it.
        topic, columns: of a topic; its name, and the names of its columns if it is CSV.
        state_id: of a file, once a worker has opened it: the id of the state directory that reads the file.
        cluster_id, topic_id: of a topic, once a worker has opened it.
        origins: of a topic with the rows of an engine that counts, their partitions of origin; 0: of events.
    """

    name: str
    format: LogFormat
    replay: Replay | None
    topic: str | None = None
    columns: tuple[str, ...] | None = None
    log_format: str = ""
    state_id: str | None = None
    cluster_id: str | None = None
    topic_id: str | None = None
    origins: int = 0

    @property
    def is_of_web_server(self) -> bool:
        """Whether it is an access log, whose fields are those of ``visits.FIELDS``."""
        return self.format in get_args(WebLogFormat)


class Time(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How an event's time decides its bin, and when a bin closes.

    Args:
        field: name of the event's time field, with dots for nested objects.
        bin_us: length of a bin; one day for calendar days.
        timezone: bins are calendar days of this zone; None for bins of fixed length.
        grace_us: how long after its end a bin closes.
        epoch_bins: bins in an epoch.
        first_us: start of the first bin; None: the bin in which a live stream first starts.
        max_ahead_bins: how many bins an event may be beyond the next bin to close.
        zone: of times that are written without an offset; unset: such times are refused.
    """

    field: str
    format: TimeFormat
    bin_us: int
    timezone: str | None
    grace_us: int
    epoch_bins: int
    first_us: int | None
    max_ahead_bins: int
    zone: str | msgspec.UnsetType = msgspec.UNSET  # unset, it is not in the stored text

    @property
    def binning(self) -> Binning:
        return Binning(self.bin_us, self.timezone)

    @property
    def reading(self) -> str:
        """How an event's time is read, as the ledger names it: equal texts give an event one time."""
        zone = "" if self.zone is msgspec.UNSET else f" {self.zone}"
        return f"{self.field} {self.format}{zone}"

    @property
    def closing(self) -> Closing:
        return Closing(self.binning, self.grace_us)


class Privacy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The privacy guarantee.

    Args: private, False if epsilon is too large to protect anybody; delta, None for a pure promise;
        propose_caps, the part of epsilon for users by their numbers of events, None if nobody counts them.
    """

    epsilon: Fraction
    unit: Literal["event"] | PerUser
    neighbours: Neighbours
    private: bool
    delta: Fraction | None = None
    propose_caps: Fraction | None = None

    @property
    def per_user(self) -> PerUser | None:
        """The cap per user; None if the unit is the event."""
        return None if self.unit == "event" else self.unit

    @property
    def caps(self) -> Caps:
        return Caps(max_events=1) if self.unit == "event" else self.unit.caps

    @property
    def max_events(self) -> int:
        """The largest number of events of one unit that count in an epoch, under all caps."""
        return self.caps.l1


class Tree(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"questions": "workload"},
):
    """The tree over time; the planner chooses where a value is None.

    Args:
        questions: the workload as ``Workload.declared`` writes it.
        shares: the levels' shares of epsilon; the planner chooses them for "level" and None.
        epochs: for how many epochs the running count from the stream's start is planned; None: no levels
            over epochs.
    """

    questions: str | dict[str, str]
    release: Release
    branching: tuple[int, ...] | None
    shares: tuple[Fraction, ...] | Literal["level"] | None
    epochs: int | None = None

    @property
    def workload(self) -> Workload:
        return Workload.of(self.questions)


class Declaration(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename={"amounts": "sum"}
):
    """Everything that a stream promises. ``segments/`` says how it changes.

    Args:
        count: "users" if each user counts once per epoch (``max_events`` is then 1); None for events.
        successor_of: the stream that ends where this one begins, at ``time.first_us``; None: there is none.
    """

    source: Log
    time: Time
    privacy: Privacy
    tree: Tree
    late: LatePolicy
    keys: KeyList | None = None
    value: Buckets | None = None
    where: Condition | None = None
    count: Counted = None
    amounts: Amounts | None = None
    successor_of: str | None = None

    @classmethod
    def of(cls, plain: object) -> Declaration:
        """Return the declaration that ``plain`` wrote. Raises: ValueError, one line, for anything else."""
        try:
            return msgspec.convert(plain, cls, dec_hook=_fraction)
        except msgspec.ValidationError as refusal:
            line = f"its declaration is not known here ({refusal}); use the release that wrote it"
            raise ValueError(line) from None

    def plain(self) -> dict[str, object]:
        """Return JSON values; their canonical text is stored and hashed."""
        found: dict[str, object] = msgspec.to_builtins(self, enc_hook=str)
        return found

    @property
    def finds_keys(self) -> bool:
        """Whether keys are shown that no list names."""
        return self.keys is not None and self.keys.discover is not None

    @property
    def delta(self) -> Fraction | None:
        """The delta of an epoch, its counts and the names of its keys together; None for a pure promise."""
        names = self.keys.discover.delta if self.keys and self.keys.discover else None
        return self.privacy.delta or names

    @property
    def cells(self) -> Cells:
        return Cells(self.keys, self.value, self.amounts)

    @property
    def capped(self) -> PerUser | None:
        """The cap per user that the service applies; None if there is none, or an engine applies it."""
        return None if self.source.origins else self.privacy.per_user

    @property
    def bounds(self) -> Bounds | None:
        """The rules that decide which of a user's records count; None if nothing is capped here."""
        per_user, cells = self.capped, self.cells
        weight = cells.weight if self.amounts else None
        key_places = STEPS if self.finds_keys else cells.key_places
        users_at = None if self.privacy.propose_caps is None else cells.width
        given = key_places, weight, cells.places, self.finds_keys, users_at
        return None if per_user is None else Bounds(per_user.caps, *given)

    @property
    def windows_of(self) -> Axis | None:
        """The axis whose counts are released in tumbling windows; None if the stream has no windows."""
        return next((axis for axis in (self.value, self.keys) if axis and axis.mode == "window"), None)

    @property
    def cell_fields(self) -> tuple[str, ...]:
        """The fields, besides the time, that decide whether and in which cell an event counts."""
        axes, user = (self.keys, self.value, self.amounts), self.capped
        columns = (column for axis in axes if axis for column in axis.columns)
        others = (*((user.field,) if user else ()), *(self.where.fields if self.where else ()))
        return (*columns, *others, *(ROW_FIELDS if self.source.origins else ()))

    def row_rules(self, now_us: int) -> RowRules:
        """Return the conditions of this stream on rows of an engine. Args: now_us, the time."""
        user, time = self.privacy.per_user, self.time
        latest_us = now_us + time.max_ahead_bins * time.bin_us
        return RowRules(self.source.origins, user.caps.l1 if user else None, time.closing, latest_us)

    @property
    def until_us(self) -> int | None:
        """Where a replay ends; None for a live stream."""
        return None if self.source.replay is None else self.source.replay.to_us

    @property
    def last_bin(self) -> int | None:
        """The last bin of a replay; None for a stream without end."""
        return None if self.until_us is None else int(self.time.binning.bin_of([self.until_us - 1])[0])

    def cannot_succeed(self, name: str, before: Declaration) -> str | None:
        """Return why this stream cannot go on where another one ends, or None. Args: name, of the other."""
        if before.source.replay is not None:
            return f"{name} is a replay, which ends at replay.to; take it out"
        if before.source.name != self.source.name:
            return (
                f"{name} counts {before.source.name}, not {self.source.name}; give both one source, or, if "
                f"its topic has moved, write source.group: {before.source.name}"
            )
        if before.time.reading != self.time.reading:
            return (
                f"{name} reads its times from another field, in another format or in another zone; an event "
                "could then count in both; give both the same time.field, time.format and time.zone"
            )
        return None

    def at_epsilon(self, epsilon: Fraction) -> Declaration:
        """Return the same promise at another epsilon, for plans that nobody runs."""
        return structs.replace(self, privacy=structs.replace(self.privacy, epsilon=epsilon))

    def asked(self, epsilon: Fraction, release: Release) -> Asked:
        """Return the planner's arguments, with the given epsilon in place of the declared one."""
        return {
            "horizon": self.time.epoch_bins,
            "epsilon": epsilon,
            "workload": self.tree.workload,
            "release": release,
            "neighbours": self.privacy.neighbours,
            "max_events": self.privacy.max_events,
            "branching": self.tree.branching,
            "shares": self.tree.shares if isinstance(self.tree.shares, tuple) else None,
        }

    def first_bin(self, now_us: int) -> int:
        """Return the first bin of a stream that is opened now."""
        first_us = self.time.first_us
        return int(self.time.binning.bin_of([now_us if first_us is None else first_us])[0])

    @property
    def period(self) -> str | None:
        """The period of the unit and its time zone, if the unit is a user's hour, day or week; else None.

        A visitor of a site has another name on the next day, so the unit is always a day.
        """
        user, zone = self.privacy.per_user, self.time.timezone
        if user is None or user.per is None:
            return "1d" if self.are_visitors else None
        return user.per if zone is None else f"{user.per} {zone}"

    @property
    def are_visitors(self) -> bool:
        """Whether users are visitors of a site, who have another name on the next UTC day."""
        user = self.privacy.per_user
        return user is not None and user.field == VISITOR and self.source.is_of_web_server

    @property
    def period_bins(self) -> int:
        """The number of bins in a period of the unit; 0 if the unit has none."""
        user = self.privacy.per_user
        return PERIODS[user.per] // self.time.bin_us if user and user.per else 0

    @property
    def day_bins(self) -> int:
        """The bins of whole UTC days, where the epochs of visitors begin and end; 1 for other users."""
        user = self.privacy.per_user
        is_of_days = user is not None and user.field == VISITOR and self.time.timezone is None
        return lcm(DAY_US, self.time.bin_us) // self.time.bin_us if is_of_days else 1

    @property
    def end_step(self) -> int:
        """The bins by which, or by a multiple, an epoch may end sooner; windows count from its first bin."""
        window = self.windows_of
        return lcm(self.period_bins or 1, 1 if window is None else window.window_us // self.time.bin_us)

    def cap_windows(self, epoch: EpochRecord, horizon: int) -> CapWindows:
        """Return the cap windows. Args: any epoch of the stream; horizon of the tree, in bins."""
        if bins := self.period_bins:
            return CapWindows(bins - 1, bins, self.last_bin)
        return CapWindows(epoch.first_bin + epoch.bins - 1, horizon, self.last_bin)

    def epoch_bins(self, first_bin: int, before: EpochRecord | None, horizon: int) -> int:
        """Return the length in bins of an epoch, which ends where a cap window ends.

        An epoch over parts of two windows could count a user's events twice. If the windows are periods, the
        epoch touches as many of them as fit into the horizon; the first one may have begun before.
        Args: before, an earlier epoch of the stream, if any; horizon of the tree, in bins.
        """
        if self.period_bins:
            return horizon - first_bin % self.period_bins
        if before is None or (self.privacy.per_user is None and not self.finds_keys):
            return horizon
        return self.cap_windows(before, horizon).left(first_bin)

    def rules(
        self, epoch: EpochRecord, until_bin: int | None = None, *, late_to_next: bool = False
    ) -> BinRules:
        """Return the binning rules of an epoch. Args: until_bin, late_to_next, as in ``StreamState``."""
        first_bin = epoch.first_bin if epoch.counts_from_bin is None else epoch.counts_from_bin
        return BinRules(
            first_bin,
            self.time.max_ahead_bins,
            self.late,
            until_bin,
            begins_bin=None if self.successor_of is None else self.first_bin(0),
            late_to_next=late_to_next,
        )


def _fraction(kind: type[Fraction], text: object) -> Fraction:
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not the text of a number")
    return kind(text)
