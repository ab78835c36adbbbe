"""The predicted error of the anticipating running count: known values, and two ways to compute it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import plan_tree
from dphist.tree.range_error import anticipating_uses, level_uniform_error, prefix_variances
from dphist.tree.shape import TreeShape, node_counts
from tests.dphist.tree.strategies import branchings
from tests.examples import examples

pytestmark = pytest.mark.slow  # many designs: only ``make test`` runs this module

# At a small epsilon the discrete law is the continuous one, for which the anchors are stated.
SMALL = Fraction(1, 1000)


@pytest.mark.parametrize(("horizon", "anchor"), [(2**10, 118.2), (2**16, 409.6), (2**20, 751.0)])
def test_plans_reach_the_known_errors(horizon: int, anchor: float) -> None:
    design = plan_tree(horizon, SMALL, release="anticipating")
    assert design.mean_squared_error() * float(SMALL) ** 2 <= anchor


@examples(40)
@given(branchings(60), st.integers(0, 10**6), st.data())
def test_level_uniform_error_equals_the_error_summed_over_all_nodes(
    branching: tuple[int, ...], seed: int, data: st.DataObject
) -> None:
    shape = TreeShape(branching)
    horizon = data.draw(st.integers(1, shape.capacity))
    own = np.random.default_rng(seed).uniform(0.5, 9, shape.height)
    nodes = [np.full(n, v) for n, v in zip(node_counts(shape, horizon), own, strict=True)]
    quick = level_uniform_error(shape, horizon, own.tolist())
    assert quick == pytest.approx(prefix_variances(shape, horizon, nodes, True).sum(), rel=1e-10)


@given(branchings(60), st.integers(0, 10**6))
def test_anticipating_uses_are_exact_on_whole_trees(branching: tuple[int, ...], seed: int) -> None:
    shape = TreeShape(branching)
    own = np.random.default_rng(seed).uniform(0.5, 9, shape.height)
    below = [own[-1]]
    for s, k in zip(own[-2::-1], branching[:0:-1], strict=True):
        below.append(s * k * below[-1] / (s + k * below[-1]))
    uses = anticipating_uses(np.array([branching], float), shape.capacity)[0]
    error = level_uniform_error(shape, shape.capacity, own.tolist()) / shape.capacity
    assert float(uses @ below[::-1]) == pytest.approx(error, rel=1e-10)
