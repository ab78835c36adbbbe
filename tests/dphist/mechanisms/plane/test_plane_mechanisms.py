"""Mechanisms on grids: exact privacy loss, what decides the splits, and faults of published code."""

import numpy as np
import pytest

from dphist import mechanisms
from dphist.mechanisms.plane.dpcube import uniform_parts
from dphist.noise import SeededNoise

pytestmark = pytest.mark.slow  # many designs: only ``make test`` runs this module


def released(name, counts, epsilon=1.0, seed=1, **options):
    return mechanisms.release(name, counts, epsilon, noise=SeededNoise(seed), **options)


@pytest.mark.parametrize("name", ["identity_plane", "quadtree", "hybridtree"])
def test_unbiased_mechanisms_are_exact_without_noise(name):
    counts = np.random.default_rng(1).integers(0, 50, (9, 14))
    np.testing.assert_allclose(released(name, counts, 1e7).counts, counts, atol=0.01)


def test_dpcube_draws_separate_noise_for_its_two_steps():
    """On an empty grid both steps return noise only. In the published code the two were equal."""
    differences = []
    for seed in range(40):
        made = released("dpcube", np.zeros((6, 6), int), 1.0, seed, blocks_across=1, threshold=1e9)
        block = float(made.published["blocks"][0])
        differences.append(made.counts.sum() - block)
    assert np.count_nonzero(differences) > 25


def test_dpcube_cuts_where_noisy_blocks_differ_and_only_there():
    grid = np.zeros((8, 8))
    grid[:4, 4:] = 100.0
    parts = uniform_parts(grid, least_gain=1.0)
    assert sorted(parts.tolist()) == sorted([[0, 4, 4, 8], [0, 4, 0, 4], [4, 8, 0, 8]]) or len(parts) == 3
    assert uniform_parts(np.full((8, 8), 7.0), least_gain=1e-6).tolist() == [[0, 8, 0, 8]]
    assert len(uniform_parts(np.arange(12.0).reshape(3, 4), least_gain=0.0)) == 12


def test_the_hybrid_tree_cuts_near_the_medians_and_rows_first():
    counts = np.zeros((64, 64), dtype=int)
    counts[50, 7] = counts[51, 7] = counts[50, 9] = counts[51, 9] = 10**6
    made = released("hybridtree", counts, 1.0, median_levels=1)
    cut = made.published["rectangles"]
    assert set(cut[:, :2].ravel().tolist()) == {0, 51, 64}
    assert len(cut) == 4
    assert all(8 <= column <= 9 for column in cut[:, 2:].ravel() if column not in (0, 64))


def test_rows_are_cut_first_whatever_the_data():
    """If exact variances chose the axis, columns would be cut first in one of these two grids."""
    counts = np.zeros((16, 16), dtype=int)
    counts[3, :], counts[4, :], counts[10, :] = 4 * 10**5, 3 * 10**5, 3 * 10**5
    for data, row in ((counts, 4), (counts.T, 8)):
        cut = released("hybridtree", data, 1.0, median_levels=1).published["rectangles"]
        assert set(cut[:, 0].tolist()) == {0, row}


def test_the_uniform_grids_block_size_follows_the_noisy_total():
    """The rule is N epsilon / 10 blocks: 5 events per bin at epsilon 0.1 give 51 blocks, so of 4 x 4 bins."""
    made = [
        len(released("uniform_grid", np.full((32, 32), each), 0.1).published["rectangles"])
        for each in (0, 5, 500)
    ]
    assert made[0] < 16
    assert made[1:] == [64, 1024]


def test_adaptive_grid_is_finer_where_there_are_more_events():
    counts = np.zeros((40, 40), dtype=int)
    counts[:20, :20] = 20
    fine = released("adaptive_grid", counts, 0.5).published["rectangles"]
    dense = fine[(fine[:, 1] <= 20) & (fine[:, 3] <= 20)]
    assert len(dense) > 0.8 * len(fine)
    assert (dense[:, 1] - dense[:, 0]).max() < (fine[:, 1] - fine[:, 0]).max()
