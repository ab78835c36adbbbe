"""Fixed weighted sums of columns: a key's count, or the count over all keys, from released columns.

The weights of the key and value axes are the same at all times. So a series of counts is one matrix-vector
product, and the law of each error follows from the laws over time.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property, lru_cache

import numpy as np

from dphist import units
from dphist.arrays import FloatArray, Int64Array
from dphist.laws.law import LawTable, WeightedNoise
from dphist.product.axis import KeyAxis
from dphist.product.design import ColumnDesign, ProductDesign, TreeGroup
from dphist.product.forest import RangeSum
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate
from dphist.tree.forest_laws import RangeErrors, forest_errors, live_errors
from dphist.tree.upward import MOST_EVENTS
from dphist.tree.weights import WeightedRange

# Weight that an epoch of sums may hold. Half of what its numbers can, so that the check sees it in time.
MOST_WEIGHT = MOST_EVENTS

KeyPlaces = int | tuple[int, ...]  # indices in the list of keys: of one key, or of several together


class ColumnSum:
    """The best estimate of a weighted sum of buckets, for one key, several keys or all together (None).

    Args, Raises: key as in ``key_weights``; buckets, the weight of each bucket, shape (buckets,), by default
        1; divisor, by which the sum is divided, by default the weight of an event, so that it counts events.
    """

    def __init__(
        self,
        design: ColumnDesign,
        key: int | Sequence[int] | None = None,
        buckets: FloatArray | None = None,
        divisor: int | None = None,
    ) -> None:
        self.design = design
        self.divisor = float(design.weight if divisor is None else divisor)
        self._buckets = buckets
        prefixes = design.values.prefix_weights
        if buckets is None:
            of_value = [weights[-1] for weights in prefixes]
        else:
            # A bucket is the difference of two prefixes.
            steps = buckets - np.append(buckets[1:], 0.0)
            of_value = [steps @ weights for weights in prefixes]
        self.of_value: list[FloatArray] = of_value  # for each level of values, the weight of each column
        of_total, of_keys = key_weights(design.keys, key)
        self.parts: list[FloatArray] = []
        for group in design.groups:
            of_key = np.array([of_total]) if group.total else of_keys
            self.parts.append(np.outer(of_key, of_value[group.value_level - 1]).ravel())

    def over(self, design: ColumnDesign) -> ColumnSum:
        """Return the same sum of the columns of another design, which has equal axes of keys and values."""
        if design is self.design:
            return self
        own = copy(self)
        own.design = design
        return own

    def of_keys(self, design: ColumnDesign, key: KeyPlaces | None) -> ColumnSum:
        """Return the same sum for other keys of another design, which has the same buckets."""
        if self._buckets is None:
            return column_sum(design, key)
        own = ColumnSum(design, key, self._buckets)
        own.divisor = self.divisor
        return own

    @cached_property
    def weights(self) -> FloatArray:
        """The weight of every column, shape (columns,)."""
        return self.numerators / self.divisor

    @cached_property
    def numerators(self) -> FloatArray:
        """The weights times the divisor: whole numbers stay exact in a sum that is divided at its end."""
        return np.concatenate(self.parts)

    @cached_property
    def _repeated(self) -> list[list[tuple[float, int]]]:
        """For each group, the different weights of its columns, and how many columns have each."""
        return [
            [(weight / self.divisor, copies) for weight, copies in weight_groups(part)] for part in self.parts
        ]

    def law(self, laws: Sequence[WeightedNoise]) -> WeightedNoise:
        """Return the law of the sum's error. Args: laws, per group the law of one column's error."""
        return WeightedNoise.weighted(
            (weight, copies, law)
            for repeated, law in zip(self._repeated, laws, strict=True)
            for weight, copies in repeated
        )

    def rounding(self, bounds: Sequence[float]) -> float:
        """Return a bound on the sum's rounding error. Args: bounds, per group the bound for one column."""
        columns = zip(self.parts, bounds, strict=True)
        return sum(float(np.abs(part).sum()) * bound for part, bound in columns if bound) / self.divisor

    def value_of(self, total: RangeSum) -> float:
        """Return the sum over a range of time, without the law of its error. Cost: O(columns)."""
        # One division at the end: sums of whole numbers stay exact.
        columns = zip(self.parts, total.groups, strict=True)
        return sum(float(part @ group.values.ravel()) for part, group in columns) / self.divisor

    def of_range(self, total: RangeSum) -> Estimate:
        """Return the sum over a range of time, with the exact law of its error."""
        law = self.law([group.law for group in total.groups])
        rounding = self.rounding([group.rounding for group in total.groups])
        return Estimate(self.value_of(total), law.variance, law, rounding)

    def weighted_law(self, bins: int, ranges: tuple[WeightedRange, ...]) -> WeightedNoise:
        """Return the exact law of the error of a weighted sum of ranges of one epoch, as ``weights.py``."""
        return self.law([group.weighted_law(bins, ranges) for group in self.design.groups])

    def published_laws(self, starts: Int64Array, stops: Int64Array) -> LawTable:
        """Return the laws of the errors of ranges of an anticipating design, one range per row.

        Args: 0 <= a <= b <= horizon, each of shape (ranges,).
        Cost: O(height^2 * ranges) per different weight.
        """
        return self._joined([group.published_laws(starts, stops) for group in self.design.groups])

    def forest_errors(self, bins: int, starts: Int64Array, stops: Int64Array) -> RangeErrors:
        """Return the errors of ``of_range`` for ranges of a causal design, once ``bins`` bins are closed.

        Args, Cost: as ``published_laws``, with b <= bins.
        """
        return self._errors([forest_errors(tree, bins, starts, stops) for tree in self._trees])

    def live_errors(self, stops: Int64Array) -> RangeErrors:
        """Return the errors of running counts [0, b) of a causal design, as first published."""
        return self._errors([live_errors(tree, stops) for tree in self._trees])

    @property
    def _trees(self) -> list[TreeDesign]:
        """The tree over time of every group; none if the columns have no trees."""
        return [group.design for group in self.design.groups if isinstance(group, TreeGroup)]

    def _errors(self, of_groups: Sequence[RangeErrors]) -> RangeErrors:
        columns = np.array([np.abs(part).sum() for part in self.parts]) / self.divisor
        roundings = columns @ np.array([one.roundings for one in of_groups])
        return RangeErrors(self._joined([one.laws for one in of_groups]), np.asarray(roundings))

    def _joined(self, tables: Sequence[LawTable]) -> LawTable:
        """Return the laws of the sums' errors. Args: tables, per group the laws of one column's errors."""
        return LawTable.joined(
            [
                one.repeated(copies).scaled(np.full(len(one), weight))
                for one, repeated in zip(tables, self._repeated, strict=True)
                for weight, copies in repeated
                if weight
            ]
        )

    def published_rounding(self, a: int) -> float:
        """Return a bound, in counts, on the rounding error of a published range that starts at bin ``a``."""
        return self.rounding([group.published_rounding(a) for group in self.design.groups])

    def of_nodes(self, level: int, nodes: int) -> Estimate:
        """Return the error of a sum of ``nodes`` nodes of a level, if only their own values are used."""
        scales = (float(tree.scales[level - 1]) for tree in self._trees)
        law = self.law([WeightedNoise.of([(1.0, nodes, scale)]) for scale in scales])
        return Estimate(0.0, law.variance, law)


def check_room(design: ProductDesign, noisy: FloatArray) -> None:
    """Refuse to go on if an epoch has used half of the range of its numbers.

    An epoch of sums may come near the limit, and the refusal is visible. So it depends on noisy values only.
    Args: noisy, the running counts of all columns, with their noise, shape (columns,).
    Raises: FullError.
    """
    weight = float(noisy @ column_sum(design).numerators)
    if design.weight == 1:
        units.check_room(weight, MOST_WEIGHT)
    elif weight > MOST_WEIGHT:
        raise units.FullError(
            f"sum: this epoch has {MOST_WEIGHT // design.weight:,} events, noise included; with "
            f"{design.weight:,} units from min to max it holds no more. Count on in a new stream, with a "
            "coarser unit or shorter epochs"
        )


def weight_groups(weights: FloatArray) -> list[tuple[float, int]]:
    """Return each different weight and how often it occurs, ignoring signs and the rounding of doubles."""
    found, copies = np.unique(np.abs(weights).round(12), return_counts=True)
    return list(zip(found.tolist(), copies.tolist(), strict=True))


def key_weights(keys: KeyAxis, key: int | Sequence[int] | None) -> tuple[float, FloatArray]:
    """Return the weights, of the measured total and of each key, in the best estimate of some keys' sum.

    Args: keys, the axis; key, one index, several, or None for all. The rest has the index after the keys'.
    Raises: ValueError for a key that is not on the list, or a key named twice.

    >>> key_weights(KeyAxis(4), (0, 2))
    (0.0, array([1., 0., 1., 0.]))
    >>> from fractions import Fraction
    >>> key_weights(KeyAxis(3, Fraction(4, 5), Fraction(1, 5), rest=True), (0, 3))
    (1.0, array([ 0., -1., -1.]))
    """
    places = range(keys.cells) if key is None else [key] if isinstance(key, int) else list(key)
    if len(set(places)) < len(places):
        raise ValueError(f"keys {list(places)}: one is named twice; an event is counted once")
    if any(not 0 <= place < keys.cells for place in places):
        raise ValueError(f"key {key}: there are {keys.cells} keys, from 0")
    if keys.rest and keys.keys in places:
        left_out = np.isin(np.arange(keys.keys), places, invert=True)
        return 1.0, -left_out.astype(np.float64) + 0.0
    # The difference between the total's estimate and the keys' sum is divided evenly among the keys.
    of_total = keys.gain * len(places) / max(keys.keys, 1)
    of_keys = np.full(keys.keys, -of_total)
    of_keys[list(places)] += 1.0
    return of_total, of_keys + 0.0


def key_counts(total: RangeSum) -> Estimate:
    """Return the best estimate of the events of every key: values (keys,), and one law for all keys."""
    return of_every_key(column_sum(total.design, 0), total)


def of_every_key(one: ColumnSum, total: RangeSum) -> Estimate:
    """Return the weighted sum of buckets of every key: values (keys,); all keys have one law.

    Args: one, the sum of any single key; total, the released columns over a range.
    """
    design = total.design
    keys, whole = np.zeros(design.keys.keys), 0.0
    for group, found in zip(design.groups, total.groups, strict=True):
        sums = found.values @ (one.of_value[group.value_level - 1] / one.divisor)
        if group.total:
            whole += float(sums[0])
        else:
            keys += sums
    share = design.keys.gain / max(design.keys.keys, 1)
    law = one.law([group.law for group in total.groups])
    rounding = one.rounding([group.rounding for group in total.groups])
    return Estimate(keys + share * (whole - keys.sum()), law.variance, law, rounding)


def column_sum(design: ColumnDesign, key: KeyPlaces | None = None) -> ColumnSum:
    """Return the sum of columns for a key, for several together, or for all (None); cached."""
    return _of_group(design, key) if isinstance(key, tuple) else _of_key(design, key)


@lru_cache(maxsize=1024)
def _of_key(design: ColumnDesign, key: int | None) -> ColumnSum:
    return ColumnSum(design, key)


@lru_cache(maxsize=32)  # a reader may ask for any number of groups
def _of_group(design: ColumnDesign, keys: tuple[int, ...]) -> ColumnSum:
    return ColumnSum(design, keys)
