"""The cell of its bin that an event counts in: its key's place in a public list, and its value's bucket.

A record's cell, or the reason why it has none, depends on its own fields only. The list of keys and the
edges of the buckets are declared, never learned from data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from stream_app.core.records import Reason

OTHER = "other"  # the key for all events whose key is not on the list
_NONE = -1
_NUMBERS = {int, float}
_LONGEST_NUMBER = 40
_NOTHING = Fraction(0)
Option = bool | int | float | str | list[int] | None  # a JSON value that a mechanism's option may have


class Axis(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True, kw_only=True
):
    """How the counts of keys or buckets are released: live, or once per tumbling window.

    Args: for windows only: their length, mechanism, share of epsilon and the mechanism's options.
    """

    mode: Literal["tree", "window"] = "tree"
    window_us: int = 0
    mechanism: str = ""
    share: Fraction = _NOTHING
    options: dict[str, Option] = {}

    def __post_init__(self) -> None:
        """Set default values to the default objects: the text omits a field only if it holds that object."""
        if self.mode == "tree":
            msgspec.structs.force_setattr(self, "mode", "tree")
        if self.share == _NOTHING:
            msgspec.structs.force_setattr(self, "share", _NOTHING)


class KeyList(Axis, frozen=True, rename={"names": "list"}):
    """The keys that are counted separately.

    Args:
        field: the column of keys, with dots for nested objects.
        names: the public list.
        other: whether all other keys count as ``other``; else their events are refused.
        total: whether the total over keys is measured too, with its own share of epsilon.
    """

    field: str
    names: tuple[str, ...]
    other: bool
    total: bool

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Return the key at each place of the list, ``other`` included."""
        return (*self.names, OTHER) if self.other else self.names

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def places(self, column: Sequence[Any]) -> Int64Array:
        """Return the place in the list of each event's key, -1 if it has none.

        Args: column, the keys as read; only texts, whole numbers and truth values are keys.

        >>> KeyList("c", ("UA", "7"), False, False).places(["UA", 7, "AA", None]).tolist()
        [0, 1, -1, -1]
        """
        missing = len(self.names) if self.other else _NONE
        known = self._places
        try:
            found = [known.get(key, _NONE) for key in column]
        except TypeError:  # a key that cannot be hashed is on no list
            found = [known.get(key, _NONE) if isinstance(key, str) else _NONE for key in column]
        places = np.array(found, dtype=np.int64)
        for index in np.flatnonzero(places == _NONE).tolist():
            places[index] = known.get(_as_text(column[index]), missing)
        return places


class Buckets(Axis, frozen=True, rename={"low": "min", "high": "max", "count": "buckets"}):
    """A range of values in buckets of equal width; values outside count in the first or the last bucket.

    Args: field, the column of values, with dots for nested objects; low and high, the ends of the range;
        count, the number of buckets.

    >>> buckets = Buckets("v", Fraction(0), Fraction(10), 4)
    >>> buckets.edges.tolist(), buckets.places([-3, 2.5, "9.99", 10, None]).tolist()
    ([0.0, 2.5, 5.0, 7.5, 10.0], [0, 1, 3, 3, -1])
    """

    field: str
    low: Fraction
    high: Fraction
    count: int

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """Return the start of each bucket and the end of the last one: shape (count + 1,)."""
        step = (self.high - self.low) / self.count
        return np.array([float(self.low + step * edge) for edge in range(self.count + 1)])

    def places(self, column: Sequence[Any]) -> Int64Array:
        """Return each event's bucket, -1 if its value is not a number. Args: numbers, or their texts."""
        values = numbers(column)
        buckets = np.searchsorted(self.edges[1:-1], values, side="right").astype(np.int64)
        buckets[np.isnan(values)] = _NONE
        return buckets


@dataclass(frozen=True)
class Cells:
    """The cells of a bin: every key with every bucket, key by key; one cell if there are no keys and buckets.

    Args: keys, buckets: None if the stream has no such axis.
    """

    keys: KeyList | None = None
    buckets: Buckets | None = None

    @property
    def width(self) -> int:
        """Return the number of cells."""
        return (len(self.keys.labels) if self.keys else 1) * (self.buckets.count if self.buckets else 1)

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the columns from which an event's cell is determined, each once."""
        return tuple(dict.fromkeys(axis.field for axis in (self.keys, self.buckets) if axis))

    def assign(
        self, columns: Mapping[str, Any], events: slice
    ) -> tuple[Int64Array, dict[Reason, NDArray[np.bool_]]]:
        """Return the cell of each event, and for each reason the events that have no cell.

        Args: columns of a batch; events, the part of the batch.
        """
        count = events.stop - events.start
        cells = np.zeros(count, dtype=np.int64)
        refused: dict[Reason, NDArray[np.bool_]] = {}
        good = np.ones(count, dtype=np.bool_)
        for axis, size, reason in (
            (self.keys, 1, Reason.UNKNOWN_KEY),
            (self.buckets, self.buckets.count if self.buckets else 1, Reason.BAD_VALUE),
        ):
            if axis is None:
                continue
            places = axis.places(columns[axis.field][events])
            none = good & (places < 0)
            if none.any():
                refused[reason] = none
                good &= ~none
            cells = cells * size + np.maximum(places, 0)
        return cells * good, refused


def numbers(column: Sequence[Any]) -> NDArray[np.float64]:
    """Return the values as doubles, NaN where there is no number. Args: numbers, or their texts.

    >>> numbers([1, "2.5", True, None, 10**400]).tolist()
    [1.0, 2.5, nan, nan, inf]
    """
    read = _bounded if set(map(type, column)) <= _NUMBERS else _as_number
    return np.array([read(value) for value in column], dtype=np.float64)


def _as_text(key: object) -> str:
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
    return _bounded(value)


def _bounded(value: int | float) -> float:
    """Return a number as a double; whole numbers may be larger than every double."""
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf
