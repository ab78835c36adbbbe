"""The simultaneous band: its table compared with convolution, its order statistic, its coverage."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from dphist import SeededNoise
from dphist.arrays import Int64Array
from dphist.laws.interval import MISS, order_statistic
from dphist.laws.law import WeightedNoise
from dphist.noise import Scale
from dphist.planning.product import plan_product
from dphist.product.answers import Histogram
from dphist.product.band import NodeTable, draws_needed, sup_error
from tests.dphist.product.strategies import forest_of
from tests.oracles import weighted_sum_pmf

RUNS = 2000
# 2,000 runs at a true coverage of 0.95 have 4.75 standard deviations of 0.0049: a false alarm below 1e-6.
NOISE_OF_RUNS = 4.75 * math.sqrt(0.95 * 0.05 / RUNS)


@pytest.mark.parametrize("groups", [[(1, 1, 3.0)], [(1, 2, 9.0), (3, 1, 4.0)], [(2, 30, 5.0)]])
def test_a_table_matches_the_law_within_its_slack(groups: list[tuple[int, int, float]]) -> None:
    law = weighted_sum_pmf(groups)
    centre, cumulative = len(law) // 2, law.cumsum()
    table = NodeTable.of(WeightedNoise.of([(float(w), n, s) for w, n, s in groups]))
    deviation = math.sqrt(sum(p * (i - centre) ** 2 for i, p in enumerate(law)))
    assert table.slack < 0.02 * deviation
    for probability in (1e-6, 0.01, 0.3, 0.5, 0.9, 0.999):
        drawn = float(table.draw(np.array([probability]))[0])
        below, above = (
            cumulative[np.clip(math.floor(drawn + side) + centre, 0, len(law) - 1)]
            for side in (-table.slack - 1e-9, table.slack + 1e-9)
        )
        assert below - 1e-8 <= probability <= above + 1e-8


def test_the_rank_is_the_least_with_the_promised_probability() -> None:
    for draws, confidence in ((8192, 0.95), (8192, 0.5), (draws_needed(1000, 0.999), 0.999)):
        rank = order_statistic(draws, confidence)
        assert rank <= draws
        assert binom.sf(rank - 1, draws, confidence) <= MISS < binom.sf(rank - 2, draws, confidence)


def test_the_band_of_one_bucket_is_an_interval() -> None:
    axis = plan_product(4, 1).values
    law = WeightedNoise.of([(1.0, 40, 20.0)])
    # Forty summands are nearly normal: 1.96, and up to 1.2 points of confidence more.
    assert 1.95 < sup_error(axis, (law,), 0.95) < 2.1


class ScaledNoise(SeededNoise):
    """Noise of a wrong scale: ``factor`` times the scale of the design."""

    def __init__(self, seed: int, factor: Fraction) -> None:
        super().__init__(seed)
        self.factor = factor

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        return super().discrete_laplace(Fraction(scale) * self.factor, shape)


def coverage(factor: Fraction, runs: int, *asked: tuple[int, int, int | None]) -> list[float]:
    """Return the part of independent epochs without events in which the band holds every cumulative count.

    The error does not depend on the events, so the coverage is the same for any events.

    Args: asked, the first bin, the end and the key of each histogram; all are asked of the same epochs.
    """
    design = plan_product(24, 1, keys=3, buckets=48, total_share=Fraction(1, 5))
    nothing, noise = np.zeros((max(b for _, b, _ in asked), design.cells), np.int64), ScaledNoise(5, factor)
    held = np.zeros(len(asked))
    for _ in range(runs):
        forest = forest_of(design, nothing, noise)
        cdfs = [Histogram.of(forest.range(a, b), key).cdf(0.95) for a, b, key in asked]
        held += [bool((np.abs(cdf.values) <= cdf.reach).all()) for cdf in cdfs]
    return [float(part) for part in held / runs]


@pytest.mark.slow
def test_coverage_exceeds_the_level_by_at_most_two_points() -> None:
    for found in coverage(Fraction(1), RUNS, (0, 1, 0), (1, 7, 1), (0, 24, None)):
        assert 0.95 - NOISE_OF_RUNS <= found <= 0.97 + NOISE_OF_RUNS


@pytest.mark.slow
def test_noise_of_another_scale_fails_the_coverage_check() -> None:
    asked = (1, 7, 1)
    assert coverage(Fraction(3, 2), 400, asked)[0] < 0.85
    assert coverage(Fraction(2, 3), 400, asked)[0] > 0.985
