"""The design over several axes: its privacy loss in exact fractions, its text, its plan."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.arrays import Int64Array
from dphist.planning.load import Load, check_load
from dphist.planning.product import plan_product
from dphist.product.axis import KeyAxis, ValueAxis
from dphist.product.columns import key_weights
from dphist.product.counter import ProductCounter
from dphist.product.design import ProductDesign
from dphist.tree.release import BinReleases
from dphist.tree.shape import TreeShape
from tests.dphist.product.strategies import product_designs, span, spent, value_axes
from tests.oracles import KeyedNoise, inverse

HALF = Fraction(1, 2)


def dense_weights(axis: ValueAxis) -> list[list[Fraction]]:
    """Return least-squares weights, bucket by node, for variances 1 / share^2, in exact fractions."""
    rows = [
        ([Fraction(int(bucket in span(axis, level, node))) for bucket in range(axis.buckets)], share**2)
        for level, (count, share) in enumerate(zip(axis.node_counts, axis.shares, strict=True), start=1)
        for node in range(count)
    ]
    size = range(axis.buckets)
    normal = [[sum((p * row[i] * row[j] for row, p in rows), Fraction(0)) for j in size] for i in size]
    covariance = inverse(normal)
    return [
        [p * sum((covariance[i][j] * row[j] for j in size), Fraction(0)) for row, p in rows] for i in size
    ]


@given(value_axes())
def test_prefix_weights_equal_dense_least_squares(axis: ValueAxis) -> None:
    expected = np.array(dense_weights(axis), dtype=np.float64)
    assert np.allclose(np.concatenate(axis.prefix_weights, axis=1), expected.cumsum(axis=0), atol=1e-9)


@given(value_axes(), st.integers(0, 2**32))
def test_least_squares_of_exact_nodes_returns_the_buckets(axis: ValueAxis, seed: int) -> None:
    counts = np.random.default_rng(seed).integers(0, 50, (2, axis.buckets))
    levels = axis.level_sums(counts)
    for level, sums in enumerate(levels, start=1):
        for node in range(axis.node_counts[level - 1]):
            assert sums[1, node] == counts[1, list(span(axis, level, node))].sum()
    found = axis.least_squares([sums.T.astype(np.float64) for sums in levels])
    assert np.allclose(found, counts.T)


@pytest.mark.parametrize(
    ("buckets", "shares", "field"),
    [(5, (HALF, HALF), "buckets"), (4, (HALF,), "value shares"), (4, (HALF, Fraction(2, 3)), "shares")],
)
def test_a_wrong_value_axis_is_refused(buckets: int, shares: tuple[Fraction, ...], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        ValueAxis(buckets, TreeShape((2, 2)), shares)


def test_a_wrong_key_axis_is_refused() -> None:
    with pytest.raises(ValueError, match="keys"):
        KeyAxis(0)
    with pytest.raises(ValueError, match="total"):
        KeyAxis(1, HALF, HALF)
    with pytest.raises(ValueError, match="add up"):
        KeyAxis(2, HALF, Fraction(2, 3))


@pytest.mark.parametrize("keys", [0, 1, 5])
def test_rest_is_the_total_less_all_keys(keys: int) -> None:
    axis = KeyAxis(keys, Fraction(4, 5), Fraction(1, 5), rest=True)
    released = np.arange(2, 2 + keys)
    for places in ((keys,), (keys, *range(0, keys, 2)), tuple(range(keys)), None):
        if places == ():
            continue
        of_total, of_keys = key_weights(axis, places)
        some = range(keys + 1) if places is None else places
        rest = 100 - released.sum()
        expected = sum(released[place] if place < keys else rest for place in some)
        assert of_total * 100 + of_keys @ released == expected


def test_rest_needs_a_measured_total() -> None:
    with pytest.raises(ValueError, match="measure the total"):
        KeyAxis(3, rest=True)
    with pytest.raises(ValueError, match="keys"):
        KeyAxis(0, Fraction(4, 5), Fraction(1, 5))


def transcript(design: ProductDesign, cells: Int64Array) -> BinReleases:
    return ProductCounter(design, KeyedNoise(6, draws=20_000)).push_many(cells)


def loss(design: ProductDesign, cells: Int64Array, neighbour: Int64Array) -> Fraction:
    """Return the privacy loss of all released columns together, between a stream and its neighbour."""
    total = Fraction(0)
    pairs = zip(transcript(design, cells).levels, transcript(design, neighbour).levels, strict=True)
    for one, other in pairs:
        moved = np.abs(one.values - other.values)
        for group in design.groups:
            total += int(moved[:, group.columns].sum()) / group.design.scales[one.level - 1]
    return total


@given(product_designs(), st.data())
def test_neighbours_cost_at_most_epsilon(design: ProductDesign, data: st.DataObject) -> None:
    horizon = design.time.horizon
    place = st.tuples(st.integers(0, horizon - 1), st.integers(0, design.cells - 1))
    cells = np.random.default_rng(data.draw(st.integers(0, 999))).integers(0, 3, (horizon, design.cells))
    neighbour = cells.copy()
    substitute = design.time.neighbours == "substitute"
    for _ in range(design.time.sensitivity // (2 if substitute else 1)):
        neighbour[data.draw(place)] += 1
        if substitute:
            cells[data.draw(place)] += 1
    assert loss(design, cells, neighbour) <= design.epsilon
    assert loss(design, neighbour, cells) <= design.epsilon


@given(product_designs(dyadic=True), st.data())
def test_neighbours_cost_exactly_epsilon_without_rounded_scales(
    design: ProductDesign, data: st.DataObject
) -> None:
    full = replace(design, time=replace(design.time, horizon=design.time.shape.capacity))
    cells = np.zeros((full.time.horizon, full.cells), np.int64)
    neighbour = cells.copy()
    first, cell = (data.draw(st.integers(0, size - 1)) for size in cells.shape)
    neighbour[first, cell] += 1
    if full.time.neighbours == "substitute":
        if full.time.branching[0] == 1:
            return
        cells[(first + full.time.shape.widths[1]) % len(cells), cell] += 1
    assert loss(full, cells, neighbour) == full.epsilon * spent(full)


@given(product_designs())
def test_groups_divide_epsilon_and_columns(design: ProductDesign) -> None:
    given_out = sum((group.design.epsilon for group in design.groups), Fraction(0))
    assert given_out * sum(design.time.shares, Fraction(0)) == design.epsilon * spent(design)
    assert [column for group in design.groups for column in range(design.columns)[group.columns]] == list(
        range(design.columns)
    )
    for group in design.groups:
        g = design.keys.total_share if group.total else design.keys.key_share
        b = design.values.shares[group.value_level - 1]
        for scale, a in zip(group.design.scales, design.time.shares, strict=True):
            exact = design.time.sensitivity / (design.epsilon * a * b * g)
            assert exact <= scale <= exact * (1 + Fraction(1, 2**52))


@given(product_designs())
def test_text_round_trips(design: ProductDesign) -> None:
    assert ProductDesign.from_json(design.to_json()) == design


def test_other_text_is_refused() -> None:
    text = plan_product(4, 1, keys=2, buckets=3).to_json()
    with pytest.raises(ValueError, match="product design"):
        ProductDesign.from_json('{"time":{}}')
    with pytest.raises(ValueError, match="keys"):
        ProductDesign.from_json(text.replace('"count":2', '"count":0'))


def test_the_planned_value_tree_is_the_best_of_its_height() -> None:
    planned = plan_product(24, 1, buckets=60)
    assert planned.values.shape.height == 2
    best = _mean_prefix_variance(planned)
    for top in range(2, 31):
        own = plan_product(24, 1, buckets=60)
        shape = type(own.values.shape)((top, -(-60 // top)))
        for part in range(5, 100, 5):
            shares = (Fraction(part, 100), 1 - Fraction(part, 100))
            other = replace(own, values=replace(own.values, shape=shape, shares=shares))
            assert best <= _mean_prefix_variance(other) * (1 + 1e-4), (top, part)


def _mean_prefix_variance(design: ProductDesign) -> float:
    axis = design.values
    return sum(
        float((weights**2).sum()) / float(share) ** 2
        for weights, share in zip(axis.prefix_weights, axis.shares, strict=True)
    )


def test_load_counts_every_draw() -> None:
    design = plan_product(24, 1, keys=3, buckets=5, total_share=Fraction(1, 5))
    counter = ProductCounter(design, KeyedNoise(1, draws=200_000))
    nodes = [
        sum(level.values.size for level in counter.push(np.zeros(design.cells, np.int64)).levels)
        for _ in range(24)
    ]
    load = Load.of(design)
    assert (load.mean_draws, load.most_draws) == (sum(nodes) / 24, max(nodes))
    assert load.released_bytes == 8 * sum(nodes)


def test_too_many_draws_for_a_bin_are_refused() -> None:
    design = plan_product(24, 1, keys=10_000)
    seconds = check_load(design, 3_600_000_000).most_seconds
    with pytest.raises(ValueError, match="longer bins"):
        check_load(design, int(seconds * 1_900_000))
