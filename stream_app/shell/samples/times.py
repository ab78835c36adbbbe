"""Whether a sample's times are read in the right unit, lie where the stream counts, and fit its grace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import BoolArray, Int64Array
from stream_app.config import StreamSettings
from stream_app.config.settings import DAY_US
from stream_app.config.values import format_duration
from stream_app.core.instants import format_instant, parse_instant
from stream_app.ports import OperatorError
from stream_app.shell.samples.fields import CHOOSING_IT
from stream_app.sources.times import TimeFormat
from stream_app.wiring.checks import Finding, State

# Returns the times of a sample if they are read in a format, in microseconds, without those that are none.
Reading = Callable[[TimeFormat], Int64Array]

_MOST = 0.9  # of the sample must be times that are read as plausible
_EARLIEST_US = parse_instant("1990-01-01T00:00:00Z")
_AHEAD_US = 10 * 365 * 86_400_000_000
_US: Final = {"s": 1_000_000.0, "ms": 1_000.0, "us": 1.0, "ns": 0.001}  # microseconds of one unit
_FORMATS: Final[tuple[TimeFormat, ...]] = ("s", "ms", "us", "ns", "iso8601")
_FIELD_OF_TOPIC = "@timestamp"
LOST = 0.001  # the share of late events that a good grace leaves
LEAST_EVENTS = 100  # with fewer, a share of late events says nothing
_AROUND = 2  # events before and after an event that must also be as new before the log is taken to be
_SECONDS = (1, 2, 5, 10, 15, 20, 30, 45)
_ROUND_US = [
    *(second * 1_000_000 for second in _SECONDS),
    *(minute * 60_000_000 for minute in (*_SECONDS, 60, 90, 120, 180, 240, 360, 480, 720)),
]


def time_findings(stream: StreamSettings, events: int, read: Reading) -> Iterator[Finding]:
    """Yield a finding if the times of a sample are implausible, and another format makes them plausible.

    Numbers of events are not said, and times only roughly. Args: events of the sample, also refused ones.
    """
    declared, what = stream.declared.time, f"streams.{stream.name}.time.format"
    if not events or declared.field == _FIELD_OF_TOPIC:
        return
    times_us = read(declared.format)
    if not _is_plausible(stream, times_us, events):
        for other in _FORMATS:
            found_us = _tried(read, other) if other != declared.format else times_us[:0]
            if _is_plausible(stream, found_us, events):
                said = _both_readings(declared.format, other, float(np.median(found_us)))
                meant = f"did you mean {other}?"
                some_count = bool(_plausible(stream, times_us).any())
                state: State = "warn" if some_count else "fail"
                which = "many" if some_count else "the"
                public = f"{which} times of a sample are implausible when read as {declared.format}; {meant}"
                yield Finding(what, state, f"{said}; {meant}", exact=True, public=public)
                return
    yield from _outside_replay(stream, times_us)


def first_findings(stream: StreamSettings, newest_us: Int64Array) -> Iterator[Finding]:
    """Yield a warning if all of the newest events lie before the instant where a stream begins."""
    first_us = stream.declared.time.first_us
    if first_us is None or stream.declared.source.replay is not None or not len(newest_us):
        return
    if (newest_us < first_us).all():
        said = f"every event of a sample is before {format_instant(first_us)} and would be refused"
        remedy = "correct time.first, unless only later events are to count"
        yield Finding(f"streams.{stream.name}.time.first", "warn", f"{said}; {remedy}")


def _outside_replay(stream: StreamSettings, times_us: Int64Array) -> Iterator[Finding]:
    replay = stream.declared.source.replay
    if replay is None or not len(times_us):
        return
    if ((times_us < replay.from_us) | (times_us >= replay.to_us)).all():
        said = f"no event of a sample is in this range; the sample is of about {_day(np.median(times_us))}"
        what = f"streams.{stream.name}.source.replay"
        yield Finding(what, "warn", f"{said}: correct from and to", exact=True)


def _tried(read: Reading, other: TimeFormat) -> Int64Array:
    try:
        return read(other)
    except (OperatorError, OSError):
        return np.empty(0, np.int64)


def _is_plausible(stream: StreamSettings, times_us: Int64Array, events: int) -> bool:
    """Return whether most of a sample has times of our days, or of the range that is replayed."""
    if len(times_us) < _MOST * events:
        return False
    return bool(_plausible(stream, [np.median(times_us)]).all())


def _plausible(stream: StreamSettings, at_us: ArrayLike) -> BoolArray:
    """Return which times are of our days, or of the range that is replayed."""
    times_us, replay = np.asarray(at_us), stream.declared.source.replay
    found = (times_us >= _EARLIEST_US) & (times_us < time.time() * 1e6 + _AHEAD_US)
    if replay is not None:
        found |= (times_us >= replay.from_us) & (times_us < replay.to_us)
    return found


def _both_readings(declared: TimeFormat, likely: TimeFormat, middle_us: float) -> str:
    """Return in which month the two formats read the middle one of the times.

    >>> _both_readings("ms", "s", 1_712_345_678e6)
    'its times have 10 digits: they are of 1970-01 when read as ms, and of 2024-04 when read as s'
    >>> _both_readings("s", "ms", 1_712_345_678e6)
    'its times have 13 digits: they cannot be read as s, and are of 2024-04 when read as ms'
    >>> _both_readings("ms", "iso8601", 1_712_345_678e6)
    'its times cannot be read as ms, and are of 2024-04 when read as iso8601'
    """
    then = f"of {_month(middle_us)} when read as {likely}"
    if likely == "iso8601":
        return f"its times cannot be read as {declared}, and are {then}"
    number = middle_us / _US[likely]
    such = f"its times have {len(f'{abs(number):.0f}')} digits: they"
    misread = None if declared == "iso8601" else _month(number * _US[declared])
    if misread is None:
        return f"{such} cannot be read as {declared}, and are {then}"
    return f"{such} are of {misread} when read as {declared}, and {then}"


def _month(at_us: float) -> str | None:
    """Return the month of an instant; None outside the calendar."""
    day = _day(at_us)
    return None if day is None else day[:7]


def _day(at_us: float) -> str | None:
    """Return the day of an instant; None outside the calendar."""
    try:
        return format_instant(int(at_us))[:10]
    except (ValueError, OverflowError):
        return None


def grace_findings(stream: StreamSettings, times_us: Int64Array, arrived_us: Int64Array) -> Iterator[Finding]:
    """Yield how many events of a sample would be late, and which grace would lose almost none.

    A finished file that is replayed is sorted first, so none of its events is late.
    Args: the events' own times, and about when they arrived, in order of arrival, shape (n,).
    """
    time, what = stream.declared.time, f"streams.{stream.name}.time.grace"
    if stream.declared.source.replay is not None or len(times_us) < LEAST_EVENTS:
        return
    # How long after the end of its bin each event arrived; with a shorter grace it is late.
    bins, of = np.unique(time.binning.bin_of(times_us), return_inverse=True)
    ends = np.array([time.binning.end_us(bin) for bin in bins.tolist()], dtype=np.int64)
    needed = np.asarray(arrived_us - ends[of])
    late = int((needed >= time.grace_us).sum())
    said = f"with {format_duration(time.grace_us)}, {late:,} of {len(needed):,} events of a sample "
    said += f"would be late ({late / len(needed):.1%})"
    if late <= LOST * len(needed):
        yield Finding(what, "ok", said, exact=True)
    elif late <= len(needed) / 2 or enough_us(needed) <= DAY_US:
        enough = f"{format_duration(enough_us(needed))} would lose fewer than {LOST:.1%}"
        yield Finding(what, "warn", f"{said}; {enough}. {CHOOSING_IT}", exact=True)
    elif time.first_us is None:
        remedy = "most happened long before they arrived: set time.first to count the past"
        yield Finding(what, "warn", f"{said}; {remedy}, or correct time.field and time.format", exact=True)


def enough_us(needed: Int64Array) -> int:
    """Return a round grace with which fewer than ``LOST`` of the events are late.

    >>> enough_us(np.arange(1_000, 8_000_000, 1_000))
    10000000
    """
    lost = max(int(np.ceil(LOST * len(needed))) - 1, 0)
    least = int(np.sort(needed)[len(needed) - 1 - lost]) + 1
    found = next((grace for grace in _ROUND_US if grace >= least), None)
    return found or -(-least // DAY_US) * DAY_US


def arrivals_in_file(times_us: Int64Array) -> Int64Array:
    """Return the estimated arrival of each event of a file: the latest time of the events before it.

    A single event from the future must not make all others look late. So an event moves the clock only as far
    as most of its neighbours agree.
    """
    width = 2 * _AROUND + 1
    if len(times_us) < width:
        return np.maximum.accumulate(times_us)
    padded = np.pad(times_us, _AROUND, mode="reflect")
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1).astype(np.int64)
    return np.asarray(np.maximum.accumulate(middle))
