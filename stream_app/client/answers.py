"""The client's answers: numbers with their errors, series of them, releases, and alert rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stream_app.client.columns import Answered, FloatArray, Framed, Gap, TimeArray


@dataclass(frozen=True, slots=True)
class _Estimate(Answered):
    """An unbiased estimate for the bins from ``start`` to ``end`` (RFC 3339), with its interval."""

    value: float
    stderr: float
    lower: float
    upper: float
    confidence: float
    start: str
    end: str
    released_until: str | None
    seq: int
    private: bool
    counted: str = "events"
    meaning: str = ""
    intervals: str = ""
    unmeasured: tuple[Gap, ...] = ()


class Count(_Estimate):
    """The best current estimate of the events in the bins from ``start`` to ``end`` (RFC 3339).

    ``counted`` is the unit of the numbers, for example "users first seen in this range, once in each of its
    3 epochs". ``unmeasured`` names the parts of the range that no epoch measured: the numbers are of the
    other bins. ``meaning`` says what the stream counts, and ``intervals`` what its intervals are for; both
    are empty if the service is too old to say so. All other answers have these two as well.
    Guarantee: ``value`` is unbiased; [lower, upper] holds the true number with at least ``confidence``.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Summary(Answered):
    """A stream in short: what it counts and how much so far.

    Args: running, from the stream's start; None before the first release. this_epoch, the users first seen in
        the last epoch with a release; None for streams of events. next_release, when the next bin of a live
        stream becomes visible if no worker is late; ends, where the stream ends, or None. generation, from
        1, a new one for each change of settings; changes, a sentence on the differences from the one before.
        caps, proposed by the service if it counts users by their numbers of events, as the API has them. The
        rest as of a ``Count``.
    """

    stream: str
    source: str
    epsilon: str
    bin: str
    timezone: str | None
    start: str
    released_until: str | None
    seq: int
    private: bool
    running: Count | None
    this_epoch: Count | None
    counted: str = ""
    meaning: str = ""
    intervals: str = ""
    unmeasured: tuple[Gap, ...] = ()
    title: str = ""
    next_release: str | None = None
    ends: str | None = None
    generation: int = 1
    changes: str = ""
    caps: dict[str, Any] | None = None

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Summary:
        """Read the service's answer."""
        whole = {"end": answer["released_until"]}
        epoch = answer.get("this_epoch")
        parts = {"running": answer["running"], "this_epoch": epoch and epoch | {"unmeasured": ()}}
        counts = {name: part and Count.of(answer | whole | part) for name, part in parts.items()}
        return cls.taken(answer, **counts)


class Total(_Estimate):
    """The sum of the amounts in the bins from ``start`` to ``end``, each clamped to the declared range.

    ``counted``, ``meaning``, ``intervals`` and ``unmeasured`` are as of a ``Count``.

    Guarantee: ``value`` is unbiased; [lower, upper] holds the true sum with at least ``confidence``.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Mean(Answered):
    """The mean of the amounts in the bins from ``start`` to ``end``, each clamped to the declared range.

    ``counted``, ``meaning``, ``intervals`` and ``unmeasured`` are as of a ``Count``.

    Guarantee: [lower, upper] holds the true mean with at least ``confidence``. ``value`` is None if the
        estimated count is not above 0.
    """

    value: float | None
    lower: float
    upper: float
    confidence: float
    start: str
    end: str
    released_until: str | None
    seq: int
    private: bool
    counted: str = ""
    meaning: str = ""
    intervals: str = ""
    unmeasured: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Series(Framed):
    """Columns of equal length, shape (points,): the range that each point counts, its value and its error.

    ``start`` and ``end`` are datetime64[us] in UTC. Each interval holds for its own point with at least
    ``confidence``, not for the worst of many. ``counted`` is the unit of sums
    and means. A mean has no ``stderr`` (NaN), and no ``value`` (NaN) where the estimated count is not above
    0.
    """

    start: TimeArray
    end: TimeArray
    value: FloatArray
    stderr: FloatArray
    lower: FloatArray
    upper: FloatArray
    confidence: float
    downsampled: bool
    note: str
    counted: str = ""

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Series:
        """Read the service's answer."""
        stderr = answer.get("stderr", [None] * len(answer["value"]))
        return cls.taken(answer | {"stderr": stderr})


@dataclass(frozen=True, slots=True)
class Release:
    """One released bin, exactly as the service sent it.

    ``value`` and its interval are the running count as first published, over all cells of the bin; the
    interval is None for a bin of several cells, whose errors the row gives one by one. ``private`` is the
    service's last statement about the source, as in every answer. ``row`` is the parsed message; its
    ``not_private`` is the stream's own setting. ``counted`` says since when users are counted. ``total`` and
    its interval are the running sum of the stream's amounts since the start of its epoch, and ``added`` says
    of what; None for a stream without a sum, and in rows of older versions. ``generation`` says since which
    change of the stream's settings ``seq`` counts; the first is 1.
    """

    seq: int
    start: str
    end: str
    value: float
    interval: tuple[float, float] | None
    private: bool
    row: dict[str, Any]
    meaning: str = ""
    counted: str = ""
    total: float | None = None
    total_interval: tuple[float, float] | None = None
    added: str = ""
    generation: int = 1

    @property
    def id(self) -> str:
        """What ``follow`` takes as ``after``, to go on after this release."""
        return str(self.seq) if self.generation == 1 else f"{self.generation}:{self.seq}"

    @classmethod
    def of(cls, row: dict[str, Any], private: bool | None = None, generation: int = 1) -> Release:
        """Read one row. Args: private, the service's latest statement; None: use the row's own."""
        own = not row["not_private"] if "not_private" in row else bool(row["private"])  # older rows
        intervals, summed = row["interval"], row.get("sum")
        return cls(
            seq=row["seq"],
            start=row["start"],
            end=row["end"],
            value=float(sum(row["estimate"])),
            interval=(intervals[0][0], intervals[0][1]) if len(intervals) == 1 else None,
            private=own and private is not False,
            row=row,
            meaning=row.get("meaning", ""),
            counted=row.get("counted", ""),
            total=summed and summed["estimate"],
            total_interval=summed and (summed["interval"][0], summed["interval"][1]),
            added=summed["counted"] if summed else "",
            generation=generation,
        )


@dataclass(frozen=True, slots=True)
class AlertRule(Answered):
    """An alert rule: its state, its last change, and what it reads now.

    Args: phase, "inactive", "pending" or "firing"; since, when the condition began to hold; changed, when the
        phase last changed, None for never; fires, when a pending rule fires if its condition holds until
        then; watched, since when the rule is watched, None if not known; value
        and stderr, the estimate at the last change; value_now and stderr_now, at the last release, None where
        there is none; against and against_now, the estimate of the past that the value is compared with,
        times the factor; missing_now, why the rule cannot be decided now; quiet, when it does not fire; unit,
        of a rate; meaning, the unit of values, empty if every event counts; refused, the targets that refused
        its last notification. Instants are RFC 3339.
    """

    rule: str
    stream: str
    condition: str
    phase: str
    confidence: float
    since: str
    changed: str | None
    value: float | None
    stderr: float | None
    summary: str
    private: bool
    # An older service does not say these.
    watched: str | None = None
    value_now: float | None = None
    stderr_now: float | None = None
    unit: str = ""
    meaning: str = ""
    refused: list[str] = field(default_factory=list)
    against: float | None = None
    against_now: float | None = None
    missing_now: str = ""
    quiet: str = ""
    fires: str | None = None
