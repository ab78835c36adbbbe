"""Shares per node: the budget in exact fractions, the anchors reached, the derivative right."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import NodeDesign, plan_node_shares, plan_tree
from dphist.tree.anticipation import anticipating_uses, level_uniform_error
from dphist.tree.design import TreeDesign
from dphist.tree.epoch_nodes import node_counts
from dphist.tree.node_design import WHOLE
from dphist.tree.node_error import anticipating_error, causal_error, causal_uses, prefix_variances
from dphist.tree.node_shares import _Problem
from dphist.tree.shape import TreeShape
from tests.dphist.tree.strategies import branchings, random_parts
from tests.examples import examples

pytestmark = pytest.mark.slow  # many designs: left to make test

# At a small epsilon the discrete law is the continuous one, for which the anchors are stated.
SMALL = Fraction(1, 1000)


def in_units_of_epsilon(design: NodeDesign | TreeDesign) -> float:
    return design.mean_squared_error() * float(design.epsilon) ** 2


@pytest.mark.parametrize(
    ("horizon", "release", "anchor"),
    [
        (64, "anticipating", 32.61 * 1.002),
        (256, "anticipating", 60.65 * 1.07),
        (2**10, "anticipating", 113.0),
        (2**10, "causal", 207.5),
    ],
)
def test_plans_reach_the_anchors(horizon: int, release: str, anchor: float) -> None:
    assert in_units_of_epsilon(plan_node_shares(horizon, SMALL, release)) <= anchor  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("branching", "horizon", "release", "anchor"),
    [
        ((3, 8, 13), 256, "anticipating", 60.65 * 1.07),
        ((5, 14, 16), 2**10, "anticipating", 111.0),
        ((4, 16, 16), 2**10, "anticipating", 112.77),
        ((10, 10, 11), 2**10, "causal", 206.6),
    ],
)
def test_given_shapes_reach_what_was_measured(
    branching: tuple[int, ...], horizon: int, release: str, anchor: float
) -> None:
    design = plan_node_shares(horizon, SMALL, release, branching=branching)  # type: ignore[arg-type]
    assert in_units_of_epsilon(design) <= anchor


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("horizon", "release", "anchor"),
    [
        (2**16, "anticipating", 385.0),
        (2**16, "causal", 826.5),
        # 2^20 takes a minute each: make bench-accuracy holds both against their anchors.
    ],
)
def test_plans_of_long_epochs_reach_the_anchors(horizon: int, release: str, anchor: float) -> None:
    assert in_units_of_epsilon(plan_node_shares(horizon, SMALL, release)) <= anchor  # type: ignore[arg-type]


@pytest.mark.parametrize(("horizon", "anchor"), [(2**10, 118.2), (2**16, 409.6), (2**20, 751.0)])
def test_level_uniform_plans_reach_the_anchors(horizon: int, anchor: float) -> None:
    assert in_units_of_epsilon(plan_tree(horizon, SMALL, release="anticipating")) <= anchor


@examples(40)
@given(branchings(60), st.integers(0, 10**6), st.data())
def test_level_uniform_error_is_that_of_all_nodes(
    branching: tuple[int, ...], seed: int, data: st.DataObject
) -> None:
    shape = TreeShape(branching)
    horizon = data.draw(st.integers(1, shape.capacity))
    own = np.random.default_rng(seed).uniform(0.5, 9, shape.height)
    nodes = [np.full(n, v) for n, v in zip(node_counts(shape, horizon), own, strict=True)]
    quick = level_uniform_error(shape, horizon, own.tolist())
    assert quick == pytest.approx(anticipating_error(shape, horizon, nodes)[0], rel=1e-10)
    assert quick == pytest.approx(prefix_variances(shape, horizon, nodes, True).sum(), rel=1e-10)


@given(branchings(60), st.integers(0, 10**6))
def test_uses_are_exact_on_whole_trees(branching: tuple[int, ...], seed: int) -> None:
    shape = TreeShape(branching)
    own = np.random.default_rng(seed).uniform(0.5, 9, shape.height)
    below = [own[-1]]
    for s, k in zip(own[-2::-1], branching[:0:-1], strict=True):
        below.append(s * k * below[-1] / (s + k * below[-1]))
    uses = anticipating_uses(np.array([branching], float), shape.capacity)[0]
    error = level_uniform_error(shape, shape.capacity, own.tolist()) / shape.capacity
    assert float(uses @ below[::-1]) == pytest.approx(error, rel=1e-10)


@given(branchings(40), st.data())
def test_uses_of_a_causal_node_are_counted(branching: tuple[int, ...], data: st.DataObject) -> None:
    shape = TreeShape(branching)
    horizon = data.draw(st.integers(1, shape.capacity))
    counted = [np.zeros(n, np.int64) for n in node_counts(shape, horizon)]
    for t in range(1, horizon + 1):
        for level, first, number in shape.cover(t):
            counted[level - 1][first : first + number] += 1
    for level in shape.levels:
        assert causal_uses(shape, horizon, level).tolist() == counted[level - 1].tolist()


@examples(30)
@given(branchings(40), st.booleans(), st.integers(0, 10**6), st.data())
def test_derivatives_are_those_of_the_error(
    branching: tuple[int, ...], anticipating: bool, seed: int, data: st.DataObject
) -> None:
    shape = TreeShape(branching)
    horizon = data.draw(st.integers(1, shape.capacity))
    generator = np.random.default_rng(seed)
    own = [generator.uniform(1, 5, n) for n in node_counts(shape, horizon)]
    function = anticipating_error if anticipating else causal_error
    _, gradient = function(shape, horizon, own)
    direction = [generator.normal(size=len(rows)) for rows in own]
    step = 1e-5
    ahead, behind = (
        function(shape, horizon, [v + sign * step * d for v, d in zip(own, direction, strict=True)])[0]
        for sign in (1, -1)
    )
    slope = sum(float(g @ d) for g, d in zip(gradient, direction, strict=True))
    assert slope == pytest.approx((ahead - behind) / (2 * step), rel=1e-6, abs=1e-5)


@pytest.mark.parametrize("release", ["causal", "anticipating"])
@pytest.mark.parametrize("horizon", [24, 19])
def test_the_objective_has_the_right_derivative_and_starts_from_the_best_levels(
    release: str, horizon: int
) -> None:
    problem = _Problem(TreeShape((3, 2, 4)), horizon, 0.5, release)  # type: ignore[arg-type]
    generator = np.random.default_rng(1)
    logits = problem.level_uniform() + generator.normal(size=len(problem.level_uniform()))
    _, gradient = problem.value_and_gradient(logits)
    numeric = [
        (problem.value_and_gradient(logits + e)[0] - problem.value_and_gradient(logits - e)[0]) / 2e-6
        for e in 1e-6 * np.eye(len(logits))
    ]
    assert gradient == pytest.approx(numeric, rel=1e-5, abs=1e-6)
    if (release, horizon) == ("anticipating", 24):
        start = plan_tree(horizon, Fraction(1, 2), release="anticipating", branching=(3, 2, 4))
        assert problem.value_and_gradient(problem.level_uniform())[0] == pytest.approx(
            start.mean_squared_error(), rel=1e-6
        )
    assert problem.solve()[0] < problem.value_and_gradient(problem.level_uniform())[0]


@examples(8)
@given(
    st.integers(1, 40),
    st.sampled_from(["0.001", 1, "20", 1e9]),
    st.sampled_from(["causal", "anticipating"]),
    st.sampled_from(["add_remove", "substitute"]),
)
def test_every_path_costs_at_most_epsilon(horizon: int, epsilon: str, release: str, neighbours: str) -> None:
    shape = (-(-horizon // 12), 3, 4) if horizon > 12 else (horizon,)
    design = plan_node_shares(horizon, epsilon, release, neighbours, 2, shape)  # type: ignore[arg-type]
    for bin in range(horizon):
        spent, parts = Fraction(0), 0
        for width, scales, shares in zip(
            design.shape.widths[1:], design.node_scales, design.share_parts, strict=True
        ):
            node = bin // width
            parts += int(shares[node])
            if shares[node]:
                spent += design.sensitivity / Fraction(float(scales[node]))
        assert spent <= design.epsilon
        assert parts == WHOLE  # nothing of the budget is left over
        assert spent >= design.epsilon * (1 - Fraction(1, 2**50))
    assert NodeDesign.from_bytes(design.to_bytes()) == design
    assert hash(NodeDesign.from_bytes(design.to_bytes())) == hash(design)


def test_shares_per_node_use_fewer_different_scales_than_nodes() -> None:
    design = plan_node_shares(300, 1, branching=(3, 9, 12))
    assert len(design.scale_of_part) < 100 < sum(map(len, design.share_parts))
    # Rounding to 4096ths costs nothing that can be seen.
    problem = _Problem(design.shape, 300, 1.0, "anticipating")
    assert design.mean_squared_error() <= problem.solve()[0] * (1 + 1e-4)


def test_a_hard_shape_stays_finite() -> None:
    design = plan_node_shares(64, 1, branching=(2, 2, 4, 4))
    assert design.mean_squared_error() < plan_tree(64, 1, branching=(2, 2, 4, 4)).mean_squared_error()


def valid() -> dict[str, object]:
    parts = random_parts(TreeShape((2, 3)), 5, 1)
    return {"shape": TreeShape((2, 3)), "horizon": 5, "epsilon": Fraction(1), "share_parts": parts}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"horizon": 0}, "horizon"),
        ({"horizon": 7}, "horizon"),
        ({"horizon": 4}, "nodes per level"),
        ({"epsilon": Fraction(0)}, "epsilon"),
        ({"epsilon": Fraction(1, 2**40)}, "larger epsilon"),
        ({"sensitivity": 0}, "sensitivity"),
        ({"neighbours": "substitute"}, "sensitivity"),
        ({"release": "later"}, "release"),
        ({"share_parts": (np.array([1, 1], np.uint16), np.array([0, 1, 1, 1, 1], np.uint16))}, "leaf"),
        ({"share_parts": (np.array([1, 1], np.uint16), np.array([4096] * 5, np.uint16))}, "path"),
        ({"share_parts": (np.array([1, 1]), np.array([1] * 5))}, "uint16"),
        (
            {
                "share_parts": (np.array([1, 1], np.uint16), np.array([1] * 5, np.uint16)),
                "release": "causal",
            },
            "never completes",
        ),
    ],
)
def test_a_bad_design_is_refused_in_one_line(change: dict[str, object], complaint: str) -> None:
    NodeDesign(**valid())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=rf"^[^\n]*{complaint}[^\n]*$"):
        NodeDesign(**(valid() | change))  # type: ignore[arg-type]


def test_stored_bytes_are_canonical_and_checked() -> None:
    design = NodeDesign(**valid())  # type: ignore[arg-type]
    data = design.to_bytes()
    assert data.split(b"\n")[0] == (
        b'{"branching":[2,3],"epsilon":"1/1","horizon":5,"neighbours":"add_remove",'
        b'"release":"anticipating","sensitivity":1,"share_bits":12}'
    )
    for bad in (data[:-1], data.replace(b'"share_bits":12', b'"share_bits":13'), data.replace(b"5", b"0", 1)):
        with pytest.raises(ValueError, match=r"^node design: [^\n]*$"):
            NodeDesign.from_bytes(bad)
    assert not design.share_parts[0].flags.writeable
