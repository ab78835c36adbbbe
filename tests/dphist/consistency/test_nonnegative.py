"""Non-negative views: Hay's heuristic by hand, exact least squares compared with a dense solver."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from benchmarks.nonnegative import nonnegative_least_squares, zero_negative_subtrees
from tests.examples import examples


def test_the_subtree_of_a_negative_node_becomes_zero():
    levels = [[5.0], [0.0, 5.0], [-2.0, 2.0, 6.0, -1.0], [9.0, 9.0, 9.0, 9.0, 4.0, -1.0, 9.0, 9.0]]
    zeroed = [level.tolist() for level in zero_negative_subtrees(levels)]
    assert zeroed == [[5.0], [0.0, 5.0], [0.0, 0.0, 6.0, 0.0], [0.0, 0.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0]]


def dense(levels, weights):
    """Solve the same problem as one dense matrix, by Lawson and Hanson's active-set method."""
    leaves = len(levels[-1])
    rows, sides = [], []
    for level, weight in zip(levels, weights, strict=True):
        each = leaves // len(level)
        for node, value in enumerate(level):
            row = np.zeros(leaves)
            own = np.sqrt(np.broadcast_to(weight, len(level))[node])
            row[node * each : (node + 1) * each] = own
            rows.append(row)
            sides.append(own * value)
    return nnls(np.array(rows), np.array(sides))[0]


@examples(60)
@given(st.data())
def test_leaves_equal_those_of_a_dense_solver(data):
    sizes = [data.draw(st.integers(1, 2))]
    for _ in range(data.draw(st.integers(0, 2))):
        sizes.append(sizes[-1] * data.draw(st.integers(1, 4)))
    levels = [[float(data.draw(st.integers(-20, 20))) for _ in range(size)] for size in sizes]
    weights = [float(data.draw(st.integers(0, 5))) for _ in sizes[:-1]] + [
        float(data.draw(st.integers(1, 5)))
    ]
    got = nonnegative_least_squares(levels, weights)
    assert (got >= 0).all()
    np.testing.assert_allclose(got, dense(levels, weights), atol=1e-9)


def test_node_weights_and_empty_leaves_equal_a_dense_solver():
    rng = np.random.default_rng(8)
    for _ in range(50):
        levels = [rng.normal(1.0, 6.0, size) for size in (2, 6, 24)]
        weights = [rng.integers(1, 9, level.size) / 4 for level in levels]
        weights[0][0] = weights[1][4] = 0.0
        gone = rng.random(24) < 0.2
        expected = dense(
            [*levels[:2], np.where(gone, 0.0, levels[2])], [*weights[:2], np.where(gone, 1e9, weights[2])]
        )
        got = nonnegative_least_squares(levels, [*weights[:2], np.where(gone, np.inf, weights[2])])
        assert not got[gone].any()
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_large_tree_satisfies_the_optimality_conditions():
    """No leaf's derivative is negative, and the derivative of a leaf above zero is not positive."""
    rng = np.random.default_rng(5)
    sizes, weights = [16, 256, 4096], [3.0, 1.0, 2.0]
    levels = [rng.normal(0.0, 30.0, size) for size in sizes]
    leaves = nonnegative_least_squares(levels, weights)
    gradient = np.zeros(4096)
    for level, weight in zip(levels, weights, strict=True):
        residual = leaves.reshape(level.size, -1).sum(axis=1) - level
        gradient += np.repeat(2 * weight * residual, 4096 // level.size)
    assert gradient.min() > -1e-9
    assert np.abs(gradient[leaves > 0]).max() < 1e-9
    assert (leaves > 0).sum() > 50


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: zero_negative_subtrees([]), "at least one level"),
        (lambda: zero_negative_subtrees([[1.0, 2.0], [1.0] * 3]), "not a multiple of the 2 above"),
        (lambda: zero_negative_subtrees([[np.nan]]), "level 0"),
        (lambda: nonnegative_least_squares([[1.0]], [0.0]), "leaves need one above 0"),
        (lambda: nonnegative_least_squares([[1.0], [1.0]], [np.inf, 1.0]), "level 0 need"),
        (lambda: nonnegative_least_squares([[1.0]], [1.0, 1.0]), "each of 1 levels"),
        (lambda: nonnegative_least_squares([[1.0, 2.0]], [[1.0]]), "or one per node"),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
