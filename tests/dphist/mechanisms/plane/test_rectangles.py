"""Rectangles and the Hilbert curve: exact sums, painting, cuts, runs; trees against dense least squares."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import mechanisms
from dphist.mechanisms.plane.hilbert import curve_runs, hilbert_order
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
from dphist.noise import SeededNoise


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


@pytest.mark.parametrize("side", [1, 2, 4, 32])
def test_the_curve_visits_every_bin_once_and_steps_to_a_neighbour(side):
    order = hilbert_order(side, side)
    assert sorted(order) == list(range(side * side))
    row, column = np.divmod(order, side)
    assert (np.abs(np.diff(row)) + np.abs(np.diff(column)) == 1).all()


@pytest.mark.parametrize("power", [1, 2, 3])
def test_each_quarter_of_the_curve_is_a_quarter_of_the_square(power):
    """At every scale, 4^j bins of the curve, from a multiple of 4^j on, form a square."""
    side = 16
    row, column = np.divmod(hilbert_order(side, side), side)
    block = 4**power
    for start in range(0, side * side, block):
        assert np.ptp(row[start : start + block]) == np.ptp(column[start : start + block]) == 2**power - 1


@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_runs_make_up_exactly_the_rectangle_and_cannot_be_joined(rows, columns, data):
    order = hilbert_order(rows, columns)
    assert sorted(order) == list(range(rows * columns))
    top, bottom = sorted(data.draw(st.tuples(st.integers(0, rows), st.integers(0, rows))))
    left, right = sorted(data.draw(st.tuples(st.integers(0, columns), st.integers(0, columns))))
    runs = curve_runs(np.array([[top, bottom, left, right]]), order, (rows, columns))
    covered = [int(order[place]) for start, end in runs for place in range(start, end)]
    expected = [row * columns + column for row in range(top, bottom) for column in range(left, right)]
    assert sorted(covered) == expected
    assert (runs[1:, 0] > runs[:-1, 1]).all()


def test_dawa_hilbert_releases_and_spends_what_dawa_does_on_the_line():
    counts = np.random.default_rng(5).integers(0, 40, (8, 8))
    order = hilbert_order(8, 8)
    runs = curve_runs(np.array([[0, 3, 2, 8], [1, 8, 1, 4]]), order, (8, 8))
    plane = mechanisms.release("dawa_hilbert", counts, 0.3, [[0, 3, 2, 8], [1, 8, 1, 4]], SeededNoise(4))
    line = mechanisms.release("dawa", counts.ravel()[order], 0.3, runs, SeededNoise(4))
    np.testing.assert_array_equal(plane.counts.ravel()[order], line.counts)
    assert plane.budget == line.budget
    assert sum(spent for _, spent in plane.budget) == Fraction("0.3")


def test_a_blocky_histogram_is_recovered_where_bins_are_not():
    counts = np.zeros((32, 32), dtype=int)
    counts[8:16, 16:24] = 50
    ranges = np.array([[a, a + 8, b, b + 8] for a in range(0, 25, 4) for b in range(0, 25, 4)])
    truth = np.array([counts[a:b, c:d].sum() for a, b, c, d in ranges])

    def error(name):
        made = (mechanisms.release(name, counts, 0.05, ranges, SeededNoise(s)) for s in range(5))
        return np.mean([np.abs(release.answer(ranges) - truth).mean() for release in made])

    assert error("dawa_hilbert") < error("identity_plane") / 2


def test_estimates_are_not_truncated():
    made = mechanisms.release("dawa_hilbert", np.full((8, 8), 3), 0.1, noise=SeededNoise(1))
    assert (made.counts != np.trunc(made.counts)).any()
