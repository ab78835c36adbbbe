"""Finds fields in JSON objects by their paths, so that only the fields that are read cost time.

*The rule of names.* A path has names with dots between them. A name may have dots itself, as in the flat
names of ECS and OpenTelemetry: in every object the longest name wins with which the rest of the path begins.
So the path ``log.level`` reads ``{"log.level": "info"}``, else ``{"log": {"level": "info"}}``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET

from stream_app.core.incoming import Reason

# Every JSON value but an object, which is decoded as a struct.
_NO_OBJECT = str | int | float | bool | list[Any] | None
_MISSING = Reason.MISSING_FIELD
# For each name with which a path may begin, the longest first: the attribute of the struct, and what reads
# the rest of the path there: the place in an inner struct, or the path in any value; "" if nothing is left.
_Place = tuple[tuple[str, Any], ...]
Column = Callable[[Sequence[Any]], list[Any]]


def nested_value(record: Any, path: str) -> Any:
    """Return the value at a path, or the reason why a record has none.

    >>> [nested_value(record, "log.level") for record in ({"log": {"level": 1}}, {"log.level": 2, "log": {}})]
    [1, 2]
    """
    if record is None:
        return Reason.NULL
    if not path:
        return record
    for name, rest in names_of(path) if isinstance(record, dict) else ():
        if name in record:
            return nested_value(record[name], rest)
    return _MISSING


def names_of(path: str) -> Iterator[tuple[str, str]]:
    """Yield the names with which a path may begin, the longest first, each with the rest of the path."""
    yield path, ""
    end = len(path)
    while (end := path.rfind(".", 0, end)) >= 0:
        yield path[:end], path[end + 1 :]


def record_type(time: str | None, others: Sequence[str]) -> tuple[type[msgspec.Struct], dict[str, Column]]:
    """Return a struct type that has only these paths, and for each a function from structs to their values.

    A record without a value at ``time`` has the reason there, and None at another path.
    """
    absent = dict.fromkeys(others) | ({} if time is None else {time: _MISSING})
    struct, places = _struct(tuple(absent.items()))
    return struct, {path: _column_getter(places[path], default) for path, default in absent.items()}


@cache
def _struct(paths: tuple[tuple[str, Any], ...]) -> tuple[type[msgspec.Struct], dict[str, _Place]]:
    """Return the struct of these paths, and their places. Args: paths, with the value of an absent field."""
    below: dict[str, dict[str, Any]] = {}
    for path, absent in paths:
        for name, rest in names_of(path):
            below.setdefault(name, {})[rest] = absent
    members: list[tuple[str, Any, Any]] = []
    within: dict[tuple[str, str], tuple[str, Any]] = {}  # by name and rest
    for number, (name, inside) in enumerate(below.items()):
        attribute = f"field_{number}"
        typed: Any = Any
        if "" in inside:
            places: dict[str, Any] = {rest: rest for rest in inside}
            missing = {"default": inside[""]}
        else:
            inner, places = _struct(tuple(inside.items()))
            typed = inner | _NO_OBJECT
            missing = {"default_factory": inner}
        if "." in name:  # its absence makes a shorter name count
            missing = {"default": UNSET}
        members.append((attribute, typed, msgspec.field(name=name, **missing)))
        within |= {(name, rest): (attribute, places[rest]) for rest in inside}
    struct = msgspec.defstruct("Record", members, gc=False, frozen=True, kw_only=True)
    return struct, {path: tuple(within[name] for name in names_of(path)) for path, _ in paths}


def _column_getter(place: _Place, absent: Any) -> Column:
    """Return a function from structs to their values at a place. Args: absent, the value of those without."""

    def value(record: Any) -> Any:
        found = _value_at(record, place)
        return absent if found is _MISSING else found

    longer, chain = _attributes(place)
    plain = attrgetter(chain) if chain else value
    if not longer:
        return lambda records: list(map(plain, records))
    first, *others = map(attrgetter, longer)

    def column(records: Sequence[Any]) -> list[Any]:
        flat = list(map(first, records))
        if not (nested := flat.count(UNSET)):
            return flat
        with suppress(AttributeError):  # another JSON value is where the path needs an object
            if nested == len(records) and all(_all_unset(records, other) for other in others):
                return list(map(plain, records))
        return list(map(value, records))

    return column


def _all_unset(records: Sequence[Any], attribute: Callable[[Any], Any]) -> bool:
    return list(map(attribute, records)).count(UNSET) == len(records)


def _attributes(place: _Place) -> tuple[list[str], str]:
    """Return the attributes that count before that of nested objects, and the latter; "" if it has none."""
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
