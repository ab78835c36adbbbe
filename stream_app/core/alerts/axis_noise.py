"""Simulated noise of streams over keys and values, for forecasts: sums of columns, in many runs at once.

A rule sees one sum of columns. At each node of the tree over time, a group of columns adds one noise number
with a known law to this sum. That number is drawn instead of the noise of every column. So a day of a
thousand columns in hundreds of runs costs as much as one column. Nothing here is ever released.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.law import WeightedNoise
from dphist.noise import SeededNoise
from dphist.product.answers import Cdf, Histogram
from dphist.product.approximate import ToeplitzGroup
from dphist.product.band import NodeTable
from dphist.product.columns import ColumnSum, key_weights
from dphist.product.design import ColumnGroup, ProductDesign, TreeGroup
from dphist.toeplitz.inverse import inverse_weights
from dphist.tree.decoder import decode_noise
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate, ReleasedForest
from dphist.tree.published_laws import published_law
from dphist.units import UNITS_PER_COUNT

# Fractional noise is stored as whole multiples of 1/1024 count, because trees hold integers.
_PARTS = 2**10


class CausalNoise:
    """Simulated noise of a tree that releases each node when it is complete, in many runs at once.

    Args: drawn, noise of the nodes per level, shape (nodes, paths); each path is one simulated run.
    """

    def __init__(self, design: TreeDesign, drawn: Sequence[Int64Array]) -> None:
        self._drawn = drawn
        self._forest = ReleasedForest(design, drawn[0].shape[1])

    def close(self, bin: int) -> None:
        """Close a bin: the nodes that end with it are released."""
        shape = self._forest.design.shape
        for level, nodes in zip(shape.levels, self._drawn, strict=True):
            before, now = (shape.completed_count(bins, level) for bins in (bin, bin + 1))
            self._forest.append_level(level, nodes[before:now])

    def range(self, start: int, stop: int) -> Estimate:
        """Return the simulated errors over bins [start, stop), shape (paths,), and their exact law."""
        found = self._forest.range(start, stop)
        return Estimate(np.atleast_1d(found.value) / _PARTS, found.variance, found.law)


class PublishedNoise:
    """Simulated noise of published running counts, with the methods of ``CausalNoise``; it never changes."""

    def __init__(self, design: TreeDesign, drawn: Sequence[Int64Array]) -> None:
        self._design = design
        running = decode_noise(design, drawn) / (_PARTS * UNITS_PER_COUNT)
        self._running = np.concatenate([np.zeros((1, running.shape[1])), running])

    def close(self, bin: int) -> None:
        """Close a bin, which changes nothing here."""

    def range(self, start: int, stop: int) -> Estimate:
        """Return the simulated errors over bins [start, stop), shape (paths,), and their exact law."""
        law = published_law(self._design, start, stop)
        return Estimate(self._running[stop] - self._running[start], law.variance, law)


class ToeplitzNoise:
    """Simulated noise of an approximate release, with the methods of ``CausalNoise``; it never changes.

    Args: deviation, of the sum's noise in standard deviations of one column's noise.
    """

    def __init__(
        self, group: ToeplitzGroup, deviation: float, bins: int, paths: int, noise: SeededNoise
    ) -> None:
        self._group = group
        weights = inverse_weights(group.design.strategy).weights(np.arange(bins))
        drawn = noise.generator.normal(0.0, deviation * float(group.design.sigma), (bins, paths))
        # The error of the running count at bin t is sum_j weights_j z_(t - j): a convolution.
        size = 2 * bins
        product = np.fft.rfft(drawn, size, axis=0) * np.fft.rfft(weights, size)[:, np.newaxis]
        self._running = np.concatenate([np.zeros((1, paths)), np.fft.irfft(product, size, axis=0)[:bins]])

    def close(self, bin: int) -> None:
        """Close a bin, which changes nothing here."""

    def range(self, start: int, stop: int) -> Estimate:
        """Return the simulated errors over bins [start, stop), shape (paths,), and one column's law."""
        law = self._group.published_laws(np.array([start]), np.array([stop])).law(0)
        return Estimate(self._running[stop] - self._running[start], law.variance, law)


GroupNoise = CausalNoise | PublishedNoise | ToeplitzNoise


def group_noise(
    group: ColumnGroup, weights: FloatArray, bins: int, paths: int, noise: SeededNoise
) -> GroupNoise:
    """Simulate the noise that a group of columns adds to a sum in the first bins of an epoch.

    Args: weights of the group's columns in the sum, (columns,); paths, the number of simulated runs.
    """
    if isinstance(group, ToeplitzGroup):
        return ToeplitzNoise(group, math.sqrt(float(weights @ weights)), bins, paths, noise)
    assert isinstance(group, TreeGroup)
    design = group.design
    found, copies = np.unique(np.abs(weights).round(12), return_counts=True)
    weighted = list(zip(found.tolist(), copies.tolist(), strict=True))
    laws = [WeightedNoise.of((w, n, float(scale)) for w, n in weighted) for scale in design.scales]
    drawn = [_drawn(law, n, paths, noise) for law, n in zip(laws, design.drawn_nodes(bins), strict=True)]
    return PublishedNoise(design, drawn) if design.anticipates else CausalNoise(design, drawn)


class SumNoise:
    """Simulated noise of a sum of columns, in many runs at once; like a counter, it advances bin by bin."""

    def __init__(self, columns: ColumnSum, noise: SeededNoise, bins: int, paths: int) -> None:
        self._columns = columns
        self._groups = [
            group_noise(group, weights / columns.divisor, bins, paths, noise)
            for group, weights in zip(columns.design.groups, columns.parts, strict=True)
        ]
        self._bin = 0

    def push(self, _counts: Int64Array) -> None:
        """Close a bin in which nothing happened."""
        for group in self._groups:
            group.close(self._bin)
        self._bin += 1

    def range(self, start: int, stop: int) -> Estimate:
        """Return the simulated errors over bins [start, stop), shape (paths,), and their exact law."""
        parts = [group.range(start, stop) for group in self._groups]
        law = self._columns.law([part.law for part in parts])
        return Estimate(np.sum([np.asarray(part.value) for part in parts], axis=0), law.variance, law)


class HistogramNoise:
    """Simulated noise of every bucket's count, in many runs at once.

    Args: keys, whose counts are summed (None: all keys); bins, in each run; paths, the number of runs.
    """

    def __init__(
        self, design: ProductDesign, keys: Sequence[int] | None, noise: SeededNoise, bins: int, paths: int
    ) -> None:
        self._axis, self._paths, self._bin = design.values, paths, 0
        of_total, of_keys = key_weights(design.keys, keys)
        self._groups: list[tuple[ColumnGroup, FloatArray, GroupNoise]] = []
        for group in design.groups:
            weights = np.array([of_total]) if group.total else of_keys
            drawn = group_noise(group, weights, bins, group.nodes * paths, noise)
            self._groups.append((group, weights, drawn))

    def close(self) -> None:
        """Close a bin in which nothing happened."""
        for _, _, drawn in self._groups:
            drawn.close(self._bin)
        self._bin += 1

    def band(self, start: int, stop: int, confidence: float) -> Cdf:
        """Return the errors of cumulative counts over these bins, shape (buckets, paths), and their band."""
        height, buckets = self._axis.shape.height, self._axis.buckets
        errors = [np.zeros((nodes, self._paths)) for nodes in self._axis.node_counts]
        laws: list[list[tuple[float, int, float]]] = [[] for _ in range(height)]
        for group, weights, drawn in self._groups:
            level = group.value_level - 1
            found = drawn.range(start, stop)
            errors[level] += np.asarray(found.value).reshape(group.nodes, self._paths)
            different, copies = np.unique(np.abs(weights), return_counts=True)
            for weight, keys in zip(different.tolist(), copies.tolist(), strict=True):
                laws[level] += [(weight * w, keys * n, s) for w, n, s in found.law.groups]
        nothing = tuple(np.zeros(nodes) for nodes in self._axis.node_counts)
        law = tuple(WeightedNoise.of(groups) for groups in laws)
        band = Histogram(self._axis, nothing, law, (0.0,) * height).cdf(confidence)
        values = self._axis.least_squares(errors).cumsum(axis=0)
        own = (buckets, 1)
        return Cdf(values, band.stderr.reshape(own), band.reach.reshape(own), confidence)


def _drawn(law: WeightedNoise, nodes: int, paths: int, noise: SeededNoise) -> Int64Array:
    if not law.variance:
        return np.zeros((nodes, paths), np.int64)
    draws = NodeTable.of(law).draw(noise.generator.random((nodes, paths)))
    return np.rint(draws * _PARTS).astype(np.int64)
