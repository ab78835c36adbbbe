"""Values as they were read: what is a number, which listed value a value equals, and the name of a user.

All formats follow these rules, and so do keys, users, amounts and conditions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.privacy import is_plain

_NUMBERS = {int, float}
_PLAIN = {str, int, float, type(None)}
_TOLD_APART = {str, bool, type(None)}  # by equality; 1, 1.0 and True are equal, but not the same value
_LONGEST_WHOLE = 4_300  # characters of a text that is read as a whole number; Python refuses longer ones
_LARGEST_EXACT = 2**53  # below it a double says which whole number was written


def numbers(column: Sequence[Any]) -> NDArray[np.float64]:
    """Return the values as doubles, NaN where there is no number. Args: numbers, or their texts.

    >>> numbers([1, "2.5", True, None, 10**400, "1_000"]).tolist()
    [1.0, 2.5, nan, nan, inf, nan]
    """
    if set(map(type, column)) <= _NUMBERS:
        with suppress(OverflowError):  # of a whole number that is larger than every double
            return np.array(column, dtype=np.float64)
    return np.array([_as_double(value) for value in column], dtype=np.float64)


def number_in(text: str) -> int | float | None:
    """Return the number that a text is; None if it is none. Spaces around it are no part of it.

    >>> [number_in(text) for text in ("200", " -2.5 ", "2e2", "1_000", "0x10", "", "inf")]
    [200, -2.5, 200.0, None, None, None, None]
    """
    digits = _without_spaces(text)
    if "." not in digits and len(digits) <= _LONGEST_WHOLE:
        with suppress(ValueError):
            return int(digits)
    with suppress(ValueError):
        return float(digits)
    return None


def _without_spaces(text: str) -> str:
    """Return the text of a number without spaces around it, non-breaking ones too.

    It is empty if only Python reads a number there: with underscores, digits of other scripts, or ``inf``.
    """
    text = text.strip()
    return text if text.isascii() and "_" not in text and "n" not in text and "N" not in text else ""


def comparable(value: object) -> str | int | float | None:
    """Return a record's value as a key of ``listed_as``; None: it can match no listed value.

    >>> [comparable(value) for value in ("FR", 7, 200.0, True, None, ["FR"])]
    ['FR', 7, 200.0, 'true', None, None]
    """
    if isinstance(value, bool):  # which Python holds equal to 1 and 0
        return "true" if value else "false"
    return value if isinstance(value, str | int | float) else None


def as_listed(column: Sequence[Any]) -> Sequence[Any]:
    """Return records' values as keys of ``listed_as``: each as ``comparable`` returns it."""
    return column if set(map(type, column)) <= _PLAIN else each_once(comparable, column)


def listed_as(values: Iterable[str]) -> dict[str | int | float, int]:
    """Return the place of each listed value, by the form that ``comparable`` gives to values of records.

    A text equals the same text. A number equals a listed number of equal value, so 200.0 equals 200; of
    several ones the shortest. The truth values equal ``true`` and ``false``.

    >>> [listed_as(["200.0", "200", "1e1"]).get(comparable(one)) for one in ("200", 200.0, 10, "10", True)]
    [1, 1, 2, None, None]
    """
    places: dict[str | int | float, int] = {}
    for place, value in enumerate(values):
        number = _listed_number(value)
        if number is not None and (number not in places or value == _shortest(number)):
            places[number] = place
        places[value] = place
    return places


def one_number(values: Iterable[str]) -> tuple[str, str, str] | None:
    """Return two values of a list that mean one number, and the number; None if there are none.

    Two such values are allowed if the list also has the number in its shortest form.

    >>> one_number(["3.1", "3.10"]), one_number(["2.0", "2.00"])
    (None, ('2.0', '2.00', '2'))
    """
    found: dict[int | float, str] = {}
    for value in (listed := tuple(values)):
        if (number := _listed_number(value)) is not None and _shortest(number) not in listed:
            if number in found:
                return found[number], value, _shortest(number)
            found[number] = value
    return None


def each_once(function: Callable[[Any], Any], column: Sequence[Any]) -> list[Any]:
    """Return a function's result for each value; it is called once for each different text or truth value.

    >>> each_once(len, ["/a", "/b/c", "/a"])
    [2, 4, 2]
    """
    if not set(map(type, column)) <= _TOLD_APART:
        return list(map(function, column))
    made = {value: function(value) for value in set(column)}
    return list(map(made.__getitem__, column))


def users_in(column: Iterable[object]) -> list[str]:
    """Return the name of the user that each value is; empty if it names none.

    A user has one name, whether a producer writes 7 or 7.0. A double that is too large to say which whole
    number was written names nobody.

    >>> users_in(["ann", 7, 7.0, "", 1.5, 1e300, True, None])
    ['ann', '7', '7', '', '', '', '', '']
    """
    return [value if type(value) is str else _as_user(value) for value in column]


def _listed_number(text: str) -> int | float | None:
    """Return the number that a text in a configuration means; None if the text is no number."""
    if not is_plain(text) or "/" in text:
        return None
    number = number_in(text)
    return number if number is not None and math.isfinite(number) else None


def _shortest(number: float) -> str:
    return str(int(number) if number == int(number) and abs(number) < _LARGEST_EXACT else number)


def _as_user(value: object) -> str:
    if type(value) is float and value.is_integer() and abs(value) < _LARGEST_EXACT:
        value = int(value)
    with suppress(ValueError):  # Python writes no whole number of more than 4,300 digits
        return str(value) if type(value) is int else ""
    return ""


def _as_double(value: object) -> float:
    """Return the value as a number, NaN if it is not a number."""
    if isinstance(value, str):
        try:
            number = float(value)
            is_plain_text = math.isfinite(number) and value.isascii() and "_" not in value
            return number if is_plain_text else float(_without_spaces(value))
        except ValueError:
            return np.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        return np.nan
    try:
        return float(value)
    except OverflowError:  # whole numbers may be larger than every double
        return np.inf if value > 0 else -np.inf
