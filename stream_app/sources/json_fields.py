"""Finds fields in JSON objects by their paths, so that only the fields that are read cost time.

*The rule of names.* A path has names with dots between them. A name may have dots itself, as in the flat
names of ECS and OpenTelemetry: in every object the longest name wins with which the rest of the path begins.
So the path ``log.level`` reads ``{"log.level": "info"}``, else ``{"log": {"level": "info"}}``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET

from stream_app.core.incoming import Reason
from stream_app.core.json_objects import names_of, nested_value

# Every JSON value but an object, which is decoded as a struct.
_NO_OBJECT = str | int | float | bool | list[Any] | None
_MISSING = Reason.MISSING_FIELD
# For each name with which a path may begin, the longest first: the attribute of the struct, and what reads
# the rest of the path there: the place in an inner struct, or the path in any value; "" if nothing is left.
_Place = tuple[tuple[str, Any], ...]
Column = Callable[[Sequence[Any]], list[Any]]
Reader = tuple[Callable[[bytes], Any], dict[str, Column]]


def readers(time: str | None, others: Sequence[str], float_hook: Any = None) -> list[Reader]:
    """Return decoders of records, each with a function for each path from its results to their values.

    Each decoder but the last one refuses some records that the last one decodes, and is faster. They agree
    about the others. A record without a value at ``time`` has the reason there, and None at another path.
    Args: float_hook, as of msgspec.
    """
    absent = dict.fromkeys(others) | ({} if time is None else {time: _MISSING})
    found: list[Reader] = []
    for nested in (True, False) if any("." in path for path in absent) else (False,):
        struct, places = _struct(tuple(absent.items()), nested)
        decoder = msgspec.json.Decoder(struct, float_hook=float_hook, dec_hook=_refuse)
        columns = {path: _column_getter(places[path], default) for path, default in absent.items()}
        found.append((decoder.decode, columns))
    return found


class _Nowhere:
    """The type of a field that no record may have."""


def _refuse(_type: type, _value: Any) -> Any:
    raise ValueError


@cache
def _struct(
    paths: tuple[tuple[str, Any], ...], nested: bool
) -> tuple[type[msgspec.Struct], dict[str, _Place]]:
    """Return the struct of these paths, and their places.

    Args: paths, with the value of an absent field; nested, whether a record may have no flat name of a path.
    """
    below: dict[str, dict[str, Any]] = {}
    for path, absent in paths:
        for name, rest in names_of(path):
            below.setdefault(name, {})[rest] = absent
    members: list[tuple[str, Any, Any]] = []
    within: dict[tuple[str, str], tuple[str, Any]] = {}  # by name and rest
    for number, (name, inside) in enumerate(below.items()):
        attribute = f"field_{number}"
        typed: Any = Any
        places: dict[str, Any] = {}
        missing: dict[str, Any] = {}
        if nested and "." in name:
            typed = _Nowhere
        elif "" in inside:
            places = {rest: rest for rest in inside}
            missing = {"default": inside[""]}
        else:
            inner, places = _struct(tuple(inside.items()), nested)
            typed = inner | _NO_OBJECT
            missing = {"default_factory": inner}
        if "." in name:  # its absence makes a shorter name count
            missing = {"default": UNSET}
        members.append((attribute, typed, msgspec.field(name=name, **missing)))
        within |= {(name, rest): (attribute, place) for rest, place in places.items()}
    struct = msgspec.defstruct("Record", members, gc=False, frozen=True, kw_only=True)
    return struct, {path: tuple(within[at] for at in names_of(path) if at in within) for path, _ in paths}


def _column_getter(place: _Place, absent: Any) -> Column:
    """Return a function from structs to their values at a place. Args: absent, the value of those without."""

    def value(record: Any) -> Any:
        found = _value_at(record, place)
        return absent if found is _MISSING else found

    longer, chain = _attributes(place)
    plain, before = attrgetter(chain) if chain else value, list(map(attrgetter, longer))

    def column(records: Sequence[Any]) -> list[Any]:
        with suppress(AttributeError):  # another JSON value is where the path needs an object
            for get in before:
                found = list(map(get, records))
                unset = found.count(UNSET)
                if not unset and get is before[0]:
                    return found
                if unset < len(records):
                    return list(map(value, records))
            return list(map(plain, records))
        return list(map(value, records))

    return column


def _attributes(place: _Place) -> tuple[list[str], str]:
    """Return the attributes before the nested objects, and the attribute with these; "" without any."""
    longer: list[str] = []
    above = ""
    while True:
        *more, (attribute, inside) = place
        longer += [above + name for name, _ in more]
        if isinstance(inside, str):
            return longer, "" if inside else above + attribute
        place, above = inside, f"{above}{attribute}."


def _value_at(record: Any, place: _Place) -> Any:
    """Return the value at a place, None for null, or the reason if there is none."""
    if record is None:
        return None
    for attribute, inside in place:
        found = getattr(record, attribute, UNSET)
        if found is UNSET:
            continue
        if not isinstance(inside, str):
            return _value_at(found, inside)
        walked = nested_value(found, inside)
        return None if walked is Reason.NULL else walked
    return _MISSING
