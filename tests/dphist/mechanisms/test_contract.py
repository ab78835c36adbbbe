"""The contract that every mechanism of the table keeps."""

from fractions import Fraction

import numpy as np
import pytest

from dphist.mechanisms import BudgetLedger, describe, names, prepare, release
from dphist.mechanisms.base import LARGEST_TOTAL
from dphist.mechanisms.ranges import range_sums
from dphist.noise import SeededNoise, SystemNoise
from dphist.privacy import exact

EVERY = names()
# What these do to their noise is not linear, what they did not measure depends on it, or their own noise
# chooses what is averaged.
NO_VARIANCE = {
    *("h_bar_nonnegative", "sorted_rounded", "sorted_isotonic"),
    *("mwem", "mwem_plane", "efpa", "dpcube", "adaptive_tree", "adaptive_grid"),
}


def example_counts(name, size=13):
    rng = np.random.default_rng(7)
    shape = (size,) if describe(name).dimensions == 1 else (size, size)
    return rng.integers(0, 20, shape)


def example_ranges(name, size=13):
    if describe(name).dimensions == 1:
        return np.array([[0, size], [0, 1], [size // 3, size], [size - 1, size], [size // 2, size // 2]])
    return np.array([[0, size, 0, size], [0, 1, 0, 1], [size // 3, size, 0, size // 2 + 1]])


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1, Fraction(1, 3), 1e6])
def test_epsilon_adds_up_exactly(name, epsilon):
    made = release(name, example_counts(name), epsilon, noise=SeededNoise(1))
    assert made.epsilon == exact(epsilon) == sum(spent for _, spent in made.budget)
    assert all(spent > 0 for _, spent in made.budget)
    assert made.mechanism == name


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("epsilon", [1e-6, 1, 1e6])
def test_shapes_and_finite_values(name, epsilon):
    counts, ranges = example_counts(name), example_ranges(name)
    made = release(name, counts, epsilon, workload=ranges, noise=SeededNoise(2))
    assert made.counts.shape == counts.shape
    assert np.isfinite(made.counts).all()
    answers = made.answer(ranges)
    assert answers.shape == (len(ranges),)
    assert np.isfinite(answers).all()
    variance = made.variance(ranges)
    assert (variance is None) == (name in NO_VARIANCE)
    if variance is not None:
        known = (ranges[:, 0] == 0) | (name != "cdf_refined") | (ranges[:, 0] == ranges[:, 1])
        assert variance.shape == (len(ranges),)
        assert (variance[known] >= 0).all()
        assert np.isnan(variance[~known]).all()


@pytest.mark.parametrize("name", EVERY)
def test_inputs_are_not_touched(name):
    counts, ranges = example_counts(name), example_ranges(name)
    before = counts.copy(), ranges.copy()
    made = release(name, counts, 1, workload=ranges, noise=SeededNoise(3))
    made.answer(ranges), made.variance(ranges)
    np.testing.assert_array_equal(counts, before[0])
    np.testing.assert_array_equal(ranges, before[1])


@pytest.mark.parametrize("name", EVERY)
def test_the_same_seed_gives_the_same_release_and_another_seed_another(name):
    counts, ranges = example_counts(name), example_ranges(name)
    first, same, other = (release(name, counts, 0.1, ranges, SeededNoise(seed)) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first.counts, same.counts)
    np.testing.assert_array_equal(first.answer(ranges), same.answer(ranges))
    assert (first.answer(ranges) != other.answer(ranges)).any()


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(("size", "epsilon"), [(1, 1e-6), (1, 1), (1, 1e6), (2, 1), (3, 1e-6), (17, 1)])
def test_a_histogram_of_any_size_has_finite_answers(name, size, epsilon):
    made = release(name, example_counts(name, size), epsilon, noise=SeededNoise(6))
    assert np.isfinite(made.counts).all()
    assert np.isfinite(made.answer(example_ranges(name, size))).all()


@pytest.mark.parametrize("name", names(dimensions=2))
@pytest.mark.parametrize("shape", [(1, 9), (9, 1), (5, 12)])
def test_grids_need_not_be_square(name, shape):
    counts = np.arange(shape[0] * shape[1]).reshape(shape)
    made = release(name, counts, 1e6, noise=SeededNoise(6))
    assert made.counts.shape == shape
    assert np.isfinite(made.answer([[0, shape[0], 0, shape[1]]])).all()


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("epsilon", [1e-6, 1, 1e6])
def test_all_zeros_and_one_huge_bin(name, epsilon):
    empty = np.zeros_like(example_counts(name))
    assert np.isfinite(release(name, empty, epsilon, noise=SeededNoise(7)).counts).all()
    huge = empty.copy()
    huge.flat[5] = LARGEST_TOTAL
    assert np.isfinite(release(name, huge, epsilon, noise=SeededNoise(8)).counts).all()


@pytest.mark.parametrize("name", EVERY)
def test_a_release_with_system_noise_is_private_and_one_with_a_seed_is_not(name):
    assert release(name, example_counts(name, 3), 1, noise=SystemNoise()).private
    assert not release(name, example_counts(name, 3), 1, noise=SeededNoise(1)).private


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    ("bad", "says"),
    [(-1, "counts.* is -1.*not negative"), (2.5, "counts.* is 2.5.*whole"), (np.nan, "nan.*finite")],
)
def test_a_bad_count_is_named(name, bad, says):
    counts = example_counts(name).astype(float)
    counts.flat[4] = bad
    with pytest.raises(ValueError, match=says):
        release(name, counts, 1, noise=SeededNoise(1))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("epsilon", [0, -1, np.nan, np.inf, "one", True, None])
def test_a_bad_epsilon_is_named(name, epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        release(name, example_counts(name), epsilon, noise=SeededNoise(1))


@pytest.mark.parametrize("name", EVERY)
def test_a_bad_workload_shape_or_option_is_named(name):
    counts = example_counts(name)
    with pytest.raises(ValueError, match=r"ranges have shape \(2, 3\)"):
        release(name, counts, 1, workload=np.ones((2, 3), dtype=int), noise=SeededNoise(1))
    outside = example_ranges(name)
    outside[1, 1] = 99
    with pytest.raises(ValueError, match="range 1 is"):
        release(name, counts, 1, workload=outside, noise=SeededNoise(1))
    with pytest.raises(ValueError, match="no option 'nonsense'"):
        release(name, counts, 1, noise=SeededNoise(1), nonsense=1)


@pytest.mark.parametrize("name", EVERY)
def test_wrong_axes_and_empty_histograms_are_named(name):
    axes = describe(name).dimensions
    with pytest.raises(ValueError, match="counts have shape"):
        release(name, np.zeros((2,) * (3 - axes), dtype=int), 1, noise=SeededNoise(1))
    with pytest.raises(ValueError, match="counts have shape"):
        release(name, np.zeros((0,) * axes, dtype=int), 1, noise=SeededNoise(1))


@pytest.mark.parametrize("name", EVERY)
def test_every_option_is_documented_and_the_docstring_states_the_guarantee(name):
    row = describe(name)
    assert set(row.defaults()) == set(row.options)
    said = row.function.__doc__ or ""
    assert "Guarantee:" in said
    assert "Source:" in said


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("name", EVERY)
def test_continuous_noise_is_for_seeded_research_only(name):
    made = release(name, example_counts(name), 1, noise=SeededNoise(1), continuous=True)
    assert np.isfinite(made.counts).all()
    assert not made.private
    one = np.zeros_like(example_counts(name, 1))
    assert np.isfinite(release(name, one, 1e-3, noise=SeededNoise(1), continuous=True).counts).all()
    with pytest.raises(ValueError, match="continuous=True is for research"):
        release(name, one, 1, noise=SystemNoise(), continuous=True)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'lapalce' is not known; choose from .*identity.*dawa"):
        release("lapalce", [1], 1)


def test_names_are_unique():
    assert len(set(EVERY)) == len(EVERY)


class TestLedger:
    def test_overspending_is_refused_to_the_last_bit(self):
        ledger = BudgetLedger(Fraction(1, 3))
        ledger.spend_share("first", Fraction(1, 2))
        with pytest.raises(ValueError, match="asks for epsilon"):
            ledger.spend("second", Fraction(1, 6) + Fraction(1, 10**30))
        assert ledger.spend_rest("second") == Fraction(1, 6)
        assert ledger.left == 0
        with pytest.raises(ValueError, match="is not a finite number above zero"):
            ledger.spend_rest("third")

    def test_the_list_of_steps_cannot_be_used_to_change_the_ledger(self):
        ledger = BudgetLedger(1)
        ledger.steps.append(("not spent", Fraction(1)))
        assert ledger.left == 1

    def test_a_mechanism_that_leaves_budget_unspent_is_refused(self):
        request = prepare("identity", [1, 2], 1, noise=SeededNoise(1))
        request.ledger.spend_share("half", Fraction(1, 2))
        with pytest.raises(RuntimeError, match="identity left 1/2 of epsilon 1 unspent"):
            request.release(np.zeros(2))

    def test_a_request_refuses_to_measure_anything_but_integers(self):
        with pytest.raises(TypeError, match="integer lattice"):
            prepare("identity", [1], 1, noise=SeededNoise(1)).measure(np.array([0.5]), 1)


def test_counts_given_to_a_mechanism_are_a_read_only_copy():
    given = np.array([1, 2, 3])
    request = prepare("identity", given, 1, noise=SeededNoise(1))
    given[0] = 9
    assert request.counts.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        request.counts[0] = 5


def test_rectangle_sums_against_slices():
    values = np.random.default_rng(1).integers(0, 9, (5, 7)).astype(float)
    rectangles = np.array([[0, 5, 0, 7], [1, 3, 2, 6], [4, 5, 6, 7], [2, 2, 0, 7]])
    expected = [values[a:b, c:d].sum() for a, b, c, d in rectangles]
    np.testing.assert_allclose(range_sums(values, rectangles), expected)
