"""Times as web servers write them, ``10/Oct/2000:13:55:36 -0700``, whole columns at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone

import numpy as np

from dphist.arrays import Int64Array
from stream_app.sources.times import Bools

_LENGTH = 26
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY = re.compile(rb"(\d\d)/([A-Z][a-z]{2})/(\d{4}): ([+-])(\d\d)(\d\d)")
_NONE = np.iinfo(np.int64).min


def local_times_us(texts: Sequence[bytes]) -> tuple[Int64Array, Bools]:
    """Return the times in microseconds since 1970, 0 for invalid ones, and which of the texts are valid.

    >>> local_times_us([b"10/Oct/2000:13:55:36 -0700", b"1/Oct/2000"])[0].tolist()
    [971211336000000, 0]
    """
    whole = [text if len(text) == _LENGTH else b"" for text in texts]
    days: dict[bytes, int] = {day: _start_s(day) for day in {text[:12] + text[20:] for text in whole}}
    starts = np.fromiter((days[text[:12] + text[20:]] for text in whole), np.int64, len(whole))
    letters = np.array(whole, f"S{_LENGTH}").view(np.uint8).reshape(-1, _LENGTH).astype(np.int64)
    digits = letters[:, [12, 13, 15, 16, 18, 19]] - ord("0")
    hours, minutes, seconds = (digits[:, at] * 10 + digits[:, at + 1] for at in (0, 2, 4))
    good = ((digits >= 0) & (digits <= 9)).all(axis=1) & (letters[:, [14, 17]] == ord(":")).all(axis=1)
    good &= (starts != _NONE) & (hours < 24) & (minutes < 60) & (seconds <= 60)
    # A 60th second is read as the second before it, as in all other times.
    at_s = np.where(good, starts, 0) + hours * 3600 + minutes * 60 + np.minimum(seconds, 59)
    return np.where(good, at_s * 1_000_000, 0), good


def _start_s(day: bytes) -> int:
    """Return when a day begins at an offset, in seconds since 1970. Args: day, ``10/Oct/2000: -0700``."""
    found = _DAY.fullmatch(day)
    if found is None or (month := found[2].decode()) not in _MONTHS:
        return int(_NONE)
    sign = -1 if found[4] == b"-" else 1
    offset = sign * timedelta(hours=int(found[5]), minutes=int(found[6]))
    try:
        start = datetime(int(found[3]), _MONTHS.index(month) + 1, int(found[1]), tzinfo=timezone(offset))
    except ValueError:  # the 31st of February, or an offset of more than a day
        return int(_NONE)
    if not 1 < start.year < 9999:  # every time has whole bins around it in every zone
        return int(_NONE)
    return int(start.astimezone(UTC).timestamp())
