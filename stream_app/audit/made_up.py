"""Records made for an audit: they fit a stream's declaration, and nobody is in them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stream_app.core.declaration import Declaration, TimeFormat
from stream_app.core.instants import format_instant

Event = dict[str, Any]
UNLISTED = "a key that no list has"
FOUND = tuple(f"key {place}" for place in range(5))  # of a stream that finds keys
_PER_US: dict[TimeFormat, tuple[int, int]] = {  # numerator and denominator
    "s": (1, 1_000_000),
    "ms": (1, 1_000),
    "us": (1, 1),
    "ns": (1_000, 1),
}


class Maker:
    """Makes events of a stream whose bins begin at ``first_bin``. Args: seed, decides everything."""

    def __init__(self, declared: Declaration, first_bin: int, seed: int) -> None:
        self._declared = declared
        self._first_bin = first_bin
        self._random = random.Random(seed)

    def event(self, bin: int, user: int = 0) -> Event:
        """Return an event in a bin of the epoch, with a random key, value, amount and the given user."""
        declared, binning = self._declared, self._declared.time.binning
        start_us = binning.start_us(self._first_bin + bin)
        within_us = self._random.randrange(binning.start_us(self._first_bin + bin + 1) - start_us)
        event: Event = {}
        _put(event, declared.time.field, _written(start_us + within_us, declared.time.format))
        for part in declared.keys.parts if declared.keys else ():
            names = [*part.names, *(FOUND if declared.finds_keys else [UNLISTED] if part.other else [])]
            _put(event, part.field, self._random.choice(names))
        if declared.value is not None:
            low, high = float(declared.value.low), float(declared.value.high)
            _put(event, declared.value.field, self._random.uniform(low - 1, high + 1))
        if declared.amounts is not None:
            low, high = float(declared.amounts.low), float(declared.amounts.high)
            _put(event, declared.amounts.field, self._random.uniform(low, high))
        if (per_user := declared.privacy.per_user) is not None:
            _put(event, per_user.field, f"user {user}")
        return event

    def largest(self, bin: int, user: int = 0) -> Event:
        """Return an event that adds as much as one can: for a sum, an amount at an end of its range."""
        event = self.event(bin, user)
        if (amounts := self._declared.amounts) is not None:
            _put(event, amounts.field, float(self._random.choice((amounts.low, amounts.high))))
        return event

    def newcomer(self, bin: int, number: int, user: int = 0) -> Event:
        """Return an event with a key that no other event has. Args: number, of this key."""
        event, keys = self.event(bin, user), self._declared.keys
        assert keys is not None
        _put(event, keys.field, f"new key {number}")
        return event

    def log(self, bins: int, events: int, users: int) -> list[Event]:
        """Return events in random bins, of random users."""
        return [
            self.event(self._random.randrange(bins), self._random.randrange(users)) for _ in range(events)
        ]


def write_log(file: Path, events: Sequence[Event]) -> None:
    """Write events as NDJSON. Fields are empty for events that the stream does not read."""
    file.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")


def _put(event: Event, field: str, value: object) -> None:
    """Set a field, whose name has dots for nested objects."""
    *outer, last = field.split(".")
    for name in outer:
        event = event.setdefault(name, {})
    event[last] = value


def _written(instant_us: int, form: TimeFormat) -> str | int:
    """Return an instant in a format. It is rounded down, never into another bin: bins are whole seconds."""
    if form == "iso8601":
        return format_instant(instant_us)
    numerator, denominator = _PER_US[form]
    return instant_us * numerator // denominator
