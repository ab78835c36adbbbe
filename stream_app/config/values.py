"""Readers of single values: durations, instants, numbers and words. A bad value raises ValueError."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

from dphist.privacy import exact, is_plain
from dphist.workloads import Workload, WorkloadText
from stream_app.core.instants import parse_instant, zone_key

Word = TypeVar("Word", bound=str)

_UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_LARGEST_NUMBER = 10**15
_DURATION = re.compile(r"(\d{1,18}(?:us|ms|s|m|h|d|w))+")
_PART = re.compile(r"(\d+)(us|ms|s|m|h|d|w)")
_LONGEST_US = 36_500 * _UNITS_US["d"]
_LARGEST_TREE = 2**26  # leaves: four times the longest epoch
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_TOPIC = re.compile(r"topic:([a-z0-9][a-z0-9_-]{0,62}/)?[A-Za-z0-9._-]{1,249}")


def text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a word")
    return value


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def name(value: object) -> str:
    """Read the name of a stream or a group: it becomes part of keys, files and addresses."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("is not a name; use a-z, 0-9, - and _, at most 63, a letter or digit first")
    return value


def group(value: object) -> str:
    """Read the name of a group, or the name in the ledger of another topic, whose log goes on here."""
    if isinstance(value, str) and _TOPIC.fullmatch(value):
        return value
    return name(value)


def whole(least: int, most: int, what: str = "a whole number", more: str = "") -> Callable[[object], int]:
    """Return a reader of whole numbers from ``least`` to ``most``. Args: what, more, texts for the error."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"must be {what} from {least} to {most}{more}")
        return value

    return read


epochs = whole(2, 2**20, "a whole number of epochs", ", for example 64")
port = whole(1, 65_535, "a port")


def number(what: str, fits: Callable[[float], bool]) -> Callable[[object], float]:
    """Return a reader of the finite numbers for which ``fits`` is true. Args: what, a text for the error."""

    def read(value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"must be {what}")
        if not abs(value) <= sys.float_info.max or not fits(value):
            raise ValueError(f"must be {what}")
        return float(value)

    return read


positive = number("a number above zero", lambda value: value > 0)


def one_of(*words: Word) -> Callable[[object], Word]:
    def read(value: object) -> Word:
        for word in words:
            if value == word:
                return word
        raise ValueError(f"must be one of {', '.join(words)}")

    return read


def duration_us(value: object) -> int:
    """Read a duration as microseconds.

    >>> duration_us("1h30m"), duration_us("500ms"), duration_us("0s")
    (5400000000, 500000, 0)
    """
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise ValueError("must be a duration with its unit, for example 500ms, 30s, 5m, 1h30m or 30d")
    us = sum(int(count) * _UNITS_US[unit] for count, unit in _PART.findall(value))
    if us > _LONGEST_US:
        raise ValueError("is longer than 36500d, a hundred years; write a shorter one")
    return us


def duration_between(least: str, most: str, why: str = "") -> Callable[[object], int]:
    """Return a reader of durations from ``least`` to ``most``. Args: why, the reason, for the error."""
    least_us, most_us = duration_us(least), duration_us(most)

    def read(value: object) -> int:
        us = duration_us(value)
        if not least_us <= us <= most_us:
            raise ValueError(f"must be from {least} to {most}{why and f': {why}'}")
        return us

    return read


def positive_duration_us(value: object) -> int:
    us = duration_us(value)
    if us == 0:
        raise ValueError("must be longer than zero")
    return us


def instant_us(value: object) -> int:
    """Read an RFC 3339 instant as microseconds since 1970 UTC."""
    if not isinstance(value, str):
        raise ValueError("must be an instant with its offset, for example 2013-01-01T05:00:00Z")
    return parse_instant(value)


_factor = number("max, a factor such as 60, or log time per second such as 9d/s", lambda value: value > 0)


def speed(value: object) -> float | None:
    """Read the speed of a replay: None for as fast as possible, else log seconds per second.

    >>> speed("max"), speed(60), speed("9d/s")
    (None, 60.0, 777600.0)
    """
    if value == "max":
        return None
    if isinstance(value, str) and value.endswith("/s"):
        return positive_duration_us(value.removesuffix("/s")) / 1_000_000
    return _factor(value)


def positive_fraction(value: object) -> Fraction:
    """Read a number above zero, exactly as written: 0.1 is 1/10.

    >>> positive_fraction(0.1), positive_fraction("1/3"), positive_fraction("1e9")
    (Fraction(1, 10), Fraction(1, 3), Fraction(1000000000, 1))
    """
    if isinstance(value, int | float | str):
        try:
            return exact(value)
        except ValueError:
            pass
    raise ValueError("must be a number above zero, for example 1.0 or 1/2")


def signed_fraction(value: object) -> Fraction:
    """Read a number of either sign, exactly as written."""
    if isinstance(value, int | float | str) and not isinstance(value, bool) and is_plain(str(value), 40):
        try:
            read = Fraction(str(value))
        except (ValueError, ZeroDivisionError):
            pass
        else:
            if abs(read) <= _LARGEST_NUMBER:
                return read
    raise ValueError("must be a number, for example -60 or 0.5")


def shares(value: object) -> tuple[Fraction, ...] | Literal["level"]:
    """Read the shares of the levels, or the word "level" for planned shares."""
    if value == "level":
        return "level"
    if value == "node":
        raise ValueError("is no longer supported: its intervals were too short; take it out")
    if not isinstance(value, list) or not value:
        either = "level, or " if isinstance(value, str) else ""
        raise ValueError(f"must be {either}a list of numbers, for example [0.5, 0.5]")
    return tuple(positive_fraction(item) for item in value)


def workload(value: object) -> Workload:
    """Read the workload of a tree: a kind of question, or weights of several.

    >>> str(workload("sliding(24)")), str(workload({"prefix": 0.7, "bins": 0.3}))
    ('sliding(24)', '7/10 prefix + 3/10 bins')
    """
    try:
        return Workload.of(cast("WorkloadText", value))  # which refuses anything else
    except ValueError as refusal:
        raise ValueError(f"is no workload ({str(refusal).removeprefix('workload: ')})") from None


def branching(value: object) -> tuple[int, ...]:
    """Read the numbers of children per level, from the root down."""
    if not isinstance(value, list) or not value or any(type(item) is not int or item < 2 for item in value):
        raise ValueError("must be a list of whole numbers of at least 2, for example [24, 365]")
    if math.prod(value) > _LARGEST_TREE:
        raise ValueError(f"makes a tree of more than {_LARGEST_TREE} leaves; take smaller numbers")
    return tuple(value)


def url(value: object, schemes: Sequence[str]) -> SplitResult:
    """Read a URL with a host and optionally a port. Raises: ValueError, whose text omits the URL."""
    address = text(value)
    wanted = " or ".join(f"{scheme}://" for scheme in schemes)
    if re.search(r"[\s\x00-\x20\x7f]", address):
        raise ValueError(f"holds a space or a control character; write a URL that begins with {wanted}")
    try:
        parts = urlsplit(address)
        is_good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a bad port, or brackets around something that is not an address
        is_good = False
    if not is_good:
        raise ValueError(f"must be a URL that begins with {wanted} and names a host, and a port up to 65535")
    return parts


def timezone(value: object) -> str:
    try:
        return zone_key(text(value))
    except (ValueError, KeyError, OSError):
        raise ValueError(
            "is not a time zone; name one of the tz database, for example Europe/Paris"
        ) from None


def format_duration(us: int) -> str:
    """Return a duration as a text that ``duration_us`` reads.

    >>> format_duration(5_400_000_000), format_duration(0)
    ('1h30m', '0s')
    """
    text = ""
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, us = divmod(us, _UNITS_US[unit])
        text += f"{count}{unit}" if count else ""
    return text or "0s"
