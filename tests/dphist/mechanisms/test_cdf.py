"""Cumulative counts: privacy loss, variance against dense algebra, refinement against the least variance."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import mechanisms
from dphist.cdf import best_tree, tree_of
from dphist.noise import SeededNoise
from dphist.privacy import exact
from tests.examples import examples

NAMES = ["cdf_direct", "cdf_histogram", "cdf_binary", "cdf_tree", "cdf_refined"]
TREES = ["cdf_histogram", "cdf_binary", "cdf_tree", "cdf_refined"]


def released(name, counts, epsilon, seed, **options):
    return mechanisms.release(name, counts, epsilon, noise=SeededNoise(seed), **options)


@pytest.mark.parametrize("name", NAMES)
@examples(25)
@given(data=st.data())
def test_an_added_event_loses_at_most_epsilon_and_some_event_loses_it_all(name, data, privacy_loss):
    counts = np.array(data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=40)))
    epsilon = data.draw(st.sampled_from([Fraction(1, 3), 0.1, 2]))
    losses = [
        privacy_loss(name, counts, counts + np.eye(counts.size, dtype=int)[b], epsilon)
        for b in {0, counts.size // 2}
    ]
    assert max(losses) == exact(epsilon)


@pytest.mark.parametrize("name", NAMES)
@examples(25)
@given(data=st.data())
def test_a_moved_event_loses_at_most_epsilon(name, data, privacy_loss):
    counts = np.array(data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=40)))
    source, target = data.draw(st.permutations(range(counts.size)))[:2]
    moved = counts.copy()
    moved[source] -= 1
    moved[target] += 1
    loss = privacy_loss(name, counts, moved, 0.7, neighbours="substitute")
    assert loss <= Fraction("0.7")
    if {source, target} == {0, counts.size - 1}:
        assert loss == Fraction("0.7")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bins", [1, 2, 37])
def test_last_cumulative_count_is_the_public_total(name, bins):
    counts = np.arange(bins) + 3
    release = released(name, counts, 0.01, 1, neighbours="substitute")
    assert release.published["cumulative"][-1] == counts.sum()
    np.testing.assert_allclose(np.cumsum(release.counts), release.published["cumulative"][1:], atol=1e-6)
    private = released(name, counts, 0.01, 1, neighbours="add_remove")
    assert private.published["cumulative"][-1] != counts.sum()


def answer_matrix(name, bins, ranges, **options):
    """Return each noise draw's weight in each answer, found one draw at a time, and each draw's scale."""

    class OneDraw:
        """Noise that is zero except for one chosen draw."""

        private = False

        def __init__(self, turn):
            self.turn, self.drawn, self.scales = turn, 0, []

        def discrete_laplace(self, scale, shape):
            size = int(np.prod(shape))
            self.scales += [scale] * size
            unit = (np.arange(self.drawn, self.drawn + size) == self.turn).astype(np.int64)
            self.drawn += size
            return unit.reshape(shape)

        def select(self, scores, scale):
            raise AssertionError("nothing is selected here")

    counts = np.zeros(bins, dtype=int)
    probe = OneDraw(-1)
    mechanisms.release(name, counts, 1.0, noise=probe, **options)
    columns = [
        mechanisms.release(name, counts, 1.0, noise=OneDraw(turn), **options).answer(ranges)
        for turn in range(probe.drawn)
    ]
    return np.array(columns).T, np.array([float(scale) for scale in probe.scales])


def discrete_variance(scales):
    decay = np.exp(-1.0 / scales)
    return 2 * decay / (1 - decay) ** 2


@pytest.mark.parametrize("neighbours", ["add_remove", "substitute"])
@pytest.mark.parametrize("name", [n for n in NAMES if n != "cdf_refined"])
def test_stated_variance_is_that_of_the_linear_map(name, neighbours):
    bins = 23
    ranges = np.array([(a, b) for a in range(0, bins + 1, 3) for b in range(a, bins + 1, 2)] + [(0, bins)])
    matrix, scales = answer_matrix(name, bins, ranges, neighbours=neighbours)
    release = released(name, np.zeros(bins, int), 1.0, 0, neighbours=neighbours)
    expected = matrix**2 @ discrete_variance(scales)
    np.testing.assert_allclose(release.variance(ranges), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("neighbours", ["add_remove", "substitute"])
@pytest.mark.parametrize(("bins", "branching"), [(23, (3, 3, 3)), (27, (3, 3, 3)), (10, (12,)), (16, (2, 8))])
def test_refined_variance_is_that_of_the_linear_map_and_below_the_trees(bins, branching, neighbours):
    ranges = np.array([(0, b) for b in range(bins + 1)])
    options = {"branching": branching, "neighbours": neighbours}
    matrix, scales = answer_matrix("cdf_refined", bins, ranges, **options)
    refined = matrix**2 @ discrete_variance(scales)
    release = released("cdf_refined", np.zeros(bins, int), 1.0, 0, **options)
    np.testing.assert_allclose(release.published["cumulative_variance"], refined, rtol=1e-9, atol=1e-9)
    plain = released("cdf_tree", np.zeros(bins, int), 1.0, 0, **options).variance(ranges)
    assert (refined <= plain + 1e-9).all()
    assert refined.sum() < plain.sum() or (neighbours == "add_remove" and len(branching) == 1)


@pytest.mark.parametrize("name", TREES)
def test_estimates_are_unbiased_under_the_linear_map(name):
    """With no noise every estimate is exact: the map from counts to answers is the identity."""
    counts = np.random.default_rng(2).integers(0, 100, 61)

    class Silence:
        private = False

        def discrete_laplace(self, scale, shape):
            return np.zeros(shape, dtype=np.int64)

        def select(self, scores, scale):
            raise AssertionError("nothing is selected here")

    for neighbours in ("add_remove", "substitute"):
        release = mechanisms.release(name, counts, 0.5, noise=Silence(), neighbours=neighbours)
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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"neighbours": "swap"}, "neighbours is 'swap'; choose"),
        ({"branching": (2, 2)}, "does not cover 9 bins"),
        ({"budgets": "none"}, "budgets is 'none'; choose"),
        ({"consistent": "l2"}, "consistent is 'l2'; choose"),
    ],
)
def test_bad_options_are_named(options, said):
    with pytest.raises(ValueError, match=said):
        released("cdf_tree", np.zeros(9, int), 1.0, 0, **options)
