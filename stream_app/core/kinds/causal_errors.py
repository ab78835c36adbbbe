"""The errors of ranges of bins within an epoch of a causal stream.

A range's law depends on how many bins of the epoch are closed.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from dphist.arrays import Int64Array
from dphist.laws.law import LawTable
from dphist.product.columns import ColumnSum
from dphist.tree.forest_laws import RangeErrors, forest_errors, live_errors
from dphist.units import UNITS_PER_COUNT
from stream_app.core.kinds.errors import Errors
from stream_app.core.kinds.tables import SeriesKind, SeriesView


@dataclass(frozen=True)
class CausalErrors(Errors):
    """The errors of ranges within one causal epoch.

    Args: known, whether values are as first published or current estimates.
    """

    known: SeriesView

    @abstractmethod
    def _of_leaf(self) -> LawTable:
        """Return the law of one bin's own node, a table of one row."""

    def of_own_nodes(self, kind: SeriesKind) -> bool:
        """Return whether points of this kind are sums of the bins' own nodes only, as first published."""
        return self.known == "first_published" and kind != "running"

    def sums(self, bins: Int64Array) -> RangeErrors:
        """Return the errors of sums of the bins' own nodes only. Args: bins, in each sum."""
        rows = np.zeros(len(bins), np.int64)
        return RangeErrors(self._of_leaf().take(rows).repeated(bins.astype(np.float64)), np.zeros(len(bins)))


@dataclass(frozen=True)
class CausalTreeErrors(CausalErrors):
    """The errors of sums of ``width`` cells that have one tree each."""

    width: int

    def within(self, bins: int, starts: Int64Array, stops: Int64Array) -> RangeErrors:
        """Return the errors of ranges [a, b), when ``bins`` bins of their epoch are closed."""
        if self.known == "first_published":
            laws, roundings = live_errors(self.design, stops)
        else:
            laws, roundings = forest_errors(self.design, bins, starts, stops)
        return RangeErrors(laws.repeated(self.width), roundings * self.width)

    def _of_leaf(self) -> LawTable:
        one = np.array([1])
        return LawTable.of_uniform_columns([(one, one, float(self.design.scales[-1]))], 1).repeated(
            self.width
        )


@dataclass(frozen=True)
class CausalAxesErrors(CausalErrors):
    """The errors of a weighted sum of released columns."""

    columns: ColumnSum

    def within(self, bins: int, starts: Int64Array, stops: Int64Array) -> RangeErrors:
        """Return the errors of ranges [a, b), when ``bins`` bins of their epoch are closed."""
        if self.known == "first_published":
            laws, roundings = self.columns.live_errors(stops)
            return RangeErrors(laws, roundings + 1.0 / UNITS_PER_COUNT)
        return self.columns.forest_errors(bins, starts, stops)

    def _of_leaf(self) -> LawTable:
        return LawTable.of([self.columns.of_nodes(self.design.shape.height, 1).law])
