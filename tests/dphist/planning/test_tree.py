"""The planner reaches the best known errors, and no tree that is similar to its plan is better."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from dphist.cdf import factorizations
from dphist.planning.candidates import candidates
from dphist.planning.epochs import plan_epoch_levels
from dphist.planning.product import plan_product
from dphist.planning.range_uses import mean_digits
from dphist.planning.tree import LEAST_SHARE, best_branching, best_shares, plan_tree
from dphist.privacy import Neighbours
from dphist.tree.design import TreeDesign
from dphist.tree.shape import TreeShape
from tests.examples import examples


@pytest.mark.parametrize(("horizon", "anchor"), [(2**10, 227.0), (2**16, 914.5), (2**20, 1780.5)])
def test_plans_reach_the_best_errors_known_for_continuous_noise(horizon: int, anchor: float) -> None:
    # At a small epsilon the discrete law is the continuous one, for which the anchors are stated.
    small = Fraction(1, 1000)
    design = plan_tree(horizon, small)
    assert design.mean_squared_error("prefix") * float(small) ** 2 <= anchor
    assert plan_tree(horizon, 1).mean_squared_error("prefix") < anchor


@pytest.mark.parametrize("horizon", [2**30, 2**36, 2**52])
def test_mean_digits_of_many_trees_are_exact_for_the_longest_epochs(horizon: int) -> None:
    # A product of a width and the horizon would be beyond int64.
    trees = [(16, horizon // 16), (2**10, horizon // 2**10)]
    expected = [TreeShape(tree).mean_digits(horizon) for tree in trees]
    np.testing.assert_allclose(mean_digits(np.array(trees), horizon), expected, rtol=1e-9)


def error_of(branching: tuple[int, ...], horizon: int, shares: np.ndarray) -> float:
    parts = [Fraction(float(share)).limit_denominator(10**9) * Fraction(10**6 - 1, 10**6) for share in shares]
    return TreeDesign(TreeShape(branching), horizon, Fraction(1), tuple(parts)).mean_squared_error()


@pytest.mark.parametrize(
    ("branching", "horizon"), [((10, 9, 12), 1024), ((2, 2, 2, 2, 2), 20), ((17, 3), 40), ((3, 17), 51)]
)
def test_shares_are_the_minimum_that_a_general_optimiser_finds(
    branching: tuple[int, ...], horizon: int
) -> None:
    def objective(logits: np.ndarray) -> float:
        powers = np.exp(logits - logits.max())
        shares = np.maximum(powers / powers.sum(), LEAST_SHARE)
        return error_of(branching, horizon, shares / shares.sum())

    found = optimize.minimize(
        objective, np.zeros(len(branching)), method="Nelder-Mead", options={"fatol": 1e-9}
    )
    shares, errors = best_shares([branching], horizon, 1.0)
    ours = error_of(branching, horizon, shares[0])
    assert ours <= found.fun * (1 + 1e-5)
    assert errors[0] == pytest.approx(ours, rel=1e-5)


@pytest.mark.slow
def test_no_small_tree_is_better() -> None:
    # All shapes for 30 bins whose top level is not padded by a whole child.
    horizon, best = 30, plan_tree(30, 1)
    shapes: list[tuple[int, ...]] = []
    pending: list[tuple[int, ...]] = [()]
    while pending:
        lower = pending.pop()
        covered = int(np.prod(lower, dtype=int))
        shapes.append((-(-horizon // covered), *lower))
        pending += [(k, *lower) for k in range(2, horizon) if k * covered < horizon]
    for shape in shapes:
        _, errors = best_shares([shape], horizon, 1.0)
        assert best.mean_squared_error() <= errors[0] * (1 + 1e-6), shape


@pytest.mark.slow
@pytest.mark.parametrize("horizon", [17**2, 2**11, 17**3, 2**15])
def test_the_search_finds_no_worse_than_the_trees_of_rameshwar_and_tandon(horizon: int) -> None:
    def error(branching: tuple[int, ...], shares: list[str] | None = None) -> float:
        return plan_tree(horizon, "0.01", branching=branching, shares=shares).mean_squared_error()

    height = math.ceil(math.log(horizon, 17) - 1e-9)
    rivals = [error(shape) for shape in factorizations(horizon)]
    equal = error((17,) * height, [f"1/{height}"] * height)
    assert plan_tree(horizon, "0.01").mean_squared_error() <= min(*rivals, equal)


@examples(25)
@given(
    st.integers(1, 3000),
    st.sampled_from(["0.001", 0.1, 1, 5, "100", 1e9]),
    st.sampled_from(["add_remove", "substitute"]),
    st.integers(1, 5),
)
def test_every_plan_is_a_design_that_covers_its_epoch(
    horizon: int, epsilon: str | float, neighbours: Neighbours, max_events: int
) -> None:
    design = plan_tree(horizon, epsilon, neighbours=neighbours, max_events=max_events)
    assert design.shape.capacity >= design.horizon == horizon
    assert sum(design.shares) == 1
    assert design.sensitivity == max_events * (2 if neighbours == "substitute" else 1)
    assert np.isfinite(design.mean_squared_error())


def test_given_branching_and_shares_are_taken() -> None:
    design = plan_tree(16, "0.5", branching=[4, 4], shares=["1/4", 0.75])
    assert (design.branching, design.shares) == ((4, 4), (Fraction(1, 4), Fraction(3, 4)))
    assert plan_tree(16, 1, branching=(2, 8)).branching == (2, 8)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"horizon": 0}, "horizon"),
        ({"horizon": 2.0}, "horizon"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"release": "prophetic"}, "release"),
        ({"workload": "suffixes"}, "workload"),
        ({"neighbours": "swap"}, "neighbours"),
        ({"epsilon": "1e-100"}, "epsilon: 1e-100 needs noise beyond"),
        ({"epsilon": "1e-300", "release": "anticipating", "workload": "bins"}, "epsilon: 1e-300 needs"),
        ({"epsilon": Fraction(1, 2**38 + 1)}, "epsilon"),
        ({"epsilon": 1, "max_events": 10**400}, "epsilon"),
        ({"max_events": 0}, "max_events"),
        ({"branching": (2, 2)}, "horizon"),
        ({"shares": (1,)}, "shares"),
        ({"branching": (4, 4), "shares": ("2/3", "1/2")}, "shares"),
    ],
)
def test_a_bad_plan_is_refused_in_one_line(arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=rf"^[^\n]*{complaint}[^\n]*$"):
        plan_tree(**({"horizon": 16, "epsilon": 1} | arguments))  # type: ignore[arg-type]


def test_the_search_ends_where_no_error_is_a_number() -> None:
    # Far below what a design may have, every variance overflows.
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=r"^epsilon: [^\n]*finite error[^\n]*$"):
        best_branching(16, 1e-200)


def test_all_planners_refuse_an_epsilon_that_no_noise_fits() -> None:
    planners: list[Callable[[str], object]] = [
        lambda epsilon: plan_tree(64, epsilon),
        lambda epsilon: plan_product(64, epsilon, keys=3, buckets=8, total_share=Fraction(1, 5)),
        lambda epsilon: plan_epoch_levels(64, 8, epsilon),
        lambda epsilon: list(candidates(64, epsilon)),
    ]
    for plan in planners:
        for epsilon in ("1e-300", "5e-324", "1e-12"):
            with pytest.raises(ValueError, match=rf"^epsilon: {float(epsilon):g} needs noise beyond 2\^38"):
                plan(epsilon)
