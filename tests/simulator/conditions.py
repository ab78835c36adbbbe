"""Conditions for schedules, each beside a predicate that decides the same without the service's code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from stream_app.core.counting.where import AllOf, AnyOf, Condition, Not, OneOf, Present, Within
from tests.simulator.log import Entry


@dataclass(frozen=True)
class Stated:
    """A condition as a stream declares it, and whether an entry of the log matches it."""

    condition: Condition
    matches: Callable[[Entry], bool]


def _between(entry: Entry, low: int, below: int) -> bool:
    return entry.value is not None and low <= entry.value < below


LEFT_OUT = "left out"  # the note of an entry that the condition "noted" leaves out
_SOME = OneOf("key", ("a", "c"))
_MIDDLE = Within("value", min=Fraction(3), below=Fraction(8))
_ANN = OneOf("user", ("ann",))
CONDITIONS = {
    "one of": Stated(_SOME, lambda entry: entry.key in "ac"),
    "within": Stated(_MIDDLE, lambda entry: _between(entry, 3, 8)),
    "present": Stated(Present("user"), lambda entry: entry.user is not None),
    "all": Stated(AllOf((_SOME, _MIDDLE)), lambda entry: entry.key in "ac" and _between(entry, 3, 8)),
    "any": Stated(AnyOf((_ANN, _MIDDLE)), lambda entry: entry.user == "ann" or _between(entry, 3, 8)),
    "not": Stated(Not(_ANN), lambda entry: entry.user != "ann"),
    "noted": Stated(Not(OneOf("note", (LEFT_OUT,))), lambda entry: entry.note != LEFT_OUT),
    "not all": Stated(
        Not(AllOf((_ANN, _MIDDLE))), lambda entry: not (entry.user == "ann" and _between(entry, 3, 8))
    ),
}
EVERYTHING = ""  # the name of no condition


def matches(name: str, entry: Entry) -> bool:
    """Return whether an entry matches the condition of this name."""
    return name == EVERYTHING or CONDITIONS[name].matches(entry)
