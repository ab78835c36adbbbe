"""The cells of its bin that an event counts in: its key's place in a list, its value's bucket, its amount.

A record's cells, or the reason why it has none, depend on its own fields only. The list of keys, the edges
of the buckets and the range of the amount are declared, never learned from data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.product.sums import AmountRange
from stream_app.core.coded import Column, for_each
from stream_app.core.counting.bins import aggregate
from stream_app.core.counting.keys import Axis, KeyList
from stream_app.core.counting.read_values import numbers
from stream_app.core.incoming import Reason

_NONE = -1


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
        return (self.field,)

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """Return the start of each bucket and the end of the last one: shape (count + 1,)."""
        step = (self.high - self.low) / self.count
        return np.array([float(self.low + step * edge) for edge in range(self.count + 1)])

    def places(self, column: Column) -> Int64Array:
        """Return each event's bucket, -1 if its value is not a number. Args: numbers, or their texts."""
        values = for_each(column, numbers)
        buckets = np.searchsorted(self.edges[1:-1], values, side="right").astype(np.int64)
        buckets[np.isnan(values)] = _NONE
        return buckets


class Amounts(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True, rename={"low": "min", "high": "max"}
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
        return (self.field,)

    @cached_property
    def range(self) -> AmountRange:
        """Return the range in units."""
        return AmountRange(int(self.low / self.unit), int(self.high / self.unit))

    def places(self, column: Column) -> Int64Array:
        """Return each event's amount in units from ``low``, -1 if it is no number. Args: as ``Buckets``."""
        values = for_each(column, numbers)
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
            places = axis.places(*(columns[column][events] for column in axis.columns))
            none = good & (places < 0)
            if none.any():
                refused[reason] = none
                good &= ~none
            cells = cells * size + np.maximum(places, 0)
        return cells * good, refused
