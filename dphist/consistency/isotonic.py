"""The closest non-decreasing sequence, in squared or absolute error, real or whole."""

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
    """Return the non-decreasing sequence within [lower, upper] that is nearest in weighted squared distance.

    This is the solution without bounds, clipped to the bounds, because level sets are solved independently.

    Args: values of shape (n,); weights of shape (n,), above zero (for estimates: 1 / variance).
    Raises: ValueError for values or weights that are not finite, or weights that are not above zero.
    Cost: O(n), pool adjacent violators.
    Source: Barlow et al. (1972); Hay et al. (2010), theorem 1 (min-max formula).

    >>> isotonic([14, 9, 10, 15]).tolist()
    [11.0, 11.0, 11.0, 15.0]
    """
    # The import takes half a second, and most processes never need it.
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
    """Return the non-decreasing whole numbers within [lower, upper] that are nearest in squared distance.

    This is the real solution, rounded. Proof: the sets {i : z_i >= a + 1} for all a determine a sequence. To
    put i into a set costs (a + 1 - y_i)^2 - (a - y_i)^2 = 2 (a + 1/2 - y_i), which is the real problem's
    derivative at a + 1/2. So z_i >= a + 1 exactly where the real solution is at least a + 1/2.

    Cost: O(n), whatever the bounds.

    >>> isotonic_integers([3.4, 2.2, 9.9], 0, 8).tolist()
    [3, 3, 8]
    """
    return np.floor(isotonic(values, lower=lower, upper=upper) + 0.5).astype(np.int64)


def isotonic_median(values: ArrayLike, lower: int, upper: int) -> Int64Array:
    """Return the non-decreasing whole numbers within [lower, upper] that are nearest in absolute distance.

    Values are first rounded to multiples of 2^-16. At whole z, a value y costs as much as floor(y) with
    weight ceil(y) - y and ceil(y) with weight y - floor(y). So breakpoints and solution can be whole.

    Args: values of shape (n,), finite.
    Returns: (n,); if several sequences are optimal, the lowest.
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
    # The least cost of a prefix as a function of its last value: breakpoints, largest first, each with the
    # change of slope there. The right-hand slope is kept at zero, so the first breakpoint is the minimum.
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
