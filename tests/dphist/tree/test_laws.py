"""Laws of ranges compared with least squares in exact fractions, and with a walk over the nodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import plan_tree
from dphist.tree.design import TreeDesign
from dphist.tree.forest_laws import RangeErrors, forest_errors, live_errors
from dphist.tree.published_laws import published_law, published_laws
from dphist.tree.weights import Term, range_weights, rounding_bounds, weighted_law
from dphist.units import UNITS_PER_COUNT
from tests.dphist.tree.dense import causal_law, merged, noise_weights, published_variance
from tests.dphist.tree.strategies import anticipating_designs, designs, weighted_ranges
from tests.examples import examples
from tests.oracles import DenseLeastSquares

pytestmark = pytest.mark.slow


def groups_of(found: RangeErrors, row: int) -> dict[tuple[float, float], float]:
    laws = found.laws
    return merged(zip(laws.weights[row], laws.copies[row], laws.scales[row], strict=True))


def variance(design: TreeDesign, terms: list[Term]) -> float:
    below = design.variances_from_below
    return sum(term.nodes * term.weight**2 * below[term.level - 1] for term in terms)


def rounding_units(design: TreeDesign, terms: list[Term]) -> float:
    bounds = rounding_bounds(design)
    return sum(term.nodes * abs(term.weight) * bounds[term.level - 1] for term in terms)


@examples(40)
@given(designs(most=16), st.data())
def test_the_law_of_a_range_has_the_dense_weight_of_every_node(
    design: TreeDesign, data: st.DataObject
) -> None:
    bins = data.draw(st.integers(1, design.horizon))
    edges = st.integers(0, bins)
    ranges = data.draw(st.lists(st.tuples(edges, edges).map(sorted), min_size=1, max_size=8))
    dense = DenseLeastSquares(design, bins)
    for asked in (ranges, [(0, b) for _, b in ranges]):
        found = forest_errors(design, bins, *np.array(asked, np.int64).T)
        for row, (a, b) in enumerate(asked):
            weights = dense.weights(a, b).items()
            groups = ((float(weight), 1, float(design.scales[level - 1])) for (level, _), weight in weights)
            assert groups_of(found, row) == merged(groups)
            assert merged(causal_law(design, bins, a, b).groups) == groups_of(found, row)


@examples(40)
@given(designs(most=16), st.data())
def test_the_law_of_a_weighted_sum_has_the_dense_weight_of_every_node(
    design: TreeDesign, data: st.DataObject
) -> None:
    bins = data.draw(st.integers(1, design.horizon))
    ranges = data.draw(weighted_ranges(bins))
    dense, weights = DenseLeastSquares(design, bins), dict[tuple[int, int], float]()
    for a, b, weight in ranges:
        for node, own in dense.weights(a, b).items():
            weights[node] = weights.get(node, 0.0) + weight * float(own)
    groups = ((weight, 1, float(design.scales[level - 1])) for (level, _), weight in weights.items())
    assert merged(weighted_law(design, bins, ranges).groups) == merged(groups)


@examples(40)
@given(designs(most=60), st.data())
def test_variance_and_rounding_match_the_weights_from_below(design: TreeDesign, data: st.DataObject) -> None:
    bins = data.draw(st.integers(1, design.horizon))
    edges = st.integers(0, bins)
    ranges = data.draw(st.lists(st.tuples(edges, edges).map(sorted), min_size=1, max_size=8))
    found = forest_errors(design, bins, *np.array(ranges, np.int64).T)
    for row, (a, b) in enumerate(ranges):
        terms = range_weights(design, bins, a, b)
        assert found.laws.law(row).variance == pytest.approx(variance(design, terms))
        assert found.roundings[row] * UNITS_PER_COUNT == pytest.approx(rounding_units(design, terms))


@examples(40)
@given(designs(most=60), st.data())
def test_the_law_of_a_live_count_is_that_of_its_cover(design: TreeDesign, data: st.DataObject) -> None:
    stops = data.draw(st.lists(st.integers(0, design.horizon), min_size=1, max_size=8))
    found = live_errors(design, np.array(stops))
    for row, b in enumerate(stops):
        # As first published a running count is the best estimate of all closed bins.
        assert groups_of(found, row) == groups_of(forest_errors(design, b, np.array([0]), np.array([b])), 0)
        cover = [Term(level, first, count, 1.0, 1.0, False) for level, first, count in design.shape.cover(b)]
        assert found.roundings[row] * UNITS_PER_COUNT == pytest.approx(rounding_units(design, cover))
        assert found.laws.law(row).variance == pytest.approx(variance(design, cover))


def test_laws_and_weights_give_equal_variances_in_a_long_epoch() -> None:
    design = plan_tree(2**16, 1)
    bins = 2**16 - 4_321
    edges = np.sort(np.random.default_rng(4).integers(0, bins + 1, (60, 2)), axis=1)
    found = forest_errors(design, bins, *edges.T)
    expected = [variance(design, range_weights(design, bins, a, b)) for a, b in edges.tolist()]
    assert found.laws.deviations() ** 2 == pytest.approx(np.array(expected), rel=1e-10)


def node_by_node(design: TreeDesign, a: int, b: int) -> dict[tuple[float, float], float]:
    """Return the law that the oracle computes from the weight of every single node."""
    return merged(
        (weight, 1, float(design.scales[level]))
        for level, weights in enumerate(noise_weights(design, a, b))
        for weight in weights.tolist()
    )


@pytest.mark.slow  # many designs
@given(anticipating_designs(60), st.data())
def test_groups_match_the_weights_of_single_nodes(design: TreeDesign, data: st.DataObject) -> None:
    edges = st.integers(0, design.horizon)
    ranges = data.draw(st.lists(st.tuples(edges, edges).map(sorted), min_size=1, max_size=6))
    prefixes = [(0, b) for _, b in ranges]
    for asked in (ranges, prefixes):
        starts, stops = np.array(asked).T
        table = published_laws(design, starts, stops)
        for row, (a, b) in enumerate(asked):
            expected = node_by_node(design, a, b)
            columns = zip(table.weights[row], table.copies[row], table.scales[row], strict=True)
            assert merged(columns) == expected
            assert merged(published_law(design, a, b).groups) == expected


@pytest.mark.slow  # many designs
@given(anticipating_designs(60), st.data())
def test_the_law_of_a_published_weighted_sum_has_the_weight_of_every_node(
    design: TreeDesign, data: st.DataObject
) -> None:
    ranges = data.draw(weighted_ranges(design.horizon))
    parts = [[weight * own for own in noise_weights(design, a, b)] for a, b, weight in ranges]
    expected = merged(
        (weight, 1, float(design.scales[level]))
        for level, weights in enumerate(zip(*parts, strict=True))
        for weight in np.sum(weights, axis=0).tolist()
    )
    assert merged(weighted_law(design, design.horizon, ranges).groups) == expected


@pytest.mark.slow
def test_groups_and_single_nodes_give_equal_variances_in_a_long_epoch() -> None:
    design = plan_tree(2**16 + 77, 1, release="anticipating")
    starts, stops = np.array([0, 0, 5, 4096, 65_000]), np.array([1, 65_613, 6, 60_001, 65_613])
    table = published_laws(design, starts, stops)
    for row, (a, b) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        expected = published_variance(design, a, b)
        assert table.deviations()[row] ** 2 == pytest.approx(expected, rel=1e-9)
        assert published_law(design, a, b).variance == pytest.approx(expected, rel=1e-9)
