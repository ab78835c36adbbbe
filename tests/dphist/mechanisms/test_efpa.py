"""EFPA: exact coefficients and sensitivities against dense algebra, privacy loss, its predicted error."""

from fractions import Fraction

import numpy as np
import pytest

from dphist import mechanisms
from dphist.mechanisms.efpa import fourier_basis
from dphist.noise import SeededNoise


def dense_basis(bins):
    """Return the orthonormal cosines and sines, by their definition."""
    places = np.arange(bins)
    rows = [np.full(bins, 1 / np.sqrt(bins))]
    for frequency in range(1, (bins - 1) // 2 + 1):
        turn = 2 * np.pi * frequency * places / bins
        rows += [np.sqrt(2 / bins) * np.cos(turn), np.sqrt(2 / bins) * np.sin(turn)]
    if bins % 2 == 0 and bins > 1:
        rows.append((-1.0) ** places / np.sqrt(bins))
    return np.array(rows)


@pytest.mark.parametrize("bins", [1, 2, 3, 4, 7, 16, 33, 300])
def test_basis_is_orthonormal_and_its_inverse_is_its_transpose(bins):
    exact, basis = dense_basis(bins), fourier_basis(bins, 20)
    np.testing.assert_allclose(exact @ exact.T, np.eye(bins), atol=1e-12)
    columns = np.array([basis.transform(column) for column in np.eye(bins, dtype=np.int64)]).T
    np.testing.assert_allclose(columns / basis.unit, exact, atol=1 / basis.unit)
    values = np.random.default_rng(1).normal(size=bins)
    np.testing.assert_allclose(basis.invert(values * basis.unit), exact.T @ values, atol=1e-12)
    np.testing.assert_allclose(basis.invert(values[:1] * basis.unit), exact[:1].T @ values[:1], atol=1e-12)


@pytest.mark.parametrize("bins", [1, 2, 5, 24])
def test_sensitivities_are_the_largest_columns_exactly(bins):
    basis = fourier_basis(bins, 20)
    columns = np.array([basis.transform(column) for column in np.eye(bins, dtype=np.int64)]).T
    for kept in range(1, bins + 1):
        assert basis.sensitivities[kept - 1] == np.abs(columns[:kept]).sum(axis=0).max()
    length = max(sum(int(value) ** 2 for value in column) for column in columns.T)
    assert (basis.length - 1) ** 2 <= length < basis.length**2
    assert basis.length / basis.unit == pytest.approx(1.0, abs=1e-5)


def test_the_budget_of_the_coefficients_is_reached_by_the_worst_bin(privacy_loss):
    """At bin 0 every cosine is 1. With all coefficients, an event in some bin costs all of their budget."""
    counts = np.random.default_rng(0).integers(0, 2000, 31)
    losses = [privacy_loss("efpa", counts, counts + np.eye(31, dtype=int)[b], 20.0) for b in range(31)]
    assert 10 < max(losses) <= 20


@pytest.mark.parametrize("spread", [3, 200, 10**6])
def test_noise_of_the_kept_coefficients_is_that_of_their_largest_column(spread, transcript):
    """One coefficient less in the sum would leave a part of one event's change without noise."""
    counts = np.random.default_rng(3).integers(0, spread, 24)
    (_, values, scale, _) = transcript("efpa", counts, 1)[-1]
    assert values.size > 1
    columns = np.array([fourier_basis(24, 20).transform(column) for column in np.eye(24, dtype=np.int64)]).T
    assert int(np.abs(columns[: values.size]).sum(axis=0).max()) / scale == Fraction(1, 2)


def test_a_smooth_histogram_needs_few_coefficients_and_a_rough_one_all():
    turn = 2 * np.pi * np.arange(64) / 64
    smooth = np.rint(1e6 * (1 + np.cos(turn))).astype(int)
    rough = np.random.default_rng(2).integers(0, 10**9, 64)
    kept = [
        mechanisms.release("efpa", counts, 1.0, noise=SeededNoise(1)).published["coefficients"].size
        for counts in (smooth, rough)
    ]
    assert 3 <= kept[0] <= 9
    assert kept[1] == 64


@pytest.mark.slow
def test_error_is_that_of_the_noise_it_states():
    """All counts are equal. If only the mean's coefficient is kept, the squared error shows the scale.

    Over at least 500 such releases the mean squared noise is within 53 % of 2 scale^2 (over 5 deviations).
    With 2/3 or 3/2 of the scale it would be 4/9 or 9/4 of that, which is outside.
    """
    counts, epsilon = np.full(16, 100), 0.05
    basis = fourier_basis(16, 20)
    scale = basis.sensitivities[0] / (epsilon / 2) / basis.unit
    squares = []
    for seed in range(1500):
        made = mechanisms.release("efpa", counts, epsilon, noise=SeededNoise(seed))
        if made.published["coefficients"].size == 1:
            squares.append(((made.counts - counts) ** 2).sum())
    assert len(squares) > 500
    assert np.mean(squares) / (2 * scale**2) == pytest.approx(1, abs=0.53)
