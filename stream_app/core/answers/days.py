"""Which days of a stream are whole: every bin that begins in them is released, so they never change.

A day is one of the bins' time zone, or of UTC. All of it follows from public facts.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import NamedTuple

from stream_app.core.answers.visible import visible_bins
from stream_app.core.counting.bins import Binning
from stream_app.core.declaration import Declaration
from stream_app.core.records import EpochRecord, PublicState
from stream_app.core.segments.endings import ENDED

_1970 = date(1970, 1, 1)
_DAY_US = 86_400_000_000


class DayPart(NamedTuple):
    """The bins of a day that one epoch has measured: from ``first`` up to ``stop``, absolute."""

    epoch: EpochRecord
    first: int
    stop: int

    @property
    def last_seq(self) -> int:
        """The seq of the last bin."""
        return self.epoch.first_seq + self.stop - 1 - self.epoch.first_bin


def whole_days(declared: Declaration, state: PublicState) -> dict[str, list[DayPart]]:
    """Return the measured parts of each whole day, by the day as ISO 8601 writes it, in order.

    The last day of a stream that has ended is whole. A day of which retention has removed a part is not.
    """
    binning, days, next_bin = declared.time.binning, dict[int, list[DayPart]](), 0
    for epoch in state.epochs:
        first, next_bin = epoch.first_bin, epoch.first_bin + visible_bins(epoch, state.visible_seq)
        while first < next_bin:
            day = _day_of(binning, first)
            stop = min(next_bin, _first_bin_from(binning, day + 1))
            days.setdefault(day, []).append(DayPart(epoch, first, stop))
            first = stop
    if state.trimmed:
        days.pop(_day_of(binning, state.trimmed.bin), None)
    if not _has_ended(declared, state, next_bin):
        days.pop(_day_of(binning, next_bin), None)
    return {(_1970 + timedelta(days=day)).isoformat(): parts for day, parts in days.items()}


def _has_ended(declared: Declaration, state: PublicState, next_bin: int) -> bool:
    until_us = declared.until_us
    reached = until_us is not None and declared.time.binning.start_us(next_bin) >= until_us
    ended = any(epoch.end_reason == ENDED for epoch in state.epochs[-1:])
    return reached or ended or state.history is not None


def _day_of(binning: Binning, bin: int) -> int:
    """Return the day in which a bin begins, in days since 1970. A bin of a time zone is a day."""
    return bin if binning.timezone else binning.start_us(bin) // _DAY_US


def _first_bin_from(binning: Binning, day: int) -> int:
    """Return the first bin that begins on a day or after it."""
    return day if binning.timezone else -(-day * _DAY_US // binning.bin_us)
