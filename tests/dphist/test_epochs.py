"""Levels over epochs: the best estimate from their nodes, within one epsilon, for any number of epochs."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import AnticipatingCounter, Estimate, SeededNoise, TreeCounter, plan_tree
from dphist.epochs import EpochLevels, EpochLevelsCounter, EpochLevelsSnapshot
from dphist.laws.law import WeightedNoise, discrete_laplace_variance
from dphist.planning.epochs import plan_epoch_levels
from dphist.privacy import path_epsilon
from dphist.tree.decoder import scaled
from dphist.tree.design import Release, TreeDesign
from tests.dphist.tree.dense import least_squares_estimate
from tests.examples import examples
from tests.oracles import FailingNoise

pytestmark = pytest.mark.slow


def small_design(release: Release = "anticipating", epsilon: int = 1) -> TreeDesign:
    return plan_tree(6, epsilon, release=release, branching=(2, 3))


@st.composite
def levels(draw: st.DrawFn) -> EpochLevels:
    lowest = draw(st.integers(1, 4))
    branching = (lowest, *draw(st.lists(st.integers(2, 3), max_size=2))) if draw(st.booleans()) else ()
    epsilons = tuple(Fraction(draw(st.integers(1, 30)), 10) for _ in branching)
    epoch = small_design(draw(st.sampled_from(["causal", "anticipating"])))
    return EpochLevels(epoch, epoch.epsilon + sum(epsilons, Fraction(0)), branching, epsilons)


def dense(design: EpochLevels, epochs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a row over epochs for each epoch's total, then for each complete node, and the variances."""
    rows, variances = list(np.eye(epochs)), [design.total_variance] * epochs
    for width, scale in zip(design.widths, design.scales, strict=True):
        for index in range(epochs // width):
            row = np.zeros(epochs)
            row[index * width : (index + 1) * width] = 1.0
            rows.append(row)
            variances.append(discrete_laplace_variance(scale))
    return np.array(rows).reshape(-1, epochs), np.array(variances)


@examples(40)
@given(levels(), st.integers(1, 19), st.integers(0, 10**6))
def test_the_count_of_complete_epochs_is_the_best_linear_estimate(
    design: EpochLevels, epochs: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    totals = generator.integers(0, 1000, (epochs, 1))
    published = (totals << 16) + generator.integers(-(2**19), 2**19, (epochs, 1))
    counter = EpochLevelsCounter(design, SeededNoise(seed))
    values = [*(published[:, 0] / 2**16)]
    by_level: list[list[float]] = [[] for _ in design.branching]
    for total, estimate in zip(totals, published, strict=True):
        for node in counter.close_epoch(total, estimate).nodes:
            by_level[node.level - 1].append(float(node.values[0]))
    rows, variances = dense(design, epochs)
    values += [value for level in by_level for value in level]
    weights, variance = least_squares_estimate(rows, variances, 0, epochs)
    found = counter.running()
    assert found.value == pytest.approx(float(weights @ values), abs=1e-3 + found.rounding)
    assert found.variance == pytest.approx(variance, rel=1e-5)
    assert float(design.complete_variance(epochs)) == pytest.approx(variance, rel=1e-9)


@examples(30)
@given(levels(), st.integers(1, 15), st.integers(0, 10**6))
def test_the_count_can_be_computed_from_released_values(design: EpochLevels, epochs: int, seed: int) -> None:
    """Recompute the count from published totals and nodes, by recursion over complete nodes."""
    generator = np.random.default_rng(seed)
    counter = EpochLevelsCounter(design, SeededNoise(seed), width=2)
    published: list[np.ndarray] = []
    nodes: dict[tuple[int, int], np.ndarray] = {}
    for _ in range(epochs):
        published.append(generator.integers(0, 2**24, 2))
        release = counter.close_epoch(generator.integers(0, 99, 2), published[-1])
        nodes |= {(node.level, node.index): node.values for node in release.nodes}

    def estimate(level: int, index: int) -> np.ndarray:
        if level == 0:
            return published[index]
        k = design.branching[level - 1]
        children = sum((estimate(level - 1, index * k + i) for i in range(k)), np.zeros(2, np.int64))
        own = nodes[level, index] << 16
        return own + scaled(np.array([design.children_weights[level - 1]]), children - own)

    total, start = np.zeros(2, np.int64), 0
    for level in range(len(design.branching), -1, -1):
        width = design.widths[level - 1] if level else 1
        while start + width <= epochs:
            total = total + estimate(level, start // width)
            start += width
    assert counter.complete.tolist() == total.tolist()


@examples(20)
@given(levels(), st.integers(1, 12), st.integers(0, 11), st.integers(0, 10**6))
def test_a_restored_counter_releases_the_same_as_the_original(
    design: EpochLevels, epochs: int, stop: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    totals = generator.integers(0, 1000, (epochs, 1))

    def releases(restarts: bool) -> list[object]:
        noise = SeededNoise(seed)
        found: list[object] = []
        counter = EpochLevelsCounter(design, noise)
        for epoch, total in enumerate(totals):
            if restarts and epoch == stop:
                stored = EpochLevelsSnapshot.from_bytes(counter.snapshot().to_bytes())
                counter = EpochLevelsCounter(design, noise, snapshot=stored)
            release = counter.close_epoch(total, total << 16)
            found.append([(n.level, n.index, n.values.tolist()) for n in release.nodes])
            found.append(release.complete.tolist())
        return found

    assert releases(True) == releases(False)


def test_a_failure_releases_nothing_and_leaves_the_counter_unchanged() -> None:
    design = EpochLevels(small_design(), Fraction(2), (1,), (Fraction(1),))
    counter = EpochLevelsCounter(design, FailingNoise(0))
    before = counter.snapshot().to_bytes()
    with pytest.raises(OSError, match="entropy"):
        counter.close_epoch(np.array([5]), np.array([5]))
    assert counter.snapshot().to_bytes() == before


@pytest.mark.parametrize("release", ["causal", "anticipating"])
def test_errors_over_real_epochs_match_predictions(release: Release) -> None:
    """The real counters count 3,000 streams at once. By chance, one in a million such tests fails."""
    streams, epochs = 3000, 7
    epoch = small_design(release)
    design = EpochLevels(epoch, Fraction(2), (2, 2), (Fraction(1, 2), Fraction(1, 2)))
    counter = EpochLevelsCounter(design, SeededNoise(5), width=streams)
    kind = TreeCounter if release == "causal" else AnticipatingCounter
    squares = []
    for seed in range(epochs):
        inside = kind(epoch, SeededNoise(seed), streams)
        rows = inside.push_many(np.full((6, streams), 3, np.int64)).published
        truth = 18 * seed + 3 * np.arange(1, 7)
        errors = (rows + counter.complete) / 2**16 - truth[:, np.newaxis]
        squares.append((errors**2).mean(axis=0))
        counter.close_epoch(np.full(streams, 18), rows[-1])
    means = np.mean(squares, axis=0)
    stderr = float(means.std(ddof=1)) / math.sqrt(streams)
    predicted = design.mean_squared_error(epochs)
    assert abs(float(means.mean()) - predicted) < 5 * stderr
    for wrong in (2 / 3, 3 / 2):
        assert abs(float(means.mean()) - predicted * wrong**2) > 5 * stderr


def test_running_count_includes_the_open_epoch() -> None:
    design = EpochLevels(small_design(), Fraction(2), (2,), (Fraction(1),))
    counter = EpochLevelsCounter(design, SeededNoise(1))
    counter.close_epoch(np.array([4]), np.array([4 << 16]))
    law = WeightedNoise.of([(1.0, 2, 3.0)])
    found = counter.running(Estimate(6.0, law.variance, law, 0.25))
    assert found.value == 10.0
    assert found.variance == pytest.approx(design.total_variance + law.variance, rel=1e-6)
    assert found.rounding >= 0.25


@pytest.mark.parametrize("release", ["causal", "anticipating"])
@pytest.mark.parametrize(
    ("horizon", "epochs"), [pytest.param(24, 365, marks=pytest.mark.slow), (20, 10), (64, 1)]
)
def test_plans_cost_epsilon_and_are_better_than_sums_of_totals(
    release: Release, horizon: int, epochs: int
) -> None:
    design = plan_epoch_levels(horizon, epochs, "0.7", release, "substitute")
    spent = path_epsilon(design.epoch.scales, 2) + path_epsilon(design.scales, 2)
    assert spent <= design.epsilon == Fraction(7, 10)
    assert design.widths[-1] >= 2**32  # the stream's age adds no cost
    chained = EpochLevels(plan_tree(horizon, "0.7", release=release, neighbours="substitute"), design.epsilon)
    assert design.mean_squared_error(epochs) <= 1.03 * chained.mean_squared_error(epochs)


@pytest.mark.slow
def test_errors_beyond_the_planned_epochs_grow_slower_than_sums_of_totals() -> None:
    def late(design: EpochLevels, epochs: int) -> float:
        return float(design.complete_variance(np.linspace(1, epochs, 1000).astype(np.int64)).mean())

    reserved = plan_epoch_levels(24, 100, 1, reserve=Fraction(1, 4))
    errors = [late(reserved, 100 * 16**i) for i in range(7)]
    growth = [after / before for before, after in itertools.pairwise(errors)]
    # The error of added totals grows 16 times with every step.
    assert max(growth) < 5
    assert growth[2] > growth[3] > growth[4] > growth[5]
    short, long = plan_epoch_levels(24, 100, 1), plan_epoch_levels(24, 10_000, 1)
    assert long.mean_squared_error(10_000) < 5 * short.mean_squared_error(100)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"branching": (2,)}, "epsilons"),
        ({"branching": (0,), "epsilons": (Fraction(1),)}, "branching"),
        ({"branching": (2, 1), "epsilons": (Fraction(1, 2),) * 2}, "branching"),
        ({"branching": (2,), "epsilons": (Fraction(0),)}, "epsilons"),
        ({"branching": (2,), "epsilons": (Fraction(1, 2**40),)}, "epsilons"),
        ({"branching": (2,), "epsilons": (Fraction(11, 10),)}, "epsilon: epoch and levels add up"),
    ],
)
def test_a_bad_design_is_refused_in_one_line(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=rf"^{complaint}[^\n]*$"):
        EpochLevels(**({"epoch": small_design(), "epsilon": Fraction(2)} | change))  # type: ignore[arg-type]


@pytest.mark.parametrize("total", [np.array([-1]), np.array([1.0]), np.array([1, 2]), np.array([2**46])])
def test_a_bad_total_is_refused_without_showing_it(total: np.ndarray) -> None:
    design = EpochLevels(small_design(), Fraction(2), (2,), (Fraction(1),))
    with pytest.raises(ValueError, match=r"^total: [^\n]*$") as refused:
        EpochLevelsCounter(design, SeededNoise(1)).close_epoch(total, np.array([0]))
    assert str(2**46) not in str(refused.value)
    with pytest.raises(ValueError, match=r"^published total: [^\n]*$"):
        EpochLevelsCounter(design, SeededNoise(1)).close_epoch(np.array([1]), np.array([1.0]))
    with pytest.raises(ValueError, match="snapshot"):
        EpochLevelsSnapshot.from_bytes(b"dpEL" + bytes(30))


@pytest.mark.parametrize("arguments", [(24, 0), (24, True), (24, 5, 1, "causal", "add_remove", Fraction(1))])
def test_a_bad_plan_is_refused_in_one_line(arguments: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"^(epochs|reserve): [^\n]*$"):
        plan_epoch_levels(*(arguments if len(arguments) > 2 else (*arguments, 1)))  # type: ignore[arg-type]


@given(levels(), st.integers(1, 40))
def test_text_round_trips_and_the_law_of_epochs_is_the_sum_over_nodes(
    design: EpochLevels, epochs: int
) -> None:
    assert EpochLevels.from_json(design.to_json(), design.epoch) == design
    for width, (law, rounding) in zip(design.widths, design.node_laws, strict=True):
        if design.widths.count(width) == 1:
            whole, units = design.complete_law(width)
            assert law.variance == pytest.approx(whole.variance)
            assert rounding == pytest.approx(units)
    law, _ = design.complete_law(epochs)
    assert law.variance == pytest.approx(float(design.complete_variance(epochs)), rel=1e-5)
