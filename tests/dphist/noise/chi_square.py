"""Chi-square tests of draws against exact laws."""

from __future__ import annotations

import numpy as np
from scipy import stats

from dphist.arrays import FloatArray, Int64Array
from tests.oracles import discrete_laplace_pmf

FALSE_ALARM = 1e-8


def p_value(draws: Int64Array, scale: float) -> float:
    """Return the p-value of a chi-square test of draws against the exact discrete Laplace law."""
    reach = int(60 * scale) + 60
    return p_value_of(draws, discrete_laplace_pmf(scale, reach))


def p_value_of(draws: Int64Array, pmf: FloatArray) -> float:
    """Return the p-value of a chi-square test of draws against a law.

    Every cell has at least 200 expected draws.
    Args: pmf of -reach to reach, shape (2 reach + 1,); draws beyond count as the outermost.
    """
    reach = len(pmf) // 2
    observed = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=len(pmf))
    cells = np.minimum((np.cumsum(pmf) * len(draws) / 200).astype(int), len(draws) // 200 - 1)
    expected = np.bincount(cells, weights=pmf) * len(draws)
    seen = np.bincount(cells, weights=observed, minlength=len(expected))
    occupied = expected > 0
    expected, seen = expected[occupied], seen[occupied]
    return float(stats.chisquare(seen, expected * len(draws) / expected.sum()).pvalue)
