"""Converts local times of a zone to microseconds since 1970, whole columns at a time.

A local time that the clocks show twice is read as the first of both. A local time that the clocks skip is
read as if they had not changed yet. Both are one rule: the offset from before the change (``fold=0``).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np

from dphist.arrays import Int64Array

_1970 = datetime(1970, 1, 1)  # noqa: DTZ001  # of any zone
_HOUR_US = 3_600_000_000
_FIRST_HOUR = (datetime(1, 1, 2) - _1970) // timedelta(hours=1)  # noqa: DTZ001
_LAST_HOUR = (datetime(9999, 12, 30) - _1970) // timedelta(hours=1)  # noqa: DTZ001


def since_1970(local_us: Int64Array, zone: str) -> Int64Array:
    """Return the instants of local times, by the rule above. It depends on each time alone.

    Args: local_us, the time on clocks of the zone, as microseconds since their 1970.
    Cost: one look-up per different hour; in hours with a change one per time.

    >>> since_1970(np.array([1_774_141_200_000_000]), "Europe/Paris").tolist()
    [1774137600000000]
    """
    hours, places = np.unique(local_us // _HOUR_US, return_inverse=True)
    offsets = [_of_hour(zone, hour) for hour in hours.tolist()]
    found = local_us - np.array([offset or 0 for offset in offsets], dtype=np.int64)[places]
    changing = np.array([offset is None for offset in offsets], dtype=np.bool_)[places]
    for row in np.flatnonzero(changing).tolist():
        found[row] = local_us[row] - _offset_us(zone, int(local_us[row]))
    return found


@lru_cache(maxsize=1 << 14)
def _of_hour(zone: str, hour: int) -> int | None:
    """Return the offset of all local times of an hour, in microseconds; None if the hour has a change."""
    if not _FIRST_HOUR <= hour <= _LAST_HOUR:
        return 0  # outside the calendar that is counted
    first, last = (_offset_us(zone, us) for us in (hour * _HOUR_US, (hour + 1) * _HOUR_US - 1))
    return first if first == last else None


def _offset_us(zone: str, local_us: int) -> int:
    moment = (_1970 + timedelta(microseconds=local_us)).replace(tzinfo=ZoneInfo(zone))
    offset = moment.utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)
