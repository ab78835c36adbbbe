"""Variances and laws of every point of a series at once.

A series has a point per bin: point t of a running count is [0, t + 1), of the bin series [t, t + 1). The
terms are those of ``forest_laws.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dphist.noise import Int64Array
from dphist.tree.design import TreeDesign
from dphist.tree.forest_laws import Terms, laws_of_terms, live_terms, prefix_terms
from dphist.tree.law import LawTable
from dphist.tree.weights import range_weights

FloatArray = NDArray[np.float64]
# "running": counts of [0, t) as known now; "live": as first published; "bin": every bin as known now.
Series = Literal["running", "live", "bin"]


def series_variance(design: TreeDesign, bins: int, kind: Series, points: Int64Array) -> FloatArray:
    """Return the exact variance of each point, in counts squared, shape (points,).

    Args: points, each in [0, bins), when ``bins`` bins are closed.
    Cost: O(height * points), in numpy.
    """
    if checked_series(kind) == "bin":
        cover, place = _bin_laws(design, bins, points)
        return np.array([range_weights(design, bins, bin, bin + 1).variance for bin in cover])[place]
    variance = np.zeros(len(points))
    for terms in _terms(design, bins, kind, points):
        variance += terms.nodes * terms.weight**2 * design.variances_from_below[terms.level - 1]
    return variance


def series_laws(
    design: TreeDesign, bins: int, kind: Series, points: Int64Array
) -> tuple[LawTable, Int64Array]:
    """Return the laws of the points' errors: a table of laws, and for each point the row that is its law.

    Args, as ``series_variance``.
    Cost: O(height^2 * points), in numpy.
    """
    if checked_series(kind) == "bin":
        cover, place = _bin_laws(design, bins, points)
        return LawTable.of([range_weights(design, bins, bin, bin + 1).law() for bin in cover]), place
    laws = laws_of_terms(design, _terms(design, bins, kind, points), len(points))
    return laws, np.arange(len(points))


def checked_series(kind: Series) -> Series:
    """Return the kind of a series, refusing one that is unknown."""
    if kind not in get_args(Series):
        raise ValueError(f"series: {kind!r} is unknown; write one of {', '.join(get_args(Series))}")
    return kind


def _terms(design: TreeDesign, bins: int, kind: Series, points: Int64Array) -> Iterator[Terms]:
    if kind == "live":
        return live_terms(design, points + 1)
    return prefix_terms(design, bins, points + 1)


def _bin_laws(design: TreeDesign, bins: int, points: Int64Array) -> tuple[list[int], Int64Array]:
    """Bins under roots of one level have one law: return a bin of each, and each point's place among them."""
    shape = design.shape
    starts = [first * shape.widths[level] for level, first, _ in shape.cover(bins)]
    return starts, np.searchsorted(np.array(starts), points, side="right") - 1
