"""The weight of each noise in an answer, measured on the decoders: one noise at a time is 1.

A decoder is linear. So if one noise is 1 and all others are 0, the output is that noise's weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import FloatArray
from dphist.epochs import EpochLevels
from dphist.product.columns import KeyPlaces, column_sum, key_weights
from dphist.tree.decoder import decode_noise
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import ReleasedForest
from dphist.tree.shape import node_counts
from dphist.units import UNITS_PER_COUNT
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds.epoch import EpochNode
from stream_app.core.kinds.tables import SeriesView, Span
from stream_app.core.strategy import Strategy

_IMPULSE = 1 << 28


class Noise(NamedTuple):
    """The weight and the scale of each independent noise in an answer."""

    weights: FloatArray
    scales: FloatArray

    @classmethod
    def joined(cls, parts: Iterable[Noise]) -> Noise:
        """Return the noise of a sum of independent noises."""
        found = list(parts)
        return cls(*(np.concatenate([part[i] for part in found] or [np.zeros(0)]) for i in (0, 1)))

    def in_columns(self, columns: FloatArray) -> Noise:
        """Return the noise of a weighted sum of columns, each of which has this noise."""
        used = columns[columns != 0.0]
        return Noise(np.outer(used, self.weights).ravel(), np.tile(self.scales, len(used)))


def of_answer(view: StreamView, span: Span, shown: SeriesView, key: KeyPlaces | None = None) -> Noise:
    """Return the noise of the count of a range of bins, for one key or for all events."""
    return Noise.joined(_of_parts(view, span, shown, _columns(view.strategy, key)))


def of_buckets(view: StreamView, span: Span, key: KeyPlaces | None, buckets: slice) -> Noise:
    """Return the noise of the count of some buckets of a value over a range of bins."""
    product = view.strategy.kind.product
    assert product is not None
    axis, (of_total, of_keys) = product.values, key_weights(product.keys, key)
    edges = np.cumsum(axis.node_counts)[:-1]
    of_nodes = axis.least_squares(np.split(np.eye(sum(axis.node_counts)), edges))[buckets].sum(axis=0)
    of_levels = np.split(of_nodes, edges)
    columns = []
    for group in product.groups:
        of_key = np.array([of_total]) if group.total else of_keys
        columns.append((group.design, np.outer(of_key, of_levels[group.value_level - 1]).ravel()))
    return Noise.joined(_of_parts(view, span, "unbiased", columns))


def of_own_bins(view: StreamView, bins: int, key: KeyPlaces | None) -> Noise:
    """Return the noise of some bins' count that uses only the bins' own nodes."""
    columns = _columns(view.strategy, key)
    return Noise.joined(
        Noise(np.ones(bins), np.full(bins, float(design.scales[-1]))).in_columns(weights)
        for design, weights in columns
    )


def _columns(strategy: Strategy, key: KeyPlaces | None) -> list[tuple[TreeDesign, FloatArray]]:
    if strategy.kind.product is None:
        return [(strategy.design, np.ones(1))]
    parts = column_sum(strategy.kind.product, key).parts
    return [(group.design, part) for group, part in zip(strategy.kind.product.groups, parts, strict=True)]


def _of_parts(
    view: StreamView, span: Span, shown: SeriesView, columns: Sequence[tuple[TreeDesign, FloatArray]]
) -> Iterable[Noise]:
    counted = set[int]()
    if view.strategy.kind.levels is not None:
        for node in _nodes_over_epochs(view, span):
            counted |= set(range(node.first, node.first + node.epochs))
            yield _of_node(view.strategy.kind.levels, node.level)
    for place, epoch in enumerate(view.epochs):
        part = epoch.within(span)
        if part.start < part.stop and place not in counted:
            for design, weights in columns:
                yield over_time(design, epoch.bins, part, shown).in_columns(weights)


def _nodes_over_epochs(view: StreamView, span: Span) -> Sequence[EpochNode]:
    covers = view.over(view.epochs)
    assert covers is not None
    return covers.covers(np.array([span.start]), np.array([span.stop])).nodes[0]


def _of_node(levels: EpochLevels, level: int) -> Noise:
    """Return the noise of a node over epochs: its own noise, and a share of the noise of nodes below it."""
    nothing, units = np.array([0]), np.array([_IMPULSE * UNITS_PER_COUNT])
    own = levels.pooled(level, np.array([_IMPULSE]), nothing) / units
    passed = levels.pooled(level, nothing, units) / units
    if level:
        below = _of_node(levels, level - 1)
    else:
        horizon = levels.epoch.horizon
        below = over_time(levels.epoch, horizon, Span(0, horizon), "first_published")
    return Noise.joined(
        [
            Noise(own, np.array([levels.scales[level]])),
            below.in_columns(np.full(levels.branching[level], passed[0])),
        ]
    )


def over_time(design: TreeDesign, bins: int, part: Span, shown: SeriesView) -> Noise:
    """Return the noise of bins of one epoch's tree, of which the first ``bins`` are closed."""
    if design.release == "anticipating":
        weights = _published(design)
        return Noise(weights[part.stop] - weights[part.start], _scales(design, None))
    if shown == "first_published":
        forest = _forest(design, part.stop)
        return Noise(_vector(forest.live_prefix(part.stop).value), _scales(design, part.stop))
    found = _forest(design, bins).range(part.start, part.stop)
    return Noise(_vector(found.value), _scales(design, bins))


def _vector(value: float | FloatArray) -> FloatArray:
    return np.atleast_1d(np.asarray(value, np.float64)) / _IMPULSE


def _counts(design: TreeDesign, bins: int | None) -> list[int]:
    if bins is None:
        return list(node_counts(design.shape, design.horizon))
    return [design.shape.completed_count(bins, level) for level in design.shape.levels]


def _scales(design: TreeDesign, bins: int | None) -> FloatArray:
    """Return the scale of every node, or only of the nodes that ``bins`` bins complete."""
    return np.repeat([float(scale) for scale in design.scales], _counts(design, bins))


def _impulses(counts: Sequence[int]) -> list[NDArray[np.int64]]:
    return np.split(_IMPULSE * np.eye(sum(counts), dtype=np.int64), np.cumsum(counts)[:-1])


@lru_cache(maxsize=64)
def _published(design: TreeDesign) -> FloatArray:
    """Return the weight of each node's noise in each published running count: (horizon + 1, nodes)."""
    errors = decode_noise(design, tuple(_impulses(_counts(design, None))))
    return np.vstack([np.zeros((1, errors.shape[1])), errors / (_IMPULSE * UNITS_PER_COUNT)])


@lru_cache(maxsize=64)
def _forest(design: TreeDesign, bins: int) -> ReleasedForest:
    counts = _counts(design, bins)
    forest = ReleasedForest(design, sum(counts))
    for level, values in zip(design.shape.levels, _impulses(counts), strict=True):
        forest.append_level(level, values)
    return forest
