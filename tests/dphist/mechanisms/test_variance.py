"""Stated variances against the map from each draw of noise to each answer, found one draw at a time."""

import math

import numpy as np
import pytest

from dphist.mechanisms import release
from dphist.noise import SeededNoise

pytestmark = pytest.mark.slow  # many designs: only ``make test`` runs this module


class OneMore:
    """Seeded noise that adds one to a chosen draw among the last measured vectors."""

    private = False

    def __init__(self, seed, vector=None, place=0):
        self._noise, self._vector, self._place = SeededNoise(seed), vector, place
        self.scales, self.sizes = [], []

    def discrete_laplace(self, scale, shape):
        drawn = self._noise.discrete_laplace(scale, shape)
        if len(self.scales) == self._vector:
            drawn = drawn.copy()
            drawn.flat[self._place] += 1
        self.scales.append(scale)
        self.sizes.append(drawn.size)
        return drawn

    def select(self, scores, scale):
        return self._noise.select(scores, scale)


def variance_by_draws(name, counts, ranges, vectors, options):
    """Return the variance of answers: over the last vectors' draws, the squared weight times the variance."""
    plain = OneMore(3)
    made = release(name, counts, 0.7, noise=plain, **options)
    total = np.zeros(len(ranges))
    for vector in range(len(plain.sizes) - vectors, len(plain.sizes)):
        decay = math.exp(-1 / plain.scales[vector])
        for place in range(plain.sizes[vector]):
            moved = release(name, counts, 0.7, noise=OneMore(3, vector, place), **options)
            total += (moved.answer(ranges) - made.answer(ranges)) ** 2 * 2 * decay / (1 - decay) ** 2
    return made.variance(ranges), total


RECTANGLES = np.array([[0, 6, 0, 7], [1, 5, 2, 6], [3, 4, 3, 4], [2, 2, 0, 7], [0, 1, 0, 7], [0, 5, 5, 7]])


@pytest.mark.parametrize(
    ("name", "vectors", "options"),
    [
        ("identity_plane", 1, {}),
        ("quadtree", 1, {}),
        ("quadtree", 1, {"depth": 1}),
        ("quadtree", 1, {"depth": 0}),
        ("quadtree", 1, {"level_growth": 3}),
        ("hybridtree", 1, {}),
        ("hybridtree", 1, {"median_levels": 1, "depth": 2}),
        ("hybridtree", 1, {"median_levels": 0}),
        ("dawa_hilbert", 1, {}),
        ("dawa_hilbert", 1, {"partition_share": 0.9}),
        ("uniform_grid", 1, {}),
        ("uniform_grid", 1, {"constant": 100.0}),
        ("uniform_grid", 1, {"known_total": True, "constant": 100.0}),
    ],
)
def test_stated_variance_on_a_grid_is_that_of_the_draws(name, vectors, options):
    counts = np.random.default_rng(5).integers(0, 40, (6, 7))
    stated, found = variance_by_draws(name, counts, RECTANGLES, vectors, options)
    assert (found[[0, 1, 2, 4, 5]] > 0).all()
    np.testing.assert_allclose(stated, found, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "vectors", "options"),
    [
        ("p_hp", 1, {}),
        ("p_hp", 1, {"partition_share": 0.9, "depth": 2}),
        ("dawa", 1, {}),
        ("structure_first", 1, {"buckets": 1}),
        ("hat_tree", 1, {"branching": 3}),
        ("cdf_refined", 2, {"branching": (4, 4)}),
        ("cdf_refined", 2, {"branching": (4, 4), "neighbours": "substitute"}),
    ],
)
def test_stated_variance_on_a_line_is_that_of_the_draws(name, vectors, options):
    counts = np.random.default_rng(5).integers(0, 40, 14)
    ranges = np.array([[0, 14], [0, 5], [3, 9], [7, 8], [4, 4], [6, 14]])
    stated, found = variance_by_draws(name, counts, ranges, vectors, options)
    known = np.ones(6, dtype=bool)
    if name == "cdf_refined":
        known = np.array([True, True, False, False, True, "neighbours" in options])
    np.testing.assert_allclose(stated[known], found[known], rtol=1e-5, atol=1e-9)
    assert np.isnan(stated[~known]).all()


@pytest.mark.parametrize(
    ("name", "options"), [("p_hp", {"nonnegative": True}), ("cdf_refined", {"consistent": "squared"})]
)
def test_mechanisms_that_are_not_linear_state_no_variance(name, options):
    assert release(name, np.arange(14), 1, noise=SeededNoise(1), **options).variance([[0, 4]]) is None
