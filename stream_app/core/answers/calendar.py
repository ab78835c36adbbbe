"""Steps of calendar days or months of a time zone over a stream's bins: exact, if they are edges of bins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np

from stream_app.core.answers.answered import QueryError
from stream_app.core.counting.bins import Binning
from stream_app.core.instants import format_instant
from stream_app.core.kinds.tables import Span

DAY_US = 86_400_000_000
MONDAY = 4  # the first one since 1970
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_1970 = date(1970, 1, 1)
_MONTHS = 12


def check_zone(name: str) -> str:
    """Return the name of a time zone. Raises: QueryError."""
    try:
        return ZoneInfo(name).key
    except (ValueError, KeyError, OSError):
        text = (
            f"timezone: {name[:80]!r} is not a time zone; write one of the tz database, such as Europe/Paris"
        )
        raise QueryError(text, "timezone") from None


@dataclass(frozen=True, slots=True)
class CalendarStep:
    """A number of calendar days or months of a time zone.

    A day has 23 to 25 hours where the clocks change. Weeks begin on Mondays unless another day is chosen.
    Three months begin in January, April, July and October, and twelve in January.

    Args: count, of days or months; weekday, on which groups of 7 days begin, 0 for Monday.

    >>> quarters = CalendarStep(3, "months", "Europe/Paris")
    >>> format_instant(quarters.start_us(quarters.group_of(1_400_000_000_000_000)))
    '2014-03-31T22:00:00Z'
    """

    count: int
    unit: Literal["days", "months"]
    zone: str
    weekday: int = 0

    def group_of(self, time_us: int) -> int:
        """Return the group that an instant is in: a number that grows by one from group to group."""
        [day] = Binning(DAY_US, self.zone).bin_of([time_us]).tolist()
        if self.unit == "days":
            return int(day - MONDAY - self.weekday) // self.count
        on = _1970 + timedelta(days=day)
        return (_MONTHS * on.year + on.month - 1) // self.count

    def start_us(self, group: int) -> int:
        """Return the first instant of a group."""
        day = group * self.count + MONDAY + self.weekday
        if self.unit == "months":
            year, month = divmod(group * self.count, _MONTHS)
            day = (date(year, month + 1, 1) - _1970).days
        return Binning(DAY_US, self.zone).start_us(day)

    def is_edge(self, time_us: int) -> bool:
        """Return whether a group begins at an instant."""
        return self.start_us(self.group_of(time_us)) == time_us

    def groups(self, binning: Binning, span: Span, most: int) -> list[Span]:
        """Return groups that cover a range of bins; the first and the last may be shorter.

        Args: most, the largest number of groups.
        Raises: QueryError if one begins inside a bin, or there are more groups.

        >>> day, hours = CalendarStep(1, "days", "America/New_York"), Binning(3_600_000_000)
        >>> [b - a for a, b in day.groups(hours, Span(380_086, 380_158), 9)]
        [6, 24, 24, 18]
        """
        start_us, stop_us = binning.start_us(span.start), binning.start_us(span.stop)
        begun = range(self.group_of(start_us) + 1, self.group_of(stop_us - 1) + 1)
        if len(begun) >= most:
            least = -(-(len(begun) + 1) * self.count // most)
            raise QueryError(
                f"{self.unit}: at most {most:,} groups of {self.unit}; write {least} or more", self.unit
            )
        starts = np.array([self.start_us(group) for group in begun], dtype=np.int64)
        bins = binning.bin_of(starts)
        for at_us, bin in zip(starts.tolist(), bins.tolist(), strict=True):
            if binning.start_us(bin) != at_us:
                raise QueryError(
                    f"timezone: a day of {self.zone} begins inside a bin, at {format_instant(at_us)}; "
                    "leave out timezone for days of UTC, or name a zone whose midnights are edges of bins",
                    "timezone",
                )
        inner = {bin for bin in bins.tolist() if span.start < bin < span.stop}
        return [Span(*edges) for edges in pairwise(sorted({span.start, *inner, span.stop}))]

    @property
    def text(self) -> str:
        """The length of a step, in words."""
        return f"{self.count} {self.unit}" if self.count > 1 else f"a {self.unit.removesuffix('s')}"

    def is_whole(self, binning: Binning, group: Span) -> bool:
        """Return whether a group of bins begins and ends where groups of the calendar do."""
        return self.is_edge(binning.start_us(group.start)) and self.is_edge(binning.start_us(group.stop))
