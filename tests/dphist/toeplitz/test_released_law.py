"""Released values carry noise of exactly the stated law, and no other scale passes the same test.

A test accepts noise unless a p-value is below 1e-8, so this is its rate of false alarms.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dphist.arrays import FloatArray, Int64Array
from dphist.noise import SystemNoise
from dphist.toeplitz import ToeplitzCounter, ToeplitzDesign, plan_toeplitz
from tests.oracles import NoNoise

FALSE_ALARM = 1e-8
DESIGN = plan_toeplitz(horizon=128, epsilon=1, delta="1e-6", width=400)


def noise_of(design: ToeplitzDesign) -> Int64Array:
    """Return the noise in released values of some stream, in lattice steps, shape (bins, width)."""
    counts = np.random.default_rng(1).integers(0, 50, (design.horizon, design.width))
    exact = ToeplitzCounter(design).close(counts, NoNoise())
    return ToeplitzCounter(design).close(counts, SystemNoise()) - exact


def p_values(draws: FloatArray) -> list[float]:
    """Return p-values of draws that should be independent and standard normal, shape (bins, width)."""
    size = draws.size
    square = stats.chi2(size).cdf((draws**2).sum())
    products = [(draws[1:] * draws[:-1]).sum(), (draws[:, 1:] * draws[:, :-1]).sum()]
    along = [2 * stats.norm.sf(abs(total) / size**0.5) for total in products]
    return [2 * min(square, 1 - square), float(stats.kstest(draws.ravel(), "norm").pvalue), *along]


def test_noise_has_the_stated_law_and_no_other_scale() -> None:
    noise = noise_of(DESIGN) / DESIGN.noise_steps
    assert min(p_values(noise)) > FALSE_ALARM
    for wrong in (1 / 1.05, 1.05, 2 / 3, 3 / 2):
        assert min(p_values(noise * wrong)) < FALSE_ALARM


def test_noise_uses_every_bit_of_the_lattice() -> None:
    low_bits = noise_of(DESIGN) & 1023
    assert stats.chisquare(np.bincount(low_bits.ravel(), minlength=1024)).pvalue > FALSE_ALARM


def test_noise_repeated_in_two_bins_is_rejected() -> None:
    noise = noise_of(DESIGN) / DESIGN.noise_steps
    noise[1::2] = noise[::2]
    assert min(p_values(noise)) < FALSE_ALARM


@pytest.mark.parametrize("changed", [0, 40, 127])
def test_a_value_depends_on_noise_of_its_own_bin_only(changed: int) -> None:
    draws = np.zeros((128, 400), np.int64)
    draws[changed] = 1

    class OneDraw(NoNoise):
        def discrete_gaussian(self, variance: object, shape: object) -> Int64Array:
            return draws.copy()

    counts = np.ones((128, 400), np.int64)
    moved = ToeplitzCounter(DESIGN).close(counts, OneDraw()) - ToeplitzCounter(DESIGN).close(
        counts, NoNoise()
    )
    assert (moved == draws).all()
