"""Options of mechanisms: their meaning, the values they accept, and the error for all others."""

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from dphist.privacy import exact, shown

# More levels than this are never useful.
_MOST_LEVELS = 64


@dataclass(frozen=True)
class Option:
    """A keyword of a mechanism.

    Args: text, its meaning; rule, the accepted values in words; take, which converts a value for the
        mechanism and raises ValueError, TypeError or OverflowError for a bad value; or_none, whether it takes
        None.
    """

    text: str
    rule: str
    take: Callable[[Any], Any] = field(repr=False)
    or_none: bool = False

    @property
    def accepted(self) -> str:
        """The accepted values in words, None included."""
        return f"{self.rule} or None" if self.or_none else self.rule

    def checked(self, name: str, value: object) -> Any:
        """Return the value, converted for the mechanism. Raises: ValueError with name, value and rule."""
        if value is None and self.or_none:
            return None
        try:
            return self.take(value)
        except (ValueError, TypeError, OverflowError):
            raise ValueError(f"{name} is {shown(value)}; choose {self.accepted}") from None


def whole(text: str, least: int, most: int | None = None, *, or_none: bool = False) -> Option:
    """Describe an option that takes whole numbers from ``least`` to ``most``, without limit if None."""

    def take(value: Any) -> int:
        if not isinstance(value, numbers.Integral) or isinstance(value, bool):
            raise TypeError
        number = int(value)
        if number < least or (most is not None and number > most):
            raise ValueError
        return number

    return Option(
        text, f"a whole number from {least} {'on' if most is None else f'to {most}'}", take, or_none
    )


def real(text: str, least: float, most: float) -> Option:
    """Describe an option that takes numbers from ``least`` to ``most``."""

    def take(value: Any) -> float:
        number = float(_number(value))
        if not least <= number <= most:
            raise ValueError
        return number

    return Option(text, f"a number from {least:g} to {most:g}", take)


def share(text: str) -> Option:
    """Describe an option that takes a share: an exact fraction of epsilon above 0 and below 1."""

    def take(value: Any) -> Fraction:
        number = _number(value)
        part = Fraction(number) if isinstance(number, numbers.Rational) else exact(float(number))
        if not 0 < part < 1:
            raise ValueError
        return part

    return Option(text, "a number between 0 and 1", take)


def word(text: str, *words: str, or_none: bool = False) -> Option:
    """Describe an option that takes one of these words."""

    def take(value: Any) -> str:
        if not isinstance(value, str):  # an array may equal a word
            raise TypeError
        return words[words.index(value)]  # or a ValueError

    return Option(text, " or ".join(map(repr, words)), take, or_none)


def flag(text: str) -> Option:
    """Describe an option that takes True or False, and no number or word in their place."""

    def take(value: Any) -> bool:
        if not isinstance(value, bool | np.bool_):
            raise TypeError
        return bool(value)

    return Option(text, "True or False", take)


def level_branchings(text: str) -> Option:
    """Describe an option that takes a branching per level; the tree checks that they cover the bins."""
    one = whole("", 1)

    def take(value: Any) -> tuple[int, ...]:
        if not isinstance(value, tuple | list) or not 1 <= len(value) <= _MOST_LEVELS:
            raise TypeError
        return tuple(one.take(branch) for branch in value)

    return Option(text, f"a tuple of 1 to {_MOST_LEVELS} whole numbers from 1 on,", take, or_none=True)


def _number(value: Any) -> Any:
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not math.isfinite(value):
        raise TypeError
    return value
