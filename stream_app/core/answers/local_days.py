"""Calendar days of a time zone over a stream's bins: exact, if every midnight is the edge of a bin."""

from __future__ import annotations

from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np

from stream_app.core.answers.answered import QueryError
from stream_app.core.counting.bins import Binning
from stream_app.core.instants import format_instant
from stream_app.core.kinds.tables import Span

DAY_US = 86_400_000_000
_MONDAY = 4  # the first one since 1970; groups of 7 days begin on Mondays


def check_zone(name: str) -> str:
    """Return the name of a time zone. Raises: QueryError."""
    try:
        return ZoneInfo(name).key
    except (ValueError, KeyError, OSError):
        text = (
            f"timezone: {name[:80]!r} is not a time zone; write one of the tz database, such as Europe/Paris"
        )
        raise QueryError(text, "timezone") from None


def groups_of_days(binning: Binning, span: Span, days: int, zone: str, most: int) -> list[Span]:
    """Return groups of calendar days that cover a range; the first and the last may be shorter.

    A day has 23 to 25 hours where the clocks change. Groups of 7 days begin on Mondays.

    Args: zone, the time zone of the days; most, the largest number of groups.
    Raises: QueryError if a midnight is inside a bin, or there are more groups.

    >>> hours = Binning(3_600_000_000)
    >>> [b - a for a, b in groups_of_days(hours, Span(380_086, 380_158), 1, "America/New_York", 9)]
    [6, 24, 24, 18]
    """
    calendar = Binning(DAY_US, check_zone(zone))
    ends_us = [binning.start_us(span.start), binning.start_us(span.stop)]
    first, last = calendar.bin_of(ends_us).tolist()
    begun = range(first + (_MONDAY - first) % days, last + 1, days)
    if len(begun) > most:
        least = -(-(last - first + 1) // most)
        raise QueryError(f"days: at most {most:,} groups of days; write {least} or more", "days")
    midnights = np.array([calendar.start_us(day) for day in begun], dtype=np.int64)
    bins = binning.bin_of(midnights)
    for midnight_us, bin in zip(midnights.tolist(), bins.tolist(), strict=True):
        if binning.start_us(bin) != midnight_us:
            raise QueryError(
                f"timezone: a day of {zone} begins inside a bin, at {format_instant(midnight_us)}; "
                "leave out timezone for days of UTC, or name a zone whose midnights are edges of bins",
                "timezone",
            )
    inner = {bin for bin in bins.tolist() if span.start < bin < span.stop}
    return [Span(*edges) for edges in pairwise(sorted({span.start, *inner, span.stop}))]


def whole_groups(binning: Binning, groups: list[Span], days: int, zone: str) -> list[Span]:
    """Return the groups without a first and a last one that the range cuts off."""
    calendar = Binning(DAY_US, zone)

    def is_edge(bin: int) -> bool:
        at_us = binning.start_us(bin)
        [day] = calendar.bin_of([at_us]).tolist()
        return calendar.start_us(day) == at_us and (day - _MONDAY) % days == 0

    return [one for one in groups if is_edge(one.start) and is_edge(one.stop)]
