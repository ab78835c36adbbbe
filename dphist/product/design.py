"""A product strategy over time, keys and value: the noise scale of every cell.

A group (l, j) is one level of the key axis together with one level of the value axis. Each group has its own
tree over time, which counts the group's cells with the part g_l b_j of epsilon. So a cell of time level i has
discrete Laplace noise of scale c / (epsilon a_i b_j g_l), doubled under substitution.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from dphist.arrays import Int64Array
from dphist.laws.law import LawTable, WeightedNoise
from dphist.privacy import exact, path_epsilon
from dphist.product.axis import KeyAxis, ValueAxis
from dphist.tree.design import TreeDesign
from dphist.tree.published_laws import published_laws, published_rounding
from dphist.tree.shape import TreeShape
from dphist.tree.weights import WeightedRange, weighted_law


@dataclass(frozen=True)
class ColumnGroup(ABC):
    """A group: the cells of one key level (the total, or all keys) at one value level, with equal noise.

    Args: total, whether the key level is the total; value_level, from 1; keys and nodes, their numbers;
        first, the group's first column in a release.
    """

    total: bool
    value_level: int
    keys: int
    nodes: int
    first: int

    @property
    def width(self) -> int:
        """The number of columns. They are ordered by key, then by node of the value level."""
        return self.keys * self.nodes

    @property
    def columns(self) -> slice:
        """The group's columns in a release."""
        return slice(self.first, self.first + self.width)

    @abstractmethod
    def published_laws(self, starts: Int64Array, stops: Int64Array) -> LawTable:
        """Return the laws of the errors of one column's published counts of ranges [a, b), one per row.

        Args: 0 <= a <= b <= horizon, each of shape (ranges,).
        """

    @abstractmethod
    def published_rounding(self, a: int) -> float:
        """Return a bound, in counts, on the rounding error of a published range that starts at bin ``a``."""

    @abstractmethod
    def weighted_law(self, bins: int, ranges: tuple[WeightedRange, ...]) -> WeightedNoise:
        """Return the law of the error of one column's weighted sum of ranges when ``bins`` are closed."""


@dataclass(frozen=True)
class TreeGroup(ColumnGroup):
    """A group whose columns have a tree over time each. Args: design, the tree."""

    design: TreeDesign

    def published_laws(self, starts: Int64Array, stops: Int64Array) -> LawTable:
        return published_laws(self.design, starts, stops)

    def published_rounding(self, a: int) -> float:
        return published_rounding(self.design, a)

    def weighted_law(self, bins: int, ranges: tuple[WeightedRange, ...]) -> WeightedNoise:
        return weighted_law(self.design, bins, ranges)


class ColumnDesign(ABC):
    """The quantity that each column of a release counts, however its noise is drawn.

    Attributes: keys; values; weight, what one event adds to all its cells together.
    """

    keys: KeyAxis
    values: ValueAxis
    weight: int

    @property
    @abstractmethod
    def groups(self) -> Sequence[ColumnGroup]:
        """All groups, in the order of their columns: the total's value levels if measured, then the keys'."""

    @property
    def cells(self) -> int:
        """The number of cells; bucket ``b`` of key ``k`` is cell k * buckets + b; the rest comes last."""
        return self.keys.cells * self.values.buckets

    @property
    def columns(self) -> int:
        """The number of noisy counts that are released for one bin, or for one node of a tree over time."""
        return int(self.groups[-1].columns.stop)


@dataclass(frozen=True)
class ProductDesign(ColumnDesign):
    """One strategy over time, keys and values, with a share of epsilon per level of every axis.

    Guarantee: releasing every cell once is ``time.epsilon``-DP. An event is in one cell of every group at
        every time level, so its cost is the sum over groups and levels of sensitivity / scale. Before scales
        are rounded up, this is (sum a)(sum b)(sum g) epsilon; afterwards it is checked in fractions.
    Args: time, the tree over time with the whole epsilon; keys; values; weight, what one event adds to all
        its cells together, which is part of the tree's sensitivity: 1 for counts, more for sums.
    Raises: ValueError naming the axis that is wrong.

    >>> half = Fraction(1, 2)
    >>> time = TreeDesign(TreeShape((2, 2)), 4, Fraction(1), (half, half))
    >>> design = ProductDesign(time, KeyAxis(3), ValueAxis(4, TreeShape((2, 2)), (half, half)))
    >>> [float(scale) for scale in design.groups[0].design.scales], design.columns, design.cells
    ([4.0, 4.0], 18, 12)
    """

    time: TreeDesign
    keys: KeyAxis
    values: ValueAxis
    weight: int = 1

    def __post_init__(self) -> None:
        if self.weight < 1 or self.time.sensitivity % self.weight:
            raise ValueError(
                f"sensitivity: {self.time.sensitivity} is not a multiple of an event's weight {self.weight}"
            )
        spent = sum(
            (path_epsilon(group.design.scales, self.time.sensitivity) for group in self.groups), Fraction(0)
        )
        if spent > self.time.epsilon:
            raise AssertionError("scales rounded up cannot cost more than epsilon; dphist.noise is wrong")

    @property
    def epsilon(self) -> Fraction:
        """The epsilon of all releases of an epoch together."""
        return self.time.epsilon

    @cached_property
    def groups(self) -> tuple[TreeGroup, ...]:
        key_levels = [(False, self.keys.keys, self.keys.key_share)] if self.keys.keys else []
        if self.keys.total_share:
            key_levels.insert(0, (True, 1, self.keys.total_share))
        groups: list[TreeGroup] = []
        for total, keys, key_share in key_levels:
            axis = zip(self.values.node_counts, self.values.shares, strict=True)
            for level, (nodes, share) in enumerate(axis, start=1):
                first = groups[-1].columns.stop if groups else 0
                design = replace(self.time, epsilon=self.time.epsilon * key_share * share)
                groups.append(TreeGroup(total, level, keys, nodes, first, design))
        return tuple(groups)

    def columns_of(self, cells: Int64Array) -> Int64Array:
        """Sum exact counts of cells, shape (bins, cells), into columns, (bins, columns). Both are SECRET."""
        counts = cells.reshape(len(cells), self.keys.cells, self.values.buckets)
        parts = [self.values.level_sums(counts[:, : self.keys.keys])]
        if self.keys.total_share:
            parts.insert(0, self.values.level_sums(counts.sum(axis=1, keepdims=True)))
        flat = [level.reshape(len(cells), math.prod(level.shape[1:])) for levels in parts for level in levels]
        return np.concatenate(flat, axis=1)

    def to_json(self) -> str:
        """Return the canonical text, the tree over time included; equal designs have equal texts."""
        fields: dict[str, object] = {
            "time": json.loads(self.time.to_json()),
            "keys": {
                "count": self.keys.keys,
                "key_share": str(self.keys.key_share),
                "total_share": str(self.keys.total_share),
            },
            "values": {
                "buckets": self.values.buckets,
                "branching": list(self.values.shape.branching),
                "shares": [str(share) for share in self.values.shares],
            },
        }
        if self.keys.rest:
            fields["rest"] = True
        if self.weight > 1:
            fields["weight"] = self.weight
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> ProductDesign:
        """Read the text of ``to_json`` and check it. Raises: ValueError for other fields or bad values."""
        fields = json.loads(text)
        if not isinstance(fields, Mapping) or set(fields) - {"weight", "rest"} != {
            *("time", "keys", "values")
        }:
            raise ValueError("product design: expected time, keys and values, and perhaps rest and weight")
        keys, values = fields["keys"], fields["values"]
        total = Fraction(0) if keys["total_share"] == "0" else exact(keys["total_share"], "total_share")
        return cls(
            TreeDesign.from_json(json.dumps(fields["time"])),
            KeyAxis(keys["count"], exact(keys["key_share"], "key_share"), total, fields.get("rest") is True),
            ValueAxis(
                values["buckets"],
                TreeShape(tuple(values["branching"])),
                tuple(exact(share, "value shares") for share in values["shares"]),
            ),
            fields.get("weight", 1),
        )
