"""The errors of ranges of bins within an epoch of an anticipating stream.

A range is the difference of two published running counts, so its law does not depend on later bins.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from dphist.arrays import Int64Array
from dphist.laws.law import LawTable
from dphist.product.columns import ColumnSum
from dphist.tree.forest_laws import RangeErrors
from dphist.tree.published_error import published_rounding
from dphist.tree.published_laws import published_laws
from stream_app.core.kinds.errors import Errors


@dataclass(frozen=True)
class PublishedErrors(Errors):
    """The errors of differences of published running counts."""

    @abstractmethod
    def laws(self, starts: Int64Array, stops: Int64Array) -> LawTable:
        """Return the laws of ranges [a, b) of one epoch, one per row."""

    @abstractmethod
    def rounding(self) -> float:
        """Return what integer arithmetic adds at most to a running count, in counts."""

    def within(self, bins: int, starts: Int64Array, stops: Int64Array) -> RangeErrors:
        """Return the errors of ranges [a, b) of one epoch, however many bins of it are closed."""
        roundings = np.where(starts > 0, 2.0, 1.0) * self.rounding()
        return RangeErrors(self.laws(starts, stops), roundings)


@dataclass(frozen=True)
class PublishedTreeErrors(PublishedErrors):
    """The errors of sums of ``width`` cells that have one tree each."""

    width: int

    def laws(self, starts: Int64Array, stops: Int64Array) -> LawTable:
        """Return the laws of ranges [a, b), one per row."""
        return published_laws(self.design, starts, stops).repeated(self.width)

    def rounding(self) -> float:
        """Return what integer arithmetic adds at most to a running count, in counts."""
        return self.width * published_rounding(self.design, 0)


@dataclass(frozen=True)
class PublishedAxesErrors(PublishedErrors):
    """The errors of a weighted sum of published columns."""

    columns: ColumnSum

    def laws(self, starts: Int64Array, stops: Int64Array) -> LawTable:
        """Return the laws of ranges [a, b), one per row."""
        return self.columns.published_laws(starts, stops)

    def rounding(self) -> float:
        """Return what integer arithmetic adds at most to a running count, in counts."""
        return self.columns.published_rounding(0)
