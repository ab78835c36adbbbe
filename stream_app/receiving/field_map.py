"""``ingest.map``: makes events of bodies of any form, from paths into their JSON.

A path has the names that fields of events have (docs/configuration.md), and indices: ``commits[0].author``.
``batch[*].at`` makes an event of each element of a list. Fields that the map does not name are not stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stream_app.core.incoming import Reason
from stream_app.core.json_objects import nested_value, value_of
from stream_app.receiving.body import HINT, MOST_ARRAY_BYTES, lines_in

ARRIVED = "@timestamp"
_LONGEST_PATH = 200
_STEPS = re.compile(r"([^\[\]]*)\[(\d{1,6}|\*)\]\.?")
_EACH = "*"
MOST_EVENTS = 10_000  # of a body: each takes 20 microseconds, and nothing else runs meanwhile
_encode = json.JSONEncoder(separators=(",", ":")).encode
_NO_FIELDS = b"{}\n"
Step = str | int  # the path of names, "*" for each element, or an index


class TooManyEventsError(ValueError):
    """A body has too many events, or they have too many bytes."""


def steps_of(path: str) -> tuple[Step, ...]:
    """Return the steps of a path. Raises: ValueError, one line.

    >>> steps_of("batch[*].user.id"), steps_of("[0].at"), steps_of("log.level")
    (('batch', '*', 'user.id'), (0, 'at'), ('log.level',))
    """
    steps, rest = list[Step](), path
    while found := _STEPS.match(rest):
        steps += [found[1]] if found[1] else []
        steps.append(_EACH if found[2] == _EACH else int(found[2]))
        rest = rest[found.end() :]
    if not path or len(path) > _LONGEST_PATH or re.search(r"[\[\]]", rest) or steps.count(_EACH) > 1:
        raise ValueError("is no path; write names and indices, as sender.id, commits[0].id or batch[*].at")
    return (*steps, rest) if rest else tuple(steps)


@dataclass(frozen=True)
class FieldMap:
    """A map of one spool. Args: paths, of each field of an event; all with ``[*]`` list the same elements.

    >>> FieldMap({"at": "batch[*].t", "site": "key"}).events_of(b'{"key":"a","batch":[{"t":1},{}]}', 0, 99)
    (b'{"at":1,"site":"a"}\\n{"site":"a"}\\n', 0)
    """

    paths: Mapping[str, str]

    def __post_init__(self) -> None:
        """Check the paths. Raises: ValueError, one line."""
        if len({steps[: steps.index(_EACH)] for steps in self._steps.values() if _EACH in steps}) > 1:
            raise ValueError("has [*] behind two different lists; an event is an element of one list")

    @cached_property
    def _steps(self) -> dict[str, tuple[Step, ...]]:
        return {field: steps_of(path) for field, path in self.paths.items() if path != ARRIVED}

    @property
    def says_arrival(self) -> bool:
        """Whether an event has the time of its arrival, so that a repeated body is not stored alike."""
        return ARRIVED in self.paths.values()

    def events_of(self, body: bytes, arrived_ms: int, most_bytes: int) -> tuple[bytes, int]:
        """Return the events of a body as lines, and how many of its values are no object or list of JSON.

        A field whose path leads nowhere, or to null, a list or an object, is left out.
        Args: most_bytes, of all events: a field outside the list of ``[*]`` is in each of them.
        Raises: ValueError, one line, if no value of the body is one, or no event has a field, without which
            no stream counts it; TooManyEventsError.
        """
        records, others = _records(body)
        if not records:
            raise ValueError(f"no line of it is an object or a list of JSON; {HINT}")
        lines, left = list[bytes](), most_bytes
        for event in (event for record in records for event in self._events(record, arrived_ms)):
            lines.append(_encode(event).encode() + b"\n")
            left -= len(lines[-1])
            if left < 0 or len(lines) > MOST_EVENTS:
                raise TooManyEventsError(
                    f"ingest.map makes more than {MOST_EVENTS:,} events of it, or {most_bytes:,} bytes "
                    "(ingest.max_body); send parts"
                )
        if set(lines) <= {_NO_FIELDS} and not any(self._elements(record) == [] for record in records):
            raise ValueError("no path of ingest.map leads to a value in it; correct the body, or the paths")
        return b"".join(lines), others

    def _elements(self, record: Any) -> Any:
        """Return the list of which each element is an event."""
        each = next((steps[: steps.index(_EACH)] for steps in self._steps.values() if _EACH in steps), None)
        return [None] if each is None else _at(record, each)

    def _events(self, record: Any, arrived_ms: int) -> Iterator[dict[str, Any]]:
        elements = self._elements(record)
        for element in elements if isinstance(elements, list) else ():
            event = {}
            for field, path in self.paths.items():
                value = arrived_ms if path == ARRIVED else self._value(record, element, self._steps[field])
                if isinstance(value, str | int | float) and not isinstance(value, Reason):
                    event[field] = value
            yield event

    @staticmethod
    def _value(record: Any, element: Any, steps: tuple[Step, ...]) -> Any:
        return _at(element, steps[steps.index(_EACH) + 1 :]) if _EACH in steps else _at(record, steps)


def _at(value: Any, steps: tuple[Step, ...]) -> Any:
    for step in steps:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = nested_value(value, step)
    return value


def _records(body: bytes) -> tuple[list[Any], int]:
    """Return the objects and lists of a body, one in all or one per line, and the number of other values."""
    found, others = _values(body)
    records = [one for one in found if isinstance(one, dict | list)]
    return records, others + len(found) - len(records)


def _values(body: bytes) -> tuple[list[Any], int]:
    """Return the JSON values of a body, and the number of lines that are none."""
    if len(body) <= MOST_ARRAY_BYTES:
        with suppress(ValueError):
            whole = value_of(body)
            return (whole if isinstance(whole, list) else [whole]), 0
    found, lines = [], lines_in(body)
    for line in lines:
        with suppress(ValueError):
            found.append(value_of(line))
    return found, len(lines) - len(found)
