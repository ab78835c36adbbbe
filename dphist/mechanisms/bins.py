"""Noise on every bin, the baseline for all other mechanisms, and on the counts in rising order."""

import numpy as np

from dphist.arrays import FloatArray
from dphist.consistency.isotonic import isotonic
from dphist.mechanisms.base import HistogramRelease, Request


def identity(request: Request) -> HistogramRelease:
    """Add independent noise to every bin (L~ of Hay et al., Identity of DAWA).

    Guarantee: epsilon-DP; one event changes one count by one, so the noise has scale 1 / epsilon. Unbiased,
        the variance of a range is its length times the noise's.
    Source: Dwork, McSherry, Nissim, Smith (2006); Ghosh, Roughgarden, Sundararajan (2009) for integers.
    """
    noisy, each = request.measure_with_variance(request.counts, 1 / request.ledger.spend_rest("counts"))
    return request.release(
        noisy, variance=lambda ranges: each * np.prod(ranges[:, 1::2] - ranges[:, 0::2], axis=1)
    )


def sorted_counts(request: Request) -> HistogramRelease:
    """Add noise to the sorted counts (S~ of Hay et al.).

    Guarantee: epsilon-DP. One event more changes the sorted sequence in one place by one (the last of several
        equal counts), so the noise has scale 1 / epsilon. Unbiased for the sorted sequence; the variance of a
        range of ranks is its length times the variance of one draw.
    Source: Hay et al. (2010), section 3.1 and proposition 1.
    """
    noisy, each = _noisy_sorted(request)
    return request.release(noisy, variance=lambda ranks: each * np.diff(ranks)[:, 0])


def sorted_rounded(request: Request) -> HistogramRelease:
    """Sort the noisy sorted counts again and round them to whole numbers of at least zero (S~r).

    Guarantee: as ``sorted``; the rest is post-processing. Biased.
    Source: Hay et al. (2010), section 5.1.
    """
    return request.release(np.floor(np.maximum(np.sort(_noisy_sorted(request)[0]), 0.0) + 0.5))


def sorted_isotonic(request: Request) -> HistogramRelease:
    """Return the rising sequence that is closest to the noisy sorted counts (S-bar).

    Guarantee: as ``sorted``; the rest is post-processing. Biased towards a smooth sequence, with an error
        that shrinks where counts repeat: d distinct counts cost O(d log^3 n / epsilon^2) instead of
        n / epsilon^2.
    Source: Hay et al. (2010), section 3.1, theorems 1 and 2.
    """
    return request.release(isotonic(_noisy_sorted(request)[0]))


def _noisy_sorted(request: Request) -> tuple[FloatArray, float]:
    scale = 1 / request.ledger.spend_rest("sorted counts")
    return request.measure_with_variance(np.sort(request.counts), scale)
