"""Turn an epoch's noise into the errors of its running counts: least squares in exact integers.

The decoder turns the nodes' noise Z into o(Z): the error of every published running count, in units of 2^-16
of a count. The published value is 2^16 prefix_t + o_t(Z). It is a function of the noisy nodes y = R x + Z
alone if o(Z + R s) = o(Z) + 2^16 A s for all integer vectors s (R sums bins into nodes, A into running
counts). Then, and only then, published values and nodes come from one noisy tree and together cost epsilon.
So no step rounds a value. Each starts from a whole number, takes a difference that stays the same if R s is
added to the noise, and adds a rounded multiple of it. For a node v with children c and weight p_v:

    up    z_v    = 2^16 y_v + g_v(sum z_c - 2^16 y_v),      g_v(d) = (p_v d + 2^23) >> 24
    down  zhat_c = z_c + the child's share of (zhat_v - sum z_c), in whole shares that add up to it

Rounding the values themselves would break this: rounding half to even depends on a value's parity, and a
double's precision on its size. For a causal design the result is the sum of z over ``TreeShape.cover``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.noise import NoiseSource
from dphist.tree.design import TreeDesign
from dphist.tree.range_error import share_of_children
from dphist.tree.shape import by_parent, node_counts
from dphist.units import VALUE_BITS

# int64, or Python's integers of any size where int64 could overflow.
Integers = NDArray[Any]
EpochNoise = tuple[Int64Array, ...]

WEIGHT_BITS = 24
_ONE = 1 << WEIGHT_BITS
_HALF = 1 << (WEIGHT_BITS - 1)
# With larger scales, published values could overflow int64 with a chance that is not negligible.
LARGEST_DECODED_SCALE = 2**32


def draw_epoch_noise(design: TreeDesign, noise: NoiseSource, width: int = 1) -> EpochNoise:
    """Draw the noise of every node of an epoch, before any data: per measured level int64 (nodes, width).

    SECRET until the nodes are released. Never draw it again for the same epoch.
    Raises: ValueError for scales above 2^32.
    Cost: one call of the source per level.
    """
    if max(design.scales) > LARGEST_DECODED_SCALE:
        raise ValueError(
            f"epsilon: {design.epsilon} needs noise beyond 2^32 per node; choose a larger epsilon"
        )
    counts = node_counts(design.shape, design.horizon)
    return tuple(
        noise.discrete_laplace(float(scale), (count, width))
        for scale, count in zip(design.scales, counts, strict=True)
    )


def decode_noise(design: TreeDesign, noise: Sequence[Int64Array]) -> Int64Array:
    """Return o (horizon, width): the error of every published running count, in units of 2^-16. SECRET.

    Guarantee: exact integers; adding R s to the noise adds 2^16 A s to the result. The errors are those of
        weighted least squares, up to ``DecoderWeights.rounding_units``.
    Args: noise per measured level, root side first, int64 (nodes, width).
    Raises: ValueError for noise of another shape.
    Cost: O(nodes * width), in numpy; slower, with integers of any size, if int64 could overflow.
    """
    _check_noise(design, noise)
    estimates, leaves = decode_nodes(design, _wide_enough(design, noise))
    if leaves is None:
        return causal_sums(design, estimates).astype(np.int64)
    return np.cumsum(leaves, axis=0).astype(np.int64)


def decode_nodes(design: TreeDesign, noise: Sequence[Integers]) -> tuple[list[Integers], Integers | None]:
    """Return all estimates from below, root side first; if anticipating, also the leaves' final estimates."""
    weights = decoder_weights(design)
    estimates, sums = [noise[-1] << VALUE_BITS], []
    steps = zip(noise[-2::-1], weights.children[::-1], design.branching[:0:-1], strict=True)
    for values, share, k in steps:
        own = values << VALUE_BITS
        sums.append(by_parent(estimates[-1], k).sum(axis=1))
        estimates.append(own + scaled(share[:, np.newaxis], sums[-1] - own))
    estimates.reverse()
    if not design.anticipates:
        return estimates, None
    final = estimates[0]
    for children, total, parts in zip(estimates[1:], reversed(sums), weights.parts, strict=True):
        handed = scaled(parts[:, :, np.newaxis], (final - total)[:, np.newaxis])
        handed[:, 1:] -= handed[:, :-1].copy()
        final = children + handed.reshape(-1, *children.shape[1:])[: len(children)]
    return estimates, final


def causal_sums(design: TreeDesign, estimates: Sequence[Integers]) -> Integers:
    """Return the sum of estimates over the greedy cover of [0, t), for t = 1..horizon: (horizon, width)."""
    ends = np.arange(1, design.horizon + 1)
    total: Integers = np.zeros((design.horizon, estimates[0].shape[1]), estimates[0].dtype)
    for level, values in zip(design.shape.levels, estimates, strict=True):
        sums = np.zeros((len(values) + 1, *values.shape[1:]), values.dtype)
        np.cumsum(values, axis=0, out=sums[1:])
        done = ends // design.shape.widths[level]
        open_parent = done // design.branching[level - 1] * design.branching[level - 1]
        total += sums[done] - (sums[open_parent] if level > 1 else 0)
    return total


def scaled(weight: Int64Array, value: Integers) -> Integers:
    """Return weight * value / 2^24 rounded to the nearest integer, halves upwards, without overflow.

    Args: weight in [0, 2^24].

    >>> half = np.array([1 << 23])
    >>> scaled(half, np.array([1])), scaled(half, np.array([-1])), scaled(half, np.array([2**61 + 3]))
    (array([1]), array([0]), array([1152921504606846978]))
    """
    high, low = value >> WEIGHT_BITS, value & (_ONE - 1)
    product: Integers = weight * high + ((weight * low + _HALF) >> WEIGHT_BITS)
    return product


@dataclass(frozen=True, eq=False)
class DecoderWeights:
    """The decoder's integer weights, in units of 2^-24, per inner level, root side first.

    Args: children, the weight of the children's sum in a node's estimate, (nodes,); parts, the part of a
        node's correction that goes to its first child, its first two children, and so on up to the whole
        correction, (nodes, branching); rounding_units, a bound in units of 2^-16 on the distance between a
        published value and the exact linear map of these weights.
    """

    children: tuple[Int64Array, ...]
    parts: tuple[Int64Array, ...]
    rounding_units: float


@lru_cache(maxsize=16)
def decoder_weights(design: TreeDesign) -> DecoderWeights:
    """Return the weights of least squares for a design's variances, rounded to 2^-24.

    The privacy guarantee holds for any weights; these give the least error.
    """
    variances = design.node_variances()
    below, children, parts = variances[-1], [], []
    # A node's own rounding error is at most 1/2; those of its children are added.
    rounding = np.zeros(design.horizon)
    published = 0.0
    for level in range(design.shape.height - 1, 0, -1):
        k, own = design.branching[level], variances[level - 1]
        below, rounding = by_parent(below, k), by_parent(rounding, k).sum(axis=1)
        published += float(rounding.max()) + 0.5
        present = by_parent(np.ones(len(variances[level])), k)
        total = below.sum(axis=1)
        weights = np.where(total[:, np.newaxis] > 0, below, present).cumsum(axis=1)
        parts.append(np.rint(_ONE * weights / weights[:, -1:]).astype(np.int64))
        share = share_of_children(own, total)
        children.append(np.rint(_ONE * share).astype(np.int64))
        below, rounding = total * share, rounding * children[-1] / _ONE + 0.5
    published += float(rounding.sum())
    return DecoderWeights(tuple(children[::-1]), tuple(parts[::-1]), published)


def _wide_enough(design: TreeDesign, noise: Sequence[Int64Array]) -> Sequence[Integers]:
    # No value or partial sum of the two passes is larger than the whole tree's noise, twice per level.
    largest = max(max(int(values.max(initial=0)), -int(values.min(initial=0))) for values in noise)
    nodes = sum(len(values) for values in noise)
    if (2 * design.shape.height * nodes * largest) << VALUE_BITS < 2**62:
        return noise
    return [values.astype(object) for values in noise]


def _check_noise(design: TreeDesign, noise: Sequence[Int64Array]) -> None:
    counts = node_counts(design.shape, design.horizon)
    widths = {values.shape[1:] for values in noise}
    fits = tuple(len(values) for values in noise) == counts and len(widths) == 1
    if not fits or any(values.ndim != 2 or values.dtype != np.int64 for values in noise):
        shapes = [f"{values.dtype} {values.shape}" for values in noise]
        raise ValueError(f"noise: {shapes} given; int64 of {counts} nodes per level is needed")
