"""The causal counter with a share per node: the decoder's integers, dense least squares, its own law."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import CounterSnapshot, NodeDesign, SeededNoise, TreeCounter, plan_node_shares
from dphist.tree.decoder import causal_sums, decode_nodes
from dphist.tree.epoch_nodes import node_counts
from dphist.tree.node_forest import NodeForest
from dphist.tree.shape import TreeShape
from tests.dphist.tree.dense import complete_nodes, least_squares_estimate
from tests.dphist.tree.strategies import branchings, random_parts
from tests.examples import examples


@st.composite
def causal_nodes(draw: st.DrawFn, most: int = 24) -> NodeDesign:
    shape = TreeShape(draw(branchings(most)))
    horizon = draw(st.integers(max(1, shape.capacity // 2), shape.capacity))
    parts = random_parts(shape, horizon, draw(st.integers(0, 10**6)), causal=True)
    epsilon = draw(st.sampled_from([Fraction(1), Fraction(1, 4), Fraction(5, 3)]))
    return NodeDesign(shape, horizon, epsilon, parts, release="causal")


def pushed(design: NodeDesign, bins: int, seed: int, width: int = 1) -> TreeCounter:
    counter = TreeCounter(design, SeededNoise(seed), width)
    counts = np.random.default_rng(seed).integers(0, 50, (bins, width))
    counter.push_many(counts)
    counter._check()
    return counter


@examples(40)
@given(causal_nodes(), st.integers(0, 10**6), st.data())
def test_published_values_are_the_decoders(design: NodeDesign, seed: int, data: st.DataObject) -> None:
    counter = TreeCounter(design, SeededNoise(seed), 2)
    counts = np.random.default_rng(seed).integers(0, 2**30, (design.horizon, 2))
    cut = data.draw(st.integers(0, design.horizon))
    rows = np.concatenate([counter.push_many(part).published for part in (counts[:cut], counts[cut:])])
    nodes = []
    for level, count in zip(design.shape.levels, node_counts(design.shape, design.horizon), strict=True):
        noisy = np.zeros((count, 2), np.int64)
        complete = counter._forest.nodes(level)  # type: ignore[union-attr]
        noisy[: len(complete)] = complete
        nodes.append(noisy)
    estimates, _ = decode_nodes(design, nodes)
    assert rows.tolist() == causal_sums(design, estimates).tolist()


@examples(40)
@given(causal_nodes(18), st.integers(0, 10**6), st.data())
def test_a_range_is_the_dense_estimate(design: NodeDesign, seed: int, data: st.DataObject) -> None:
    bins = data.draw(st.integers(1, design.horizon))
    a = data.draw(st.integers(0, bins - 1))
    b = data.draw(st.integers(a + 1, bins))
    counter = pushed(design, bins, seed)
    rows, variances, addresses = complete_nodes(design, bins)
    forest = counter._forest
    assert isinstance(forest, NodeForest)
    values = np.array([forest.nodes(level)[index, 0] for level, index in addresses])
    weights, variance = least_squares_estimate(rows, variances, a, b)
    found = counter.range(a, b)
    assert found.value == pytest.approx(float(weights @ values), abs=1e-5)
    assert found.variance == pytest.approx(variance, rel=1e-7)
    assert forest.series("running")[b - 1, 0] == pytest.approx(counter.prefix(b).value, abs=1e-6)
    assert forest.series("bin")[a, 0] == pytest.approx(counter.range(a, a + 1).value, abs=1e-6)
    assert forest.series_variance("bin", [a])[0] == pytest.approx(counter.range(a, a + 1).variance)


@examples(40)
@given(causal_nodes(), st.integers(0, 10**6), st.data())
def test_the_live_count_is_best_and_knows_its_error(
    design: NodeDesign, seed: int, data: st.DataObject
) -> None:
    bins = data.draw(st.integers(1, design.horizon))
    counter = pushed(design, bins, seed)
    live, best = counter.live(), counter.prefix()
    assert live.value == pytest.approx(best.value, abs=live.rounding + 1e-4)
    assert live.variance == pytest.approx(design.prefix_variances()[bins - 1], rel=1e-6)
    assert counter._forest.live_prefix(bins).value == live.value  # type: ignore[union-attr]
    low, high = counter._forest.series_half_widths("live", points=[bins - 1])[0], live.interval()  # type: ignore[union-attr]
    assert low == pytest.approx((high.upper - high.lower) / 2, rel=1e-6)


@examples(20)
@given(causal_nodes(), st.integers(0, 10**6), st.data())
def test_a_restored_counter_and_single_pushes_release_the_same(
    design: NodeDesign, seed: int, data: st.DataObject
) -> None:
    counts = np.random.default_rng(seed).integers(0, 50, design.horizon)
    stop = data.draw(st.integers(0, design.horizon))
    noise = SeededNoise(seed)
    restored = TreeCounter(design, noise)
    through = TreeCounter(design, SeededNoise(seed))
    for bin, count in enumerate(counts):
        if bin == stop:
            stored = CounterSnapshot.from_bytes(restored.snapshot().to_bytes())
            restored = TreeCounter.restore(design, noise, stored)
        one, other = restored.push(int(count)), through.push(int(count))
        assert [(n.level, n.index, n.values.tolist()) for n in one] == [
            (n.level, n.index, n.values.tolist()) for n in other
        ]
        assert one.published.tolist() == other.published.tolist()


@given(causal_nodes(), st.integers(0, 10**6))
def test_a_node_without_a_share_never_shows_its_count(design: NodeDesign, seed: int) -> None:
    counter = TreeCounter(design, SeededNoise(seed))
    releases = counter.push_many(np.full((design.horizon, 1), 10**9))
    for column, parts in zip(releases.levels, design.share_parts, strict=True):
        silent = parts[: len(column.values)] == 0
        assert not column.values[silent].any()
        assert bool((np.abs(column.values[~silent]) > 10**8).all())


def test_errors_are_as_predicted_for_a_planned_tree() -> None:
    """4,000 streams at once; all but one in a million such tests pass."""
    design = plan_node_shares(60, 1, "causal", branching=(4, 4, 4))
    rows = TreeCounter(design, SeededNoise(3), 4000).push_many(np.zeros((60, 4000), np.int64)).published
    squares = ((rows / 2**16) ** 2).mean(axis=0)
    predicted, stderr = design.mean_squared_error(), float(squares.std(ddof=1)) / 4000**0.5
    assert abs(float(squares.mean()) - predicted) < 5 * stderr
    for wrong in (2 / 3, 3 / 2):
        assert abs(float(squares.mean()) - predicted * wrong**2) > 5 * stderr


def test_an_anticipating_design_is_refused() -> None:
    with pytest.raises(ValueError, match="TreeCounter is causal"):
        TreeCounter(plan_node_shares(8, 1, branching=(2, 4)), SeededNoise(1))
