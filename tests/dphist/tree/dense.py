"""Dense algebra as the oracle of everything that walks trees."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dphist.tree.decoder import node_variances
from dphist.tree.design import TreeDesign
from dphist.tree.node_design import NodeDesign

FloatArray = NDArray[np.float64]


def complete_nodes(
    design: TreeDesign | NodeDesign, bins: int
) -> tuple[FloatArray, FloatArray, list[tuple[int, int]]]:
    """Return the measured nodes complete after ``bins`` bins: rows over bins, variances, (level, index)."""
    rows, variances, addresses = [], [], []
    for level, own in zip(design.shape.levels, node_variances(design), strict=True):
        width = design.shape.widths[level]
        for index in range(min(len(own), bins // width)):
            if np.isfinite(own[index]):
                row = np.zeros(bins)
                row[index * width : (index + 1) * width] = 1.0
                rows.append(row)
                variances.append(float(own[index]))
                addresses.append((level, index))
    return np.array(rows).reshape(-1, bins), np.array(variances), addresses


def least_squares_estimate(
    rows: FloatArray, variances: FloatArray, a: int, b: int
) -> tuple[FloatArray, float]:
    """Return the weights on the rows' values of the best linear unbiased estimate of [a, b); its variance."""
    question = np.zeros(rows.shape[1])
    question[a:b] = 1.0
    # Scaled so that normal equations stay well conditioned; a range is always estimable: bins are measured.
    whitened = rows / np.sqrt(variances)[:, np.newaxis]
    solution = np.linalg.solve(whitened.T @ whitened, question)
    weights = whitened @ solution / np.sqrt(variances)
    return weights, float(question @ solution)
