"""The exact errors of answers: the laws of many ranges over several epochs at once, for points of charts.

Epochs of one stream have one design and independent noise, so a range's law joins the laws of its parts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from dphist.arrays import Int64Array
from dphist.tree.forest_laws import RangeErrors
from stream_app.core.kinds.epoch import EpochView
from stream_app.core.kinds.over_epochs_cover import EpochCovers
from stream_app.core.kinds.tables import SeriesKind

CONFIDENCE = 0.95  # for the intervals in rows of the chain
RowError = tuple[float, float]  # variance and half width, in counts


class Errors(ABC):
    """The errors of counts of ranges of bins, for the total or for one key."""

    @abstractmethod
    def within(self, bins: int, starts: Int64Array, stops: Int64Array) -> RangeErrors:
        """Return the errors of ranges [a, b) of one epoch, when ``bins`` bins of it are closed."""

    @abstractmethod
    def points(
        self,
        epochs: Sequence[EpochView],
        starts: Int64Array,
        stops: Int64Array,
        over: EpochCovers | None = None,
    ) -> RangeErrors:
        """Return the errors of ranges over several epochs.

        Args: starts, stops, absolute bins, half-open, shape (points,); over, nodes over epochs, used for
            whole epochs.
        """

    def of_own_nodes(self, kind: SeriesKind) -> bool:
        """Return whether points of this kind are sums of the bins' own nodes only, as first published."""
        return False

    def sums(self, bins: Int64Array) -> RangeErrors:
        """Return the errors of sums of the bins' own nodes only. Args: bins, in each sum."""
        raise NotImplementedError("these points are differences of running counts")


def row_pairs(variances: np.ndarray, half_widths: np.ndarray) -> list[RowError]:
    """Return the pairs of variance and half width from two columns."""
    return list(zip(variances.tolist(), half_widths.tolist(), strict=True))
