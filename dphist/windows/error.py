"""The errors of a released window, for mechanisms whose error does not depend on the counts.

The estimates of such a mechanism are the exact counts plus a fixed linear map of its noise. So the results of
seeded runs over a histogram of zeros are samples of its errors, and give a band around all cumulative counts
as in ``product/band.py``. The errors of other mechanisms depend on the data, because merged buckets or
isotonic fits are biased. So no error is stated for them.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from dphist.arrays import FloatArray
from dphist.laws.interval import least_draws, order_statistic
from dphist.mechanisms.registry import CALIBRATED, release
from dphist.noise import SeededNoise
from dphist.units import UNITS_PER_COUNT

_SEED = 20100913
_SHAPE_RUNS = 800  # for standard errors within a few per cent
_LEAST_RUNS = 1200


@dataclass(frozen=True)
class WindowError:
    """The standard errors and the band widths of one histogram, each of shape (buckets,).

    Args: bucket_reach, half the width of a band that holds all counts at once with the requested confidence;
        reach, the same for all cumulative counts.
    """

    bucket_stderr: FloatArray
    cumulative_stderr: FloatArray
    bucket_reach: FloatArray
    reach: FloatArray


@lru_cache(maxsize=64)
def window_error(
    mechanism: str,
    buckets: int,
    epsilon: Fraction,
    confidence: float,
    options: tuple[tuple[str, Any], ...] = (),
) -> WindowError | None:
    """Return the errors of a histogram's estimates, or None if they depend on the data.

    Guarantee: with at least this confidence, the errors of all cumulative counts together are within
        ``reach``, except for one chance in 10^6 over seeds; the same holds for counts and ``bucket_reach``.
        Standard errors are estimates, within a few per cent.
    Args: options of the mechanism, as ``as_arguments`` returns them.
    Raises: ValueError for a confidence outside (0, 0.999].
    Cost: thousands of runs over zeros, some seconds; cached.
    """
    runs = max(_LEAST_RUNS, least_draws(confidence))
    given = dict(options)
    if mechanism not in CALIBRATED or given.get("consistent") is not None:
        return None
    noise, zeros = SeededNoise(_SEED), np.zeros(buckets, np.int64)
    both = _SHAPE_RUNS + runs
    errors = np.array([release(mechanism, zeros, epsilon, noise=noise, **given).counts for _ in range(both)])
    cumulative = errors.cumsum(axis=1)
    # Each published number is rounded to whole units.
    rounding = np.full(buckets, 1 / (2 * UNITS_PER_COUNT))
    return WindowError(
        _stderr(errors),
        _stderr(cumulative),
        _reach(errors, confidence) + rounding,
        _reach(cumulative, confidence) + rounding.cumsum(),
    )


def _stderr(errors: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt((errors**2).mean(axis=0)))


def _reach(errors: FloatArray, confidence: float) -> FloatArray:
    """Return half the width of a band that contains all columns at once. Args: errors, (runs, columns)."""
    shape = _stderr(errors[:_SHAPE_RUNS])
    # Some runs gave the band its shape; its size must come from the other runs.
    worst = np.abs(errors[_SHAPE_RUNS:] / np.where(shape > 0, shape, 1.0)).max(axis=1)
    z = float(np.sort(worst)[order_statistic(len(worst), confidence) - 1])
    return z * shape
