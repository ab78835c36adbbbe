"""Isotonic regression compared with the min-max formula, the paper's examples and brute force."""

from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.consistency.isotonic import (
    Error,
    consistent_cdf,
    isotonic,
    isotonic_integers,
    isotonic_median,
    rising_cdfs,
)

PENALTIES = {
    "absolute": lambda counts, value: np.abs(counts - value),
    "squared": lambda counts, value: (counts - value) ** 2,
}


def min_max(values, weights):
    """Return the isotonic fit by theorem 1 of Hay et al.

    At position k it is the largest value, over i <= k, of the least mean of [i, j] with j >= k.
    """
    n = len(values)

    def mean(i, j):
        mass = sum(weights[i : j + 1])
        return sum(w * v for w, v in zip(weights[i : j + 1], values[i : j + 1], strict=True)) / mass

    return [max(min(mean(i, j) for j in range(k, n)) for i in range(k + 1)) for k in range(n)]


@pytest.mark.parametrize(
    ("values", "fitted"),
    [
        ([9, 10, 14], [9, 10, 14]),
        ([9, 14, 10], [9, 12, 12]),
        ([14, 9, 10, 15], [11, 11, 11, 15]),
        ([1, 2, 0, 11], [1, 1, 1, 11]),
    ],
)
def test_examples_of_hay_et_al(values, fitted):
    assert isotonic(values).tolist() == fitted


@given(st.lists(st.tuples(st.integers(-40, 40), st.integers(1, 9)), min_size=1, max_size=12))
def test_equals_the_min_max_formula_in_exact_fractions(pairs):
    values = [Fraction(v) for v, _ in pairs]
    weights = [Fraction(w) for _, w in pairs]
    expected = [float(v) for v in min_max(values, weights)]
    got = isotonic([v for v, _ in pairs], [w for _, w in pairs])
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


@given(
    st.lists(st.integers(-32, 96), min_size=1, max_size=5),
    st.integers(0, 4),
    st.sampled_from([("squared", isotonic_integers), ("absolute", isotonic_median)]),
)
def test_whole_sequences_are_optimal_by_brute_force(sixteenths, upper, search):
    values = np.array(sixteenths) / 16.0
    name, fit = search

    def cost(sequence):
        distance = np.abs(np.array(sequence) - values)
        return float((distance**2 if name == "squared" else distance).sum())

    best = min(cost(s) for s in combinations_with_replacement(range(upper + 1), len(values)))
    fitted = fit(values, 0, upper)
    assert fitted.dtype == np.int64
    assert (np.diff(fitted) >= 0).all()
    assert fitted[0] >= 0
    assert fitted[-1] <= upper
    assert cost(fitted) == best


def test_bounds_clip_the_unbounded_solution():
    assert isotonic([5.0, -3.0, 9.0, 8.0], lower=2.0, upper=8.0).tolist() == [2.0, 2.0, 8.0, 8.0]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: isotonic([1.0, np.nan]), "values need shape"),
        (lambda: isotonic([[1.0]]), r"got shape \(1, 1\)"),
        (lambda: isotonic([1.0, 2.0], [1.0, 0.0]), "above 0"),
        (lambda: isotonic([1.0], lower=2.0, upper=1.0), "empty"),
        (lambda: isotonic_median([1.0], 2, 1), "empty"),
        (lambda: rising_cdfs([[2, 1]]), "one of them falls"),
        (lambda: rising_cdfs([1, 2]), "shape"),
        (lambda: rising_cdfs([[0.5]]), "whole"),
        (lambda: consistent_cdf([], 3), "m >= 1"),
        (lambda: consistent_cdf([1.0], -1), "at least 0"),
        (lambda: consistent_cdf([1.0], 2.5), "whole number"),  # type: ignore[arg-type]
        (lambda: consistent_cdf([np.inf], 3), "finite"),
        (lambda: consistent_cdf([1.0], 3, "l7"), "'l7' is not known"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def brute_force(values, total, penalty):
    sequences = combinations_with_replacement(range(total + 1), len(values) - 1)
    return min(total_penalty((*s, total), values, penalty) for s in sequences)


def total_penalty(sequence, values, penalty):
    return sum(float(penalty(np.array([float(c)]), v)[0]) for c, v in zip(sequence, values, strict=True))


def trellis(values, total, penalty):
    """Return the best path over (bin, cumulative count), by the dynamic programme of section VI-2."""
    states, cost, came_from = np.arange(total + 1), np.zeros(total + 1), []
    for value in values.tolist():
        least = np.minimum.accumulate(cost)
        # The first state with the running minimum: the state itself where the minimum falls.
        falls = np.append(True, least[1:] < least[:-1])
        came_from.append(np.maximum.accumulate(np.where(falls, states, 0)))
        cost = least + penalty(states.astype(float), value)
    path = [total]
    for before in came_from[:0:-1]:
        path.insert(0, int(before[path[0]]))
    return np.array(path)


def assert_consistent(path, total):
    assert path.dtype == np.int64
    assert path[-1] == total
    assert path[0] >= 0
    assert (np.diff(path) >= 0).all()


@given(
    st.lists(st.integers(-16, 64), min_size=1, max_size=5),
    st.integers(0, 5),
    st.sampled_from(["absolute", "squared"]),
)
def test_consistent_cdf_has_the_least_error_of_all(eighths, total, error):
    values = np.array(eighths) / 8.0
    penalty = PENALTIES[error]
    best = brute_force(values.tolist(), total, penalty)
    path = consistent_cdf(values, total, error)
    assert_consistent(path, total)
    assert total_penalty(path, values.tolist(), penalty) == best


@pytest.mark.parametrize("error", ["absolute", "squared"])
def test_scalable_variant_equals_the_trellis_on_a_noisy_cdf(error):
    rng = np.random.default_rng(7)
    counts = rng.multinomial(400, np.full(150, 1 / 150))
    noisy = np.cumsum(counts) + np.rint(rng.laplace(0, 9, 150) * 65536) / 65536
    fast = consistent_cdf(noisy, 400, error)
    slow = trellis(noisy, 400, PENALTIES[error])
    assert total_penalty(fast, noisy, PENALTIES[error]) == pytest.approx(
        total_penalty(slow, noisy, PENALTIES[error]), rel=1e-12
    )


def test_consistency_lowers_both_errors_of_a_noisy_cdf():
    rng = np.random.default_rng(11)
    before, after = np.zeros(2), np.zeros(2)
    errors: tuple[Error, ...] = ("absolute", "squared")
    for _ in range(40):
        exact = np.cumsum(rng.multinomial(500, np.full(17**2, 1 / 17**2)))
        noisy = exact + rng.laplace(0, 20, exact.size)
        for row, error in enumerate(errors):
            power = row + 1
            before[row] += (np.abs(noisy - exact) ** power).sum()
            after[row] += (np.abs(consistent_cdf(noisy, 500, error) - exact) ** power).sum()
    assert (after < 0.5 * before).all()


@pytest.mark.parametrize("error", ["absolute", "squared"])
def test_the_cost_does_not_depend_on_the_total(error):
    path = consistent_cdf(np.linspace(-3e14, 1.1e15, 1001)[::-1], 10**15, error)
    assert_consistent(path, 10**15)
    assert len(set(path[:-1].tolist())) == 1


@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 10**6))
def test_running_cdfs_rise_in_time_and_value_without_larger_errors(times, bins, seed):
    rng = np.random.default_rng(seed)
    exact = rng.integers(0, 5, (times, bins)).cumsum(axis=0).cumsum(axis=1)
    noisy = np.array([consistent_cdf(row + rng.laplace(0, 4, bins), int(row[-1])) for row in exact])
    found = rising_cdfs(noisy)
    assert (np.diff(found, axis=0) >= 0).all()
    assert (np.diff(found, axis=1) >= 0).all()
    assert np.abs(found - exact).max() <= np.abs(noisy - exact).max()
    np.testing.assert_array_equal(rising_cdfs(found), found)
    np.testing.assert_array_equal(rising_cdfs(exact), exact)


def test_rising_in_time_lowers_both_errors():
    rng = np.random.default_rng(2)
    exact = rng.integers(0, 3, (60, 40)).cumsum(axis=0).cumsum(axis=1)
    noisy = np.array([consistent_cdf(row + rng.laplace(0, 30, 40), int(row[-1])) for row in exact])
    before, after = noisy - exact, rising_cdfs(noisy) - exact
    assert np.abs(after).mean() < 0.8 * np.abs(before).mean()
    assert (after**2).mean() < 0.8 * (before**2).mean()
