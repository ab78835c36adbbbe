"""Cumulative counts: privacy loss, variance against dense algebra, refinement against the least variance."""

from fractions import Fraction

import numpy as np
import pytest

from dphist import mechanisms
from dphist.cdf import best_tree, tree_of
from dphist.noise import SeededNoise
from tests.oracles import NoNoise

NAMES = ["cdf_direct", "cdf_histogram", "cdf_binary", "cdf_tree", "cdf_refined"]
TREES = ["cdf_histogram", "cdf_binary", "cdf_tree", "cdf_refined"]


def released(name, counts, epsilon, seed, **options):
    return mechanisms.release(name, counts, epsilon, noise=SeededNoise(seed), **options)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bins", [1, 2, 37])
def test_last_cumulative_count_is_the_public_total(name, bins):
    counts = np.arange(bins) + 3
    release = released(name, counts, 0.01, 1, neighbours="substitute")
    assert release.published["cumulative"][-1] == counts.sum()
    np.testing.assert_allclose(np.cumsum(release.counts), release.published["cumulative"][1:], atol=1e-6)
    private = released(name, counts, 0.01, 1, neighbours="add_remove")
    assert private.published["cumulative"][-1] != counts.sum()


@pytest.mark.parametrize("name", TREES)
def test_estimates_are_unbiased_under_the_linear_map(name):
    """With no noise every estimate is exact: the map from counts to answers is the identity."""
    counts = np.random.default_rng(2).integers(0, 100, 61)

    for neighbours in ("add_remove", "substitute"):
        release = mechanisms.release(name, counts, 0.5, noise=NoNoise(), neighbours=neighbours)
        np.testing.assert_allclose(release.counts, counts, atol=1e-9)


@pytest.mark.slow
def test_mean_error_of_the_tree_is_the_predicted_one():
    """4,000 releases: the mean is within 7 % of the formula (5.7 deviations, false alarm below 1e-6)."""
    bins, epsilon = 50, 0.05
    errors = [
        (released("cdf_tree", np.zeros(bins, int), epsilon, s).published["cumulative"][1:] ** 2).sum()
        for s in range(4000)
    ]
    expected = best_tree(bins, total_known=False).squared_error(epsilon)
    assert np.mean(errors) == pytest.approx(expected, rel=0.07)
    assert abs(np.mean(errors) / expected - 4 / 9) > 0.07
    assert abs(np.mean(errors) / expected - 9 / 4) > 0.07


@pytest.mark.parametrize("error", ["absolute", "squared"])
def test_consistent_view_is_whole_rising_and_ends_at_the_total(error):
    counts = np.random.default_rng(4).integers(0, 3, 120)
    release = released("cdf_tree", counts, 0.1, 3, neighbours="substitute", consistent=error)
    cumulative = release.published["cumulative"]
    assert (np.diff(cumulative) >= 0).all()
    assert cumulative[-1] == counts.sum()
    assert (cumulative == np.rint(cumulative)).all()
    assert release.variance([[0, 3]]) is None
    private = released("cdf_tree", counts, 0.001, 5, consistent=error).published["cumulative"]
    assert (np.diff(private) >= 0).all()
    assert private[0] == 0


def test_equal_budgets_and_branching_can_be_asked_for():
    release = released("cdf_tree", np.zeros(60, int), 1.0, 0, branching=(4, 4, 4), budgets="equal")
    assert [spent for _, spent in release.budget] == [Fraction(1, 3)] * 3
    assert tree_of(60, (4, 4, 4), budgets="equal").shares == (Fraction(1, 3),) * 3
