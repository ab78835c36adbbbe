"""The axes beside time: a stream's sections ``keys``, ``value`` and ``sum``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from dphist.product.axis import LARGEST_BUCKETS, LARGEST_KEYS
from dphist.product.sums import LARGEST_WEIGHT
from dphist.windows.design import checked_options, known_options, window_mechanisms
from stream_app.config import values
from stream_app.config.document import Section
from stream_app.config.plain_yaml import as_written
from stream_app.config.privacy import read_delta
from stream_app.core.counting.cells import Amounts, Buckets
from stream_app.core.counting.keys import NONE, Axis, KeyField, KeyList, Normalise, Option, check_pattern
from stream_app.core.counting.read_values import one_number
from stream_app.core.counting.unlisted import EPOCHS, LONGEST_NAME, OTHER, Discover
from stream_app.core.epochs import ROOM

A = TypeVar("A", bound=Axis)

WINDOW_SHARE = Fraction(4, 5)  # of epsilon; the rest counts all events over time
_STEP = "the step that amounts are rounded to, a number above zero, for example 0.01"
_BUCKETS = values.whole(2, LARGEST_BUCKETS)

LONGEST_KEY = 200

_MOST_PARAMETERS, _MOST_REPLACED, _MOST_PATTERNS = 20, 10_000, 50

MOST_BROUGHT = 8
_LEAST_USERS = values.whole(1, 1_000_000, more=": a key that fewer users have brought is nearly never shown")
_EPOCHS = values.whole(0, 10_000, more=": for how many epochs after the one that found it a key is listed")
_ROOM = values.whole(1_000, 1_000_000_000, more=": events of hidden keys for which there is room")
_PER_USER = values.whole(1, MOST_BROUGHT, more=": the new keys that a user can help to find")


def read_value(section: Section) -> Buckets | None:
    if not section.written:
        return None
    settings = Buckets(
        field=section.take("field", values.text),
        low=section.take("min", values.signed_fraction),
        high=section.take("max", values.signed_fraction),
        count=section.take("buckets", _BUCKETS),
    )
    settings = with_windows(settings, section, "dawa")
    section.finish()
    if settings.low >= settings.high:
        raise section.error("max", "must be above value.min; move one of them")
    return settings


def read_sum(section: Section) -> Amounts | None:
    if not section.written:
        return None
    settings = Amounts(
        field=section.take("field", values.text),
        low=section.take("min", values.signed_fraction),
        high=section.take("max", values.signed_fraction),
        unit=_step(section),
    )
    section.finish()
    if settings.low >= settings.high:
        raise section.error("max", "must be above sum.min; move one of them")
    for key, end in (("min", settings.low), ("max", settings.high)):
        if (end / settings.unit).denominator > 1:
            raise section.error(key, "must be a whole number of sum.unit; move it, or take another unit")
    if settings.high - settings.low > LARGEST_WEIGHT * settings.unit:
        text = f"makes more than {LARGEST_WEIGHT:,} steps from sum.min to sum.max; take a larger one"
        raise section.error("unit", text)
    return settings


def _step(section: Section) -> Fraction:
    """Read the step of a sum; a refusal explains the step, because people may write a unit such as kW."""
    step = section.take("unit", _read_step, None)
    if step is None:
        raise section.error("unit", f"is missing; add {_STEP}")
    return step


def _read_step(value: object) -> Fraction:
    try:
        return values.positive_fraction(value)
    except ValueError:
        raise ValueError(f"must be {_STEP}") from None


def with_windows(axis: A, section: Section, mechanism: str) -> A:
    """Return the axis with its settings of ``mode: window``, if any. Args: mechanism, if none is named."""
    mode = section.take("mode", values.one_of("tree", "window"), "tree")
    length_us = section.take("window", values.positive_duration_us, 0)
    name = section.take("mechanism", values.one_of(*window_mechanisms()), mechanism)
    share = section.take("share", values.positive_fraction, WINDOW_SHARE)
    options = section.take("options", partial(_options, name), None) or {}
    if mode == "window":
        if not length_us:
            raise section.error("window", "is missing; say how long a window is, for example 1d")
        if share >= 1:
            raise section.error("share", "must be below 1: the rest of epsilon counts all events over time")
        return structs.replace(
            axis, mode=mode, window_us=length_us, mechanism=name, share=share, options=options
        )
    for key in ("window", "mechanism", "share", "options"):
        section.refuse(key, "belongs to windows; write mode: window beside it, or take it out")
    return axis


def _options(mechanism: str, value: object) -> dict[str, Option]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"must hold options of {mechanism}: {', '.join(known_options(mechanism)) or 'none'}")
    return checked_options(mechanism, value)


def read_names(section: Section, directory: Path) -> tuple[str, ...]:
    """Read a list of keys, from ``list`` or from the file that ``list_file`` names. Raises: ConfigError.

    Args: directory, of the configuration; the file's path is relative to it.
    """
    if "list_file" not in section.names():
        return section.take("list", listed, read=as_written)
    section.refuse("list", "does not stand beside keys.list_file; take one of them out")
    return section.take("list_file", in_file(directory))


def in_file(directory: Path) -> Callable[[object], tuple[str, ...]]:
    """Return a function that reads the keys in a file.

    Each line is a key, exactly as it stands there; empty lines are skipped. The function raises ValueError.
    """

    def read(value: object) -> tuple[str, ...]:
        file = directory / values.text(value)
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as failure:
            why = getattr(failure, "strerror", None) or "it is not UTF-8 text"
            raise ValueError(f"{file} cannot be read: {why}; name a file with one key a line") from None
        return _checked(file, [line.removesuffix("\r") for line in text.split("\n")])

    return read


def _checked(file: Path, lines: Sequence[str]) -> tuple[str, ...]:
    line_of: dict[str, int] = {}
    for number, key in enumerate(lines, start=1):
        if len(key) > LONGEST_KEY:
            raise ValueError(f"line {number} of {file} is longer than {LONGEST_KEY} characters; shorten it")
        if key and line_of.setdefault(key, number) != number:
            raise ValueError(f"line {number} of {file} repeats line {line_of[key]}; take one of them out")
    if not line_of:
        raise ValueError(f"{file} is empty; write one key a line")
    return tuple(key for key in line_of if key)


def listed(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("must be a list of keys, for example [UA, AA, DL]")
    for key in value:
        if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY:
            raise ValueError(f"{key!r} is not a key; write words or numbers, null in quotes")
    names = tuple(value)
    if len(set(names)) < len(names):
        raise ValueError("holds a key twice; an event has exactly one")
    return names


def read_normalise(keys: Section) -> Normalise | None:
    """Read how values of ``keys.field`` become keys; None if they stay as they are. Raises: ConfigError."""
    section = keys.section("normalise")
    rule = Normalise(
        query=section.take("query", _parameters, None),
        percent=section.take("percent", values.flag, False),
        nfc=section.take("nfc", values.flag, False),
        lower=section.take("lower", values.flag, False),
        strip_slash=section.take("strip_slash", values.flag, False),
        patterns=_pairs(section.section("patterns"), _MOST_PATTERNS),
        replace=_pairs(section.section("replace"), _MOST_REPLACED),
        none=keys.take("none", values.flag, False),
    )
    for pattern, becomes in rule.patterns:
        try:
            check_pattern(pattern, becomes)
        except ValueError as refusal:
            raise section.error("patterns", str(refusal)) from None
    section.finish()
    return None if rule == Normalise() else rule


def listed_by(section: Section, rule: Normalise | None, names: Sequence[str]) -> tuple[str, ...]:
    """Return a list of keys, with ``none`` if events without the field have it. Raises: ConfigError.

    A key that no event can have after ``normalise`` would stay at 0 for ever.
    """
    if rule is None:
        return tuple(names)
    for name in names:
        if (becomes := structs.replace(rule, none=False).of(name)) != name:
            text = f"holds {name}, which no event has after keys.normalise; write {becomes}"
            raise section.error("list", text)
    return (*names, NONE) if rule.none and NONE not in names else tuple(names)


def _pairs(section: Section, most: int) -> tuple[tuple[str, str], ...]:
    if len(section.names()) > most:
        raise section.error("", f"holds more than {most:,} entries; write fewer")
    return tuple((name, section.take(name, _text, read=as_written)) for name in section.names())


def _text(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        raise ValueError(f"must be a text of at most {LONGEST_NAME} characters")
    return value


def _parameters(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _MOST_PARAMETERS or len(set(map(str, value))) < len(value):
        raise ValueError(f"must be a list of at most {_MOST_PARAMETERS} different names; [] keeps none")
    return tuple(map(str, value))


def read_discover(keys: Section) -> Discover | None:
    section = keys.section("discover")
    if not section.written:
        return None
    epsilon = section.take("epsilon", values.positive_fraction)
    delta = read_delta(section)
    if delta is None:
        raise section.error("delta", "is missing: names need one; write for example 1e-9")
    users = section.section("users")
    discover = Discover(
        epsilon,
        delta,
        section.take("per_user", _PER_USER, 1),
        users.take("minimum", _LEAST_USERS, 1),
        section.take("epochs", _EPOCHS, EPOCHS),
        section.take("room", _ROOM, ROOM),
    )
    users.finish()
    section.finish()
    return discover


def read_keys(section: Section, directory: Path) -> KeyList | None:
    """Read the list of keys. Args: directory, of the configuration. Raises: ConfigError."""
    if not section.written:
        return None
    read = _several_fields if "fields" in section.names() else _one_field
    settings = read(section, directory)
    settings = with_windows(settings, section, "sorted_isotonic")
    section.finish()
    keys = math.prod(settings.sizes)
    if keys > LARGEST_KEYS:
        made = "is longer than" if not settings.fields else f"makes {keys:,} combinations, more than"
        raise section.error("list", f"{made} {LARGEST_KEYS} keys; count fewer keys separately")
    if settings.total and keys == 1:
        raise section.error("total", "is not needed for one key, which is its own total; take it out")
    return settings


def _one_field(section: Section, directory: Path) -> KeyList:
    discover, rule = read_discover(section), read_normalise(section)
    listed = discover is None or {"list", "list_file"} & set(section.names())
    settings = KeyList(
        field=section.take("field", values.text),
        names=read_names(section, directory) if listed else (),
        other=section.take("other", values.flag, True),
        total=section.take("total", values.flag, False),
        discover=discover,
        normalise=rule,
    )
    settings = structs.replace(settings, names=listed_by(section, rule, settings.names))
    _check_list(section, "list", settings.parts[0])
    return settings


def _several_fields(section: Section, directory: Path) -> KeyList:
    section.refuse("field", "does not stand beside keys.fields; take one of them out")
    for key in ("normalise", "none"):
        section.refuse(key, "is not built yet for several key fields; write keys.field with one of them")
    section.refuse("discover", "is not built yet for several key fields; write keys.field with one of them")
    fields = section.take("fields", _fields)
    lists, files, others = section.section("list"), section.section("list_file"), None
    if section.holds_keys("other"):
        others = section.section("other")
    every = section.take("other", values.flag, True) if others is None else True
    parts = []
    for field in fields:
        if field in files.names():
            lists.refuse(field, "is in keys.list_file as well; take one of them out")
            names = files.take(field, in_file(directory))
        else:
            names = lists.take(field, listed, read=as_written)
        part = KeyField(field, names, every if others is None else others.take(field, values.flag, True))
        _check_list(lists, field, part)
        parts.append(part)
    lists.finish()
    files.finish()
    if others is not None:
        others.finish()
    return KeyList(fields=tuple(parts), total=section.take("total", values.flag, False))


def _check_list(section: Section, key: str, part: KeyField) -> None:
    if part.other and OTHER in part.names:
        line = f'holds "{OTHER}", which is the key of all others; take it out of the list'
        raise section.error(key, line)
    if (same := one_number(part.names)) is not None:
        first, second, shortest = same
        line = (
            f"holds {first} and {second}, which are one number; take one out, or add {shortest} for numbers"
        )
        raise section.error(key, line)


def _fields(value: object) -> tuple[str, ...]:
    if (
        not isinstance(value, list)
        or len(value) < 2
        or not all(isinstance(one, str) and one for one in value)
    ):
        raise ValueError("must be a list of two or more fields, for example [country, device]")
    if len(set(value)) < len(value):
        raise ValueError("holds a field twice; take one out")
    return tuple(value)
