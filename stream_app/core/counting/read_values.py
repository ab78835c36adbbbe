"""Values as they were read, as numbers and as texts of keys."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBERS = {int, float}
_LONGEST_NUMBER = 40


def numbers(column: Sequence[Any]) -> NDArray[np.float64]:
    """Return the values as doubles, NaN where there is no number. Args: numbers, or their texts.

    >>> numbers([1, "2.5", True, None, 10**400]).tolist()
    [1.0, 2.5, nan, nan, inf]
    """
    if set(map(type, column)) <= _NUMBERS:
        with suppress(OverflowError):  # of a whole number that is larger than every double
            return np.array(column, dtype=np.float64)
    return np.array([_as_number(value) for value in column], dtype=np.float64)


def as_text(key: object) -> str:
    """Return a key as it is written in a list; empty if it is no text, whole number or truth value."""
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key) if isinstance(key, str | int) else ""


def _as_number(value: object) -> float:
    """Return the value as a number, NaN if it is not a number."""
    if isinstance(value, str) and len(value) <= _LONGEST_NUMBER:
        try:
            value = float(value)
        except ValueError:
            return np.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        return np.nan
    try:
        return float(value)
    except OverflowError:  # whole numbers may be larger than every double
        return np.inf if value > 0 else -np.inf
