"""The axes beside time: ``keys`` and ``value`` of a stream."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dphist.product.axis import LARGEST_BUCKETS, LARGEST_KEYS
from stream_app.config import values
from stream_app.config.document import Section
from stream_app.config.settings import KeySettings, StreamSettings, ValueSettings
from stream_app.core.cells import OTHER

_LONGEST_KEY = 200
_LARGEST_END = Fraction(10**15)


def read_keys(section: Section) -> KeySettings | None:
    """Read the list of keys. Raises: ConfigError."""
    if not section.written:
        return None
    settings = KeySettings(
        field=section.take("field", values.text),
        names=section.take("list", _names),
        other=section.take("other", values.flag, True),
        total=section.take("total", values.flag, False),
    )
    section.finish()
    if settings.other and OTHER in settings.names:
        raise section.error(
            "list", f'holds "{OTHER}", which is the key of all others; take it out of the list'
        )
    if len(settings.names) + settings.other > LARGEST_KEYS:
        raise section.error("list", f"is longer than {LARGEST_KEYS} keys; count fewer apart")
    if settings.total and len(settings.names) + settings.other == 1:
        raise section.error("total", "of one key is that key; take it out")
    return settings


def read_value(section: Section) -> ValueSettings | None:
    """Read the range of a value and its buckets. Raises: ConfigError."""
    if not section.written:
        return None
    section.not_built(("mode",))
    settings = ValueSettings(
        field=section.take("field", values.text),
        low=section.take("min", _end),
        high=section.take("max", _end),
        buckets=section.take("buckets", _buckets),
    )
    section.finish()
    if settings.low >= settings.high:
        raise section.error("max", "must be above value.min; move one of them")
    return settings


def check_axes(section: Section, stream: StreamSettings) -> None:
    """Refuse axes that read the same place of a record as the time does. Raises: ConfigError."""
    time = stream.time.field
    if time == "@timestamp" and stream.cell_fields:
        raise section.error("time.field", "@timestamp is not built yet beside keys or value; name a field")
    for key, axis in (("keys.field", stream.keys), ("value.field", stream.value)):
        if axis is None:
            continue
        if axis.field == time or axis.field.startswith(f"{time}.") or time.startswith(f"{axis.field}."):
            raise section.error(key, f'"{axis.field}" is where time.field reads; name another field')


def declared_axes(stream: StreamSettings) -> dict[str, Any]:
    """Return the public part of the axes, nothing where there are none."""
    found: dict[str, Any] = {}
    if stream.keys is not None:
        found["keys"] = {
            "field": stream.keys.field,
            "list": list(stream.keys.names),
            "other": stream.keys.other,
            "total": stream.keys.total,
        }
    if stream.value is not None:
        found["value"] = {
            "field": stream.value.field,
            "min": str(stream.value.low),
            "max": str(stream.value.high),
            "buckets": stream.value.buckets,
        }
    return found


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("must be a list of keys, for example [UA, AA, DL]")
    for key in value:
        if isinstance(key, bool) or not isinstance(key, str | int) or not 0 < len(str(key)) <= _LONGEST_KEY:
            raise ValueError(f"{key!r} is not a key; write words or whole numbers, NO and YES in quotes")
    names = tuple(str(key) for key in value)
    if len(set(names)) < len(names):
        raise ValueError("holds a key twice; an event has exactly one")
    return names


def _end(value: Any) -> Fraction:
    if isinstance(value, int | float | str) and not isinstance(value, bool) and len(str(value)) <= 40:
        try:
            end = Fraction(str(value))
        except (ValueError, ZeroDivisionError):
            pass
        else:
            if abs(end) <= _LARGEST_END:
                return end
    raise ValueError("must be a number, for example -60 or 0.5")


def _buckets(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 2 <= value <= LARGEST_BUCKETS:
        raise ValueError(f"must be a whole number from 2 to {LARGEST_BUCKETS}")
    return value
