"""Consistent counts of a stream: whole numbers, never negative, that add up over any ranges.

The current running counts are replaced by whole numbers that never fall; the count of a range is a difference
of two of them. This is post-processing of released values, so it costs no privacy. It is biased where counts
are small, so no decision uses it. ``top_down`` fixes sums before their parts; ``isotonic`` takes the closest
running counts that never fall. ``docs/accuracy.md`` has the errors of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.consistency.isotonic import isotonic
from dphist.consistency.top_down import top_down
from dphist.tree.design import TreeDesign
from stream_app.core.kinds import Kind
from stream_app.core.kinds.epoch import EpochView, running_over
from stream_app.core.records import EpochRecord

Method = Literal["top_down", "isotonic"]
KindOf = Callable[[EpochRecord], Kind]


def consistent_running(
    kind_of: KindOf, epochs: Sequence[EpochView], values: FloatArray, method: Method
) -> Int64Array:
    """Return running counts at every measured edge, whole and never falling, shape (measured bins + 1,).

    Args: kind_of, returns how an epoch was released; values, the estimated running counts at these edges.
    Cost: O(bins * height) for ``top_down``, O(bins) for ``isotonic``, in numpy.
    """
    variances = running_variances(kind_of, epochs)
    if method == "isotonic":
        return closest_rising(values, variances)
    return _whole(_settled_top_down(kind_of, epochs, values, variances))


def closest_rising(values: FloatArray, variances: FloatArray) -> Int64Array:
    """Return the closest non-decreasing whole numbers, at least 0, in the shape of the values.

    Args: values, estimated running counts; variances of their errors, zero where there is none.

    >>> closest_rising(np.array([3.0, 1.0, 2.4, 9.0]), np.ones(4)).tolist()
    [2, 2, 2, 9]
    """
    return _whole(_rising(values, variances))


def _rising(values: FloatArray, variances: FloatArray) -> FloatArray:
    # A value without error gets the largest weight that doubles can resolve; no weight is infinite.
    least = 1e-9 * max(float(variances.max(initial=0.0)), 1e-9)
    return isotonic(values, 1.0 / np.maximum(variances, least), lower=0.0)


def _whole(values: FloatArray) -> Int64Array:
    return np.floor(values + 0.5).astype(np.int64)


def _settled_top_down(
    kind_of: KindOf, epochs: Sequence[EpochView], values: FloatArray, variances: FloatArray
) -> FloatArray:
    """Return rising counts: the closest ones at the ends of epochs, then top-down within each epoch."""
    edges = np.cumsum([0, *(epoch.bins for epoch in epochs)])
    settled = _rising(values, variances)[edges]
    found = np.zeros(len(values))
    for epoch, start, stop, before, after in zip(
        epochs, edges, edges[1:], settled, settled[1:], strict=False
    ):
        if epoch.bins:
            design = _tree(kind_of(epoch.record))
            own = _own_variances(design, epoch.bins)
            bins = top_down(np.diff(values[start : stop + 1]), after - before, design.branching, own)
            found[start + 1 : stop + 1] = before + bins.cumsum()
    return np.maximum.accumulate(found)  # sums of doubles may be lower by the last bit


def _tree(kind: Kind) -> TreeDesign:
    assert kind.tree_design is not None  # the method is for trees only
    return kind.tree_design


def _own_variances(design: TreeDesign, bins: int) -> list[FloatArray]:
    """Return the noise variance of each node over the first bins, infinite for nodes that are not complete.

    For keys and buckets the variances have the right proportions, but not the right size.
    """
    own = []
    for level, measured in zip(design.shape.levels, design.node_variances(), strict=True):
        here = measured[: -(-bins // design.shape.widths[level])].copy()
        if bins < design.horizon:
            here[design.shape.completed_count(bins, level) :] = np.inf
        own.append(here)
    return own


def running_variances(kind_of: KindOf, epochs: Sequence[EpochView]) -> FloatArray:
    """Return the variance of the current running count at every measured edge, shape (measured bins + 1,)."""
    return running_over(epochs, lambda epoch: kind_of(epoch.record).running_variances(epoch.bins))
