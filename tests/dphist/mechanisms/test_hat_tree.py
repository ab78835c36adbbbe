"""Overlapping nodes: against dense algebra, their privacy in exact fractions, their error beside HB's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.mechanisms import release
from dphist.mechanisms.dawa.query_tree import LATTICE
from dphist.mechanisms.ranges import spread_ranges
from dphist.mechanisms.trees.hat_tree import HatPlan, choose_plan
from dphist.noise import SeededNoise
from dphist.workloads import prefixes
from tests.dphist.mechanisms.stated import stated_variance
from tests.examples import examples

pytestmark = pytest.mark.slow

PLANS = st.builds(
    HatPlan,
    size=st.integers(1, 30),
    widths=st.lists(st.integers(1, 15), max_size=3, unique=True).map(lambda w: tuple(sorted(w))),
    shares=st.just((1.0, 0.5, 2.0, 0.25)),
).map(lambda plan: HatPlan(plan.size, plan.widths, plan.shares[: len(plan.widths) + 1]))


def dense_rows(plan):
    """Return every measured number as a row over the bins, from the definition of a hat."""
    whole = sum(plan.shares)
    rows = [np.eye(plan.size) * plan.shares[0] / whole]
    centres = np.arange(plan.size) + 0.5
    for width, share in zip(plan.widths, plan.shares[1:], strict=True):
        peaks = np.arange((plan.size - 1) // width + 2) * width
        rows.append(np.clip(1 - np.abs(centres - peaks[:, None]) / width, 0, None) * share / whole)
    return np.concatenate(rows)


@examples(60)
@given(plan=PLANS, seed=st.integers(0, 10**6))
def test_estimates_and_variances_are_those_of_dense_least_squares(plan, seed):
    rng = np.random.default_rng(seed)
    rows = dense_rows(plan)
    covariance = np.linalg.inv(rows.T @ rows)
    noisy = rng.normal(0, 10, len(rows))
    np.testing.assert_allclose(
        plan.solve(noisy[: plan.size], noisy[plan.size :]),
        covariance @ rows.T @ noisy,
        rtol=1e-4,  # multiples are rounded down to 2^-20
        atol=1e-3,
    )
    starts, ends = np.sort(rng.integers(0, plan.size + 1, (2, 20)), axis=0)
    place = np.arange(plan.size)
    queries = ((starts[:, None] <= place) & (place < ends[:, None])).astype(float)
    np.testing.assert_allclose(
        plan.variance(starts, ends),
        np.einsum("qi,ij,qj->q", queries, covariance, queries),
        rtol=1e-3,
        atol=1e-9,
    )


@given(plan=PLANS)
def test_no_bin_has_more_than_the_whole_lattice(plan):
    sums = plan.bin_part + plan.parts.sum(axis=0)
    assert plan.largest_sum == sums.max() <= LATTICE
    assert sums.min() > LATTICE - 20


@pytest.mark.parametrize(("ranges", "most"), [(spread_ranges((4096,)), 0.9), (prefixes(4096), 0.9)])
def test_errors_are_a_tenth_below_hb_of_branching_16(ranges, most):
    empty = np.zeros(4096, dtype=np.int64)
    ours, theirs = (
        stated_variance(release(name, empty, 0.1, ranges, SeededNoise(1)), ranges)
        for name in ("hat_tree", "hb")
    )
    assert np.sqrt(ours).mean() < most * np.sqrt(theirs).mean()
    assert ours.mean() < most**2 * theirs.mean()


def test_the_plan_depends_on_the_workload_and_obeys_the_option():
    assert choose_plan(4096, *prefixes(4096).T).shares[-1] > 1  # the widest hats serve every running count
    starts, ends = spread_ranges((4096,)).T
    assert choose_plan(4096, starts, ends, branching=10).widths == (10, 100, 1000)


def test_many_ranges_are_answered_in_blocks(monkeypatch):
    plan = HatPlan(50, (5,), (1.0, 1.0))
    ranges = spread_ranges((50,), 40).T
    whole = plan.variance(*ranges)
    monkeypatch.setattr("dphist.mechanisms.trees.hat_tree._NUMBERS_AT_ONCE", 30)
    np.testing.assert_allclose(plan.variance(*ranges), whole)
