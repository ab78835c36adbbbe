"""The closest non-decreasing sequence, and consistent CDFs: in squared or absolute error, real or whole."""

from heapq import heappop, heappush, heapreplace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import FloatArray, Int64Array

# Absolute deviations are compared on this lattice: published values are whole, or in units of 2^-16.
_LATTICE = 2**16
Error = Literal["absolute", "squared"]


def isotonic(
    values: ArrayLike, weights: ArrayLike | None = None, lower: float = -np.inf, upper: float = np.inf
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


def consistent_cdf(values: ArrayLike, total: int, error: Error = "squared") -> Int64Array:
    """Return the consistent cumulative counts closest to the published ones.

    Isotonic regression over whole numbers finds the optimum that the paper searches for with a dynamic
    programme, at a cost that does not depend on the total.

    Args: values of shape (m,), the published cumulative counts; total, the number of events N, public or
        itself published; error, the distance to minimise.
    Returns: (m,) int64, non-decreasing, in [0, N], the last one N.
    Raises: ValueError for no values, values that are not finite, a negative total, an unknown error.
    Cost: O(m) squared, O(m log m) absolute.
    Source: Rameshwar, Tandon, "Optimal Tree-Based Mechanisms for DP Approximate CDFs", section VI.

    >>> consistent_cdf([-2.0, 5.0, 3.0, 9.0, 11.0], total=10).tolist()
    [0, 4, 4, 9, 10]
    """
    points = _checked(values, "cumulative counts")
    if not points.size:
        raise ValueError("cumulative counts need shape (m,), m >= 1, of finite numbers; got shape (0,)")
    if total != int(total) or total < 0:
        raise ValueError(f"total {total!r} is not a whole number of at least 0")
    if error not in ("absolute", "squared"):
        raise ValueError(f"error {error!r} is not known; choose 'absolute' or 'squared'")
    search = isotonic_integers if error == "squared" else isotonic_median
    return np.append(search(points[:-1], 0, int(total)), np.int64(total))


def rising_cdfs(cdfs: ArrayLike) -> Int64Array:
    """Return the CDFs of several times, changed so that no cumulative count falls over time.

    Each result is the mean, rounded down, of the maximum over all times so far and the minimum over all later
    times. Both also rise along each CDF, and so does their mean. CDFs that already rise stay as they are.

    Guarantee: the largest error does not grow, because the true counts rise over time.
    Args: cdfs of shape (times, m), whole, each non-decreasing: one row of cumulative counts per time.
    Returns: (times, m) int64, non-decreasing along both.
    Raises: ValueError for another shape, or a CDF that falls.
    Cost: O(times * m).

    >>> rising_cdfs([[1, 4], [0, 6], [3, 5]]).tolist()
    [[0, 4], [0, 5], [3, 5]]
    """
    given = np.asarray(cdfs)
    if given.ndim != 2 or given.size == 0 or given.dtype.kind not in "iu":
        raise ValueError(f"cdfs need shape (times, m) of whole numbers; got {given.dtype} {given.shape}")
    if (np.diff(given, axis=1) < 0).any():
        raise ValueError("cdfs: one of them falls; make each consistent first")
    above = np.maximum.accumulate(given, axis=0)
    below = np.minimum.accumulate(given[::-1], axis=0)[::-1]
    return np.asarray((above + below) // 2, dtype=np.int64)
