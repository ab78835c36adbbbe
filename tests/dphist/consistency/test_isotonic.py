"""Isotonic regression compared with the min-max formula, the paper's examples and brute force."""

from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.consistency.isotonic import isotonic, isotonic_integers, isotonic_median


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
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
