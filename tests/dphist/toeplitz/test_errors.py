"""Stated errors of estimates: variances, rounding bounds, intervals; dense algebra and many runs."""

from __future__ import annotations

import os
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dphist.arrays import FloatArray
from dphist.noise import SeededNoise
from dphist.product.approximate import ToeplitzColumns
from dphist.toeplitz import RunningCounts, ToeplitzCounter, ToeplitzDesign, plan_toeplitz
from dphist.toeplitz.estimate import (
    half_widths,
    mean_squared_error,
    prefix_variances,
    range_variances,
    rounding_bounds,
)
from dphist.toeplitz.inverse import inverse_weights
from tests.dphist.toeplitz.algebra import GivenNoise, dense

# Each column is a run of its own. A run answers several questions; each question is tested by itself.
RUNS = int(os.environ.get("COVERAGE_RUNS", "200"))
# Of each of 20 tests of a question: together below one in a million.
FALSE_ALARM = 2e-8
DESIGN = plan_toeplitz(horizon=256, epsilon=1, delta="1e-6", width=RUNS)
STARTS = np.array([0, 0, 0, 0, 255, 100, 17, 128, 1, 200])
STOPS = np.array([1, 16, 100, 256, 256, 101, 200, 256, 255, 250])


def errors_of_runs(seed: int) -> FloatArray:
    """Return the errors of the answers for all questions in every run, shape (questions, runs)."""
    counts = np.random.default_rng(seed).poisson(3.0, (256, RUNS))
    released = ToeplitzCounter(DESIGN).close(counts, SeededNoise(seed))
    running = RunningCounts(DESIGN).append(released) * float(DESIGN.step)
    errors = np.vstack([np.zeros(RUNS), running - counts.cumsum(axis=0)])
    return np.asarray(errors[STOPS] - errors[STARTS])


@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_intervals_cover_as_stated(confidence: float) -> None:
    widths = half_widths(DESIGN, STARTS, STOPS, confidence)
    covered = (np.abs(errors_of_runs(31)) <= widths[:, np.newaxis]).sum(axis=1)
    law = stats.binom(RUNS, confidence)
    assert covered.min() >= law.ppf(FALSE_ALARM)
    assert covered.max() <= law.isf(FALSE_ALARM)


def test_variances_are_those_of_dense_algebra() -> None:
    inverse = np.linalg.inv(dense(DESIGN.strategy.coefficients()))
    weights = np.vstack([np.zeros(256), np.cumsum(inverse, axis=0)])
    sigma = float(DESIGN.sigma)
    expected = sigma**2 * ((weights[STOPS] - weights[STARTS]) ** 2).sum(axis=1)
    assert np.allclose(range_variances(DESIGN, STARTS, STOPS), expected, rtol=1e-9)
    assert np.allclose(range_variances(DESIGN, STARTS, STOPS, columns=5), 5 * expected, rtol=1e-9)
    bins = np.arange(257)
    assert np.allclose(prefix_variances(DESIGN, bins), sigma**2 * (weights**2).sum(axis=1), rtol=1e-9)
    ranges = ((1, 100, 1.0), (100, 128, 2.0), (17, 256, -0.5))
    own = sum(weight * (weights[b] - weights[a]) for a, b, weight in ranges)
    law = ToeplitzColumns(DESIGN).groups[0].weighted_law(256, ranges)
    assert law.variance == pytest.approx(sigma**2 * float((own**2).sum()), rel=1e-9)
    assert mean_squared_error(DESIGN) == pytest.approx(prefix_variances(DESIGN, bins[1:]).mean(), rel=1e-9)


def test_errors_of_runs_have_the_stated_variance() -> None:
    squares = (errors_of_runs(32) ** 2).sum(axis=1) / range_variances(DESIGN, STARTS, STOPS)
    law = stats.chi2(RUNS)
    assert squares.min() >= law.ppf(FALSE_ALARM)
    assert squares.max() <= law.isf(FALSE_ALARM)


def test_roundings_stay_within_their_bounds() -> None:
    strategy = plan_toeplitz(horizon=256, epsilon=1, delta="1e-6").strategy
    coarse = ToeplitzDesign(
        strategy, Fraction(1), Fraction(1, 10**6), DESIGN.caps, "add_remove", RUNS, 0, 2**12
    )
    generator = np.random.default_rng(33)
    counts, noise = generator.integers(0, 9, (256, RUNS)), generator.integers(-99, 99, (256, RUNS))
    running = RunningCounts(coarse).append(ToeplitzCounter(coarse).close(counts, GivenNoise(noise)))
    inverse = np.linalg.inv(dense(strategy.coefficients()))
    excess = np.vstack([np.zeros(RUNS), running - np.cumsum(counts + inverse @ noise, axis=0)])
    moved = np.abs(excess[STOPS] - excess[STARTS]).max(axis=1)
    bounds = rounding_bounds(coarse, STARTS, STOPS)
    assert (moved <= bounds).all()
    # The bounds are not far off, except for the first bin, where nothing is rounded.
    assert (moved[1:] > bounds[1:] / 20).all()


def test_many_ranges_at_once_have_the_variances_of_each_alone() -> None:
    """Answers are computed in blocks; ranges of one length, or of many, are summed weight by weight here."""
    design = plan_toeplitz(200, 1, "1e-6")
    weights = inverse_weights(design.strategy).weights(np.arange(200))
    rng = np.random.default_rng(5)
    starts = rng.integers(0, 180, 20_000)
    for lengths in (np.full(20_000, 7), np.minimum(rng.integers(0, 200, 20_000), 200 - starts)):
        found = range_variances(design, starts, starts + lengths)
        asked = [*rng.integers(0, 20000, 300).tolist(), 0, 8191, 8192, 19999]
        for place in asked:
            start, stop = int(starts[place]), int(starts[place] + lengths[place])
            moved = weights[: stop - start][::-1]
            before = weights[stop - start : stop][::-1] - weights[:start][::-1]
            exact = float(design.sigma) ** 2 * (np.sum(moved**2) + np.sum(before**2))
            assert found[place] == pytest.approx(exact, rel=1e-9)
    assert range_variances(design, np.zeros(0, int), np.zeros(0, int)).tolist() == []


def test_intervals_of_a_million_bins_cost_no_loop() -> None:
    design = plan_toeplitz(horizon=2**20, epsilon=1, delta="1e-6")
    widths = half_widths(design, [0, 0, 2**20 - 1], [1, 2**20, 2**20], 0.95)
    assert widths[1] == pytest.approx(1.96 * prefix_variances(design, 2**20)[0] ** 0.5, rel=1e-3)
    assert rounding_bounds(design, 0, 2**20)[0] < 1e-4


@pytest.mark.parametrize("bad", [(5, 4), (-1, 3), (0, 257)])
def test_ranges_out_of_bounds_are_refused(bad: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"bins:|ranges:"):
        range_variances(DESIGN, *bad)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, float("nan")])
def test_confidence_out_of_bounds_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence:"):
        half_widths(DESIGN, 0, 5, confidence)
