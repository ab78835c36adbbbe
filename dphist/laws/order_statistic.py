"""The width of an interval from seeded draws of an error: an order statistic with a stated chance to miss."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

LARGEST_CONFIDENCE = 0.999
# The chance, over seeds, that an interval is narrower than promised.
MISS = 1e-6


def least_draws(confidence: float) -> int:
    """Return how many draws are needed so that one of them has the rank of ``order_statistic``.

    Raises: ValueError for a confidence outside (0, 0.999].
    """
    if not 0.0 < confidence <= LARGEST_CONFIDENCE:
        raise ValueError(f"confidence: {confidence!r} is outside (0, {LARGEST_CONFIDENCE}]")
    return math.ceil(-4.0 * math.log(MISS) / (1.0 - confidence))


@lru_cache(maxsize=256)
def order_statistic(draws: int, confidence: float) -> int:
    """Return the rank, among sorted draws, of one that is below the quantile with chance at most ``MISS``.

    The r-th smallest draw is below the quantile only if at least r draws are below it.

    >>> order_statistic(8192, 0.95)
    7874
    """
    from scipy.special import bdtrc  # imported here because most processes never compute a band

    chance_of_more_below = bdtrc(np.arange(draws + 1), draws, confidence)
    return int(np.argmax(chance_of_more_below <= MISS)) + 1
