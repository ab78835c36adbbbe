"""The design of a tree: its budget in exact fractions, its error in closed form, its canonical text."""

from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

from dphist.laws.law import discrete_laplace_variance
from dphist.privacy import path_epsilon
from dphist.tree.design import TreeDesign
from dphist.tree.shape import TreeShape
from tests.dphist.tree.strategies import designs
from tests.examples import examples
from tests.oracles import DenseLeastSquares, discrete_laplace_pmf


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
