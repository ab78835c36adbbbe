"""The forms of a view's answer: points of a series, the rows that it lacks, or a refusal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.law import LawTable
from dphist.product.columns import KeyPlaces
from dphist.tree.estimate import Estimate
from stream_app.core.answers.asked_keys import AskedKeys, KeyNameError
from stream_app.core.counting.keys import KeyList
from stream_app.core.kinds.tables import Span
from stream_app.core.strategy import Strategy

_LEAST = 1e-9  # rounding errors of sums of doubles, of counts below 10^6, where no bound is stated


class Missing(NamedTuple):
    """Visible rows of a table that a view lacks, starting at row ``first``."""

    epoch: int
    table: str
    first: int
    rows: int


class QueryError(ValueError):
    """A question that cannot be answered: one line with what, where and the remedy.

    Args: the parameter at fault, and valid times near it in microseconds; known_keys, the end of the
        line: keys that the question did not name, which not every reader may see.
    """

    def __init__(
        self, line: str, parameter: str, nearest_us: Sequence[int] = (), known_keys: str = ""
    ) -> None:
        super().__init__(line + known_keys)
        self.parameter = parameter
        self.nearest_us = tuple(nearest_us)
        self.line, self.known_keys = line, known_keys

    def __reduce__(self) -> tuple[type[QueryError], tuple[object, ...]]:
        """Return the arguments from which pickle creates the error again in another process."""
        return type(self), (self.line, self.parameter, self.nearest_us, self.known_keys)


def declared_keys(strategy: Strategy, remedy: str) -> KeyList:
    """Return the keys that have counts over any range. Raises: QueryError with the remedy if none have."""
    if strategy.axes.keys is not None:
        return strategy.axes.keys
    if strategy.declared.keys is not None:
        raise QueryError("this stream's keys are counted in windows only; ask for /window", "stream")
    raise QueryError(f"this stream has no keys; {remedy}", "stream")


def places_of(strategy: Strategy, key: str | AskedKeys) -> KeyPlaces:
    """Return the place of a key in a stream's list, or the places of several.

    Raises: QueryError for a key that is not on the list, or is named twice.
    """
    asked = AskedKeys((key,)) if isinstance(key, str) else key
    keys, parameter = strategy.axes.keys, "not_key" if asked.without else "key"
    if keys is None:
        known = "this stream has no keys"
        if strategy.declared.keys:
            known = "this stream has keys in windows only; ask for /window"
        line = f"{parameter}: {asked.names[0][:80]!r} is not on the public list; {known}"
        raise QueryError(line, parameter)
    try:
        return asked.places(keys)
    except KeyNameError as refusal:
        line = f"{parameter}: {refusal}".removesuffix(refusal.known)
        raise QueryError(line, parameter, known_keys=refusal.known) from None


@dataclass(frozen=True, slots=True)
class SeriesPoints:
    """Points of a series: each point's range and value, and the law and rounding of its error.

    Args: available, the number of points asked for, before downsampling; unmeasured, how many of them were
        left out because no epoch measured some of their bins.
    """

    spans: Sequence[Span]
    values: FloatArray
    laws: LawTable
    roundings: FloatArray
    available: int
    unmeasured: int


def downsampled(values: FloatArray, points: int) -> Int64Array:
    """Return the indices of the values to show, rising, at most ``points``.

    They are the first, the last, and the lowest and the highest value of every stretch between them.

    >>> downsampled(np.array([0.0, 1, 9, 1, 1, -5, 1, 0]), 6).tolist()
    [0, 1, 2, 4, 5, 7]
    """
    if len(values) <= points:
        return np.arange(len(values))
    if points < 4:
        return np.array([0, len(values) - 1])[-points:]
    edges = np.linspace(1, len(values) - 1, (points - 2) // 2 + 1).astype(np.int64)
    shown = {0, len(values) - 1}
    for start, stop in pairwise(edges):
        stretch = values[start:stop]
        shown |= {int(start + stretch.argmin()), int(start + stretch.argmax())}
    return np.array(sorted(shown), dtype=np.int64)


def whole_estimate(found: Estimate) -> Estimate:
    """Return an estimate of counts without its rounding error, if it has no noise.

    A true count is a whole number. If the law of the error is 0, the true count is at most ``rounding`` away,
    and so it is known. An estimate with noise, or one that is not near a whole number, stays as it is.

    >>> from dphist.laws.law import WeightedNoise
    >>> whole_estimate(Estimate(12.000000001, 0.0, WeightedNoise.of([]), 1e-6)).interval().upper
    12.0
    """
    if found.variance > 0.0:
        return found
    whole = np.rint(found.value)
    if np.any(np.abs(whole - found.value) > _bound(np.asarray(found.rounding))):
        return found
    return replace(found, value=whole if np.ndim(whole) else float(whole), rounding=0.0)


def whole_points(found: SeriesPoints) -> SeriesPoints:
    """Return points of counts; those without noise are rounded to whole numbers, as by ``whole_estimate``."""
    whole = np.rint(found.values)
    near = np.abs(whole - found.values) <= _bound(found.roundings)
    known = near & (found.laws.deviations() == 0.0)
    values, roundings = np.where(known, whole, found.values), np.where(known, 0.0, found.roundings)
    return replace(found, values=values, roundings=roundings)


def _bound(roundings: FloatArray) -> FloatArray:
    """Return how far rounding may have moved a count; 0.4 at most, or another whole number would be near."""
    return np.asarray(np.minimum(np.maximum(roundings, _LEAST), 0.4))
