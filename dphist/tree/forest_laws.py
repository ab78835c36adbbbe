"""The errors of many ranges of a causal release at once: ``weights.py`` for arrays of ranges.

A range [a, b) cuts at most two nodes per level: those that hold the edges a and b. Alpha is the fraction of
such a node inside the range. All other roots of the forest, and all other children of a cut node, are wholly
inside or outside. So each term of ``weights.py`` is an array here, with one entry per range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.law import LawTable, WeightedNoise
from dphist.tree.design import TreeDesign
from dphist.tree.shape import TreeShape
from dphist.tree.weights import rounding_bounds, unfolded
from dphist.units import UNITS_PER_COUNT

# A series has a point per bin. "running": the best current estimate of [0, t + 1); "live": the same count as
# first published; "bin": the best current estimate of [t, t + 1).
Series = Literal["running", "live", "bin"]


class Terms(NamedTuple):
    """For each range, a number of nodes of one level whose estimates from below have equal weight.

    ``nodes`` is their number, ``weight`` their weight. ``reach`` adds the weight that their ancestors pass
    on. ``cut``: the range cuts these nodes, and their children have separate terms.
    """

    level: int
    nodes: FloatArray
    weight: FloatArray
    reach: FloatArray
    cut: bool


class RangeErrors(NamedTuple):
    """The laws of ranges' errors, one per row, and a bound on each range's rounding error, in counts."""

    laws: LawTable
    roundings: FloatArray

    def error(self, row: int) -> tuple[WeightedNoise, float]:
        """Return the law and the rounding of one range."""
        return self.laws.law(row), float(self.roundings[row])

    @classmethod
    def added(cls, parts: Sequence[RangeErrors]) -> RangeErrors:
        """Return the errors of sums of independent estimates, of the same ranges in each part."""
        if len(parts) == 1:
            return parts[0]
        roundings = np.sum([one.roundings for one in parts], axis=0)
        return cls(LawTable.joined([one.laws for one in parts]), roundings)


def forest_errors(design: TreeDesign, bins: int, starts: Int64Array, stops: Int64Array) -> RangeErrors:
    """Return the errors of ranges [a, b) as ``ReleasedForest.range`` gives them when ``bins`` are closed.

    Args: a causal design; 0 <= a <= b <= bins, each of shape (ranges,).
    Cost: O(height^2 * ranges), in numpy.
    """
    if not starts.any():
        return _errors(design, prefix_terms(design, bins, stops), len(stops))
    return _errors(design, range_terms(design, bins, starts, stops), len(starts))


def live_errors(design: TreeDesign, stops: Int64Array) -> RangeErrors:
    """Return the errors of running counts [0, b) as they were first published, when bin b - 1 closed.

    Args, Cost: as ``forest_errors``.
    """
    return _errors(design, live_terms(design, stops), len(stops))


def series_variance(design: TreeDesign, bins: int, kind: Series, points: Int64Array) -> FloatArray:
    """Return the exact variance of points of a series, in counts squared, shape (points,).

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

    Args: as ``series_variance``.
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
    """Return a table with the law of one bin's error per level of roots, and each point's row in it."""
    shape = design.shape
    starts = np.array([first * shape.widths[level] for level, first, _ in shape.cover(bins)])
    return forest_errors(design, bins, starts, starts + 1).laws, np.searchsorted(starts, points, "right") - 1


def live_terms(design: TreeDesign, stops: Int64Array) -> Iterator[Terms]:
    """Yield the terms of the greedy covers of [0, b): whole nodes, each with weight 1."""
    one, rest = np.ones(len(stops)), stops
    for level in design.shape.levels:
        digit, rest = np.divmod(rest, design.shape.widths[level])
        yield Terms(level, digit.astype(np.float64), one, one, False)


def prefix_terms(design: TreeDesign, bins: int, stops: Int64Array) -> Iterator[Terms]:
    """Yield the terms of prefixes [0, b): whole roots first, then level by level the nodes that b cuts."""
    shape, one = design.shape, np.ones(len(stops))
    roots = {level: (first, number) for level, first, number in shape.cover(bins)}
    # For the node that b cuts on this level, if any: the number of its bins before b, and its weights.
    inside = np.zeros(len(stops), np.int64)
    weight, reach = np.zeros(len(stops)), np.zeros(len(stops))
    for level in shape.levels:
        width = shape.widths[level]
        if level in roots:
            first, number = roots[level]
            before = np.clip(stops - first * width, 0, number * width)
            yield Terms(level, (before // width).astype(np.float64), one, one, False)
            fresh = before % width > 0
            inside = np.where(inside > 0, inside, before % width)
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


def range_terms(design: TreeDesign, bins: int, starts: Int64Array, stops: Int64Array) -> Iterator[Terms]:
    """Yield the terms of ranges, level by level: whole roots, then nodes that the edges cut."""
    shape, one, edges = design.shape, np.ones(len(starts)), np.stack([starts, stops])
    roots = {level: (first, first + number) for level, first, number in shape.cover(bins)}
    # Of the nodes on the level above that the edges a and b cut: alpha, and the weight passed on to children.
    alpha = passed = np.zeros(edges.shape)
    for level in shape.levels:
        width = shape.widths[level]
        if level in roots:
            low, high = (np.clip(edge, *roots[level]) for edge in (-(-starts // width), stops // width))
            yield Terms(level, np.maximum(high - low, 0).astype(np.float64), one, one, False)
        if level == shape.height:
            return
        node = edges // width
        cut = (edges % width > 0) & ((node + 1) * width <= bins)
        inside = np.minimum(stops, (node + 1) * width) - np.maximum(starts, node * width)
        of_node = np.where(cut, inside / width, 0.0)
        weight = of_node - alpha
        reach = weight + passed
        alpha, passed = of_node, (1.0 - design.gains[level - 1]) * reach
        # A node that holds both edges counts once.
        cut[1] &= ~(cut[0] & (node[0] == node[1]))
        for row in np.flatnonzero(cut.any(axis=1)):
            yield Terms(level, cut[row].astype(np.float64), weight[row], reach[row], True)
            whole, outside = _whole_children(shape, level, node[row], starts, stops)
            for number, part in ((whole, 1.0), (outside, 0.0)):
                copies = np.where(cut[row], number, 0).astype(np.float64)
                yield Terms(level + 1, copies, part - alpha[row], part - alpha[row] + passed[row], False)


def _whole_children(
    shape: TreeShape, level: int, node: Int64Array, starts: Int64Array, stops: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Return how many children of each range's node are wholly inside the range, and how many outside."""
    k, width = shape.branching[level], shape.widths[level + 1]
    first = node * k
    low, high = (np.clip(edge - first, 0, k) for edge in (-(-starts // width), stops // width))
    left, right = (np.clip(edge - first, 0, k) for edge in (starts // width, -(-stops // width)))
    return np.maximum(high - low, 0), left + k - np.maximum(right, left)


def _errors(design: TreeDesign, terms: Iterable[Terms], ranges: int) -> RangeErrors:
    kept, roundings = [], np.zeros(ranges)
    bounds = rounding_bounds(design)
    for one in terms:
        kept.append(one)
        roundings += one.nodes * np.abs(one.weight) * (bounds[one.level - 1] / UNITS_PER_COUNT)
    return RangeErrors(laws_of_terms(design, kept, ranges), roundings)


def laws_of_terms(design: TreeDesign, terms: Iterable[Terms], ranges: int) -> LawTable:
    """Return the laws of the errors as weighted sums of the noise of single nodes."""
    columns: list[tuple[FloatArray, FloatArray, float]] = []
    for one in terms:
        if not one.nodes.any():
            continue
        scale = float(design.scales[one.level - 1])
        if one.cut:
            columns.append((one.reach * design.gains[one.level - 1], one.nodes, scale))
            continue
        for level, weight, nodes in unfolded(design, one.level):
            columns.append((one.reach * weight, one.nodes * nodes, float(design.scales[level - 1])))
    return LawTable.of_uniform_columns(columns, ranges)
