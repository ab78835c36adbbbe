"""The law of published values whose decoder uses every node of the epoch, open ones included.

A published range is a linear map of the nodes' noise: the transpose of the decoder, run on the range. The
weights are those the integer decoder really uses (whole multiples of 2^-24), so what is left to bound is its
rounding alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dphist.tree.decoder import decoder_weights, node_variances
from dphist.tree.design import TreeDesign
from dphist.tree.law import WeightedNoise
from dphist.tree.node_design import NodeDesign
from dphist.tree.node_error import prefix_variances
from dphist.tree.node_laws import can_merge, noise_weights, whole_law
from dphist.tree.one_node_law import merged_law
from dphist.tree.published_laws import published_groups
from dphist.tree.upward import UNITS_PER_COUNT

FloatArray = NDArray[np.float64]


def published_law(design: TreeDesign | NodeDesign, a: int, b: int) -> WeightedNoise:
    """Return the exact law of the error of a published range [a, b), of a prefix with a = 0.

    Guarantee: the law of the decoder's linear map; ``DecoderWeights.rounding_units`` bounds the rest.
    Cost: O(height^2) for shares per level, O(height) for shares per node, some 0.2 ms (``one_node_law.py``).
    """
    if isinstance(design, TreeDesign):
        return WeightedNoise.of(published_groups(design, a, b))
    if can_merge(design):
        return merged_law(design, a, b)
    return whole_law(design, a, b)


def published_rounding(design: TreeDesign | NodeDesign, a: int) -> float:
    """Return a bound, in counts, on what the decoder's rounding adds to a published range from a on."""
    return (1 + (a > 0)) * decoder_weights(design).rounding_units / UNITS_PER_COUNT


def published_variance(design: TreeDesign | NodeDesign, a: int, b: int) -> float:
    """Return the exact variance of a published range, in counts squared: that of ``published_law``."""
    return sum(
        float((weights**2) @ np.where(np.isfinite(own), own, 0.0))
        for weights, own in zip(noise_weights(design, a, b), node_variances(design), strict=True)
    )


def published_prefix_variances(design: TreeDesign | NodeDesign) -> FloatArray:
    """Return the variance of every published running count, t = 1..horizon, in closed form: (horizon,).

    Guarantee: exact for weights without rounding; those of the decoder are the optimum up to 2^-24, so the
        variances agree to about 1e-13.
    Cost: O(height * horizon).
    """
    return prefix_variances(
        design.shape, design.horizon, node_variances(design), design.release == "anticipating"
    )
