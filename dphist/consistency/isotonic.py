"""The closest non-decreasing sequence, in squared or absolute error, real or whole."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import FloatArray, Int64Array

# Absolute deviations are compared on this lattice: published values are whole, or in units of 2^-16.
_LATTICE = 2**16


def isotonic(
    values: ArrayLike,
    weights: ArrayLike | None = None,
    lower: float = -np.inf,
    upper: float = np.inf,
) -> FloatArray:
    """Return the non-decreasing sequence within [lower, upper] of least weighted squared distance.

    With bounds, the result is the unbounded solution, clipped: each level set is solved independently.

    Args: values of shape (n,); weights of shape (n,), above zero (for estimates: 1 / variance).
    Returns: (n,).
    Raises: ValueError for values or weights that are not finite, or weights that are not above zero.
    Cost: O(n), pool adjacent violators.
    Source: Barlow et al. (1972); Hay et al. (2010), theorem 1 (min-max formula).

    >>> isotonic([14, 9, 10, 15]).tolist()
    [11.0, 11.0, 11.0, 15.0]
    """
    # Imported here because it takes half a second to load, and most processes never need it.
    from scipy.optimize import isotonic_regression

    points = _checked(values, "values")
    mass = None if weights is None else _checked(weights, "weights")
    if mass is not None and (mass.shape != points.shape or not (mass > 0).all()):
        raise ValueError(f"weights need shape {points.shape} and numbers above 0; got shape {mass.shape}")
    if not lower <= upper:
        raise ValueError(f"bounds [{lower}, {upper}] are empty; need lower <= upper")
    if points.size == 0:
        return points
    fitted = np.asarray(isotonic_regression(points, weights=mass).x, dtype=np.float64)
    return np.clip(fitted, lower, upper)


def isotonic_integers(values: ArrayLike, lower: int, upper: int) -> Int64Array:
    """Return the non-decreasing whole sequence within [lower, upper] of least squared distance.

    It is the real solution rounded. Proof: a sequence is fixed by its sets {i : z_i >= a + 1}, nested in a,
    and the cost of putting i into such a set is (a + 1 - y_i)^2 - (a - y_i)^2 = 2 (a + 1/2 - y_i), which is
    the derivative that the real problem has at a + 1/2. So z_i >= a + 1 exactly where the real solution is
    at least a + 1/2; ties may go either way.

    Cost: O(n), whatever the bounds.

    >>> isotonic_integers([3.4, 2.2, 9.9], 0, 8).tolist()
    [3, 3, 8]
    """
    return np.floor(isotonic(values, lower=lower, upper=upper) + 0.5).astype(np.int64)


def isotonic_median(values: ArrayLike, lower: int, upper: int) -> Int64Array:
    """Return the non-decreasing whole sequence within [lower, upper] of least absolute distance.

    Values are first rounded to the lattice of 2^-16. A value y between whole numbers costs, at whole z,
    exactly what floor(y) and ceil(y) cost with weights ceil(y) - y and y - floor(y): the problem becomes a
    weighted one whose breakpoints, and so its solution, are whole.

    Args: values of shape (n,), finite.
    Returns: (n,); where several sequences are optimal, the lowest.
    Cost: O(n log n).
    Source: Rote (2019), "Isotonic regression by dynamic programming" (slopes in a heap).

    >>> isotonic_median([4, 1, 9, 7, 8], 0, 10).tolist()
    [1, 1, 7, 7, 8]
    """
    points = _checked(values, "values")
    if not lower <= upper:
        raise ValueError(f"bounds [{lower}, {upper}] are empty; need lower <= upper")
    clipped = np.clip(points, lower, upper)
    floors = np.floor(clipped)
    parts = np.rint((clipped - floors) * _LATTICE).astype(np.int64)
    best = np.empty(points.size, dtype=np.int64)
    # Breakpoints of the least cost of a prefix as a function of its last value, largest first, each with
    # the change of slope there; the function's right-hand slope is kept at zero, so the top is its minimum.
    breakpoints: list[tuple[int, int]] = []
    for position, (floor, part) in enumerate(
        zip(floors.astype(np.int64).tolist(), parts.tolist(), strict=True)
    ):
        for point, weight in ((floor, _LATTICE - part), (floor + 1, part)):
            if weight:
                heappush(breakpoints, (-point, 2 * weight))
        excess = _LATTICE
        while excess:
            top, change = breakpoints[0]
            if change > excess:
                heapreplace(breakpoints, (top, change - excess))
                break
            heappop(breakpoints)
            excess -= change
        best[position] = -breakpoints[0][0]
    return np.clip(np.minimum.accumulate(best[::-1])[::-1], lower, upper)


def _checked(values: ArrayLike, what: str) -> FloatArray:
    points = np.asarray(values, dtype=np.float64)
    if points.ndim != 1 or not np.isfinite(points).all():
        raise ValueError(f"{what} need shape (n,) of finite numbers; got shape {points.shape}")
    return points
