"""Whether ``time.grace`` is long enough for the disorder of a sample. For the operator only."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dphist.arrays import Int64Array
from stream_app.config import StreamSettings
from stream_app.config.settings import DAY_US
from stream_app.config.values import format_duration
from stream_app.wiring.checks import Finding

LOST = 0.001  # the share of late events that a good grace leaves
LEAST_EVENTS = 100  # with fewer, a share of late events says nothing
_AROUND = 2  # events before and after an event that must also be as new before the log is taken to be
_SECONDS = (1, 2, 5, 10, 15, 20, 30, 45)
_ROUND_US = [
    *(second * 1_000_000 for second in _SECONDS),
    *(minute * 60_000_000 for minute in (*_SECONDS, 60, 90, 120, 180, 240, 360, 480, 720)),
]


def grace_findings(stream: StreamSettings, times_us: Int64Array, arrived_us: Int64Array) -> Iterator[Finding]:
    """Yield how many events of a sample would be late, and which grace would lose almost none.

    A finished file that is replayed is sorted first, so none of its events is late.
    Args: the events' own times, and about when they arrived, in order of arrival, shape (n,).
    """
    time, what = stream.declared.time, f"streams.{stream.name}.time.grace"
    if stream.declared.source.replay is not None or len(times_us) < LEAST_EVENTS:
        return
    needed = needed_us(stream, times_us, arrived_us)
    late = int((needed >= time.grace_us).sum())
    said = f"with {format_duration(time.grace_us)}, {late:,} of {len(needed):,} events of a sample "
    said += f"would be late ({late / len(needed):.1%})"
    if late <= LOST * len(needed):
        yield Finding(what, "ok", said, exact=True)
    elif late <= len(needed) / 2 or enough_us(needed) <= DAY_US:
        yield Finding(what, "warn", f"{said}; {_longer(enough_us(needed))}", exact=True)
    elif time.first_us is None:
        remedy = "most happened long before they arrived: set time.first to count the past"
        yield Finding(what, "warn", f"{said}; {remedy}, or correct time.field and time.format", exact=True)


def _longer(grace_us: int) -> str:
    cost = "the number is public and tells something about the events, and epsilon does not cover that"
    enough = f"{format_duration(grace_us)} would lose fewer than {LOST:.1%}"
    return f"{enough}. Choosing it by the events has a cost: {cost}"


def needed_us(stream: StreamSettings, times_us: Int64Array, arrived_us: Int64Array) -> Int64Array:
    """Return how long after the end of its bin each event arrived; with a shorter grace it is late."""
    binning = stream.declared.time.binning
    bins, of = np.unique(binning.bin_of(times_us), return_inverse=True)
    ends = np.array([binning.end_us(bin) for bin in bins.tolist()], dtype=np.int64)
    return np.asarray(arrived_us - ends[of])


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
