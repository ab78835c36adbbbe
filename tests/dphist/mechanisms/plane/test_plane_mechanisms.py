"""Mechanisms on grids: exact privacy loss, what decides the splits, and faults of published code."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import mechanisms
from dphist.mechanisms.plane.dpcube import _parts
from dphist.noise import SeededNoise
from dphist.privacy import exact
from tests.examples import examples

pytestmark = pytest.mark.slow  # many designs: only ``make test`` runs this module

COUNTED = [
    "identity_plane",
    "mwem_plane",
    "quadtree",
    "hybridtree",
    "dpcube",
    "uniform_grid",
    "adaptive_grid",
]


def released(name, counts, epsilon=1.0, seed=1, **options):
    return mechanisms.release(name, counts, epsilon, noise=SeededNoise(seed), **options)


@pytest.mark.parametrize("name", COUNTED)
@examples(15)
@given(data=st.data())
def test_an_added_event_loses_at_most_epsilon(name, data, privacy_loss):
    shape = data.draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    size = shape[0] * shape[1]
    counts = np.array(data.draw(st.lists(st.integers(0, 30), min_size=size, max_size=size))).reshape(shape)
    changed = counts.copy()
    changed.flat[data.draw(st.integers(0, size - 1))] += 1
    epsilon = data.draw(st.sampled_from([0.05, 2.0]))
    loss = privacy_loss(name, counts, changed, epsilon, seed=data.draw(st.integers(0, 20)))
    assert 0 < loss <= exact(epsilon)
    if name not in ("mwem_plane", "hybridtree"):
        assert loss == exact(epsilon)


@pytest.mark.parametrize("name", ["mwem_plane", "uniform_grid", "adaptive_grid"])
@examples(15)
@given(data=st.data())
def test_with_a_known_total_a_moved_event_loses_at_most_epsilon(name, data, privacy_loss):
    counts = np.array(data.draw(st.lists(st.integers(1, 30), min_size=30, max_size=30))).reshape(5, 6)
    source, target = data.draw(st.permutations(range(30)))[:2]
    moved = counts.copy()
    moved.flat[source] -= 1
    moved.flat[target] += 1
    assert privacy_loss(name, counts, moved, 1.0, known_total=True) <= 1


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
    parts = _parts(grid, least_gain=1.0)
    assert sorted(parts.tolist()) == sorted([[0, 4, 4, 8], [0, 4, 0, 4], [4, 8, 0, 8]]) or len(parts) == 3
    assert _parts(np.full((8, 8), 7.0), least_gain=1e-6).tolist() == [[0, 8, 0, 8]]
    assert len(_parts(np.arange(12.0).reshape(3, 4), least_gain=0.0)) == 12


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


def test_uniform_grid_variance_weighs_each_block_by_its_squared_share():
    """The noise of a block counts by the square of the block's share that lies in the range."""
    made = released("uniform_grid", np.full((10, 13), 30), 0.2, constant=60.0)
    blocks = made.published["rectangles"]
    assert 4 < len(blocks) < 130
    ranges = np.array([[0, 10, 0, 13], [2, 9, 3, 11], [1, 2, 1, 2], [4, 4, 0, 9], [0, 3, 5, 6]])
    scale = 1 / (0.2 * 0.98)
    decay = np.exp(-1 / scale)
    each = 2 * decay / (1 - decay) ** 2
    expected = []
    for a, b, c, d in ranges:
        rows = np.maximum(0, np.minimum(blocks[:, 1], b) - np.maximum(blocks[:, 0], a))
        columns = np.maximum(0, np.minimum(blocks[:, 3], d) - np.maximum(blocks[:, 2], c))
        area = (blocks[:, 1] - blocks[:, 0]) * (blocks[:, 3] - blocks[:, 2])
        expected.append((((rows * columns) / area) ** 2).sum() * each)
    np.testing.assert_allclose(made.variance(ranges), expected, rtol=1e-9)


def test_adaptive_grid_is_finer_where_there_are_more_events():
    counts = np.zeros((40, 40), dtype=int)
    counts[:20, :20] = 20
    fine = released("adaptive_grid", counts, 0.5).published["rectangles"]
    dense = fine[(fine[:, 1] <= 20) & (fine[:, 3] <= 20)]
    assert len(dense) > 0.8 * len(fine)
    assert (dense[:, 1] - dense[:, 0]).max() < (fine[:, 1] - fine[:, 0]).max()


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("quadtree", {"depth": -1}, "depth is -1"),
        ("quadtree", {"level_growth": 9}, "level_growth is 9"),
        ("hybridtree", {"median_levels": 4, "depth": 3}, "4 median levels of 3"),
        ("hybridtree", {"median_share": 1}, "median_share is 1"),
        ("dpcube", {"blocks_across": 0}, "blocks_across is 0"),
        ("dpcube", {"blocks_share": 0}, "blocks_share is 0"),
        ("uniform_grid", {"constant": 0}, "constant is 0"),
        ("uniform_grid", {"total_share": 1}, "total_share is 1"),
        ("adaptive_grid", {"coarse_share": 1}, "coarse_share is 1"),
        ("adaptive_grid", {"fine_constant": -1}, "fine_constant is -1"),
    ],
)
def test_bad_options_are_named(name, options, said):
    with pytest.raises(ValueError, match=said):
        released(name, np.ones((4, 4), int), **options)
