"""The law of published values whose decoder uses every node of the epoch, open ones included.

A published range is a linear map of the nodes' noise: the transpose of the decoder, run on the range. The
weights are those the integer decoder really uses (whole multiples of 2^-24), so what is left to bound is its
rounding alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dphist.tree.decoder import WEIGHT_BITS, decoder_weights, node_variances
from dphist.tree.design import TreeDesign
from dphist.tree.epoch_nodes import by_parent, to_children
from dphist.tree.law import WeightedNoise
from dphist.tree.node_design import NodeDesign
from dphist.tree.node_error import prefix_variances
from dphist.tree.published_laws import published_groups
from dphist.tree.upward import UNITS_PER_COUNT

FloatArray = NDArray[np.float64]


def noise_weights(design: TreeDesign | NodeDesign, a: int, b: int) -> list[FloatArray]:
    """Return how much each node's noise counts in o_b - o_a of an anticipating design.

    Args: 0 <= a <= b <= horizon.
    Returns: per measured level, root side first, shape (nodes,).
    Cost: O(nodes).
    """
    weights, unit = decoder_weights(design), 2.0**-WEIGHT_BITS
    inside = np.zeros(design.horizon)
    inside[a:b] = 1.0
    # From the leaves up: alpha, the part of a node's correction that lands in the range.
    alphas = [inside]
    for parts, k in zip(weights.parts[::-1], design.branching[:0:-1], strict=True):
        alphas.append((np.diff(parts, axis=1, prepend=0) * unit * by_parent(alphas[-1], k)).sum(axis=1))
    alphas.reverse()
    # From the top down: what reaches a node is its own weight and what its parent passes on.
    reach, own = alphas[0], []
    for level, share in enumerate(weights.children, start=1):
        passed = reach * (share * unit)
        own.append(reach - passed)
        k, children = design.branching[level], len(alphas[level])
        reach = alphas[level] - to_children(alphas[level - 1] - passed, k, children)
    return [*own, reach]


def published_law(design: TreeDesign | NodeDesign, a: int, b: int) -> WeightedNoise:
    """Return the exact law of the error of a published range [a, b), of a prefix with a = 0.

    Guarantee: the law of the decoder's linear map; ``DecoderWeights.rounding_units`` bounds the rest.
    Cost: O(height^2) for shares per level; for shares per node O(nodes), and up to a group for each.
    """
    if isinstance(design, TreeDesign):
        return WeightedNoise.of(published_groups(design, a, b))
    groups: list[tuple[float, int, float]] = []
    for weights, scales in zip(noise_weights(design, a, b), design.node_scales, strict=True):
        used = (weights != 0.0) & (scales > 0.0)
        # Pairs as complex numbers: sorted many times faster than rows are.
        pairs, copies = np.unique(np.abs(weights[used]) + 1j * scales[used], return_counts=True)
        groups += [(pair.real, int(n), pair.imag) for pair, n in zip(pairs.tolist(), copies, strict=True)]
    return WeightedNoise.of(groups)


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
