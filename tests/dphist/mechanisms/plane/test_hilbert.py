"""The Hilbert curve: every bin once, neighbours next to each other, rectangles as runs; DAWA along it."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import mechanisms
from dphist.mechanisms.plane.hilbert import curve_runs, hilbert_order
from dphist.noise import SeededNoise


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
