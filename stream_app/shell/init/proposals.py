"""Proposes roles for a sample's fields: the time, a person, a key, an amount. The user decides."""

from __future__ import annotations

import re
import time
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from itertools import chain
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np

from stream_app.core.counting.unlisted import key_names
from stream_app.core.incoming import Reason
from stream_app.core.instants import format_instant, parse_instant
from stream_app.shell.samples.of_log import Sample, number_in
from stream_app.sources.decode import TimeField
from stream_app.sources.times import TimeFormat, why_no_time

FORMATS: Final[tuple[TimeFormat, ...]] = ("iso8601", "s", "ms", "us", "ns")
# A schema may say the unit of its times itself; then every format reads them, and the first one is taken.
_OF_NUMBERS: Final[tuple[TimeFormat, ...]] = ("ms", "us", "ns", "s", "iso8601")
_MOST = 0.9  # of the events must have a field that is proposed
_EARLIEST_US = parse_instant("1990-01-01T00:00:00Z")
_DAY_US = 86_400_000_000
_AHEAD_US = 2 * _DAY_US
_FEW = 0.05  # of the events may be dirty times, far before or after all others
_FAR_US = 30 * 86_400_000_000
_MOST_KEYS = 50
_EVENTS_OF_KEY = 5  # at least, on average
_EVENTS_OF_MANY = 2  # of each of many keys, on average
_TIME_WORDS = ("time", "timestamp", "ts", "at", "date", "datetime", "when", "occurred", "created")
_LATER_WORDS = ("updated", "modified", "expires", "expiry", "birth", "dob", "deleted", "processed")
_PERSON_WORDS = (
    *("user", "userid", "uid", "username", "login", "visitor", "customer", "member", "person", "patient"),
    *("subscriber", "employee", "student", "passenger", "account", "email", "mail", "phone", "client"),
    *("session", "device", "ip"),
)
_NAMES_A_PERSON = _PERSON_WORDS[: _PERSON_WORDS.index("account")]  # whatever the number of their values
# The year is first or last; an address such as 10.0.0.12 is no date.
_DATE = re.compile(
    r"(\d{4}([./-])\d{1,2}\2\d{1,2}|\d{1,2}([./-])\d{1,2}\3(\d{4}|\d{2}))(?![\d./-])", flags=re.ASCII
)
_FEWEST_PEOPLE = 10  # different texts of a field that may name people


def likely_time(sample: Sample) -> TimeField | None:
    """Return the field that is most likely the time of an event; None if none holds times.

    Times of our days come before those without an offset, and both before texts of other years.
    """
    fields = sorted(sample.columns, key=_as_time)
    found = chain(
        (time_in(sample, field) for field in fields),
        (TimeField(field, "iso8601") for field in fields if is_without_offset(sample, field)),
        (time_in(sample, field, of_any_year=True) for field in fields),
    )
    return next(filter(None, found), None)


def time_in(
    sample: Sample, field: str, zone: str | None = None, *, of_any_year: bool = False
) -> TimeField | None:
    """Return a field with the format in which it holds plausible times; None if it holds none.

    Args: of_any_year, whether texts of any year are plausible; the year of a number depends on its unit.
    """
    latest_us = time.time() * 1e6 + _AHEAD_US
    for form in FORMATS if not sample.hints.registry else _OF_NUMBERS:
        found = TimeField(field, form, zone if form == "iso8601" else None)
        read_us = sample.times_us(found)
        plausible = (read_us >= _EARLIEST_US) & (read_us < latest_us)
        count = len(read_us) if of_any_year and form == "iso8601" else int(plausible.sum())
        if count >= _MOST * len(sample.lines):
            return found
    return None


def is_without_offset(sample: Sample, field: str) -> bool:
    """Return whether nearly all events have a time in a field that does not say its offset."""
    values = sample.columns.get(field, ())
    local = sum(why_no_time(value, "iso8601", None) is Reason.LOCAL_TIME for value in values)
    return local >= _MOST * len(sample.lines)


def dated(sample: Sample) -> list[str]:
    """Return the fields with a date in nearly all events, in any order of day, month and year."""
    return [
        field
        for field, values in sample.columns.items()
        if sum(_DATE.match(str(value)) is not None for value in values) >= _MOST * len(sample.lines)
    ]


def begins(sample: Sample, field: TimeField) -> str:
    """Return the start of the month of a sample's first events, in the zone of its times, RFC 3339."""
    return format_instant(_month(_ends_us(sample, field)[0], _zone(field)))


def ends(sample: Sample, field: TimeField, now_us: int) -> str:
    """Return the end of the sample's last month, or of today if today is earlier, RFC 3339."""
    zone = _zone(field)
    next_us = _month(_month(_ends_us(sample, field)[1], zone) + 32 * _DAY_US, zone)
    return min(format_instant(next_us), tomorrow(field, now_us))


def tomorrow(field: TimeField, now_us: int) -> str:
    """Return the end of the current day, in the zone of a field's times, RFC 3339."""
    today = datetime.fromtimestamp(now_us / 1e6, _zone(field)).date()
    return format_instant(_midnight(today + timedelta(days=1), _zone(field)))


def grows(sample: Sample, field: TimeField, written_us: int, now_us: int) -> bool:
    """Return whether a file probably still grows: it was written recently, and its newest event is recent."""
    times_us = sample.times_us(field, with_later=True)
    is_new = (times_us >= now_us - _DAY_US) & (times_us < now_us + _AHEAD_US)
    return now_us - written_us <= _DAY_US and bool(is_new.any())


def _zone(field: TimeField) -> ZoneInfo:
    """Return the zone whose months and days are proposed: UTC, if days of its own begin within an hour."""
    zone = ZoneInfo(field.zone or "UTC")
    offsets = (datetime(2026, month, 1, tzinfo=zone).utcoffset() for month in (1, 7))
    within = any(offset is not None and offset % timedelta(hours=1) for offset in offsets)
    return ZoneInfo("UTC") if within else zone


def _month(at_us: int, zone: ZoneInfo) -> int:
    """Return the start of an instant's month."""
    return _midnight(datetime.fromtimestamp(at_us / 1e6, zone).date().replace(day=1), zone)


def _midnight(day: date, zone: ZoneInfo) -> int:
    return int(datetime.combine(day, time_of_day.min, zone).timestamp()) * 1_000_000


def _ends_us(sample: Sample, field: TimeField) -> tuple[int, int]:
    """Return the first and the last time of a sample, without the few that are far from all others."""
    times_us = np.sort(sample.times_us(field, with_later=True))
    few = int(_FEW * len(times_us))
    far_us = max(int(times_us[-1 - few] - times_us[few]), _FAR_US)
    gaps = np.flatnonzero(np.diff(times_us) > far_us) + 1
    before, after = gaps[gaps <= few], gaps[gaps >= len(times_us) - few]
    first = int(before[-1]) if len(before) else 0
    last = int(after[0]) - 1 if len(after) else -1
    return int(times_us[first]), int(times_us[last])


def person(sample: Sample) -> str | None:
    """Return the field that names the person of an event, judged by its name; None without one.

    A field with few values is a kind of devices or of customers, unless its name says nothing but a person.
    """
    likely = [
        (min(_PERSON_WORDS.index(word) for word in found), field)
        for field in sample.columns
        if (found := _words(field) & set(_PERSON_WORDS))
        and (_names_a_person(sample, field) or not _few_values(sample, field))
    ]
    return min(likely)[1] if likely else None


def repeating(sample: Sample, *others: str | None) -> list[str]:
    """Return the fields whose texts come back, so that they may name people. Args: others, as in ``keys``."""
    numbers = amounts(sample, *others)
    return [
        field
        for field, values in sample.columns.items()
        if field not in others
        and field not in numbers
        and _FEWEST_PEOPLE <= len(set(map(str, values))) <= len(values) / 2
    ]


def keys(sample: Sample, *others: str | None) -> list[str]:
    """Return the fields with few different values. Args: others, fields that have another use."""
    return [field for field in sample.columns if field not in others and _few_values(sample, field)]


def many_keys(sample: Sample, *others: str | None) -> list[str]:
    """Return the fields with many different names, each in several events. Args: others, as in ``keys``."""
    return [
        field
        for field, values in sample.columns.items()
        if field not in others
        and not _few_values(sample, field)
        and sum(map(bool, names := key_names(values))) >= _MOST * len(values)
        and _MOST_KEYS < len(set(names)) <= len(values) // _EVENTS_OF_MANY
        and not all(map(number_in, values))
    ]


def amounts(sample: Sample, *others: str | None) -> list[str]:
    """Return the fields that hold numbers in nearly all events. Args: others, as in ``keys``."""
    return [
        field
        for field, values in sample.columns.items()
        if field not in others
        and "id" not in _words(field)
        and sum(number_in(value) is not None for value in values) >= _MOST * len(sample.lines)
    ]


def _names_a_person(sample: Sample, field: str) -> bool:
    different = len(set(map(str, sample.columns[field])))
    return different >= _FEWEST_PEOPLE and _words(field) <= {*_NAMES_A_PERSON, "id"}


def _few_values(sample: Sample, field: str) -> bool:
    values = sample.columns[field]
    different = len(set(map(str, values)))
    return 1 < different <= min(_MOST_KEYS, len(values) // _EVENTS_OF_KEY)


def _as_time(field: str) -> tuple[bool, bool]:
    """Return a sort key: fields named like the time of an event first."""
    words = _words(field)
    return bool(words & set(_LATER_WORDS)), not words & set(_TIME_WORDS)


def _words(field: str) -> set[str]:
    """Return the words of a field's name; those of its object, too, if it is an id.

    >>> sorted(_words("meta.createdAt")), sorted(_words("user.id"))
    (['at', 'created'], ['id', 'user'])
    """
    outer, _, last = field.rpartition(".")
    name = f"{outer.rpartition('.')[2]}_{last}" if last.lower() == "id" and outer else last
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return set(re.split(r"[^a-z0-9]+", name.lower()))
