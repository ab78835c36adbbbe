"""Rectangles: exact sums, painting, cuts; trees of them against dense least squares."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.mechanisms.plane.quadtree import LEVEL_GROWTH
from dphist.mechanisms.plane.rectangles import (
    RectangleTree,
    areas,
    grid_blocks,
    grid_edges,
    halves,
    paint,
    quarters,
)
from dphist.mechanisms.ranges import range_sums


@st.composite
def partitions(draw):
    """Draw any partition that repeated cuts can make."""
    shape = draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    rectangles = np.array([[0, shape[0], 0, shape[1]]])
    for _ in range(draw(st.integers(0, 4))):
        cuts = np.array([draw(st.integers(0, 7)) for _ in rectangles])
        rectangles, _ = halves(rectangles, draw(st.integers(0, 1)), cuts)
    return shape, rectangles


def covered(rectangles, shape):
    times = np.zeros(shape, dtype=int)
    for top, bottom, left, right in rectangles:
        times[top:bottom, left:right] += 1
    return times


@given(partitions(), st.data())
def test_painting_is_each_rectangles_density_and_sums_come_back(partition, data):
    shape, rectangles = partition
    assert (covered(rectangles, shape) == 1).all()
    values = np.array([data.draw(st.integers(-9, 9)) for _ in rectangles], dtype=float)
    painted = paint(values, rectangles, shape)
    for (top, bottom, left, right), value, area in zip(rectangles, values, areas(rectangles), strict=True):
        assert (painted[top:bottom, left:right] == value / area).all()


@given(partitions(), st.integers(0, 99))
def test_sums_are_exact(partition, seed):
    shape, rectangles = partition
    counts = np.random.default_rng(seed).integers(0, 2**40, shape)
    expected = [counts[a:b, c:d].sum() for a, b, c, d in rectangles]
    assert range_sums(counts, rectangles).tolist() == expected


@pytest.mark.parametrize(("size", "side", "edges"), [(7, 3, [0, 3, 6, 7]), (4, 9, [0, 4]), (1, 1, [0, 1])])
def test_grid_edges_and_blocks_cover(size, side, edges):
    assert grid_edges(size, side).tolist() == edges
    blocks = grid_blocks(grid_edges(size, side), grid_edges(5, 2))
    assert (covered(blocks, (size, 5)) == 1).all()


def test_quarters_keep_parents_and_leave_single_bins_whole():
    parts, parents = quarters(np.array([[0, 3, 0, 1], [3, 4, 0, 1], [0, 2, 1, 3]]))
    assert parts.tolist() == [
        [0, 2, 0, 1],
        [2, 3, 0, 1],
        [3, 4, 0, 1],
        [0, 1, 1, 2],
        [0, 1, 2, 3],
        [1, 2, 1, 2],
        [1, 2, 2, 3],
    ]
    assert parents.tolist() == [0, 0, 1, 2, 2, 2, 2]


def full_tree(shape):
    tree = RectangleTree(shape)
    while tree.grow():
        pass
    return tree


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (4, 4), (5, 3), (3, 9)])
def test_consistent_values_are_dense_weighted_least_squares(shape):
    tree, rng = full_tree(shape), np.random.default_rng(2)
    noisy = [rng.normal(0, 9, len(level)) for level in tree.levels]
    variances = [rng.uniform(0.5, 3.0, len(level)) for level in tree.levels]
    rows = np.array([covered([r], shape).ravel() for level in tree.levels for r in level], dtype=float)
    weight = 1 / np.sqrt(np.concatenate(variances))
    best = np.linalg.lstsq(rows * weight[:, None], np.concatenate(noisy) * weight, rcond=None)[0]
    solved = tree.solve(noisy, variances)
    np.testing.assert_allclose(np.concatenate(solved), rows @ best, atol=1e-9)


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (5, 3), (2, 13)])
def test_the_parts_of_the_rectangles_over_a_bin_add_up_to_the_whole_budget(shape):
    tree = full_tree(shape)
    total = np.zeros(shape, dtype=np.int64)
    for level, parts in zip(tree.levels, tree.parts(LEVEL_GROWTH), strict=True):
        assert (parts >= 1).all()
        for (top, bottom, left, right), part in zip(level, parts, strict=True):
            total[top:bottom, left:right] += part
    assert (total == 2**20).all()


def test_a_level_has_the_cube_root_of_two_times_the_budget_above():
    parts = full_tree((16, 16)).parts(LEVEL_GROWTH)
    ratios = [below[0] / above[0] for above, below in pairwise(parts[:-1])]
    assert ratios == pytest.approx([2 ** (1 / 3)] * 3, rel=1e-4)
