"""Laws with a share per node: what is merged against a term for every node."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.noise import Int64Array
from dphist.tree.interval import half_width, half_widths
from dphist.tree.law import LawTable, WeightedNoise
from dphist.tree.merged_noise import POINTS
from dphist.tree.node_design import NodeDesign
from dphist.tree.node_laws import can_merge, merged_laws, whole_law
from dphist.tree.node_shares import plan_node_shares
from dphist.tree.one_node_law import merged_law
from dphist.tree.planner import plan_tree
from dphist.tree.published_error import published_law, published_variance
from dphist.tree.published_laws import published_laws
from dphist.tree.shape import TreeShape
from tests.dphist.tree.strategies import branchings, random_parts


def planned(horizon: int) -> NodeDesign:
    """The plan that a service starts with."""
    branching = plan_tree(horizon, 1, release="anticipating").branching
    return plan_node_shares(horizon, 1, branching=branching, iterations=40, total_weight=0.1)


@st.composite
def designs(draw: st.DrawFn) -> NodeDesign:
    """Small trees with shares at random, some nodes without any, cut off anywhere by the horizon."""
    shape = TreeShape(draw(branchings(120)))
    horizon = draw(st.integers(1, shape.capacity))
    epsilon = draw(st.sampled_from([Fraction(1), Fraction(1, 4), Fraction(1, 30)]))
    return NodeDesign(shape, horizon, epsilon, random_parts(shape, horizon, draw(st.integers(0, 10**6))))


@given(designs(), st.data())
def test_the_variance_of_a_merged_law_is_that_of_all_nodes(design: NodeDesign, data: st.DataObject) -> None:
    edges = st.integers(0, design.horizon)
    ranges = data.draw(st.lists(st.tuples(edges, edges).map(sorted), min_size=1, max_size=6))
    for asked in (ranges, [(0, b) for _, b in ranges]):
        table = merged_laws(design, *np.array(asked, np.int64).T)
        for row, (a, b) in enumerate(asked):
            expected = published_variance(design, a, b)
            assert table.deviations()[row] ** 2 == pytest.approx(expected, rel=1e-9, abs=1e-12)
            assert table.law(row).variance == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(designs(), st.data())
def test_one_range_alone_has_the_law_of_a_table(design: NodeDesign, data: st.DataObject) -> None:
    edges = st.integers(0, design.horizon)
    a, b = sorted(data.draw(st.tuples(edges, edges)))
    table = merged_laws(design, np.array([a]), np.array([b]))
    alone, one_of_many = merged_law(design, a, b), table.law(0)
    assert alone.variance == pytest.approx(one_of_many.variance, rel=1e-9, abs=1e-12)
    assert alone.slack == pytest.approx(one_of_many.slack, rel=1e-3, abs=1e-12)
    assert alone.gaussian.curve == pytest.approx(one_of_many.gaussian.curve, rel=1e-9, abs=1e-12)
    if alone.variance:
        # Rules of masses that are nearly used up differ in their last point, not in what they say.
        assert moved(alone, one_of_many) <= 1e-2 * alone.slack + 1e-7


def moved(merged: WeightedNoise, whole: WeightedNoise) -> float:
    """What merging moves a probability by at most: the differences at every frequency that matters."""
    spacing = 0.2 / np.sqrt(whole.variance)
    theta = spacing * np.arange(1, 6_000)[np.newaxis]
    one, other = (np.exp(-LawTable.of([law]).decay(theta))[0] for law in (merged, whole))
    return float((2.0 / np.pi * np.abs(one - other) / np.arange(1, 6_000)).sum())


RANGES = [(0, 1), (0, 600), (100, 101), (400, 407), (24, 192), (0, 5_003), (0, 8_760), (8_758, 8_760)]


@pytest.mark.slow
@pytest.mark.parametrize("horizon", [720, 8_760])
def test_merging_moves_no_probability_by_more_than_the_slack(horizon: int) -> None:
    design = planned(horizon)
    # Of an epoch's last bins hardly any weights differ: such a law has a lattice, which is not charged.
    asked = [(a, b) for a, b in RANGES if b <= horizon and a < horizon - 16] + [
        (0, horizon // 2),
        (horizon // 3, horizon),
    ]
    for a, b in asked:
        merged, whole = merged_laws(design, np.array([a]), np.array([b])).law(0), whole_law(design, a, b)
        assert moved(merged, whole) <= merged.slack + 1e-12
        assert merged.slack < 1e-3
        assert len(merged.groups) <= POINTS + 2 * design.shape.height + 2


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_intervals_are_those_of_all_nodes_and_not_shorter(confidence: float) -> None:
    design = planned(8_760)
    for a, b in RANGES:
        found = half_width(published_law(design, a, b), confidence)
        expected = half_width(whole_law(design, a, b), confidence)
        assert found.level >= confidence
        table = half_widths(merged_laws(design, np.array([a]), np.array([b])), confidence)[0]
        assert found.value == pytest.approx(table[0], rel=2e-4)
        # Both are searched in steps of 1/4096 of a standard error, each with its own period.
        step = np.sqrt(published_variance(design, a, b)) / 1024
        assert expected.value - step <= found.value <= 1.002 * expected.value + step


def test_leaving_out_the_gaussian_part_is_caught() -> None:
    """Mutant: continuous noise in the place of discrete noise of the same scale has another variance."""
    design = planned(1_024)
    law = merged_laws(design, np.array([0]), np.array([100])).law(0)
    mutant = WeightedNoise(law.groups)
    assert mutant.variance != pytest.approx(published_variance(design, 0, 100), rel=1e-3)


def test_a_table_and_its_rows_have_the_same_intervals() -> None:
    design = planned(1_024)
    starts: Int64Array = np.arange(0, 160, 20)
    table = published_laws(design, starts, starts + 8)
    values, _ = half_widths(table, 0.95)
    for start, value in zip(starts.tolist(), values.tolist(), strict=True):
        alone = half_width(published_law(design, start, start + 8), 0.95).value
        assert alone == pytest.approx(value, rel=1e-2)


def test_laws_of_few_nodes_are_not_merged() -> None:
    """Few weights keep a lattice of their own, which no merged law has."""
    design = planned(24)
    assert not can_merge(design)
    assert published_law(design, 3, 20) == whole_law(design, 3, 20)


def test_noise_of_hardly_any_event_is_not_merged() -> None:
    loud, quiet = planned(600), plan_node_shares(600, 30, branching=(30, 20), iterations=3)
    assert can_merge(loud)
    assert not can_merge(quiet)
    assert published_law(quiet, 0, 7) == whole_law(quiet, 0, 7)
