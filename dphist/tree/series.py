"""Variances and laws of every point of a series at once.

A series has a point per bin: point t of a running count is [0, t + 1), of the bin series [t, t + 1). The
terms are those of ``forest_laws.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.law import LawTable
from dphist.tree.design import TreeDesign
from dphist.tree.forest_laws import Terms, forest_errors, laws_of_terms, live_terms, prefix_terms

# Best current estimates: "running" of [0, t), "bin" of every bin. "live": [0, t) as first published.
Series = Literal["running", "live", "bin"]


def series_variance(design: TreeDesign, bins: int, kind: Series, points: Int64Array) -> FloatArray:
    """Return the exact variance of each point, in counts squared, shape (points,).

    Args: points, each in [0, bins), when ``bins`` bins are closed.
    Cost: O(height * points), in numpy.
    """
    if checked_series(kind) == "bin":
        laws, place = _bin_laws(design, bins, points)
        return np.asarray(laws.deviations()[place] ** 2)
    variance = np.zeros(len(points))
    for terms in _terms(design, bins, kind, points):
        variance += terms.nodes * terms.weight**2 * design.variances_from_below[terms.level - 1]
    return variance


def series_laws(
    design: TreeDesign, bins: int, kind: Series, points: Int64Array
) -> tuple[LawTable, Int64Array]:
    """Return the laws of the points' errors: a table of laws, and each point's row in it.

    Args, as ``series_variance``.
    Cost: O(height^2 * points), in numpy.
    """
    if checked_series(kind) == "bin":
        return _bin_laws(design, bins, points)
    laws = laws_of_terms(design, _terms(design, bins, kind, points), len(points))
    return laws, np.arange(len(points))


def checked_series(kind: Series) -> Series:
    """Return the kind of a series. Raises: ValueError for an unknown kind."""
    if kind not in get_args(Series):
        raise ValueError(f"series: {kind!r} is unknown; write one of {', '.join(get_args(Series))}")
    return kind


def _terms(design: TreeDesign, bins: int, kind: Series, points: Int64Array) -> Iterator[Terms]:
    if kind == "live":
        return live_terms(design, points + 1)
    return prefix_terms(design, bins, points + 1)


def _bin_laws(design: TreeDesign, bins: int, points: Int64Array) -> tuple[LawTable, Int64Array]:
    """Return the law of a bin under each level's roots, and each point's row in that table.

    All bins under roots of the same level have the same law.
    """
    shape = design.shape
    starts = np.array([first * shape.widths[level] for level, first, _ in shape.cover(bins)])
    return forest_errors(design, bins, starts, starts + 1).laws, np.searchsorted(starts, points, "right") - 1
