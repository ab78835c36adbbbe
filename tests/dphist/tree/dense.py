"""Oracles for code that treats nodes in groups: dense algebra, and walks over every single node."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dphist.arrays import FloatArray
from dphist.laws.law import WeightedNoise
from dphist.tree.decoder import WEIGHT_BITS, decoder_weights
from dphist.tree.design import TreeDesign
from dphist.tree.forest_laws import forest_errors
from dphist.tree.shape import by_parent, to_children


def known_nodes(design: TreeDesign, bins: int) -> tuple[FloatArray, FloatArray, list[tuple[int, int]]]:
    """Return rows over bins, variances, and (level, index) of the nodes that ``bins`` bins complete.

    An anticipating design uses all nodes of its horizon, which must be ``bins``.
    """
    assert bins == design.horizon or not design.anticipates
    rows, variances, addresses = [], [], []
    for level, own in zip(design.shape.levels, design.node_variances(), strict=True):
        width = design.shape.widths[level]
        for index in range(len(own) if design.anticipates else min(len(own), bins // width)):
            row = np.zeros(bins)
            row[index * width : (index + 1) * width] = 1.0
            rows.append(row)
            variances.append(float(own[index]))
            addresses.append((level, index))
    return np.array(rows).reshape(-1, bins), np.array(variances), addresses


def least_squares_estimate(
    rows: FloatArray, variances: FloatArray, a: int, b: int
) -> tuple[FloatArray, float]:
    """Return the weight of each row in the best linear unbiased estimate of [a, b), and its variance."""
    question = np.zeros(rows.shape[1])
    question[a:b] = 1.0
    # Scaled so that normal equations stay well conditioned; a range is always estimable: bins are measured.
    whitened = rows / np.sqrt(variances)[:, np.newaxis]
    solution = np.linalg.solve(whitened.T @ whitened, question)
    weights = whitened @ solution / np.sqrt(variances)
    return weights, float(question @ solution)


def noise_weights(design: TreeDesign, a: int, b: int) -> list[FloatArray]:
    """Return the weight of each node's noise in o_b - o_a: the transpose of the decoder, node by node.

    Args: an anticipating design; 0 <= a <= b <= horizon.
    Returns: per measured level, root side first, shape (nodes,).
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


def published_variance(design: TreeDesign, a: int, b: int) -> float:
    """Return the variance of a published range, node by node."""
    pairs = zip(noise_weights(design, a, b), design.variances, strict=True)
    return sum(float((weights**2).sum()) * own for weights, own in pairs)


def causal_law(design: TreeDesign, bins: int, a: int, b: int) -> WeightedNoise:
    """Return the law of one range's error when ``bins`` bins are closed."""
    return forest_errors(design, bins, np.array([a]), np.array([b])).laws.law(0)


def merged(groups: Iterable[tuple[float, float, float]], digits: int = 9) -> dict[tuple[float, float], float]:
    """Return copies by weight and scale. Weights are merged if they differ by rounding of doubles only."""
    law: dict[tuple[float, float], float] = {}
    for weight, copies, scale in groups:
        if copies and abs(weight) > 1e-12:
            key = (round(abs(weight), digits), scale)
            law[key] = law.get(key, 0) + copies
    return law
