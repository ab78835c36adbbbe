"""Errors of lists of ranges and their derivative; plans with a share per node for any workload."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import plan_node_shares, plan_tree
from dphist.tree.design import Release
from dphist.tree.epoch_nodes import node_counts
from dphist.tree.node_shares import _Problem, _questions
from dphist.tree.question_error import questions_error
from dphist.tree.range_error import workload_error
from dphist.tree.shape import TreeShape
from dphist.workloads import Workload, WorkloadPart
from tests.dphist.tree.strategies import branchings
from tests.examples import examples


@examples(60)
@given(branchings(40), st.booleans(), st.integers(0, 10**6), st.data())
def test_errors_and_derivatives_are_those_of_the_workload(
    branching: tuple[int, ...], anticipating: bool, seed: int, data: st.DataObject
) -> None:
    shape, generator = TreeShape(branching), np.random.default_rng(seed)
    horizon = data.draw(st.integers(1, shape.capacity))
    own = [generator.uniform(0.5, 5.0, count) for count in node_counts(shape, horizon)]
    for level, rows in zip(shape.levels, own, strict=True):
        if level < shape.height:
            rows[generator.random(len(rows)) < 0.2] = np.inf
        if not anticipating:
            rows[horizon // shape.widths[level] :] = np.inf
    kind = data.draw(st.sampled_from(["prefix", "ranges", f"sliding({data.draw(st.integers(1, horizon))})"]))
    workload = Workload.of(kind)
    questions = workload.parts[0][0].ranges(horizon)

    def error(variances: list[np.ndarray]) -> float:
        return len(questions) * workload_error(shape, horizon, variances, workload, anticipating)

    found, gradient = questions_error(shape, horizon, own, questions, anticipating)
    assert found == pytest.approx(error(own), rel=1e-8)
    direction = [generator.normal(size=len(rows)) for rows in own]
    ahead, behind = (
        error([rows + sign * 1e-5 * d for rows, d in zip(own, direction, strict=True)]) for sign in (1, -1)
    )
    slope = sum(float(g @ d) for g, d in zip(gradient, direction, strict=True))
    assert slope == pytest.approx((ahead - behind) / 2e-5, rel=1e-5, abs=1e-3)


@pytest.mark.parametrize("release", ["causal", "anticipating"])
@pytest.mark.parametrize("workload", ["ranges", "sliding(9)", {"prefix": 1, "bins": 5}])
def test_shares_per_node_pay_for_any_workload(release: Release, workload: object) -> None:
    level = plan_tree(60, 1, workload, release)  # type: ignore[arg-type]
    nodes = plan_node_shares(60, 1, release, branching=level.branching, workload=workload)  # type: ignore[arg-type]
    gain = nodes.mean_squared_error(workload) / level.mean_squared_error(workload)  # type: ignore[arg-type]
    assert gain <= (1.0 + 1e-9 if level.shape.height == 1 else 0.9995)


def test_a_spread_of_ranges_stands_for_all() -> None:
    shape, horizon = TreeShape((10, 10)), 97
    problem = _Problem(shape, horizon, 1.0, "anticipating", Workload.of("ranges"))
    spread = _questions(WorkloadPart("ranges"), horizon)
    assert spread is not None
    assert len(spread) > 7 * horizon
    assert bool(((spread[:, 0] >= 0) & (spread[:, 0] < spread[:, 1]) & (spread[:, 1] <= horizon)).all())
    own = [np.full(count, 4.0) for count in node_counts(shape, horizon)]
    exact = workload_error(shape, horizon, own, Workload.of("ranges"), anticipating=True)
    assert problem.error(own)[0] == pytest.approx(exact, rel=0.01)
