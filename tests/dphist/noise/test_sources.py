"""The only source of randomness: the right law, at the right scale, and no scale rounded down.

A test accepts draws unless their p-value is below 1e-8, so this is its rate of false alarms. The same test
must reject draws at two thirds or three halves of the scale.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dphist.noise import LARGEST_SCALE, GaussianSource, NoiseSource, SeededNoise, SystemNoise, checked_scale
from tests.dphist.noise.chi_square import FALSE_ALARM, p_value

DRAWS = 20_000


@pytest.mark.parametrize(
    "source", [SystemNoise(), SystemNoise("opendp"), SeededNoise(7)], ids=["blocks", "opendp", "seeded"]
)
@pytest.mark.parametrize("scale", [0.5, 3.0, 40.0])
def test_draws_have_the_stated_scale_and_no_other(source: NoiseSource, scale: float) -> None:
    draws = source.discrete_laplace(scale, DRAWS)
    assert draws.dtype == np.int64
    assert p_value(draws, scale) > FALSE_ALARM
    for wrong in (2 / 3, 3 / 2):
        assert p_value(draws, scale * wrong) < FALSE_ALARM


@pytest.mark.parametrize("source", [SystemNoise(), SeededNoise(3)], ids=["system", "seeded"])
def test_selection_is_permute_and_flip(source: NoiseSource) -> None:
    # Two candidates a gap g apart, exponential noise of scale s: the lower one wins with e^(-g/s) / 2.
    scores, scale, draws = np.array([0, 6]), 6.0, 4000
    lower = sum(source.select(scores, scale) == 0 for _ in range(draws))

    def likely(scale: float) -> bool:
        return stats.binomtest(lower, draws, 0.5 * math.exp(-6.0 / scale)).pvalue > FALSE_ALARM

    assert likely(scale)
    assert not likely(scale * 2 / 3)
    assert not likely(scale * 3 / 2)


def test_draws_are_independent_of_their_neighbours() -> None:
    for source in (SystemNoise(), SystemNoise("opendp"), SeededNoise(11)):
        draws = source.discrete_laplace(5, DRAWS).astype(float)
        correlation = float(np.corrcoef(draws[1:], draws[:-1])[0, 1])
        assert abs(correlation) < 6.0 / math.sqrt(DRAWS)  # 2e-9 of normal draws are further out


def test_a_scale_is_never_rounded_down() -> None:
    for denominator in range(3, 200):
        scale = Fraction(1, denominator)
        assert Fraction(checked_scale(scale)) >= scale
        assert Fraction(checked_scale(scale)) - scale < scale * Fraction(1, 2**51)


@pytest.mark.parametrize("scale", [0, -1, 0.0, math.nan, math.inf, LARGEST_SCALE + 1, Fraction(-1, 3)])
def test_a_scale_that_protects_nobody_is_refused(scale: float) -> None:
    for source in (SystemNoise(), SystemNoise("opendp"), SeededNoise(0)):
        with pytest.raises(ValueError, match="scale"):
            source.discrete_laplace(scale, 1)


def test_shapes_and_seeds() -> None:
    assert SystemNoise().discrete_laplace(1, (2, 0, 3)).shape == (2, 0, 3)
    assert SystemNoise().discrete_laplace(1, 4).shape == (4,)
    first, again, other = (SeededNoise(seed).discrete_laplace(9, 50).tolist() for seed in (1, 1, 2))
    assert first == again != other
    assert SystemNoise().private
    assert not SeededNoise(0).private


@pytest.mark.parametrize("scores", [np.array([]), np.array([0.5]), np.zeros((2, 2), int)])
def test_scores_that_are_not_integers_are_refused(scores: np.ndarray) -> None:
    with pytest.raises(ValueError, match="scores"):
        SystemNoise().select(scores, 1)


@pytest.mark.parametrize("deviation", [0.7, 5.0, 255.0, 257.0, 1e6])
def test_seeded_gaussian_noise_has_the_variance_asked_for(deviation: float) -> None:
    draws = SeededNoise(5).discrete_gaussian(Fraction(deviation) ** 2, 40_000)
    assert draws.dtype == np.int64
    # Seeded, so it cannot flake; 40,000 squares are within four percent of their mean.
    assert float((draws.astype(float) ** 2).mean()) == pytest.approx(deviation**2, rel=0.04)


def test_both_sources_draw_gaussian_noise() -> None:
    assert isinstance(SystemNoise(), GaussianSource)
    assert isinstance(SeededNoise(1), GaussianSource)
