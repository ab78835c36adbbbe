"""The value axis: sums by definition, least squares compared with dense algebra in exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.product.axis import KeyAxis, ValueAxis
from dphist.product.columns import key_weights
from dphist.tree.shape import TreeShape
from tests.dphist.product.strategies import span, value_axes
from tests.oracles import inverse

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
