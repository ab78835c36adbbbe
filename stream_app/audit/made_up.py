"""Records made for an audit, which nobody is in, and noise that an audit gives and recognises."""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.noise import Scale
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


class Law(NamedTuple):
    """A law of noise. Args: parameter, a discrete Laplace's scale, or a discrete Gaussian's variance."""

    name: Literal["laplace", "gaussian"]
    parameter: Fraction


class Number(NamedTuple):
    """One number of noise: its law, and how many were drawn under this law before it."""

    law: Law
    place: int


Supply = Callable[[Law, int, int], Int64Array]  # law, first place, how many


class GivenNoise:
    """A source whose numbers somebody else decides. It protects nobody: for made-up records only.

    Args: supply, returns draws of a law, from the n-th on.
    """

    private = True  # stands in for the system's source, so that the loops do not refuse it

    def __init__(self, supply: Supply) -> None:
        self._supply = supply
        self._drawn: defaultdict[Law, int] = defaultdict(int)

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Return the next numbers of this scale."""
        return self._next(Law("laplace", Fraction(scale)), shape)

    def discrete_gaussian(self, variance: Fraction, shape: int | tuple[int, ...]) -> Int64Array:
        """Return the next numbers of this variance."""
        return self._next(Law("gaussian", Fraction(variance)), shape)

    def select(self, scores: NDArray[np.integer[Any]], scale: Scale) -> int:
        """Refuse: a selection's loss does not follow from differences of numbers."""
        raise ValueError("a private selection cannot be rehearsed; streams with windows are left out")

    def _next(self, law: Law, shape: int | tuple[int, ...]) -> Int64Array:
        count = shape if isinstance(shape, int) else math.prod(shape)
        first = self._drawn[law]
        self._drawn[law] = first + count
        return self._supply(law, first, count).reshape(shape)


def silence(law: Law, first: int, count: int) -> Int64Array:
    """Return zeros: the outputs are then the exact counts."""
    return np.zeros(count, np.int64)


class Labels:
    """Gives each number a different value, by which it is found again in the pipeline's public output."""

    LARGEST = 1 << 30  # sums of a few numbers must not overflow

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.numbers: dict[int, Number] = {}

    def __call__(self, law: Law, first: int, count: int) -> Int64Array:
        """Return new labels."""
        labels = np.empty(count, np.int64)
        for place in range(count):
            label = int(self._random.integers(1 << 20, self.LARGEST))
            while label in self.numbers:
                label = int(self._random.integers(1 << 20, self.LARGEST))
            self.numbers[label] = Number(law, first + place)
            labels[place] = label
        return labels


class Drawn:
    """Draws each number once, from a source such as ``SystemNoise``; returns it again, with its shift."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._held: dict[Law, Int64Array] = {}
        self.shifts: dict[Number, int] = {}

    def __call__(self, law: Law, first: int, count: int) -> Int64Array:
        """Return numbers, drawn now or before."""
        held = self._held.get(law, np.empty(0, np.int64))
        if len(held) < first + count:
            held = np.concatenate([held, self._fresh(law, first + count - len(held))])
            self._held[law] = held
        numbers = held[first : first + count].copy()
        for place in range(count):
            numbers[place] += self.shifts.get(Number(law, first + place), 0)
        return numbers

    def _fresh(self, law: Law, count: int) -> Int64Array:
        draw = self._source.discrete_laplace if law.name == "laplace" else self._source.discrete_gaussian
        drawn: Int64Array = draw(law.parameter, count)
        return drawn
