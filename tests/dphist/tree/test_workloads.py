"""A workload's error equals the mean over its questions, and the planner's closed form agrees."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import TreeDesign, plan_tree
from dphist.planning.range_uses import workload_uses
from dphist.tree.design import Release
from dphist.tree.range_error import level_uniform_error, prefix_variances, window_variances
from dphist.tree.shape import TreeShape, node_counts
from dphist.workloads import PREFIX, Workload, WorkloadPart, WorkloadText
from tests.dphist.tree.dense import causal_law, known_nodes, least_squares_estimate, published_variance
from tests.dphist.tree.strategies import anticipating_designs, branchings, designs
from tests.examples import examples

pytestmark = pytest.mark.slow  # many designs: only ``make test`` runs this module
WITH_THE_EPOCH = [
    ("sliding(24)", 1.9),
    ({"sliding(24)": 1, "bins": 1}, 7.7),
    ({"sliding(24)": 1, "prefix": 1}, 31.5),
    ({"sliding(24)": 1, "sliding(12)": 1}, 31.3),
]
UNKNOWN = [
    *("suffix", "sliding", "sliding(0)", "sliding(x)", 3, None),
    *({}, {"prefix": 0}, {"prefix": -1}, {"bins": 1, "sliding(1)": 1}),
]
# At a small epsilon the discrete law is the continuous one, for which the anchors are stated.
SMALL = Fraction(1, 1000)


@st.composite
def workloads(draw: st.DrawFn, horizon: int) -> Workload:
    kinds = draw(st.lists(st.sampled_from(["prefix", "bins", "sliding", "ranges"]), min_size=1, unique=True))
    bins = draw(st.integers(min(2, horizon), horizon))
    names = {kind: f"sliding({bins})" if kind == "sliding" else kind for kind in kinds}
    # A window of one bin is a bin.
    weights = {
        name: draw(st.integers(1, 9)) for name in dict.fromkeys(names.values()) if name != "sliding(1)"
    }
    return Workload.of(weights or "bins")


def mean_over_questions(workload: Workload, horizon: int, variance: Callable[[int, int], float]) -> float:
    total = 0.0
    for part, weight in workload.parts:
        each = [variance(int(a), int(b)) for a, b in part.ranges(horizon)]
        total += float(weight) * float(np.mean(each))
    return total


@examples(40)
@given(designs(16), st.data())
def test_causal_workload_error_is_the_mean_over_its_questions(
    design: TreeDesign, data: st.DataObject
) -> None:
    workload = data.draw(workloads(design.horizon))
    expected = mean_over_questions(
        workload, design.horizon, lambda a, b: causal_law(design, b, a, b).variance
    )
    assert design.mean_squared_error(workload) == pytest.approx(expected, rel=1e-9)


@examples(40)
@given(anticipating_designs(16), st.data())
def test_anticipating_workload_error_is_the_mean_over_its_questions(
    design: TreeDesign, data: st.DataObject
) -> None:
    workload = data.draw(workloads(design.horizon))
    expected = mean_over_questions(workload, design.horizon, lambda a, b: published_variance(design, a, b))
    assert design.mean_squared_error(workload) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@examples(60)
@given(branchings(40), st.sampled_from(["causal", "anticipating"]), st.integers(0, 10**6), st.data())
def test_uses_give_the_error_of_whole_trees(
    branching: tuple[int, ...], release: Release, seed: int, data: st.DataObject
) -> None:
    horizon, height = math.prod(branching), len(branching)
    wanted = np.random.default_rng(seed).integers(1, 60, height)
    shares = tuple(Fraction(int(part), int(wanted.sum())) for part in wanted)
    design = TreeDesign(TreeShape(branching), horizon, Fraction(1), shares, release=release)
    part = data.draw(
        st.sampled_from([WorkloadPart("prefix"), WorkloadPart("ranges")])
        | st.builds(lambda bins: WorkloadPart("sliding", bins), st.integers(1, horizon))
    )
    workload = Workload(((part, Fraction(1)),))
    uses = workload_uses(np.array([branching]), horizon, workload, release == "anticipating")[0]
    if release == "causal" and part.question == "sliding":
        # A window may start at any bin. So the tree gets more nodes at its end, for windows that would leave
        # it.
        more = (branching[0] + -(-part.bins // design.shape.widths[1]), *branching[1:])
        longer = TreeDesign(TreeShape(more), math.prod(more), Fraction(1), shares)
        windows = window_variances(
            longer.shape, longer.horizon, longer.node_variances(), part.bins, anticipating=False
        )
        expected = float(windows[:horizon].mean())
    else:
        expected = design.mean_squared_error(workload)
    assert float(uses @ design.variances_from_below) == pytest.approx(expected, rel=1e-9)


@examples(40)
@given(branchings(40), st.sampled_from(["causal", "anticipating"]), st.integers(0, 10**6), st.data())
def test_uses_give_the_error_of_whole_trees_with_a_root(
    lower: tuple[int, ...], release: Release, seed: int, data: st.DataObject
) -> None:
    horizon, branching = math.prod(lower), (2, *lower)
    if horizon == 1:
        return
    wanted = np.random.default_rng(seed).integers(1, 60, len(branching))
    shares = tuple(Fraction(int(part), int(wanted.sum())) for part in wanted)
    design = TreeDesign(TreeShape(branching), horizon, Fraction(1), shares, release=release)
    # For causal windows the closed form is an estimate, except for the window that is the whole epoch.
    windows = st.integers(1, horizon) if release == "anticipating" else st.just(horizon)
    part = data.draw(
        st.sampled_from([WorkloadPart("prefix"), WorkloadPart("ranges")])
        | st.builds(lambda bins: WorkloadPart("sliding", bins), windows)
    )
    workload = Workload(((part, Fraction(1)),))
    uses = workload_uses(np.array([branching]), horizon, workload, release == "anticipating")[0]
    # Variances from below, for a root that has only the children inside the epoch.
    below = list(design.variances_from_below)
    children = lower[0] * below[1]
    below[0] = design.variances[0] * children / (design.variances[0] + children)
    assert float(uses @ below) == pytest.approx(design.mean_squared_error(workload), rel=1e-9)


def dense_error(design: TreeDesign, workload: Workload) -> float:
    """Return the mean squared error, with one least-squares problem per question."""
    horizon = design.horizon
    if design.release == "causal":
        nodes = {b: known_nodes(design, b)[:2] for b in range(1, horizon + 1)}
        return mean_over_questions(workload, horizon, lambda a, b: least_squares_estimate(*nodes[b], a, b)[1])
    every = known_nodes(design, horizon)[:2]
    return mean_over_questions(workload, horizon, lambda a, b: least_squares_estimate(*every, a, b)[1])


@pytest.mark.parametrize("release", ["causal", "anticipating"])
@pytest.mark.parametrize(("text", "at_most"), WITH_THE_EPOCH)
def test_a_workload_with_the_whole_epoch_gets_a_root(
    release: Release, text: WorkloadText, at_most: float
) -> None:
    workload = Workload.of(text)
    design = plan_tree(24, 1, workload, release)
    error = dense_error(design, workload)
    assert design.mean_squared_error(workload) == pytest.approx(error, rel=1e-6)
    assert error <= at_most
    # Dense algebra: a root with any share, over single bins or over days of any length, is not better.
    for lower in ((24,), (2, 12), (4, 6), (6, 4)):
        for root in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
            rest = Fraction(1 - Fraction(str(root)), len(lower))
            shape = TreeShape((2, *lower) if root else lower)
            shares = (Fraction(str(root)), *[rest] * len(lower)) if root else (rest,) * len(lower)
            rival = TreeDesign(shape, 24, Fraction(1), shares, release=release)
            assert error <= dense_error(rival, workload) * (1 + 1e-3), (shape, root)


@pytest.mark.parametrize("release", ["causal", "anticipating"])
@pytest.mark.parametrize("workload", ["prefix", "bins", "ranges", "sliding(24)"])
def test_a_workload_without_the_whole_epoch_gets_no_root(release: Release, workload: str) -> None:
    design = plan_tree(720, 1, workload, release)
    assert design.shape.widths[1] < 720


@pytest.mark.parametrize("release", ["causal", "anticipating"])
@pytest.mark.parametrize("workload", ["bins", "sliding(7)", "ranges", {"prefix": 1, "sliding(24)": 3}])
def test_a_plan_is_best_for_its_own_workload(release: Release, workload: WorkloadText) -> None:
    horizon = 24 * 14
    ours = plan_tree(horizon, 1, workload, release)
    error = ours.mean_squared_error(workload)
    for other in ("prefix", "bins", "sliding(24)", "ranges"):
        rival = plan_tree(horizon, 1, other, release)
        assert error <= rival.mean_squared_error(workload) * (1 + 1e-2), other
    for branching in ((336,), (14, 24), (48, 7), (18, 19), (2, 12, 14), (7, 8, 6), (7, 3, 4, 4)):
        rival = plan_tree(horizon, 1, workload, release, branching=branching)
        assert error <= rival.mean_squared_error(workload) * (1 + 1e-2), branching


def test_plan_for_bins_has_one_level_and_plan_for_days_has_short_nodes() -> None:
    assert plan_tree(1000, 1, "bins").branching == (1000,)
    # Windows that may start anywhere need nodes that are much shorter than the window.
    daily = plan_tree(24 * 365, 1, "sliding(24)", "anticipating")
    assert daily.shape.widths[1] <= 24
    plain = plan_tree(24 * 365, 1, "prefix", "anticipating")
    assert daily.mean_squared_error("sliding(24)") < 0.6 * plain.mean_squared_error("sliding(24)")


def test_a_declared_workload_is_read_back() -> None:
    parts: dict[str, float | str] = {"prefix": 0.7, "bins": "0.3"}
    for text in ("prefix", "bins", "sliding(24)", "ranges", parts):
        workload = Workload.of(text)
        assert Workload.of(workload.declared()) == workload
        assert sum(weight for _, weight in workload.parts) == 1
    assert Workload.of("prefix") == PREFIX
    assert Workload.of({"bins": 1, "prefix": 2}) == Workload.of({"prefix": 4, "sliding(1)": "2"})
    assert Workload.of({"prefix": 0.7, "bins": 0.3}).declared() == {"prefix": "7/10", "bins": "3/10"}


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_unknown_workload_is_refused_in_one_line(text: object) -> None:
    with pytest.raises(ValueError, match=r"^workload[^\n]*$"):
        Workload.of(text)  # type: ignore[arg-type]


def test_a_window_longer_than_the_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"sliding\(25\) is longer"):
        plan_tree(24, 1, "sliding(25)")


@pytest.mark.parametrize(("horizon", "anchor"), [(2**10, 118.2), (2**16, 409.6), (2**20, 751.0)])
def test_anticipating_plans_reach_the_known_errors(horizon: int, anchor: float) -> None:
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
