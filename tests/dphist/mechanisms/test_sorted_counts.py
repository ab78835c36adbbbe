"""Sorted counts: privacy loss, the paper's order of errors, and the shape of each sequence."""

import numpy as np
import pytest

from dphist import mechanisms
from dphist.noise import SeededNoise
from tests.dphist.mechanisms.stated import stated_variance

NAMES = ["sorted", "sorted_rounded", "sorted_isotonic"]


def test_rounded_and_isotonic_sequences_post_process_the_sorted_counts():
    counts = np.array([9, 0, 3, 3, 0, 1])
    noisy, rounded, rising = (
        mechanisms.release(name, counts, 0.4, noise=SeededNoise(8)).counts for name in NAMES
    )
    assert rounded.tolist() == np.maximum(np.sort(noisy), 0).tolist()
    assert (np.diff(rising) >= 0).all()
    assert rising.sum() == pytest.approx(noisy.sum())
    assert not (np.diff(noisy) >= 0).all()


def test_isotonic_sequence_has_a_tenth_of_the_error_if_counts_repeat():
    """Hay et al., figure 5: the squared error is at most a tenth of that of the noisy sorted counts (S~).

    Rounded sorted counts (S~r) are between the two.
    """
    counts = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 40], [900, 80, 15, 5]))
    truth = np.sort(counts)
    errors = {
        name: np.mean(
            [
                ((mechanisms.release(name, counts, 0.1, noise=SeededNoise(s)).counts - truth) ** 2).sum()
                for s in range(30)
            ]
        )
        for name in NAMES
    }
    assert errors["sorted_isotonic"] < errors["sorted"] / 10
    assert errors["sorted_isotonic"] < errors["sorted_rounded"]


def test_stated_variance_is_per_rank():
    release = mechanisms.release("sorted", np.zeros(8, int), 1.0, noise=SeededNoise(1))
    decay = np.exp(-1.0)
    each = 2 * decay / (1 - decay) ** 2
    np.testing.assert_allclose(stated_variance(release, [[0, 8], [2, 3], [4, 4]]), [8 * each, each, 0.0])
