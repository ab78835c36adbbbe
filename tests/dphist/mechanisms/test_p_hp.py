"""P-HP: privacy loss of every step, costs against direct sums, the bisection without noise."""

from fractions import Fraction

import numpy as np

from dphist import mechanisms
from dphist.noise import SeededNoise


def test_event_in_an_outlying_bin_loses_most_of_the_budget(privacy_loss):
    """At every depth the event's bin is above its cluster's mean, next to the cuts that separate it."""
    counts = np.zeros(64, dtype=int)
    counts[20] = 500
    changed = counts.copy()
    changed[20] += 1
    losses = [privacy_loss("p_hp", counts, changed, 1.0, seed=seed) for seed in range(20)]
    assert Fraction(6, 10) < max(losses) <= 1


def test_every_depth_of_cuts_has_an_equal_part_at_the_worst_sensitivity(transcript):
    """A depth's loss 2 D / scale, with D = 2 - 2 / L in units of 2^-4, is a sixth of a quarter of epsilon.

    There are six depths of cuts.
    """
    counts = np.random.default_rng(2).integers(0, 1000, 64)
    steps = transcript("p_hp", counts, 1.0)
    selections = [(values.size, scale) for kind, values, scale, _ in steps if kind == "select"]
    assert len(selections) > 3
    for length, scale in selections[:-1]:
        worst = 16 * (2 - Fraction(2, length))
        assert Fraction(1, 4) / 6 >= 2 * worst / scale > Fraction(1, 4) / 6 * Fraction(31, 32)
    worst = 16 * (2 - Fraction(2, 64))
    assert Fraction(1, 4) >= 2 * worst / selections[-1][1] > Fraction(1, 4) * Fraction(31, 32)


def test_without_noise_flat_runs_become_buckets():
    counts = np.repeat([5, 90, 0, 30], [8, 8, 16, 32])
    made = mechanisms.release("p_hp", counts, 1e6, noise=SeededNoise(1))
    assert set(made.published["edges"].tolist()) >= {0, 8, 16, 32, 64}
    np.testing.assert_allclose(made.counts, counts, atol=1e-3)


def test_depth_limits_the_number_of_buckets():
    counts = np.random.default_rng(1).integers(0, 10**6, 64)
    made = mechanisms.release("p_hp", counts, 1e6, noise=SeededNoise(1), depth=2)
    assert made.published["edges"].size - 1 == 4


def test_negative_counts_are_kept_unless_asked():
    counts = np.zeros(64, dtype=int)
    kept = [mechanisms.release("p_hp", counts, 0.01, noise=SeededNoise(s)).counts.min() for s in range(20)]
    clipped = [
        mechanisms.release("p_hp", counts, 0.01, noise=SeededNoise(s), nonnegative=True).counts.min()
        for s in range(20)
    ]
    assert min(kept) < 0
    assert min(clipped) == 0
