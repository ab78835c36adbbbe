"""The period of a privacy unit that is all events of one user within an hour, a day or a week.

Periods are counted from 1970 on, in UTC or, for bins that are calendar days, in the stream's time zone. A
week is seven such days from a Thursday on, because 1970 began with one.
"""

from __future__ import annotations

HOUR_US = 3_600_000_000
PERIODS = {"1h": HOUR_US, "1d": 24 * HOUR_US, "7d": 7 * 24 * HOUR_US}
_NAMES = {"1h": "hour", "1d": "day", "7d": "week from a Thursday on"}


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
