"""The law of many draws, at the scales of the service: zeros, signs, tails, ratios, and no other scale.

A test accepts draws unless a p-value is below 1e-8, so this is its rate of false alarms. The same test must
reject draws at two thirds, three halves and 1 / 1.05 of the scale.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dphist.arrays import FloatArray, Int64Array
from dphist.noise import SystemNoise
from tests.dphist.noise.chi_square import FALSE_ALARM, p_value_of
from tests.oracles import discrete_laplace_pmf

DRAWS = 400_000
WRONG = (2 / 3, 3 / 2, 1 / 1.05)
SCALES = [0.3, 1.0, 17.0, 600.0, 12_345.678]
VARIANCES = [Fraction(1, 5), Fraction(17848, 1000), Fraction(5000), Fraction(10**7, 3)]
NOISE = SystemNoise()


def gaussian_pmf(variance: float) -> FloatArray:
    """Return P(Z = z) for z = -reach..reach, from the definition."""
    reach = int(12 * math.sqrt(variance)) + 3
    weights = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * variance))
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("scale", SCALES)
def test_laplace_draws_have_their_scale_and_no_other(scale: float) -> None:
    draws = NOISE.discrete_laplace(scale, DRAWS)
    reach = int(60 * scale) + 60
    assert p_value_of(draws, discrete_laplace_pmf(scale, reach)) > FALSE_ALARM
    for wrong in WRONG:
        assert p_value_of(draws, discrete_laplace_pmf(scale * wrong, reach)) < FALSE_ALARM


@pytest.mark.parametrize("variance", VARIANCES, ids=float)
def test_gaussian_draws_have_their_variance_and_no_other(variance: Fraction) -> None:
    draws = NOISE.discrete_gaussian(variance, DRAWS)
    assert p_value_of(draws, gaussian_pmf(float(variance))) > FALSE_ALARM
    for wrong in WRONG:
        assert p_value_of(draws, gaussian_pmf(float(variance) * wrong**2)) < FALSE_ALARM


@pytest.mark.parametrize("scale", [0.3, 17.0, 12_345.678, 7e7, 2.0**52])
def test_zeros_signs_and_tails_of_laplace_draws(scale: float) -> None:
    draws = NOISE.discrete_laplace(scale, DRAWS)
    zero = math.tanh(1 / (2 * scale))
    _likely(int((draws == 0).sum()), DRAWS, zero)
    nonzero = draws[draws != 0]
    _likely(int((nonzero > 0).sum()), len(nonzero), 0.5)
    for tail in (0.5, 2.0, 6.0):
        reach = math.ceil(tail * scale)
        beyond = math.exp(-(reach - 1) / scale) * 2 / (math.exp(1 / scale) + 1)
        _likely(int((np.abs(draws) >= reach).sum()), DRAWS, beyond)


@pytest.mark.parametrize("variance", [Fraction(17848, 1000), Fraction(2) ** 52])
def test_signs_and_tails_of_gaussian_draws(variance: Fraction) -> None:
    draws = NOISE.discrete_gaussian(variance, DRAWS)
    _likely(int((draws[draws != 0] > 0).sum()), int((draws != 0).sum()), 0.5)
    pmf = gaussian_pmf(float(variance)) if variance < 100 else None
    for tail in (0.5, 2.0, 4.0):
        reach = math.ceil(tail * math.sqrt(variance))
        inside = (
            stats.norm.sf(tail) * 2
            if pmf is None
            else 1 - pmf[len(pmf) // 2 - reach + 1 :][: 2 * reach - 1].sum()
        )
        _likely(int((np.abs(draws) >= reach).sum()), DRAWS, inside)


def test_ratios_of_neighbouring_probabilities_are_those_that_protect() -> None:
    # Of all draws that are k or k + 1, the part that is k + 1 is 1 / (1 + exp(1 / scale)), for every k >= 0.
    scale = 4.0
    draws = Counter(np.abs(NOISE.discrete_laplace(scale, DRAWS)).tolist())
    for value in range(1, 20):
        _likely(draws[value + 1], draws[value] + draws[value + 1], 1 / (1 + math.exp(1 / scale)))


@pytest.mark.parametrize("variance", [Fraction(3), Fraction(900, 7)])
def test_gaussian_draws_agree_with_opendp(variance: Fraction) -> None:
    ours = NOISE.discrete_gaussian(variance, 40_000)
    assert _agreement(ours, SystemNoise("opendp").discrete_gaussian(variance, 20_000)) > FALSE_ALARM
    assert _agreement(ours, NOISE.discrete_gaussian(variance * Fraction(9, 4), 20_000)) < FALSE_ALARM


def test_digits_of_large_draws_are_independent() -> None:
    sizes = np.abs(NOISE.discrete_laplace(2.0**20, DRAWS))
    for first, second in ((0, 8), (8, 16), (0, 16)):
        table = np.zeros((16, 16))
        np.add.at(table, (sizes >> first & 15, sizes >> second & 15), 1)
        assert stats.chi2_contingency(table).pvalue > FALSE_ALARM


def _likely(seen: int, draws: int, probability: float) -> None:
    """Fail if a binomial variable this far from its mean has a probability below the rate of false alarms."""
    assert stats.binomtest(seen, draws, min(probability, 1.0)).pvalue > FALSE_ALARM


def _agreement(first: Int64Array, second: Int64Array) -> float:
    """Return the p-value of a chi-square test that two samples have one law."""
    edges = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0, 1, 21)[1:-1]))
    cells = len(edges) + 1
    seen = [np.bincount(np.searchsorted(edges, sample), minlength=cells) for sample in (first, second)]
    table = np.array(seen)
    return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)
