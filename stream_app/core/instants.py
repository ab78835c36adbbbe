"""Instants as text, and the periods of a privacy unit in words, without floats.

Instants are integer microseconds since 1970 UTC. Periods are counted from 1970 on, in UTC or, for bins that
are calendar days, in the stream's time zone. A week is seven such days from a Thursday on, because 1970 began
with one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

_1970 = datetime(1970, 1, 1, tzinfo=UTC)
# The calendar has years 1 to 9999. A year or more from its ends, instants have whole bins in any time zone.
_FIRST_US = (datetime(2, 1, 1, tzinfo=UTC) - _1970) // timedelta(microseconds=1)
_LAST_US = (datetime(9999, 1, 1, tzinfo=UTC) - _1970) // timedelta(microseconds=1)
_SECONDS = re.compile(r"[+-]?\d{1,12}(\.\d{1,6})?", flags=re.ASCII)
_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", flags=re.ASCII
)

# The machine's own zone, names of no zone, and zones in which leap seconds shift the changes of clocks.
_NO_ZONE = re.compile(r"localtime|posixrules|Factory|right/.*", flags=re.DOTALL)

HOUR_US = 3_600_000_000
PERIODS = {"1h": HOUR_US, "1d": 24 * HOUR_US, "7d": 7 * 24 * HOUR_US}
_NAMES = {"1h": "hour", "1d": "day", "7d": "week from a Thursday on"}


def format_instant(us: int) -> str:
    """Return the RFC 3339 text of an instant, in UTC; the fraction is left out when it is zero.

    >>> format_instant(1_357_016_400_000_000), format_instant(1)
    ('2013-01-01T05:00:00Z', '1970-01-01T00:00:00.000001Z')
    """
    return (_1970 + timedelta(microseconds=us)).isoformat().replace("+00:00", "Z")


def parse_instant(text: str) -> int:
    """Return microseconds since 1970, from RFC 3339 text with an offset or from seconds since 1970.

    Raises: ValueError for anything else; a time without an offset is refused, never guessed.

    >>> parse_instant("2013-01-01T00:00:00-05:00") == parse_instant("1357016400") == 1357016400 * 10**6
    True
    """
    if _SECONDS.fullmatch(text):
        return _within_calendar(int(Decimal(text) * 1_000_000), text)
    # An unescaped "+" in a query string arrives as a space: "...00:00 02:00" can mean nothing else.
    repaired = re.sub(r" (\d\d:\d\d)$", r"+\1", text)
    if not _RFC_3339.fullmatch(repaired):
        raise ValueError(f"{text!r} is not a time; write RFC 3339 with an offset, or seconds since 1970")
    try:
        us = (datetime.fromisoformat(repaired.upper()) - _1970) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time of the calendar") from None
    return _within_calendar(us, text)


def zone_key(name: str) -> str:
    """Return the name of a time zone that is the same on each machine.

    Raises: ValueError, KeyError or OSError if it is none.
    """
    if _NO_ZONE.fullmatch(name):
        raise ValueError(name)
    return ZoneInfo(name).key


def _within_calendar(us: int, text: str) -> int:
    if not _FIRST_US <= us <= _LAST_US:
        raise ValueError(f"{text!r} is not a time of the calendar, years 2 to 9998")
    return us


def period_in_words(per: str) -> str:
    """Return a period in words, without an article. Args: per, a name of ``PERIODS``, and a time zone if any.

    >>> period_in_words("1d"), period_in_words("1h"), period_in_words("7d Europe/Paris")
    ('UTC day', 'UTC hour', 'week from a Thursday on in Europe/Paris')
    """
    name, _, zone = per.partition(" ")
    if zone:
        return f"{_NAMES[name]} in {zone}"
    return f"UTC {_NAMES[name]}"


def periods_in_words(per: str, number: int) -> str:
    """Return a number of periods in words.

    >>> periods_in_words("1d", 7), periods_in_words("1h Europe/Paris", 1)
    ('7 UTC days', '1 hour in Europe/Paris')
    """
    words = period_in_words(per)
    noun = _NAMES[per.partition(" ")[0]].split(" ")[0]
    return f"{number:,} {words if number == 1 else words.replace(noun, f'{noun}s', 1)}"
