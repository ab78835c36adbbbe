"""The answers of ``stream-app init``, and how the words of an answer are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import cast
from zoneinfo import ZoneInfo

from stream_app.config import ClusterSettings, values
from stream_app.config.kafka import cluster_name, registry_url, topic_name
from stream_app.core.declaration import LogFormat
from stream_app.core.instants import format_instant
from stream_app.shell.init.proposals import FORMATS, is_without_offset, time_in
from stream_app.shell.samples.of_log import NO_HINTS, Sample, SchemaHints
from stream_app.sources.decode import TimeField
from stream_app.sources.times import TimeFormat

TOPIC = "topic:"
RECORD_TIME = "@timestamp"  # of a topic
NOBODY, NOW = "none", "now"
FIND = "find"  # in place of a list of keys
_YES_OR_NO = {"yes": True, "y": True, "no": False, "n": False}
_DAY_US = 86_400_000_000
_LARGEST_EPSILON = 20
_STEPS = 1_000  # at least, between the ends of a sum's range


@dataclass(frozen=True)
class Topic:
    """A topic. Args: cluster, its name in ``kafka.clusters``, empty for the main one."""

    name: str
    cluster: str = ""


@dataclass(frozen=True)
class Counted:
    """The quantity that is counted: all events, each key, the sum of an amount, or the sum of each key."""

    key: str | None = None
    amount: str | None = None


@dataclass(frozen=True)
class Answers:
    """All answers."""

    events: Path | Topic
    form: LogFormat | None  # None without a sample
    time: TimeField
    first: str | None
    to: str | None  # where the replay of a file ends that no longer grows; None for a log that is followed
    user: str | None
    max_events: int
    counted: Counted
    keys: tuple[str, ...]  # none if the service finds them
    span: tuple[Fraction, Fraction] | None
    epsilon: str
    bin: str
    clusters: Mapping[str, ClusterSettings] = field(default_factory=dict)  # the topic's and the main one
    hints: SchemaHints = NO_HINTS


def read_events(text: str) -> Path | Topic:
    """Read a file, or a topic as the ledger names it. Raises: ValueError.

    >>> read_events("topic:clicks"), read_events("topic:eu/clicks").cluster
    (Topic(name='clicks', cluster=''), 'eu')
    """
    if not text.startswith(TOPIC):
        if not text:
            raise ValueError("must name a file, or a topic as topic:NAME")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("its name is not UTF-8, as names in a configuration are; rename it") from None
        return Path(text)
    cluster, _, name = text.removeprefix(TOPIC).rpartition("/")
    return Topic(topic_name(name), cluster and cluster_name(cluster))


def read_columns(wide: int) -> Callable[[str], tuple[str, ...]]:
    """Return a reader of the names of the columns of a topic. Args: wide, how many its records have."""

    def read(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        if "" in names or len(set(names)) < len(names):
            raise ValueError("must be different names, separated by commas, for example at,country")
        if len(names) != wide:
            raise ValueError(f"names {len(names)} columns, and the records have {wide}")
        return names

    return read


def read_registry(text: str) -> str:
    """Read the URL of a schema registry; a password would be seen by others. Raises: ValueError."""
    url = registry_url(text)
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ValueError("has a user; name a configuration that has this URL with --kafka-from instead")
    return url


def read_time(sample: Sample | None, *, of_topic: bool) -> Callable[[str], TimeField]:
    """Return a reader of ``FIELD`` or ``FIELD in FORMAT``; the sample tells the format if it is left out."""

    def read(text: str) -> TimeField:
        field, _, form = text.rpartition(" in ")
        if form not in FORMATS or (sample is not None and text in sample.columns):
            field, form = text, ""
        if field == RECORD_TIME and of_topic:
            return TimeField(field, "ms")
        if sample is None:
            if not form:
                raise ValueError(f"there is no sample; add the format: {field} in {', '.join(FORMATS)}")
            return TimeField(field, cast("TimeFormat", form))
        field = _known(field, sample.columns)
        found = time_in(sample, field) or time_in(sample, field, of_any_year=True)
        if found is None and is_without_offset(sample, field):
            found = TimeField(field, "iso8601")  # with a zone
        if found is None:
            what = "with an offset (2026-01-05T10:00:00Z), or numbers of s, ms, us or ns since 1970"
            raise ValueError(f"the events have no times in {field}; times are texts {what}")
        if form and form != found.format:
            raise ValueError(f"read as {form}, the times are not of our days; they look like {found.format}")
        return found

    return read


def read_zone(sample: Sample | None, field: TimeField) -> Callable[[str], TimeField]:
    """Return a reader of the time zone of a field's times without an offset."""

    def read(text: str) -> TimeField:
        local = replace(field, zone=values.timezone(text))
        if field.format != "iso8601":
            form = field.format
            raise ValueError(f"times in {field.path} are read as {form}, which has no zone; leave it out")
        if sample is not None and time_in(sample, field.path, local.zone, of_any_year=True) != local:
            raise ValueError(f"the events have no times in {field.path} that are read so")
        return local

    return read


def read_grows(text: str) -> bool:
    """Read yes or no. Raises: ValueError.

    >>> read_grows("yes"), read_grows("N")
    (True, False)
    """
    if text.lower() not in _YES_OR_NO:
        raise ValueError("must be yes or no")
    return _YES_OR_NO[text.lower()]


def read_first(sample: Sample | None, field: TimeField, *, is_live: bool) -> Callable[[str], str | None]:
    """Return a reader of the instant or day from which events count; None for ``now``, of a live log."""

    def read(text: str) -> str | None:
        if text == NOW and is_live:
            return None
        first_us = _instant_us(text, field, ", or now" if is_live else "")
        if sample is not None and not (sample.times_us(field, with_later=True) >= first_us).any():
            raise ValueError("all events of the sample are earlier, so none would count; name an earlier one")
        return format_instant(first_us)

    return read


def read_to(sample: Sample | None, field: TimeField, first: str) -> Callable[[str], str]:
    """Return a reader of the instant or day until which events count."""

    def read(text: str) -> str:
        to_us = _instant_us(text, field)
        if to_us <= values.instant_us(first):
            raise ValueError(f"must be later than {first}, from when on events count")
        if sample is not None and not (sample.times_us(field, with_later=True) < to_us).any():
            raise ValueError("all events of the sample are later, so none would count; name a later one")
        return format_instant(to_us)

    return read


def _instant_us(text: str, field: TimeField, other: str = "") -> int:
    """Read an instant, or a day: its start in the zone of times without an offset."""
    if not re.match(r"\d{4}-\d\d-\d\d", text):
        raise ValueError(f"must be an instant such as 2026-01-01T00:00:00Z{other}")
    if len(text) == len("2026-01-01"):
        start = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(field.zone or "UTC"))
        return int(start.timestamp()) * 1_000_000
    return values.instant_us(text)


def read_user(sample: Sample | None) -> Callable[[str], str | None]:
    """Return a reader of the field that names a person, or ``none``."""

    def read(text: str) -> str | None:
        return None if text == NOBODY else _known(text, None if sample is None else sample.columns)

    return read


def read_whole(text: str) -> int:
    """Return the number of events that an answer says. Raises: ValueError."""
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise ValueError("must be a whole number above 0, for example 10")
    return int(text)


def read_counted(sample: Sample | None) -> Callable[[str], Counted]:
    """Return a reader of ``all``, ``by FIELD``, ``sum of FIELD`` or ``sum of FIELD by FIELD``."""
    fields = None if sample is None else sample.columns

    def read(text: str) -> Counted:
        if text == "all":
            return Counted()
        if text.startswith("by "):
            return Counted(key=_known(text.removeprefix("by "), fields))
        amount, by, key = text.removeprefix("sum of ").partition(" by ")
        if not text.startswith("sum of ") or not amount:
            raise ValueError("must be: all, by FIELD, sum of FIELD, or sum of FIELD by FIELD")
        return Counted(_known(key, fields) if by else None, _known(amount, fields))

    return read


def read_keys(text: str) -> tuple[str, ...]:
    """Read keys that are separated by commas; none for the word that lets the service find them."""
    if text.strip() == FIND:
        return ()
    keys = tuple(key.strip() for key in text.split(","))
    if "" in keys or len(set(keys)) < len(keys):
        raise ValueError("must be different keys, separated by commas, for example DE,FR,US")
    return keys


def read_span(text: str) -> tuple[Fraction, Fraction]:
    """Read the range of an amount, ``0 to 100``. Raises: ValueError."""
    low, _, high = text.partition(" to ")
    ends = _decimal(low), _decimal(high)
    if ends[0] is None or ends[1] is None or ends[0] >= ends[1]:
        raise ValueError("must be two numbers, the smaller one first, for example 0 to 100")
    return ends[0], ends[1]


def read_epsilon(text: str) -> str:
    """Read a budget. Raises: ValueError."""
    epsilon = _decimal(text)
    if epsilon is None or not 0 < epsilon <= _LARGEST_EPSILON:
        raise ValueError(f"must be a number above 0 and at most {_LARGEST_EPSILON}, for example 1")
    return text


def read_bin(first: str | None, to: str | None = None, zone: str | None = None) -> Callable[[str], str]:
    """Return a reader of the length of a bin. Args: zone, of times without an offset."""

    def read(text: str) -> str:
        bin_us = values.positive_duration_us(text)
        for edge in (one for one in (first, to) if one is not None):
            start = datetime.fromisoformat(edge)
            if bin_us == _DAY_US and zone is not None:
                start = start.astimezone(ZoneInfo(zone)).replace(tzinfo=UTC)
            if int(start.timestamp() * 1_000_000) % bin_us:
                own = f" in {zone}" if zone is not None and bin_us == _DAY_US else ""
                others = "5m or 1h, or name days" if own else "5m, 1h or 1d"
                raise ValueError(
                    f"no bin of {text} begins at {edge}{own}; take another length, for example {others}"
                )
        return values.format_duration(bin_us)

    return read


def unit_of(span: tuple[Fraction, Fraction]) -> Fraction:
    """Return a power of ten that divides a range into a thousand steps or more, and both of its ends.

    >>> unit_of((Fraction(0), Fraction(60))), unit_of((Fraction(0), Fraction(5, 4)))
    (Fraction(1, 100), Fraction(1, 1000))
    """
    unit = Fraction(1)
    while (span[1] - span[0]) / unit < _STEPS or any((end / unit).denominator > 1 for end in span):
        unit /= 10
    while (span[1] - span[0]) / (10 * unit) >= _STEPS and all(
        (end / unit / 10).denominator == 1 for end in span
    ):
        unit *= 10
    return unit


def _decimal(text: str) -> Fraction | None:
    return Fraction(text) if re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", text.strip(), re.ASCII) else None


def _known(field: str, fields: Collection[str] | None) -> str:
    if not field:
        raise ValueError("must name a field")
    if fields is not None and field not in fields:
        if len(spaced := [one for one in fields if one.strip() == field]) == 1:
            return spaced[0]  # spaces around a name are easily overlooked
        raise ValueError(f"no event of the sample has the field {field}; they have {', '.join(fields)}")
    return field
