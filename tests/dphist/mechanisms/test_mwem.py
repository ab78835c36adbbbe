"""MWEM: privacy loss, cells against dense multiplicative weights, and what it learns without noise."""

from fractions import Fraction

import numpy as np
import pytest

from dphist import mechanisms
from dphist.mechanisms.mwem import CellEstimate
from dphist.mechanisms.ranges import range_sums, spread_ranges
from dphist.noise import SeededNoise


def test_event_inside_every_query_loses_all_of_epsilon(privacy_loss):
    """Some errors rise and others fall, and every measured range holds the event. So the bound is reached."""
    counts, workload = np.array([40, 0, 0, 40]), np.array([[0, 2], [0, 3], [0, 4], [1, 4], [0, 1]])
    changed = counts + np.array([1, 0, 0, 0])
    losses = [
        privacy_loss("mwem", counts, changed, 1.0, workload=workload, seed=seed, rounds=3)
        for seed in range(30)
    ]
    assert Fraction(3, 5) < max(losses) <= 1


def test_a_known_total_under_added_events_is_not_private(privacy_loss):
    """A fault of published code: the estimate starts from the exact total, so neighbours' releases differ."""
    counts = np.array([5, 0, 3, 9])
    with pytest.raises(AssertionError):
        privacy_loss("mwem", counts, counts + np.array([0, 1, 0, 0]), 1.0, rounds=2, known_total=True)


def test_many_answers_far_below_the_total_leave_finite_counts():
    """Low answers come from many rounds at a small epsilon. Each multiplies the same cells by e^-30."""
    estimate = CellEstimate((4,), 10.0)
    for _ in range(40):
        estimate.add(np.array([0, 4]), -1e9)
    estimate.replay(3)
    assert np.isfinite(estimate.counts()).all()
    assert estimate.counts().sum() == pytest.approx(10.0)


def dense_weights(shape, total, measured, sweeps):
    """Return the published method's counts: weights on every bin, rescaled to the total after each step."""
    estimate = np.full(shape, total / np.prod(shape))
    for seen in range(1, len(measured) + 1):
        for _ in range(sweeps):
            for query, answer in measured[:seen]:
                inside = np.zeros(shape, dtype=bool)
                inside[tuple(slice(a, b) for a, b in query.reshape(-1, 2))] = True
                error = answer - estimate[inside].sum()
                estimate[inside] *= np.exp(error / (2 * total))
                estimate *= total / estimate.sum()
    return estimate


@pytest.mark.parametrize("shape", [(17,), (1,), (6, 5)])
def test_cells_equal_dense_multiplicative_weights(shape):
    rng = np.random.default_rng(3)
    total = 200.0
    ranges = spread_ranges(shape, 6)
    measured = [(query, float(rng.integers(-20, 260))) for query in ranges]
    cells = CellEstimate(shape, total)
    for query, answer in measured:
        cells.add(query, answer)
        cells.replay(7)
    np.testing.assert_allclose(cells.counts(), dense_weights(shape, total, measured, 7), rtol=1e-8)
    assert cells.masses.sum() == pytest.approx(total)


def test_without_noise_it_learns_what_the_workload_can_tell():
    counts = np.array([0, 50, 0, 0, 7, 7, 100, 0])
    workload = np.array([[a, b] for a in range(8) for b in range(a + 1, 9)])
    made = mechanisms.release("mwem", counts, 1e9, workload, SeededNoise(1), sweeps=2000)
    np.testing.assert_allclose(made.answer(workload), range_sums(counts.astype(float), workload), atol=2.0)


def test_the_worst_answered_query_is_measured_first():
    counts = np.array([0, 0, 0, 90])
    workload = np.array([[0, 1], [3, 4], [1, 3]])
    made = mechanisms.release("mwem", counts, 1e9, workload, SeededNoise(1), rounds=1, sweeps=2000)
    assert made.counts[3] == pytest.approx(90, abs=1)
    assert made.counts[:3] == pytest.approx([0, 0, 0], abs=1)


def test_budget_is_the_total_and_two_equal_halves_of_each_round():
    made = mechanisms.release("mwem", np.arange(20), 1, noise=SeededNoise(1), rounds=3)
    assert [name for name, _ in made.budget][:3] == ["total", "choice 1", "count 1"]
    assert {spent for name, spent in made.budget if name != "total"} == {Fraction(24, 25) / 6}
