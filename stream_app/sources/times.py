"""Converts written event times to integer microseconds since 1970, whole columns at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from stream_app.core.counting.read_values import number_in
from stream_app.core.incoming import Reason

TimeFormat = Literal["s", "ms", "us", "ns", "iso8601"]
Bools = NDArray[np.bool_]

# The calendar, less two days at either end so that every time has whole bins around it in every zone.
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_US = (datetime(1, 1, 3, tzinfo=UTC) - _1970) // _MICROSECOND
_LAST_US = (datetime(9999, 12, 29, tzinfo=UTC) - _1970) // _MICROSECOND

_TICKS_PER_US = {"s": (1, 1_000_000), "ms": (1, 1_000), "us": (1, 1), "ns": (1_000, 1)}  # divide, multiply
_LONGEST_TEXT = 40
# Lengths of the common forms of RFC 3339, and how many digits of a second's fraction they have.
_ZULU_FRACTION_DIGITS = {20: 0, 24: 3, 27: 6}
_OFFSET_LENGTH = 25
_LOCAL_FRACTION_DIGITS = {19: 0, 23: 3, 26: 6}  # without an offset; T or a space before the time of day
_SHAPE = "dddd-dd-ddTdd:dd:dd"
_LONGEST_WRITTEN = 100
# A calendar day, a day of the year, or a day of an ISO week. The forms with and without hyphens may be mixed
# only between day and time of day. A fraction is one of the last unit that is written.
_WRITTEN = re.compile(
    r"""(?P<year>\d{4})
        (?: (-?)(?P<month>\d\d)\2(?P<day>\d\d)
        |   -?(?P<day_of_year>\d{3})
        |   (-?)W(?P<week>\d\d)(?:\6(?P<weekday>\d))? )
        (?: [T ](?P<hour>\d\d)(?: (:?)(?P<minute>\d\d)(?: \10(?P<second>\d\d))?)? (?: [.,](?P<fraction>\d+))?
            (?: \ *(?P<offset>Z | UTC | GMT | (?P<sign>[-+\u2212])
                (?P<hours>[01]\d|2[0-3])(?: :?(?P<minutes>[0-5]\d)(?: :?(?P<seconds>[0-5]\d))?)?
                # What Go writes behind the offset: the zone's abbreviation and a monotonic clock.
                (?: \ (?:[A-Z]{2,5}|[-+]\d\d(?:\d\d)?))?(?: \ m=[-+]\d+\.\d+)? ))?
        )?
        (?: \[[!-Z^-~]+\] )*""",
    re.VERBOSE | re.ASCII | re.IGNORECASE,
)
_DAY_US = 86_400_000_000
_LOCAL_1970 = datetime(1970, 1, 1)  # noqa: DTZ001  # of any zone
_HOUR_US = 3_600_000_000
_FIRST_HOUR = (datetime(1, 1, 2) - _LOCAL_1970) // timedelta(hours=1)  # noqa: DTZ001
_LAST_HOUR = (datetime(9999, 12, 30) - _LOCAL_1970) // timedelta(hours=1)  # noqa: DTZ001


def times_us(values: Sequence[Any], format: TimeFormat, zone: str | None = None) -> tuple[Int64Array, Bools]:
    """Return the times, and which of the values are valid times.

    Args: values, as read: texts for iso8601, else numbers or their texts; zone, of texts without an offset
        (``_since_1970``); None: such texts are no valid times.
    Returns: microseconds since 1970, shape (n,), 0 for invalid times; ns are rounded down.

    >>> times_us([1.5, 2], "s")[0].tolist()
    [1500000, 2000000]
    >>> [column.tolist() for column in times_us(["1970-01-01T00:00:01+00:00", "1970-01-01"], "iso8601")]
    [[1000000, 0], [True, False]]
    >>> times_us(["1970-01-01 01:00:01"], "iso8601", "Europe/Paris")[0].tolist()
    [1000000]
    >>> times_us(["1772323200000", " 1e3 ", True], "ms")[0].tolist()
    [1772323200000000, 1000000, 0]
    """
    if format == "iso8601":
        try:
            times = _from_texts(values, zone)
        except (TypeError, AttributeError):  # some are no texts
            times = _from_texts([value if type(value) is str else "" for value in values], zone)
    else:
        times = _from_numbers(values, *_TICKS_PER_US[format])
    good = (times >= _FIRST_US) & (times <= _LAST_US)
    return np.where(good, times, 0), good


_NONE = np.iinfo(np.int64).min  # outside the calendar: not a time


def why_no_time(value: Any, format: TimeFormat, zone: str | None) -> Reason:
    """Return why a value is no valid time. Args: as of ``times_us``.

    >>> [str(why_no_time(value, "iso8601", None)) for value in (None, "2026-03-01 00:30:00", "today")]
    ['null', 'local_time', 'bad_time']
    """
    if value is None:
        return Reason.NULL
    if isinstance(value, Reason):
        return value
    if format == "iso8601" and not zone and type(value) is str and _from_any_form(value, "UTC")[1]:
        return Reason.LOCAL_TIME
    return Reason.BAD_TIME


def _from_numbers(values: Sequence[Any], divide: int, multiply: int) -> Int64Array:
    kinds = set(map(type, values))
    if kinds == {float}:
        return _from_floats(values, divide, multiply)
    if kinds == {int}:
        return _from_integers(values, divide, multiply)
    # Each type by itself, or a float neighbour would cause an integer to be rounded.
    read: list[Any] = [number_in(value) if type(value) is str else value for value in values]
    times = np.full(len(values), _NONE, dtype=np.int64)
    for kind, convert in ((int, _from_integers), (float, _from_floats)):
        if rows := [row for row, value in enumerate(read) if type(value) is kind]:
            times[rows] = convert([read[row] for row in rows], divide, multiply)
    return times


def _from_floats(values: Sequence[float], divide: int, multiply: int) -> Int64Array:
    given = np.array(values, dtype=np.float64)
    inside = np.abs(given) <= _LAST_US // multiply * divide  # False for NaN
    kept = np.where(inside, given, 0.0)
    scaled = np.rint(kept * multiply / divide).astype(np.int64)
    # A time just before a full second, where bins begin, is not rounded into it.
    scaled -= (scaled % 1_000_000 == 0) & (kept < scaled * divide / multiply)
    return np.where(inside, scaled, _NONE)


def _from_integers(values: Sequence[int], divide: int, multiply: int) -> Int64Array:
    try:
        whole = np.array(values, dtype=np.int64)
    except OverflowError:
        scaled = [value // divide * multiply for value in values]
        return np.array([us if _FIRST_US <= us <= _LAST_US else _NONE for us in scaled], dtype=np.int64)
    largest = _LAST_US // multiply * divide
    inside = (whole >= -largest) & (whole <= largest)  # the absolute value of -2^63 is negative
    return np.where(inside, np.where(inside, whole, 0) // divide * multiply, _NONE)


def _from_texts(texts: Sequence[str], zone: str | None) -> Int64Array:
    plain = [t if len(t) <= _LONGEST_TEXT and t.isascii() and t.isprintable() else "" for t in texts]
    letters = np.array(plain, dtype=f"S{_LONGEST_TEXT}").view(np.uint8).reshape(len(plain), _LONGEST_TEXT)
    lengths = np.count_nonzero(letters, axis=1)
    times = np.full(len(plain), _NONE, dtype=np.int64)
    common = np.zeros(len(plain), dtype=np.bool_)
    for length in (*_ZULU_FRACTION_DIGITS, _OFFSET_LENGTH):
        rows = np.flatnonzero(lengths == length)
        if rows.size:
            found, read = _from_common_form(letters[rows, :length])
            times[rows], common[rows] = found, read
    local = np.zeros(len(plain), dtype=np.bool_)
    for length in _LOCAL_FRACTION_DIGITS if zone else ():
        rows = np.flatnonzero(~common & (lengths == length))
        if rows.size:
            found, read = _from_common_form(letters[rows, :length])
            times[rows], common[rows], local[rows] = found, read, read
    for row in np.flatnonzero(~common).tolist():
        times[row], local[row] = _from_any_form(texts[row], zone)
    if zone and local.any():
        times[local] = _since_1970(times[local], zone)
    return times


def _from_common_form(letters: NDArray[np.uint8]) -> tuple[Int64Array, Bools]:
    """Return the times of texts of one common length, shape (n, length), and which of them are valid."""
    length, column_letters = letters.shape[1], np.ascontiguousarray(letters.T)
    digits = column_letters - np.uint8(ord("0"))  # anything but a digit wraps round to more than 9
    good = np.ones(len(letters), dtype=np.bool_)
    is_local = length in _LOCAL_FRACTION_DIGITS
    for letter, found, digit in zip(_SHAPE, column_letters, digits, strict=False):
        between = is_local & (letter == "T") & (found == ord(" "))
        good &= digit <= 9 if letter == "d" else (found == ord(letter)) | between

    def number(start: int, count: int) -> Int64Array:
        value: Int64Array = digits[start].astype(np.int64)
        for column in range(start + 1, start + count):
            value = value * 10 + digits[column]
        return value

    shift_us = np.zeros(len(letters), dtype=np.int64)
    if length == _OFFSET_LENGTH:
        sign = column_letters[19]
        good &= ((sign == ord("+")) | (sign == ord("-"))) & (column_letters[22] == ord(":"))
        good &= (digits[[20, 21, 23, 24]] <= 9).all(axis=0) & (number(20, 2) < 24) & (number(23, 2) < 60)
        shift_us = np.where(sign == ord("-"), 1, -1) * (number(20, 2) * 60 + number(23, 2)) * 60_000_000
    else:
        fraction_digits = (_LOCAL_FRACTION_DIGITS if is_local else _ZULU_FRACTION_DIGITS)[length]
        good &= is_local | (column_letters[-1] == ord("Z"))
        if fraction_digits:
            fraction = digits[20 : 20 + fraction_digits]
            good &= (column_letters[19] == ord(".")) & (fraction <= 9).all(axis=0)
            shift_us = number(20, fraction_digits) * 10 ** (6 - fraction_digits)

    year, month, day = number(0, 4), number(5, 2), number(8, 2)
    hour, minute, second = number(11, 2), number(14, 2), number(17, 2)
    good &= (year >= 1) & (month >= 1) & (month <= 12) & (hour < 24) & (minute < 60) & (second < 60)
    months = np.where(good, (year - 1970) * 12 + month - 1, 0)
    first_days, next_first_days = _first_day_of_month(months), _first_day_of_month(months + 1)
    good &= (day >= 1) & (day <= next_first_days - first_days)
    seconds = ((first_days + day - 1) * 24 + hour) * 3600 + minute * 60 + second
    return np.where(good, seconds * 1_000_000 + shift_us, _NONE), good


def _first_day_of_month(months: Int64Array) -> Int64Array:
    return np.asarray(months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64))


def _from_any_form(text: str, zone: str | None) -> tuple[int, bool]:
    """Return the time of any ISO 8601 text, and whether it is a local time, which needs a zone.

    Spaces around it are no part of it, nor are those before its offset, nor a zone in brackets behind it
    (RFC 9557); UTC and GMT mean Z. A minute's 60th second is read as the second before it, and 24:00 as the
    next day's beginning.
    """
    text = text.strip()
    if len(text) > _LONGEST_WRITTEN or (found := _WRITTEN.fullmatch(text)) is None:
        return _NONE, False
    try:
        us = (_day_of(found).toordinal() - _1970.toordinal()) * _DAY_US + _us_of_day(found)
    except ValueError:
        return _NONE, False
    if found["offset"]:
        return us - _offset_us(found), False
    return (us, True) if zone else (_NONE, False)


def _day_of(found: re.Match[str]) -> date:
    """Return the day. Raises: ValueError if the calendar has no such day."""
    year = int(found["year"])
    if found["week"]:
        return date.fromisocalendar(year, int(found["week"]), int(found["weekday"] or 1))
    if not found["day_of_year"]:
        return date(year, int(found["month"]), int(found["day"]))
    day = date(year, 1, 1) + timedelta(days=int(found["day_of_year"]) - 1)
    if day.year != year:
        raise ValueError
    return day


def _us_of_day(found: re.Match[str]) -> int:
    """Return the time of day in microseconds. Raises: ValueError if a day has no such time."""
    hour, minute, second = (int(digits or 0) for digits in found.group("hour", "minute", "second"))
    us = ((hour * 60 + minute) * 60 + min(second, 59)) * 1_000_000
    if digits := found["fraction"]:
        last_unit_s = 1 if found["second"] else 60 if found["minute"] else 3_600
        us += last_unit_s * 1_000_000 * int(digits) // int(10 ** len(digits))
    if us > _DAY_US or (us == _DAY_US and hour != 24) or minute > 59 or second > 60:
        raise ValueError
    return us


def _offset_us(found: re.Match[str]) -> int:
    if (sign := found["sign"]) is None:
        return 0
    hours, minutes, seconds = (int(digits or 0) for digits in found.group("hours", "minutes", "seconds"))
    us = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
    return us if sign == "+" else -us


def _since_1970(local_us: Int64Array, zone: str) -> Int64Array:
    """Return the instants of local times of a zone, in microseconds. Each depends on its own time alone.

    A local time that the clocks show twice is read as the first of both. A local time that the clocks skip is
    read as if they had not changed yet. Both are one rule: the offset from before the change (``fold=0``).

    Args: local_us, the time on clocks of the zone, as microseconds since their 1970.
    Cost: one look-up per different hour; in hours with a change one per time.

    >>> _since_1970(np.array([1_774_141_200_000_000]), "Europe/Paris").tolist()
    [1774137600000000]
    """
    hours, places = np.unique(local_us // _HOUR_US, return_inverse=True)
    offsets = [_of_hour(zone, hour) for hour in hours.tolist()]
    found = local_us - np.array([offset or 0 for offset in offsets], dtype=np.int64)[places]
    changing = np.array([offset is None for offset in offsets], dtype=np.bool_)[places]
    for row in np.flatnonzero(changing).tolist():
        found[row] = local_us[row] - _zone_offset_us(zone, int(local_us[row]))
    return found


@lru_cache(maxsize=1 << 14)
def _of_hour(zone: str, hour: int) -> int | None:
    """Return the offset of all local times of an hour, in microseconds; None if the hour has a change."""
    if not _FIRST_HOUR <= hour <= _LAST_HOUR:
        return 0  # outside the calendar that is counted
    first, last = (_zone_offset_us(zone, us) for us in (hour * _HOUR_US, (hour + 1) * _HOUR_US - 1))
    return first if first == last else None


def _zone_offset_us(zone: str, local_us: int) -> int:
    moment = (_LOCAL_1970 + timedelta(microseconds=local_us)).replace(tzinfo=ZoneInfo(zone))
    offset = moment.utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)
