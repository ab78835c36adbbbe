"""Columns by their different values: what follows from a value is computed once, not for each record."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A column of n records.

    Args: values, in any order, a value may also be there twice or be no record's; codes, of each record the
        place of its value, shape (n,).

    >>> column = Coded(["/a", "/b"], np.array([0, 1, 0]))
    >>> column[1:].tolist(), list(column), len(column)
    (['/b', '/a'], ['/a', '/b', '/a'], 3)
    """

    values: Sequence[Any]
    codes: Int64Array

    @classmethod
    def of(cls, column: Sequence[Hashable]) -> Coded:
        """Return values of one type as a coded column, each different value once."""
        places = {value: place for place, value in enumerate(dict.fromkeys(column))}
        return cls(list(places), np.fromiter(map(places.__getitem__, column), np.int64, len(column)))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, records: slice | NDArray[Any]) -> Coded:
        return Coded(self.values, self.codes[records])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.tolist(), dtype=object if dtype is None else dtype)

    def tolist(self) -> list[Any]:
        """Return the value of each record."""
        return list(map(self.values.__getitem__, self.codes.tolist()))


Column = Coded | NDArray[Any] | Sequence[Any]


def for_each(column: Column, function: Callable[[Sequence[Any]], NDArray[Any]]) -> NDArray[Any]:
    """Return an array of what a function makes of each value.

    >>> for_each(Coded(["/a", "/bc"], np.array([0, 1, 0])), lambda values: np.array(list(map(len, values))))
    array([2, 3, 2])
    """
    if isinstance(column, Coded):
        return function(column.values)[column.codes]
    return function(_listed(column))


def mapped(column: Column, function: Callable[[Sequence[Any]], Sequence[Hashable]]) -> Coded:
    """Return what a function makes of each value, coded: each different result once.

    >>> mapped(["a", "B", "b"], lambda values: [value.lower() for value in values]).codes.tolist()
    [0, 1, 1]
    """
    if not isinstance(column, Coded):
        return Coded.of(function(_listed(column)))
    of_values = Coded.of(function(column.values))
    return Coded(of_values.values, of_values.codes[column.codes])


def joined(columns: Sequence[Any]) -> Any:
    """Return consecutive parts of a column, at least one, as one column."""
    if not isinstance(columns[0], Coded):
        return np.concatenate(columns)
    starts = np.cumsum([0, *(len(column.values) for column in columns[:-1])])
    codes = [column.codes + start for column, start in zip(columns, starts, strict=True)]
    return Coded([value for column in columns for value in column.values], np.concatenate(codes))


def pairs(first: Int64Array, column: Coded) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the different pairs of a number and a code, in order, and of each record the place of its pair.

    Args: first, the number of each record; column, the value of each record.

    >>> [found.tolist() for found in pairs(np.array([9, 4, 9]), Coded(["a", "b"], np.array([0, 1, 0])))]
    [[4, 9], [1, 0], [1, 0, 1]]
    """
    numbers, which = np.unique(first, return_inverse=True)
    width = max(len(column.values), 1)
    found, places = used(which * width + column.codes, len(numbers) * width)
    of_number, codes = np.divmod(found, width)
    return numbers[of_number], codes, places


def used(codes: Int64Array, width: int) -> tuple[Int64Array, Int64Array]:
    """Return the different codes, in order, and of each record the place of its code.

    Args: codes, of each record one, at least 0 and below width.

    >>> [found.tolist() for found in used(np.array([7, 2, 7]), 9)]
    [[2, 7], [1, 0, 1]]
    """
    if width > 8 * len(codes):
        return np.unique(codes, return_inverse=True)
    is_used = np.zeros(width, np.bool_)  # to mark codes takes a tenth of the time that sorting takes
    is_used[codes] = True
    return np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[codes]


def _listed(column: NDArray[Any] | Sequence[Any]) -> Sequence[Any]:
    return column.tolist() if isinstance(column, np.ndarray) else column
