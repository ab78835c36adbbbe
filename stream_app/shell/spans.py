"""Ranges of time as terminal text: in UTC, or as calendar days of the stream's time zone."""

from __future__ import annotations

from datetime import date, timedelta

from stream_app.core.bins import Binning
from stream_app.core.instants import parse_instant

DAY_US = 86_400_000_000


def span_in_words(start: str, end: str, zone: str | None) -> str:
    """Return a range of bins as text; a range of days ends with the last day included.

    Args: start and end, RFC 3339, edges of bins; zone, of streams whose bins are its calendar days.

    >>> span_in_words("2013-03-28T23:00:00Z", "2013-04-03T22:00:00Z", "Europe/Paris")
    '29 Mar – 3 Apr 2013, whole days of Europe/Paris'
    >>> span_in_words("2013-03-28T23:00:00Z", "2013-03-29T00:00:00Z", None)
    'from 2013-03-28T23:00:00Z to 2013-03-29T00:00:00Z'
    """
    if zone is None:
        return f"from {start} to {end}"
    return f"{days_in_words(start, end, zone)}, whole days of {zone}"


def end_in_words(end: str, zone: str | None) -> str:
    """Return the end of a range as text.

    >>> end_in_words("2013-04-03T22:00:00Z", "Europe/Paris")
    'the end of 3 Apr 2013 (Europe/Paris)'
    """
    return end if zone is None else f"the end of {_written(_last_day(end, zone))} ({zone})"


def days_in_words(start: str, end: str, zone: str) -> str:
    """Return the calendar days between two midnights of a zone as text, the last day included.

    >>> days_in_words("2013-03-31T22:00:00Z", "2013-04-07T22:00:00Z", "Europe/Paris")
    '1–7 Apr 2013'
    """
    # A day that the zone skipped starts and ends at the same instant.
    last = _last_day(end, zone) if start != end else _day(end, zone) - timedelta(days=1)
    first = min(_day(start, zone), last)
    if first == last:
        return _written(last)
    if first.year != last.year:
        return f"{_written(first)} – {_written(last)}"
    if first.month != last.month:
        return f"{first.day} {first:%b} – {_written(last)}"
    return f"{first.day}–{_written(last)}"


def _written(day: date) -> str:
    return f"{day.day} {day:%b %Y}"


def _last_day(end: str, zone: str) -> date:
    return _day(end, zone, before_us=1)


def _day(instant: str, zone: str, before_us: int = 0) -> date:
    [day] = Binning(DAY_US, zone).bin_of([parse_instant(instant) - before_us]).tolist()
    return date(1970, 1, 1) + timedelta(days=day)
