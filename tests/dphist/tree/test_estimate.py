"""Answers compared with dense least squares in exact fractions: value, variance, weight of every node."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.laws.interval import DITHER
from dphist.noise import SeededNoise
from dphist.planning.tree import plan_tree
from dphist.tree.counter import TreeCounter
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate, ReleasedForest
from dphist.tree.forest_laws import Series
from dphist.tree.shape import TreeShape
from tests.dphist.tree.dense import known_nodes
from tests.dphist.tree.strategies import designs
from tests.examples import examples
from tests.oracles import DenseLeastSquares, Node

pytestmark = pytest.mark.slow


def forest_of(
    design: TreeDesign, bins: int, seed: int, width: int = 1
) -> tuple[ReleasedForest, dict[Node, int]]:
    """Return a forest of huge random nodes, so that rounding to units of 2^-16 is 1e-12 of the values."""
    forest = ReleasedForest(design, width)
    values: dict[Node, int] = {}
    draws = np.random.default_rng(seed)
    for level in design.shape.levels:
        nodes = draws.integers(-(2**24), 2**24, (design.shape.completed_count(bins, level), width))
        forest.append_level(level, nodes)
        values |= {(level, index): int(row[0]) for index, row in enumerate(nodes)}
    assert forest.bins == bins
    return forest, values


@examples(60)
@given(designs(most=16), st.data())
def test_a_range_equals_dense_least_squares(design: TreeDesign, data: st.DataObject) -> None:
    bins = data.draw(st.integers(1, design.horizon))
    forest, values = forest_of(design, bins, data.draw(st.integers(0, 99)))
    dense = DenseLeastSquares(design, bins)
    for _ in range(4):
        a, b = sorted(data.draw(st.tuples(st.integers(0, bins), st.integers(0, bins))))
        estimate = forest.range(a, b)
        assert abs(float(estimate.value) - float(dense.estimate(values, a, b))) <= estimate.rounding + 1e-6
        assert estimate.variance == pytest.approx(float(dense.variance(a, b)), rel=1e-11, abs=1e-300)
        assert estimate.law.variance == pytest.approx(estimate.variance, rel=1e-11, abs=1e-300)


@given(designs(most=40), st.integers(0, 99), st.integers(1, 3), st.data())
def test_single_bins_are_weighted_least_squares(
    design: TreeDesign, seed: int, width: int, data: st.DataObject
) -> None:
    bins = data.draw(st.integers(1, design.horizon))
    forest, _ = forest_of(design, bins, seed, width)
    # One row per complete node: the sum of its bins, over its standard deviation.
    sums, variances, nodes = known_nodes(design, bins)
    noisy = np.stack([forest.nodes(level)[index] for level, index in nodes])
    scale = np.sqrt(variances)[:, np.newaxis]
    wanted = np.linalg.lstsq(sums / scale, noisy / scale, rcond=None)[0]
    np.testing.assert_allclose(forest.series("bin"), wanted, atol=1e-4)
    np.testing.assert_allclose(forest.series("running"), wanted.cumsum(axis=0), atol=1e-3)


def test_a_node_without_a_complete_parent_stands_alone() -> None:
    forest, values = forest_of(plan_tree(4, 1, branching=(2, 2)), 3, 0)
    found = forest.series("bin")[:, 0]
    assert found[2] == values[2, 2]
    assert found[:2].sum() == pytest.approx(float(forest.prefix(2).value))


def test_a_series_does_not_change_the_nodes() -> None:
    forest, values = forest_of(plan_tree(9, 1, branching=(3, 3)), 9, 0)
    first = forest.series("bin")
    np.testing.assert_array_equal(forest.series("bin"), first)
    assert all(forest.nodes(level)[index, 0] == value for (level, index), value in values.items())


@examples(30)
@given(designs(most=40), st.data())
def test_a_series_equals_its_single_answers(design: TreeDesign, data: st.DataObject) -> None:
    bins = data.draw(st.integers(1, design.horizon))
    forest, _ = forest_of(design, bins, 1, width=2)
    points: dict[Series, list[Estimate]] = {
        "running": [forest.prefix(t + 1) for t in range(bins)],
        "live": [forest.live_prefix(t + 1) for t in range(bins)],
        "bin": [forest.range(t, t + 1) for t in range(bins)],
    }
    chosen = data.draw(st.lists(st.integers(0, bins - 1), min_size=1, max_size=5))
    for kind, estimates in points.items():
        values, variances = forest.series(kind), forest.series_variance(kind)
        assert values.shape == (bins, 2)
        np.testing.assert_allclose(
            values, np.stack([estimate.value for estimate in estimates]), rtol=0, atol=1e-4
        )
        np.testing.assert_allclose(variances, [estimate.variance for estimate in estimates], rtol=1e-10)
        halves = forest.series_half_widths(kind, 0.9, chosen)
        for half, t in zip(halves, chosen, strict=True):
            interval = estimates[t].interval(0.9)
            expected = float(np.asarray(interval.upper - interval.lower)[0] / 2)
            assert abs(half - expected) <= DITHER / 8 * estimates[t].stderr + 0.01


def test_live_values_stay_as_published_while_running_values_improve() -> None:
    design = plan_tree(64, 1)
    counter = TreeCounter(design, SeededNoise(5))
    forest = ReleasedForest(design)
    published = []
    for bin in range(64):
        release = counter.push(bin)
        forest.append(release)
        published.append(int(release.published[0]))
        assert (forest.series("live")[:, 0] * 2**16).tolist() == published
    assert (forest.series_variance("running") <= forest.series_variance("live") * (1 + 1e-12)).all()
    assert forest.series_variance("running")[36] < 0.9 * forest.series_variance("live")[36]


def test_estimates_are_single_numbers_or_rows() -> None:
    design = plan_tree(4, 1, branching=(2, 2))
    forest, _ = forest_of(design, 4, 0, width=3)
    estimate = forest.prefix(3)
    assert isinstance(estimate, Estimate)
    assert np.shape(estimate.value) == (3,)
    assert estimate.stderr == pytest.approx(np.sqrt(estimate.variance))
    interval = estimate.interval()
    np.testing.assert_allclose((interval.lower + interval.upper) / 2, estimate.value)
    assert isinstance(forest_of(design, 4, 0)[0].prefix(3).value, float)


def test_a_forest_waits_for_the_nodes_that_a_bin_completes() -> None:
    design = plan_tree(9, 1, branching=(3, 3))
    forest = ReleasedForest(design)
    forest.append_level(2, np.zeros((5, 1), np.int64))
    assert forest.bins == 2  # bin 2 completes a node above, which is not here yet
    forest.append_level(1, np.zeros((1, 1), np.int64))
    assert forest.bins == 5
    assert forest.counts == (1, 5)
    assert forest.nodes(2, 1, 3).shape == (2, 1)
    with pytest.raises(ValueError, match="read-only"):
        forest.nodes(1)[0] = 5


def test_bad_questions_and_nodes_are_refused_in_one_line() -> None:
    design = plan_tree(9, 1, branching=(3, 3))
    forest, _ = forest_of(design, 4, 0)
    release = TreeCounter(design, SeededNoise(0)).push(1)
    zeros = np.zeros((1, 1), np.int64)
    for call in (
        lambda: forest.range(2, 1),
        lambda: forest.range(-1, 2),
        lambda: forest.prefix(5),
        lambda: forest.live_prefix(5),
        lambda: forest.series("weekly"),  # type: ignore[arg-type]
        lambda: forest.series_variance("weekly"),  # type: ignore[arg-type]
        lambda: forest.series_variance("running", [4]),
        lambda: forest.series_variance("running", [[0]]),
        lambda: forest.series_variance("running", [0.5]),
        lambda: forest.series_half_widths("running", 1.0),
        lambda: forest.prefix(4).interval(0.0),
        lambda: forest.append(release),
        lambda: forest.append_level(0, zeros),
        lambda: forest.append_level(3, zeros),
        lambda: forest.append_level(1, np.zeros((3, 1), np.int64)),
        lambda: forest.append_level(1, np.zeros((1, 2), np.int64)),
        lambda: forest.append_level(1, np.zeros((1, 1))),  # type: ignore[arg-type]
        lambda: forest.nodes(0),
    ):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            call()
    assert forest.bins == 4


def test_a_tree_of_one_bin_counts_it() -> None:
    design = TreeDesign.from_json(plan_tree(1, 1).to_json())
    assert design.shape == TreeShape((1,))
    counter = TreeCounter(design, SeededNoise(1))
    release = counter.push(5)
    assert counter.prefix().value == float(release[0].values[0]) == release.published[0] / 2**16
    assert counter.prefix().variance == design.variances[0]
