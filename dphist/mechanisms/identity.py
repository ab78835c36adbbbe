"""Noise on every bin: the baseline for all other mechanisms."""

import numpy as np

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
