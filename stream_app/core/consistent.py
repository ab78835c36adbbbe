"""Consistent counts of a stream: whole numbers, never negative, that add up over any ranges.

The running counts as now known, each weighted by the inverse of its variance, are replaced by the closest
non-decreasing sequence and rounded; every range is a difference of two of them. Post-processing of released
values, so it costs nothing; but it is biased (upwards where counts are near zero): nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dphist.consistency.isotonic import isotonic
from dphist.tree.node_design import NodeDesign
from dphist.tree.published_error import published_prefix_variances
from dphist.tree.series import series_variance
from stream_app.core.epoch_view import EpochView, Float64Array
from stream_app.core.records import ROWS, Int64Array
from stream_app.core.strategy import Strategy


def consistent_running(values: Float64Array, variances: Float64Array) -> Int64Array:
    """Return the closest non-decreasing whole numbers from 0 on, shape as the values'.

    Args: values, estimated running counts; variances of their errors, zero where there is none.
    Cost: O(n).

    >>> consistent_running(np.array([3.0, 1.0, 2.4, 9.0]), np.ones(4)).tolist()
    [2, 2, 2, 9]
    """
    # A value without error weighs as much as doubles can tell apart, but no weight is infinite.
    least = 1e-9 * max(float(variances.max(initial=0.0)), 1e-9)
    fitted = isotonic(values, 1.0 / np.maximum(variances, least), lower=0.0)
    return np.floor(fitted + 0.5).astype(np.int64)


def running_variances(strategy: Strategy, epochs: Sequence[EpochView]) -> Float64Array:
    """Return the variance of the running count at every measured edge, as now known: (measured bins + 1,)."""
    design, columns = strategy.design, [np.zeros(1)]
    for epoch in epochs:
        if isinstance(design, NodeDesign) or design.release == "anticipating":
            own = published_prefix_variances(design)[: epoch.bins]
        else:
            own = series_variance(design, epoch.bins, "running", np.arange(epoch.bins))
        columns.append(columns[-1][-1] + strategy.released_width(ROWS) * own)
    return np.concatenate(columns)
