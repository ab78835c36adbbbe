"""A tree and its budget: geometry and stored text compared with their definitions; bad ones are refused."""

from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.laws.law import discrete_laplace_variance
from dphist.privacy import path_epsilon
from dphist.tree.design import TreeDesign
from dphist.tree.shape import TreeShape
from tests.dphist.tree.strategies import branchings, designs
from tests.examples import examples
from tests.oracles import DenseLeastSquares, complete_nodes, discrete_laplace_pmf, span


@given(branchings(60))
def test_a_bin_completes_exactly_the_nodes_that_end_with_it(branching: tuple[int, ...]) -> None:
    shape = TreeShape(branching)
    seen: list[tuple[int, int]] = []
    for bin in range(shape.capacity):
        completed = shape.completed_by(bin)
        assert [level for level, _ in completed] == list(
            range(shape.height, shape.height - len(completed), -1)
        )
        assert all(shape.span(*node)[-1] == bin for node in completed)
        seen += completed
        assert sorted(seen) == sorted(complete_nodes(branching, bin + 1))
        for level in shape.levels:
            assert shape.completed_count(bin + 1, level) == sum(node[0] == level for node in seen)


@given(branchings(60), st.data())
def test_the_cover_holds_the_maximal_complete_nodes(branching: tuple[int, ...], data: st.DataObject) -> None:
    shape = TreeShape(branching)
    bins = data.draw(st.integers(0, shape.capacity))
    cover = [(level, first + i) for level, first, number in shape.cover(bins) for i in range(number)]
    assert [bin for node in cover for bin in span(branching, node)] == list(range(bins))
    complete = complete_nodes(branching, bins)
    maximal = [node for node in complete if (node[0] - 1, node[1] // branching[node[0] - 1]) not in complete]
    assert sorted(cover) == sorted(maximal)
    assert shape.digits(bins) == tuple(sum(node[0] == level for node in cover) for level in shape.levels)


@given(branchings(60), st.data())
def test_mean_digits_are_the_mean_over_all_prefixes(branching: tuple[int, ...], data: st.DataObject) -> None:
    shape = TreeShape(branching)
    horizon = data.draw(st.integers(1, shape.capacity))
    rows = [shape.digits(t) for t in range(1, horizon + 1)]
    means = [sum(column) / horizon for column in zip(*rows, strict=True)]
    assert shape.mean_digits(horizon) == pytest.approx(means, rel=1e-12)


def test_node_addresses_stay_as_stored() -> None:
    shape = TreeShape((2, 3, 4))
    assert shape.widths == (24, 12, 4, 1)
    assert shape.span(2, 4) == range(16, 20)
    assert shape.completed_by(11) == ((3, 11), (2, 2), (1, 0))
    assert shape.cover(23) == [(1, 0, 1), (2, 3, 2), (3, 20, 3)]
    assert shape.cover(24) == [(1, 0, 2)]


def test_a_tree_may_have_one_bin() -> None:
    shape = TreeShape((1,))
    assert (shape.capacity, shape.height, shape.completed_by(0)) == (1, 1, ((1, 0),))


@pytest.mark.parametrize("branching", [(), (0,), (2, 1), (1, 2), (2.0,), (True,), (2, -3), (2**27, 2**27)])
def test_a_bad_branching_is_refused_in_one_line(branching: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^branching: [^\n]+$"):
        TreeShape(branching)


def test_nodes_and_bins_outside_the_tree_are_refused() -> None:
    shape = TreeShape((2, 3))
    for call in (
        lambda: shape.span(0, 0),
        lambda: shape.span(1, 2),
        lambda: shape.span(3, 0),
        lambda: shape.completed_by(6),
        lambda: shape.cover(7),
        lambda: shape.completed_count(-1, 1),
    ):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            call()


def test_mean_digits_of_a_long_epoch_take_no_longer() -> None:
    shape = TreeShape((2,) * 53)
    assert shape.capacity == 2**53
    assert math.fsum(shape.mean_digits(2**53)) == pytest.approx(53 / 2, rel=1e-12)


@given(designs())
def test_one_event_costs_at_most_epsilon(design: TreeDesign) -> None:
    assert path_epsilon(design.scales, design.sensitivity) <= design.epsilon
    for scale, epsilon in zip(design.scales, design.level_epsilons, strict=True):
        assert scale >= design.sensitivity / epsilon  # a scale rounded down would break the promise
        assert scale <= design.sensitivity / epsilon * (1 + Fraction(1, 2**51))
        assert Fraction(float(scale)) == scale


@given(designs(dyadic=True))
def test_scales_without_rounding_spend_all_of_epsilon(design: TreeDesign) -> None:
    spent = path_epsilon(design.scales, design.sensitivity)
    assert spent == design.epsilon * sum(design.shares)


@pytest.mark.parametrize("scale", [0.03, 0.4, 1.0, 7.3, 55.0])
def test_variance_equals_the_sum_over_the_discrete_law(scale: float) -> None:
    reach = int(80 * scale) + 40
    values = np.arange(-reach, reach + 1)
    direct = math.fsum(values**2 * discrete_laplace_pmf(scale, reach))
    assert discrete_laplace_variance(scale) == pytest.approx(direct, rel=1e-12)


def test_variance_is_accurate_for_tiny_and_huge_scales() -> None:
    # 2 s^2 - 1/6 for large scales, where 1 - exp(-1 / s) would cancel; 2 exp(-1 / s) for small ones.
    assert discrete_laplace_variance(1e9) == pytest.approx(2e18, rel=1e-14)
    assert discrete_laplace_variance(1e4) == pytest.approx(2e8 - 1 / 6, rel=1e-14)
    assert discrete_laplace_variance(1 / 600) == pytest.approx(2 * math.exp(-600), rel=1e-12)
    assert discrete_laplace_variance(1e-12) == 0.0


@examples(25)
@given(designs(most=12))
def test_mean_squared_error_equals_dense_least_squares(design: TreeDesign) -> None:
    # The live running count is the best linear unbiased estimate from what is complete at that moment.
    errors = [float(DenseLeastSquares(design, t).variance(0, t)) for t in range(1, design.horizon + 1)]
    assert design.mean_squared_error("prefix") == pytest.approx(sum(errors) / len(errors), rel=1e-10)


def test_mean_squared_error_matches_the_published_closed_form() -> None:
    # Honaker online: v_0 = 1, v_l = 1 / (1 + 1 / (k v_(l-1))), h^2 (k - 1) sum v_l / eps^2 over full digits.
    k, height = 11, 3
    relative, v = [], 1.0
    for _ in range(height):
        relative.append(v)
        v = 1 / (1 + 1 / (k * v))
    expected = height**2 * (k - 1) * sum(relative)
    third = (Fraction(1, 3),) * 3
    small = Fraction(1, 10**5)  # where the discrete and the continuous law agree
    design = TreeDesign(TreeShape((k,) * height), k**height - 1, small, third)
    mean_without_zero = expected * k**height / (k**height - 1)
    assert design.mean_squared_error() * float(small) ** 2 == pytest.approx(mean_without_zero, rel=1e-8)


def test_text_is_canonical() -> None:
    design = TreeDesign(
        TreeShape((2, 3)), 5, Fraction(1, 2), (Fraction(1, 3), Fraction(2, 3)), "substitute", 4
    )
    assert design.to_json() == (
        '{"branching":[2,3],"epsilon":"1/2","horizon":5,"neighbours":"substitute",'
        '"release":"causal","sensitivity":4,"shares":["1/3","2/3"]}'
    )


@given(designs())
def test_text_round_trips(design: TreeDesign) -> None:
    again = TreeDesign.from_json(design.to_json().encode())
    assert again == design
    assert again.to_json() == design.to_json()
    assert hash(again) == hash(design)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"shares": ["1/2", "1/2000000000001", "1/2"]}, "shares: 3 given"),
        ({"shares": ["1/2", "1000000000001/2000000000000"]}, "add up"),
        ({"shares": ["1/2", "-1/2"]}, "shares"),
        ({"epsilon": "0/1"}, "epsilon"),
        ({"epsilon": "nan"}, "epsilon"),
        ({"epsilon": "1/1000000000000"}, "epsilon"),
        ({"horizon": 17}, "horizon"),
        ({"horizon": 0}, "horizon"),
        ({"horizon": 3.5}, "horizon"),
        ({"neighbours": "swap"}, "neighbours"),
        ({"sensitivity": 0}, "sensitivity"),
        ({"neighbours": "substitute", "sensitivity": 3}, "sensitivity"),
        ({"release": "later"}, "release"),
        ({"branching": [4, 1]}, "branching"),
        ({"extra": 1}, "keys"),
    ],
)
def test_a_bad_design_is_refused_in_one_line(change: dict[str, object], complaint: str) -> None:
    half = (Fraction(1, 2), Fraction(1, 2))
    fields = json.loads(TreeDesign(TreeShape((4, 4)), 16, Fraction(1), half).to_json())
    with pytest.raises(ValueError, match=rf"^[^\n]*{complaint}[^\n]*$"):
        TreeDesign.from_json(json.dumps(fields | change))


def test_a_design_cannot_be_changed() -> None:
    design = TreeDesign(TreeShape((4,)), 4, Fraction(1), (Fraction(1),))
    with pytest.raises(dataclasses.FrozenInstanceError):
        design.epsilon = Fraction(2)  # type: ignore[misc]
