"""Variances and laws of every point of a series at once: ``weights.py`` in columns.

A series has a point per bin: point t of a running count is [0, t + 1), of the bin series [t, t + 1). The
terms are those of ``weights.py``, with one array entry per point instead of one number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from dphist.noise import Int64Array
from dphist.tree.design import TreeDesign
from dphist.tree.law import LawTable
from dphist.tree.weights import range_weights, unfolded

FloatArray = NDArray[np.float64]
# "running": counts of [0, t) as known now; "live": as first published; "bin": every bin as known now.
Series = Literal["running", "live", "bin"]


class Terms(NamedTuple):
    """For each point, ``nodes`` nodes of a level with one weight; see ``Term`` in ``weights.py``."""

    level: int
    nodes: FloatArray
    weight: FloatArray
    reach: FloatArray
    cut: bool


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
    columns: list[tuple[FloatArray, FloatArray, float]] = []
    for terms in _terms(design, bins, kind, points):
        scale = float(design.scales[terms.level - 1])
        if terms.cut:
            columns.append((terms.reach * design.gains[terms.level - 1], terms.nodes, scale))
            continue
        for level, weight, nodes in unfolded(design, terms.level):
            columns.append((terms.reach * weight, terms.nodes * nodes, float(design.scales[level - 1])))
    used = [column for column in columns if column[1].any()]
    shape = (len(points), len(used))
    table = LawTable(np.empty(shape), np.empty(shape), np.empty(shape))
    for position, (weights, copies, scale) in enumerate(used):
        table.weights[:, position] = np.abs(weights)
        table.copies[:, position] = np.where(weights == 0.0, 0.0, copies)
        table.scales[:, position] = scale
    return table, np.arange(len(points))


def checked_series(kind: Series) -> Series:
    """Return the kind of a series, refusing one that is unknown."""
    if kind not in get_args(Series):
        raise ValueError(f"series: {kind!r} is unknown; write one of {', '.join(get_args(Series))}")
    return kind


def _terms(design: TreeDesign, bins: int, kind: Series, points: Int64Array) -> Iterator[Terms]:
    return _live_terms(design, points + 1) if kind == "live" else _running_terms(design, bins, points + 1)


def _live_terms(design: TreeDesign, ends: Int64Array) -> Iterator[Terms]:
    """The greedy cover of [0, t): nodes with weight 1."""
    one, rest = np.ones(len(ends)), ends
    for level in design.shape.levels:
        digit, rest = np.divmod(rest, design.shape.widths[level])
        yield Terms(level, digit.astype(np.float64), one, one, False)


def _running_terms(design: TreeDesign, bins: int, ends: Int64Array) -> Iterator[Terms]:
    """[0, t) over the completed forest: whole roots before t, then down the path that t cuts."""
    shape, one = design.shape, np.ones(len(ends))
    roots = {level: (first, number) for level, first, number in shape.cover(bins)}
    # Of the node that t cuts on this level, if any: bins before t, and its weights.
    inside = np.zeros(len(ends), np.int64)
    weight, reach = np.zeros(len(ends)), np.zeros(len(ends))
    for level in shape.levels:
        width = shape.widths[level]
        if level in roots:
            first, number = roots[level]
            before = np.clip(ends - first * width, 0, number * width)
            yield Terms(level, (before // width).astype(np.float64), one, one, False)
            inside = np.where(inside > 0, inside, before % width)
            fresh = before % width > 0
            weight, reach = (np.where(fresh, inside / width, part) for part in (weight, reach))
        cut = (inside > 0).astype(np.float64)
        if level == shape.height or not cut.any():
            continue
        yield Terms(level, cut, weight, reach, True)
        k, child_width = shape.branching[level], shape.widths[level + 1]
        alpha, passed = inside / width, (1.0 - design.gains[level - 1]) * reach
        whole, inside = np.divmod(inside, child_width)
        outside = k - whole - (inside > 0)
        yield Terms(level + 1, whole * cut, 1.0 - alpha, 1.0 - alpha + passed, False)
        yield Terms(level + 1, outside * cut, -alpha, -alpha + passed, False)
        weight = inside / child_width - alpha
        reach = weight + passed


def _bin_laws(design: TreeDesign, bins: int, points: Int64Array) -> tuple[list[int], Int64Array]:
    """Bins under roots of one level have one law: return a bin of each, and each point's place among them."""
    shape = design.shape
    starts = [first * shape.widths[level] for level, first, _ in shape.cover(bins)]
    return starts, np.searchsorted(np.array(starts), points, side="right") - 1
