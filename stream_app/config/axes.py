"""The axes beside time: a stream's sections ``keys``, ``value`` and ``sum``."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from dphist.product.axis import LARGEST_BUCKETS, LARGEST_KEYS
from dphist.product.sums import LARGEST_WEIGHT
from dphist.windows.design import window_mechanisms
from dphist.windows.options import checked_options, known_options
from stream_app.config import values
from stream_app.config.discovering import read_discover
from stream_app.config.document import Section
from stream_app.config.key_lists import in_file, listed, read_names
from stream_app.config.normalising import listed_by, read_normalise
from stream_app.config.plain_yaml import as_written
from stream_app.config.settings import StreamSettings
from stream_app.core.counting.bounding import MOST_AMOUNTS
from stream_app.core.counting.cells import OTHER, Amounts, Axis, Buckets, KeyField, KeyList, Option

A = TypeVar("A", bound=Axis)

WINDOW_SHARE = Fraction(4, 5)  # of epsilon; the rest counts all events over time
_STEP = "the step that amounts are rounded to, a number above zero, for example 0.01"
_BUCKETS = values.whole(2, LARGEST_BUCKETS)


def read_keys(section: Section, directory: Path) -> KeyList | None:
    """Read the list of keys. Args: directory, of the configuration. Raises: ConfigError."""
    if not section.written:
        return None
    read = _several_fields if "fields" in section.names() else _one_field
    settings = read(section, directory)
    settings = _with_windows(settings, section, "sorted_isotonic")
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
    _check_other(section, "list", settings.parts[0])
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
        _check_other(lists, field, part)
        parts.append(part)
    lists.finish()
    files.finish()
    if others is not None:
        others.finish()
    return KeyList(fields=tuple(parts), total=section.take("total", values.flag, False))


def _check_other(section: Section, key: str, part: KeyField) -> None:
    if part.other and OTHER in part.names:
        line = f'holds "{OTHER}", which is the key of all others; take it out of the list'
        raise section.error(key, line)


def read_value(section: Section) -> Buckets | None:
    """Read the range of a value and its buckets. Raises: ConfigError."""
    if not section.written:
        return None
    settings = Buckets(
        field=section.take("field", values.text),
        low=section.take("min", values.signed_fraction),
        high=section.take("max", values.signed_fraction),
        count=section.take("buckets", _BUCKETS),
    )
    settings = _with_windows(settings, section, "dawa")
    section.finish()
    if settings.low >= settings.high:
        raise section.error("max", "must be above value.min; move one of them")
    return settings


def read_sum(section: Section) -> Amounts | None:
    """Read the number that is added up, and its range. Raises: ConfigError."""
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


def _with_windows(axis: A, section: Section, mechanism: str) -> A:
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


def _check_windows(section: Section, stream: StreamSettings) -> None:
    """Refuse windows that do not fit the stream's time or axes. Raises: ConfigError."""
    declared = stream.declared
    window, time = declared.windows_of, declared.time
    if window is None:
        return
    key = "value.window" if window is declared.value else "keys.window"
    bins, rest = divmod(window.window_us, time.bin_us)
    if rest or time.epoch_bins % max(bins, 1):
        raise section.error(
            key,
            "must be a whole number of bins, and time.epoch a whole number of windows; change one",
        )
    if declared.value is not None and declared.keys is not None and declared.keys.mode == "window":
        raise section.error("keys.mode", "is for keys without a value; with one, write value.mode: window")
    if declared.keys is not None and declared.keys.total:
        raise section.error("keys.total", "belongs to trees; take it out: all events are counted anyway")


def _check_sum(section: Section, stream: StreamSettings) -> None:
    """Refuse a sum beside settings that exclude it. Raises: ConfigError."""
    declared = stream.declared
    if declared.amounts is None:
        return
    for key, other in (
        ("value", declared.value),
        ("keys.mode", declared.windows_of),
        ("tree.epochs", declared.tree.epochs),
    ):
        if other is not None:
            raise section.error(key, "is not built yet beside sum; give one of them another stream")
    if declared.count == "users":
        text = "counts one event of each user, and a sum is of events; write max_events: 1 in privacy.unit"
        raise section.error("count", text)
    if declared.privacy.per_user and declared.cells.places > MOST_AMOUNTS and not declared.finds_keys:
        most = f"{MOST_AMOUNTS:,} steps over all keys"
        raise section.error(
            "sum.unit", f"makes more than {most}, too many for a cap per user; take a larger one"
        )


def _check_max_keys(section: Section, stream: StreamSettings) -> None:
    """Refuse a cap on a user's keys that does not fit the stream's keys. Raises: ConfigError."""
    declared, key = stream.declared, "privacy.unit.max_keys"
    most = declared.privacy.caps.max_keys
    if most is None:
        return
    if declared.keys is None:
        text = "is for a stream with keys; add keys, or write max_events in place of max_keys and max_per_key"
        raise section.error(key, text)
    if most > (keys := len(declared.keys.labels)) and declared.keys.discover is None:
        raise section.error(key, f"{most}: the stream has {keys:,} keys; write at most {keys:,}")
    if declared.cells.places > MOST_AMOUNTS and not declared.finds_keys:
        # One script chooses among all that one user has in a bin, and other streams wait for it. Beside found
        # keys a store leaves out what cannot count.
        cells = f"{MOST_AMOUNTS:,} keys, buckets and steps together"
        raise section.error(key, f"is for streams of at most {cells}; write max_events alone, or fewer keys")


def check_axes(section: Section, stream: StreamSettings) -> None:
    """Refuse fields that overlap the time's field, and axes that do not fit together. Raises: ConfigError."""
    _check_windows(section, stream)
    _check_sum(section, stream)
    _check_max_keys(section, stream)
    declared, time = stream.declared, stream.declared.time.field
    readers = {
        "value.field": declared.value,
        "sum.field": declared.amounts,
        "privacy.unit.user": declared.privacy.per_user,
    }
    keys = declared.keys
    read = [("keys.fields" if keys.fields else "keys.field", one) for one in keys.columns] if keys else []
    read += [(key, reader.field) for key, reader in readers.items() if reader]
    read += [("where", field) for field in (declared.where.fields if declared.where else ())]
    for key, field in read:
        if f"{field}.".startswith(f"{time}.") or time.startswith(f"{field}."):
            raise section.error(key, f'"{field}" is where time.field reads; name another field')


def _options(mechanism: str, value: object) -> dict[str, Option]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"must hold options of {mechanism}: {', '.join(known_options(mechanism)) or 'none'}")
    return checked_options(mechanism, value)


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
