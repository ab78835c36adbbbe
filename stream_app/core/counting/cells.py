"""The cells of its bin that an event counts in: its key's place in a list, its value's bucket, its amount.

A record's cells, or the reason why it has none, depend on its own fields only. The list of keys, the edges
of the buckets and the range of the amount are declared, never learned from data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product, repeat
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.product.sums import AmountRange
from stream_app.core.counting.axis import Axis as Axis
from stream_app.core.counting.axis import Option as Option
from stream_app.core.counting.bins import aggregate
from stream_app.core.counting.normalise import Normalise, normalised
from stream_app.core.counting.read_values import comparable, listed_as, numbers
from stream_app.core.counting.unlisted import OTHER as OTHER
from stream_app.core.counting.unlisted import Discover
from stream_app.core.incoming import Reason

ANY = "*"  # in a pattern of keys: any value of a field
_PARTS = re.compile(r"((?:[^/\\]|\\.)*)/", re.DOTALL)  # the parts of a label, which each end with a slash
_NONE = -1
_PLAIN_TYPES = {str, int, float, type(None)}


class KeyField(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True, rename={"names": "list"}):
    """A field whose values are listed. Args: as of ``KeyList``."""

    field: str
    names: tuple[str, ...]
    other: bool

    @cached_property
    def values(self) -> tuple[str, ...]:
        """Return the value at each place of the list, ``other`` included."""
        return (*self.names, OTHER) if self.other else self.names

    @cached_property
    def _places(self) -> dict[str | int | float, int]:
        return listed_as(self.names)

    def places(self, column: Sequence[Any]) -> Int64Array:
        """Return the place in the list of each event's value, -1 if it has none.

        Args: column, the values as read; ``read_values.listed_as`` says which of them are on a list.
        """
        missing = len(self.names) if self.other else _NONE
        if not set(map(type, column)) <= _PLAIN_TYPES:
            column = list(map(comparable, column))
        return np.fromiter(map(self._places.get, column, repeat(missing)), np.int64, len(column))


class KeyList(Axis, frozen=True, rename={"names": "list"}):
    """The keys that are counted separately: the values of one field, or every combination of several fields.

    Args:
        field: the column of keys, with dots for nested objects.
        names: the public list.
        other: whether all other keys count as ``other``; else their events are refused.
        total: whether the total over keys is measured too, with its own share of epsilon.
        fields: of a stream with several key fields, which has no ``field``, ``names`` and ``other`` then.
        discover: how keys beside the list are found; None: they are not. With it ``other`` is no key of the
            list, but the total less all keys, at the place after them.
        normalise: how values become keys; None: as they are.
    """

    field: str = ""
    names: tuple[str, ...] = ()
    other: bool | None = None
    total: bool | None = None
    fields: tuple[KeyField, ...] = ()
    discover: Discover | None = None
    normalise: Normalise | None = None

    @cached_property
    def parts(self) -> tuple[KeyField, ...]:
        """Return every field with its values; the first one varies slowest in the list of keys."""
        return self.fields or (KeyField(self.field, self.names, bool(self.other)),)

    @cached_property
    def count(self) -> int:
        """Return the number of places of keys, that of ``other`` included."""
        return math.prod(self.sizes)

    def with_found(self, names: tuple[str, ...]) -> KeyList:
        """Return the list with keys that were found."""
        return msgspec.structs.replace(self, names=self.names + names)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of values of each field."""
        return tuple(len(part.values) for part in self.parts)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns from which an event's key is determined."""
        return tuple(part.field for part in self.parts)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Return the key at each place of the list, ``other`` included.

        >>> keys = KeyList(fields=(KeyField("c", ("FR", "a/b"), False), KeyField("d", ("tv",), True)))
        >>> keys.labels
        ('FR/tv', 'FR/other', 'a\\\\/b/tv', 'a\\\\/b/other')
        """
        if not self.fields:
            return self.names if self.discover is not None else self.parts[0].values
        return tuple(map("/".join, product(*self._written)))

    @cached_property
    def _written(self) -> tuple[tuple[str, ...], ...]:
        """The values of each field as parts of a label, so that no two combinations have one label."""
        return tuple(tuple(map(_escaped, part.values)) for part in self.parts)

    @cached_property
    def place_of_label(self) -> dict[str, int]:
        """Return the place of each key by its label, ``other`` included."""
        labels = self.labels if self.discover is None else (*self.labels, OTHER)
        return {label: place for place, label in enumerate(labels)}

    def matching(self, pattern: str) -> tuple[int, ...]:
        """Return the places of the keys that match a pattern: of several fields, or the start of a found key.

        >>> keys = KeyList(fields=(KeyField("c", ("FR", "DE"), False), KeyField("d", ("tv", "pc"), False)))
        >>> keys.matching("DE/*"), keys.matching("*/tv"), keys.matching("FR/radio"), keys.matching("FR")
        ((2, 3), (0, 2), (), ())
        """
        if not (chosen := self._chosen(pattern)):
            return ()
        places = np.arange(math.prod(self.sizes)).reshape(self.sizes)[
            np.ix_(*(np.array(one, np.int64) for one in chosen))
        ]
        return tuple(places.ravel().tolist())

    def matches(self, pattern: str) -> bool:
        """Return whether a pattern matches keys. Cost: of several fields, the same for any number of keys."""
        chosen = self._chosen(pattern)
        return bool(chosen) and all(chosen)

    def _chosen(self, pattern: str) -> list[Sequence[int]]:
        """Return the places of the values that a pattern chooses, by field; none if it is no pattern."""
        if self.discover is not None and pattern.endswith(ANY):
            return [[at for at, label in enumerate(self.labels) if label.startswith(pattern[:-1])]]
        written = _PARTS.findall(f"{pattern}/") if self.fields else []
        if len(written) != len(self.parts) or "".join(f"{one}/" for one in written) != f"{pattern}/":
            return []
        return [
            range(len(places)) if one == ANY else [places[one]] if one in places else []
            for one, places in zip(written, self._places_written, strict=True)
        ]

    @cached_property
    def _places_written(self) -> tuple[dict[str, int], ...]:
        return tuple({one: place for place, one in enumerate(values)} for values in self._written)

    @property
    def a_pattern(self) -> str:
        """Return one pattern that matches keys; empty if there is only one field."""
        return self.pattern_of(0, 0) if self.fields else ""

    def pattern_of(self, field: int, value: int) -> str:
        """Return the pattern of all keys with one value of one field. Args: the field's and value's index."""
        return "/".join(self._written[field][value] if at == field else ANY for at in range(len(self.sizes)))

    def values_at(self, place: int) -> dict[str, str]:
        """Return the value of each field for the key at a place; empty if there is only one field."""
        if not self.fields:
            return {}
        indices = np.unravel_index(place, self.sizes)
        return {part.field: part.values[index] for part, index in zip(self.parts, indices, strict=True)}

    def places(self, *columns: Sequence[Any]) -> Int64Array:
        """Return the place in the list of each event's key, -1 if it has none.

        Args: for each field the values as read.

        >>> KeyList("c", ("UA", "7"), False, False).places(["UA", 7, 7.0, "7.0", "AA", None]).tolist()
        [0, 1, 1, -1, -1, -1]
        """
        columns = tuple(normalised(self.normalise, column) for column in columns)
        first, *others = (part.places(column) for part, column in zip(self.parts, columns, strict=True))
        for size, places in zip(self.sizes[1:], others, strict=True):
            first = np.where((first < 0) | (places < 0), _NONE, first * size + places)
        return first


def _escaped(value: str) -> str:
    """Return a value as a part of a label: a slash, a backslash and a lone star get a backslash before them.

    >>> print(_escaped("/price"), _escaped("*"), _escaped("5*"))
    \\/price \\* 5*
    """
    return "\\*" if value == ANY else value.replace("\\", "\\\\").replace("/", "\\/")


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

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the column that is read."""
        return (self.field,)

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


class Amounts(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    dict=True,
    rename={"low": "min", "high": "max"},
):
    """A number that is added up: moved into a range, then rounded to the nearest unit.

    Args: field, the column of amounts, with dots for nested objects; low and high, the ends of the range, and
        both whole multiples of the unit.

    >>> amounts = Amounts("a", Fraction(-1), Fraction(500), Fraction(1, 100))
    >>> amounts.range, amounts.places([19.99, "-3", 501, None]).tolist()
    (AmountRange(low=-100, high=50000), [2099, 0, 50100, -1])
    """

    field: str
    low: Fraction
    high: Fraction
    unit: Fraction

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the column that is read."""
        return (self.field,)

    @cached_property
    def range(self) -> AmountRange:
        """Return the range in units."""
        return AmountRange(int(self.low / self.unit), int(self.high / self.unit))

    def places(self, column: Sequence[Any]) -> Int64Array:
        """Return each event's amount in units from ``low``, -1 if it is no number. Args: as ``Buckets``."""
        values = numbers(column)
        none = np.isnan(values)
        inside = np.clip(np.where(none, float(self.low), values), float(self.low), float(self.high))
        units = np.rint((inside - float(self.low)) / float(self.unit)).astype(np.int64)
        return np.where(none, _NONE, np.clip(units, 0, self.range.weight))


@dataclass(frozen=True)
class Cells:
    """The cells of a bin: every key with every bucket, key by key; one cell if there are no keys and buckets.

    With amounts, every key has two cells, one for each end of the range. ``assign`` then returns a place for
    every key and amount, and ``added`` the sums that events at these places add to the cells. Otherwise a
    place is a cell.

    Args: keys, buckets, amounts: None if the stream has no such axis; never buckets beside amounts; unlisted,
        how many keys are counted that no list names, each after all others.
    """

    keys: KeyList | None = None
    buckets: Buckets | None = None
    amounts: Amounts | None = None
    unlisted: int = 0

    @property
    def width(self) -> int:
        """Return the number of cells."""
        of_key = 2 if self.amounts else self.buckets.count if self.buckets else 1
        return ((self.keys.count if self.keys else 1) + self.unlisted) * of_key

    @property
    def weight(self) -> int:
        """Return the number that one event adds to all cells together: 1 for counts."""
        return self.amounts.range.weight if self.amounts else 1

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the columns from which an event's cells are determined, each once."""
        axes = (self.keys, self.buckets, self.amounts)
        return tuple(dict.fromkeys(column for axis in axes if axis for column in axis.columns))

    @property
    def places(self) -> int:
        """Return the number of places."""
        return self.width // 2 * (self.weight + 1) if self.amounts else self.width

    @property
    def key_places(self) -> int:
        """Return how many consecutive places belong to one key: its buckets, or its amounts."""
        return self.places // (self.keys.count + self.unlisted if self.keys else 1)

    def keys_of(self, places: Int64Array) -> Int64Array:
        """Return a number for each place; places with equal numbers add to the same cells."""
        return places // (self.weight + 1) if self.amounts else places

    def added(
        self, bins: Int64Array, places: Int64Array, numbers: Int64Array | None = None
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return bins, cells and deltas of events: each (bin, cell) once, sorted, with the sum that it gets.

        Args: bins and places of the events, shape (n,); numbers, as in ``aggregate``, of counts.

        >>> amounts = Amounts("a", Fraction(0), Fraction(5), Fraction(1))
        >>> added = Cells(amounts=amounts).added(np.array([7, 7, 9]), np.array([1, 4, 5]))
        >>> [column.tolist() for column in added]
        [[7, 7, 9], [0, 1, 1], [5, 5, 5]]
        """
        if self.amounts is None:
            return aggregate(bins, places, self.width, numbers)
        keys, units = np.divmod(places, self.weight + 1)
        pairs, rows, events = np.unique(
            bins * (self.width // 2) + keys, return_inverse=True, return_counts=True
        )
        high = np.zeros(len(pairs), np.int64)
        np.add.at(high, rows, units)  # in whole numbers, unlike bincount
        cells = np.stack([2 * pairs, 2 * pairs + 1], axis=-1).ravel()  # of all bins, one bin after the other
        deltas = np.stack([self.weight * events - high, high], axis=-1).ravel()
        some = deltas > 0
        return (*np.divmod(cells[some], self.width), deltas[some])

    def assign(
        self, columns: Mapping[str, Any], events: slice
    ) -> tuple[Int64Array, dict[Reason, NDArray[np.bool_]]]:
        """Return the place of each event, and for each reason the events that have none.

        Args: columns of a batch; events, the part of the batch.
        """
        count = events.stop - events.start
        cells = np.zeros(count, dtype=np.int64)
        refused: dict[Reason, NDArray[np.bool_]] = {}
        good = np.ones(count, dtype=np.bool_)
        for axis, size, reason in (
            (self.keys, 1, Reason.UNKNOWN_KEY),
            (self.buckets, self.buckets.count if self.buckets else 1, Reason.BAD_VALUE),
            (self.amounts, self.weight + 1, Reason.BAD_VALUE),
        ):
            if axis is None:
                continue
            places = axis.places(*(columns[column][events].tolist() for column in axis.columns))
            none = good & (places < 0)
            if none.any():
                refused[reason] = none
                good &= ~none
            cells = cells * size + np.maximum(places, 0)
        return cells * good, refused
