"""The axes beside time: a stream's sections ``value`` and ``sum``, windows, and how the axes fit together."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TypeVar

from msgspec import structs

from dphist.product.axis import LARGEST_BUCKETS
from dphist.product.sums import LARGEST_WEIGHT
from dphist.windows.design import window_mechanisms
from dphist.windows.options import checked_options, known_options
from stream_app.config import values
from stream_app.config.document import Section
from stream_app.config.settings import StreamSettings
from stream_app.core.counting.bounding import MOST_AMOUNTS
from stream_app.core.counting.cells import Amounts, Buckets
from stream_app.core.counting.keys import Axis, Option

A = TypeVar("A", bound=Axis)

WINDOW_SHARE = Fraction(4, 5)  # of epsilon; the rest counts all events over time
_STEP = "the step that amounts are rounded to, a number above zero, for example 0.01"
_BUCKETS = values.whole(2, LARGEST_BUCKETS)


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
    settings = with_windows(settings, section, "dawa")
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
