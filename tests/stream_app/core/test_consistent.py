"""Consistent counts are whole, never fall and add up; without noise they are the true counts."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from dphist import plan_tree
from dphist.arrays import FloatArray
from dphist.consistency.isotonic import isotonic
from dphist.tree.design import Release
from stream_app.core.answers.consistent import Method, closest_rising, consistent_running, running_variances
from stream_app.core.kinds import kind_of
from stream_app.core.kinds.tables import PUBLISHED, Span
from stream_app.core.records import EpochRecord
from tests.dphist.tree.dense import published_variance
from tests.examples import examples
from tests.stream_app.core.test_query import EXACT, view_of

METHODS: tuple[Method, ...] = get_args(Method)
SPARSE = [0, 0, 3, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 5, 0, 0]


@examples(50)
@given(
    st.lists(st.tuples(st.floats(-50, 50), st.floats(0, 9)), min_size=1, max_size=30), st.integers(0, 10**6)
)
def test_the_closest_rising_whole_numbers(points: list[tuple[float, float]], seed: int) -> None:
    values, variances = np.array(points).T
    found = closest_rising(values, variances)
    assert found.dtype == np.int64
    assert bool((np.diff(found) >= 0).all())
    assert found[0] >= 0
    # No rising counts nearby are closer, judged where errors have a known size.
    weights = 1.0 / np.maximum(variances, 1e-3)
    if variances.min() < 1e-3:
        return
    cost = float((weights * (found - values) ** 2).sum())
    generator = np.random.default_rng(seed)
    for _ in range(20):
        rival = np.maximum.accumulate(np.maximum(found + generator.integers(-2, 3, len(found)), 0))
        assert cost <= float((weights * (rival - values) ** 2).sum()) + 1e-6 * cost + 1e-9


def test_a_value_of_smaller_variance_moves_less() -> None:
    assert closest_rising(np.array([10.0, 4.0]), np.array([1.0, 9.0])).tolist() == [9, 9]
    assert closest_rising(np.array([10.0, 4.0]), np.array([9.0, 1.0])).tolist() == [5, 5]
    assert closest_rising(np.array([0.0, -3.0, 2.0]), np.zeros(3)).tolist() == [0, 0, 2]


@pytest.mark.parametrize("method", METHODS)
def test_without_noise_it_is_the_truth_over_several_epochs(method: Method) -> None:
    counts = [SPARSE, [1, 2, 3, 4, 5]]
    view = view_of(counts, 16, epsilon=EXACT)
    first = view.span.start
    edges = np.arange(first, view.span.stop)
    found = view.consistent(edges, edges + 1, method)
    assert found.tolist() == [*SPARSE, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("epsilon", ["0.1", "1"])
def test_ranges_add_up_and_are_never_negative(epsilon: str, method: Method) -> None:
    view = view_of([SPARSE, SPARSE[:9]], 16, epsilon=epsilon)
    start, stop = view.span
    edges = np.arange(start, stop)
    bins = view.consistent(edges, edges + 1, method)
    assert int(bins.min()) >= 0
    unbiased = [view.count(Span(bin, bin + 1)).value for bin in range(start, stop)]
    assert min(unbiased) < 0  # otherwise the test shows nothing
    for a in range(start, stop, 3):
        for b in range(a + 1, stop + 1, 2):
            one = view.consistent(np.array([a]), np.array([b]), method)
            assert one.tolist() == [int(bins[a - start : b - start].sum())]


@pytest.mark.parametrize("release", ["causal", "anticipating"])
def test_bins_are_the_closest_to_the_estimates_with_the_sums_of_their_nodes(release: Release) -> None:
    """At its ends an epoch has the closest rising counts. Inside, nodes equal the optimum found by scipy."""
    generator = np.random.default_rng(3)
    design = plan_tree(16, Fraction(1, 4), release=release, branching=(4, 4))
    strategy = replace(view_of([SPARSE], 16).strategy, kind=kind_of(design))
    for bins in (16, 9):
        views = []
        for number, released in enumerate((16, bins)):
            epoch = strategy.kind.epoch(EpochRecord(number, 5, 16, 1, strategy.hash))
            epoch.append(PUBLISHED, np.zeros((released, 1), np.int64))
            views.append(epoch)
        values = np.append(0.0, generator.normal(0.6, 8.0, 16 + bins).cumsum())
        found = consistent_running(lambda _: strategy.kind, views, values, "top_down")
        rising = closest_rising(values, running_variances(lambda _: strategy.kind, views))
        assert found[[0, 16, -1]].tolist() == rising[[0, 16, -1]].tolist()
        exact = isotonic(
            values, 1 / np.maximum(running_variances(lambda _: strategy.kind, views), 1e-6), lower=0.0
        )
        leaf, node = design.variances[1], design.variances[0]
        for start, stop in ((0, 16), (16, 16 + bins)):
            sums = np.add.reduceat(np.diff(values[start : stop + 1]), range(0, stop - start, 4))
            sizes = np.array([min(4, stop - start - i) for i in range(0, stop - start, 4)])
            below = np.where(sizes == 4, 1 / (1 / node + 1 / (4 * leaf)), sizes * leaf)
            total = exact[stop] - exact[start]
            expected = closest_with_sum(sums, below, total)
            settled = np.add.reduceat(np.diff(found[start : stop + 1]), range(0, stop - start, 4))
            assert np.abs(settled - expected).max() <= 1.01  # both ends are rounded


def closest_with_sum(values: FloatArray, variances: FloatArray, total: float) -> FloatArray:
    """Return the closest values with this sum, by least squares; the sum is a row of great weight."""
    rows = np.vstack([np.diag(variances**-0.5), np.full(len(values), 1e4)])
    return np.asarray(nnls(rows, np.append(values * variances**-0.5, 1e4 * total))[0])


def test_variances_are_those_of_the_answers() -> None:
    view = view_of([SPARSE, SPARSE[:9]], 16)
    variances = running_variances(view.kind_of, view.epochs)
    first = view.span.start
    for edge in range(1, 26):
        assert variances[edge] == pytest.approx(view.count(Span(first, first + edge)).variance)


def test_variances_of_an_anticipating_epoch_are_those_of_its_published_values() -> None:
    design = plan_tree(16, 1, release="anticipating")
    strategy = replace(view_of([SPARSE], 16).strategy, kind=kind_of(design))
    epoch = strategy.kind.epoch(EpochRecord(0, 5, 16, 1, strategy.hash))
    epoch.append(PUBLISHED, np.zeros((9, 1), np.int64))
    found = running_variances(lambda _: strategy.kind, [epoch])
    assert found == pytest.approx([published_variance(design, 0, t) for t in range(10)])
