"""Which records a stream counts: a condition on their fields.

A record matches by its own fields only. So one record never decides whether another record counts, and a
condition changes no sensitivity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property, reduce
from itertools import repeat
from operator import is_not
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_app.core.coded import for_each
from stream_app.core.counting.read_values import as_listed, listed_as, numbers

Columns = Mapping[str, Any]
Mask = NDArray[np.bool_]


class _Test(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """A condition on one field of a record. Args: field, the column, with dots for nested objects."""

    field: str

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.field,)

    def matches(self, columns: Columns) -> Mask:
        return for_each(columns[self.field], self._matching)

    def _matching(self, values: Sequence[Any]) -> Mask:
        """Return which values fulfil the condition."""
        raise NotImplementedError


class OneOf(_Test, frozen=True, tag="one_of"):
    """The field has one of these values, as ``read_values.listed_as`` says.

    >>> OneOf("status", ("200", "ok", "true")).matches({"status": [200, 200.0, "ok", "200.0", True, 1, None]})
    array([ True,  True,  True, False,  True, False, False])
    """

    values: tuple[str, ...]

    def _matching(self, values: Sequence[Any]) -> Mask:
        return np.fromiter(map(self._known.__contains__, as_listed(values)), np.bool_, len(values))

    @cached_property
    def _known(self) -> frozenset[str | int | float]:
        return frozenset(listed_as(self.values))

    def __str__(self) -> str:
        one, *more = self.values
        return f"{self.field} is one of {', '.join(self.values)}" if more else f"{self.field} is {one}"


class Within(_Test, frozen=True, tag="within"):
    """The field is a number, or the text of a number, between these ends.

    Args: at least ``min`` and above ``above``; at most ``max`` and below ``below``; None for an open end.

    >>> Within("age", min=Fraction(18), below=Fraction(65)).matches({"age": [17.9, 18, "64", 65, None, "x"]})
    array([False,  True,  True, False, False, False])
    """

    min: Fraction | None = None
    above: Fraction | None = None
    max: Fraction | None = None
    below: Fraction | None = None

    def _matching(self, values: Sequence[Any]) -> Mask:
        as_numbers = numbers(values)
        inside = ~np.isnan(as_numbers)
        for end, compare in (
            (self.min, np.greater_equal),
            (self.above, np.greater),
            (self.max, np.less_equal),
            (self.below, np.less),
        ):
            if end is not None:
                inside &= compare(as_numbers, float(end))
        return inside

    def __str__(self) -> str:
        ends = {"at least": self.min, "above": self.above, "at most": self.max, "below": self.below}
        named = [f"{word} {float(end):.16g}" for word, end in ends.items() if end is not None]
        return f"{self.field} is {' and '.join(named)}"


class Present(_Test, frozen=True, tag="present"):
    """The record has the field with a value; null is no value, and neither is an empty text of CSV."""

    def _matching(self, values: Sequence[Any]) -> Mask:
        return np.fromiter(map(is_not, values, repeat(None)), np.bool_, len(values))

    def __str__(self) -> str:
        return f"{self.field} is present"


class _Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Several conditions, at least one."""

    parts: tuple[Condition, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns that the conditions read, each once."""
        return tuple(dict.fromkeys(field for part in self.parts for field in part.fields))


class AllOf(_Group, frozen=True, tag="all"):
    """All of the conditions hold."""

    def matches(self, columns: Columns) -> Mask:
        return reduce(np.logical_and, (part.matches(columns) for part in self.parts))

    def __str__(self) -> str:
        return " and ".join(map(_grouped, self.parts))


class AnyOf(_Group, frozen=True, tag="any"):
    """At least one of the conditions holds."""

    def matches(self, columns: Columns) -> Mask:
        return reduce(np.logical_or, (part.matches(columns) for part in self.parts))

    def __str__(self) -> str:
        return " or ".join(map(_grouped, self.parts))


class Not(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="not"):
    """The condition does not hold. A record without the fields of the condition matches.

    >>> str(Not(AnyOf((OneOf("country", ("FR",)), Present("bot")))))
    'not (country is FR or bot is present)'
    """

    part: Condition

    @property
    def fields(self) -> tuple[str, ...]:
        return self.part.fields

    def matches(self, columns: Columns) -> Mask:
        return ~self.part.matches(columns)

    def __str__(self) -> str:
        return f"not ({self.part})"


Condition = OneOf | Within | Present | AllOf | AnyOf | Not


def in_words(condition: Condition, longest: int = 240) -> str:
    """Return which records match, for a sentence; a long condition is named by its fields only.

    >>> in_words(AllOf((OneOf("country", ("FR", "DE")), Within("amount", min=Fraction(10)))))
    'where country is one of FR, DE and amount is at least 10'
    >>> in_words(OneOf("page", tuple(map(str, range(1000)))))
    'that match a condition on page'
    """
    text = str(condition)
    if len(text) <= longest:
        return f"where {text}"
    first, others = condition.fields[:5], len(condition.fields) - 5
    return f"that match a condition on {', '.join(first)}" + (f" and {others} more" if others > 0 else "")


def _grouped(part: Condition) -> str:
    return f"({part})" if isinstance(part, _Group) else str(part)
