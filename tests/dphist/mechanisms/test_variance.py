"""Stated variances against the map from each draw of noise to each answer, found one draw at a time."""

import math
from typing import Any

import numpy as np
import pytest

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms import HistogramRelease, describe, release
from tests.dphist.mechanisms.stated import stated_variance
from tests.oracles import OneMore

pytestmark = pytest.mark.slow  # many designs: only ``make test`` runs this module


def variance_by_draws(
    name: str, counts: Int64Array, ranges: Int64Array, last: int | None = None, **options: Any
) -> tuple[HistogramRelease, FloatArray]:
    """Return a release and its answers' variance: over all draws, the squared weight times the variance.

    Args: last, how many of the measured vectors have an unknown error; the others chose what to average.
    """
    plain = OneMore(3)
    made = release(name, counts, 0.7, noise=plain, **options)
    total = np.zeros(len(ranges))
    for call, (scale, size) in list(enumerate(plain.draws))[-(last or 0) :]:
        decay = math.exp(-1 / scale)
        for place in range(size):
            moved = release(name, counts, 0.7, noise=OneMore(3, call, place), **options)
            total += (moved.answer(ranges) - made.answer(ranges)) ** 2 * 2 * decay / (1 - decay) ** 2
    return made, total


def every_range(size: int) -> Int64Array:
    return np.array([(a, b) for a in range(size + 1) for b in range(a, size + 1)])


LINE = np.array([[0, 14], [0, 5], [3, 9], [7, 8], [4, 4], [6, 14]])
RECTANGLES = np.array([[0, 6, 0, 7], [1, 5, 2, 6], [3, 4, 3, 4], [2, 2, 0, 7], [0, 1, 0, 7], [0, 5, 5, 7]])
ADAPTIVE: list[tuple[str, dict[str, Any]]] = [
    ("identity_plane", {}),
    *(("quadtree", options) for options in ({}, {"depth": 1}, {"depth": 0}, {"level_growth": 3})),
    *(("hybridtree", options) for options in ({}, {"median_levels": 1, "depth": 2}, {"median_levels": 0})),
    *(("dawa_hilbert", options) for options in ({}, {"partition_share": 0.9})),
    *(
        ("uniform_grid", options)
        for options in ({}, {"constant": 100.0}, {"known_total": True, "constant": 100.0})
    ),
    *(("p_hp", options) for options in ({}, {"partition_share": 0.9, "depth": 2})),
    *((name, {}) for name in ("dawa", "dawa_all", "partition_laplace", "partition_geometric")),
    ("partition_uniform", {}),
    ("hat_tree", {"branching": 3}),
]


@pytest.mark.parametrize(("name", "options"), ADAPTIVE)
def test_stated_variance_is_that_of_the_last_draws_given_all_choices(name, options):
    ranges = LINE if describe(name).dimensions == 1 else RECTANGLES
    counts = np.random.default_rng(5).integers(0, 40, (14,) if ranges is LINE else (6, 7))
    made, found = variance_by_draws(name, counts, ranges, last=1, **options)
    assert (found[[0, 1, 2, 5]] > 0).all()
    np.testing.assert_allclose(stated_variance(made, ranges), found, rtol=1e-5, atol=1e-9)


LINEAR: list[tuple[str, int, dict[str, Any]]] = [
    *(
        (n, size, {})
        for n in ("identity", "sorted", "h", "h_bar", "hb", "privelet", "greedy_h")
        for size in (1, 7, 16)
    ),
    *(
        (name, 13, {"neighbours": neighbours})
        for name in ("cdf_direct", "cdf_histogram", "cdf_binary", "cdf_tree")
        for neighbours in ("add_remove", "substitute")
    ),
    *(("structure_first", 14, {"buckets": buckets, "branching": 3}) for buckets in (1, 14)),
]


@pytest.mark.parametrize(("name", "size", "options"), LINEAR)
def test_stated_variance_of_a_linear_mechanism_is_that_of_all_draws(name, size, options):
    counts = np.random.default_rng(5).integers(0, 40, size)
    made, found = variance_by_draws(name, counts, every_range(size), **options)
    np.testing.assert_allclose(stated_variance(made, every_range(size)), found, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("neighbours", ["add_remove", "substitute"])
@pytest.mark.parametrize(("bins", "branching"), [(23, (3, 3, 3)), (27, (3, 3, 3)), (10, (12,)), (16, (2, 8))])
def test_refined_variance_is_that_of_all_draws_and_below_the_trees(bins, branching, neighbours):
    ends = np.array([(0, b) for b in range(bins + 1)])
    options = {"branching": branching, "neighbours": neighbours}
    counts = np.random.default_rng(5).integers(0, 40, bins)
    made, found = variance_by_draws("cdf_refined", counts, ends, **options)
    np.testing.assert_allclose(made.published["cumulative_variance"], found, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(stated_variance(made, ends), found, rtol=1e-5, atol=1e-9)
    tails = stated_variance(made, [[3, bins], [3, bins - 1]])
    assert np.isnan(tails).tolist() == [neighbours == "add_remove", True]
    plain = stated_variance(release("cdf_tree", counts, 0.7, noise=OneMore(3), **options), ends)
    assert (found <= plain * (1 + 1e-6) + 1e-9).all()
    assert found.sum() < plain.sum() or (neighbours == "add_remove" and len(branching) == 1)


def test_variance_of_several_buckets_is_the_sum_over_their_trees():
    made = release("structure_first", np.arange(20), 1.0, noise=OneMore(0), buckets=5)
    edges = made.published["edges"]
    parts = stated_variance(made, np.stack([edges[:-1], edges[1:]], axis=1))
    assert stated_variance(made, [[0, 20]])[0] == pytest.approx(parts.sum())


@pytest.mark.parametrize(
    ("name", "options"),
    [("p_hp", {"nonnegative": True}), ("dawa", {"merge": True}), ("cdf_refined", {"consistent": "squared"})],
)
def test_mechanisms_that_are_not_linear_state_no_variance(name, options):
    assert release(name, np.arange(14), 1, noise=OneMore(1), **options).variance([[0, 4]]) is None
