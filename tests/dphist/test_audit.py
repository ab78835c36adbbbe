"""Bounds on a privacy loss from counted runs: they cover the truth, and they notice 5 % more."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dphist.audit import Sequential, loss_bounds, mu_bounds

RUNS = 400
# Seeded; each bound is wrong with a probability of at most 5e-10, so all of them with 4e-7.
ALPHA = 1e-9


def hits(rng: np.random.Generator, epsilon: float, total: int) -> tuple[int, int]:
    """Draw how many of the runs that end in S had either input, if the loss is exactly epsilon."""
    first = int(rng.binomial(total, 1 / (1 + math.exp(-epsilon))))
    return first, total - first


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.0])
def test_bounds_hold_the_true_loss(epsilon: float) -> None:
    rng = np.random.default_rng(1)
    for _ in range(RUNS):
        low, high = loss_bounds(*hits(rng, epsilon, 2_000), ALPHA)
        assert low <= epsilon <= high


def test_bounds_are_wrong_as_often_as_they_say_and_not_much_less() -> None:
    """At alpha 0.2 some 10 to 20 % of the intervals miss; none would if they were far too wide."""
    rng = np.random.default_rng(2)
    bounds = [loss_bounds(*hits(rng, 1.0, 5_000), 0.2) for _ in range(RUNS)]
    missed = sum(not low <= 1.0 <= high for low, high in bounds)
    # Binomial(400, at most 0.2): above 124 with probability 1e-7; of 0.15, below 20 with probability 1e-10.
    assert 20 <= missed <= 124


def test_sets_that_were_never_hit_bound_nothing() -> None:
    with pytest.raises(ValueError, match="count at least one run"):
        loss_bounds(0, 0, ALPHA)
    assert loss_bounds(5, 0, ALPHA).high == math.inf
    assert loss_bounds(0, 5, ALPHA).low == -math.inf


@pytest.mark.parametrize("mu", [0.25, 1.0, 2.5])
def test_bounds_hold_the_distance_of_normal_laws(mu: float) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        ours, theirs = rng.normal(mu, 1, 20_000), rng.normal(0, 1, 20_000)
        low, high = mu_bounds(int((ours > mu / 2).sum()), 20_000, int((theirs > mu / 2).sum()), 20_000, ALPHA)
        assert low <= mu <= high
        assert high - low < 0.4


@pytest.mark.parametrize(
    ("true", "verdict"), [(1.0, "kept"), (1.05, "exceeded"), (1.2, "exceeded"), (0.8, "kept")]
)
def test_sequential_verdicts(true: float, verdict: str) -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        test = Sequential(1.0, slack=1.05, alpha=1e-9)
        while test.take(*hits(rng, true, 10_000)) is None:
            assert test.runs < 3_000_000
        assert test.take(0, 0) == verdict


def test_first_verdict_stays() -> None:
    test = Sequential(1.0)
    assert test.take(731_060, 268_940) == "kept"
    assert test.take(10**9, 0) == "kept"


def test_watching_longer_does_not_raise_the_rate_of_false_alarms() -> None:
    """Whoever looks after every run, and stops when it suits, is still wrong with at most alpha."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(RUNS):
        test = Sequential(1.0, slack=1.2, alpha=0.1)
        while (verdict := test.take(*hits(rng, 1.0, 10))) is None:
            pass
        wrong += verdict == "exceeded"
    assert wrong <= 75  # binomial(400, 0.1): more with probability 4e-8
