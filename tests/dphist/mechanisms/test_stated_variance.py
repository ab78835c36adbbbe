"""Stated variances against many seeded releases, for every mechanism that states a variance.

The noise of an answer has a kurtosis of at most 6, so a squared error divided by its variance has mean 1 and
variance at most 5. Bounds are 7 standard errors: with the heaviest tail, one false alarm in 10^8 questions.
The test notices a variance that is 2.5 times too small. A mechanism whose noise also chooses what is averaged
must state no variance (``NO_VARIANCE`` in ``test_contract.py``): its flaw could be smaller than that.
"""

from typing import Any

import numpy as np
import pytest

from dphist.mechanisms import describe, names, release
from dphist.mechanisms.ranges import bucket_counts, uniform_expansion
from dphist.noise import SeededNoise
from tests.dphist.mechanisms.test_contract import NO_VARIANCE

pytestmark = pytest.mark.slow

EPSILON = 0.5
RUNS, FEW_RUNS = 120, 40
BOUND = 7 * np.sqrt(5)  # divided by the root of the number of runs
SLOW_TO_PLAN = {"hat_tree", "dawa_hilbert"}  # seconds for a release
LINE = np.array([[0, 1], [5, 6], [0, 5], [7, 31], [0, 48]])
PLANE = np.array([[0, 1, 0, 1], [3, 4, 5, 6], [0, 4, 0, 4], [2, 21, 1, 22], [0, 40, 0, 40]])
OPTIONS = [("p_hp", {"depth": 2})]
STATING = [*((name, {}) for name in names() if name not in NO_VARIANCE | SLOW_TO_PLAN), *OPTIONS]
NOT_OF_COUNTS = {"sorted", "structure_first"}  # errors of ranks; buckets that are not published


def constant(name: str, level: int) -> np.ndarray:
    return np.full((48,) if describe(name).dimensions == 1 else (40, 40), level)


def with_steps(name: str) -> np.ndarray:
    counts = constant(name, 0)
    counts.flat[::7] = 60
    counts.flat[: counts.size // 3] += 25
    return counts


def squared_errors(name: str, options: dict[str, Any], counts: np.ndarray, runs: int) -> np.ndarray:
    """Return each squared error divided by the stated variance, shape (runs, questions).

    Some mechanisms spread a bucket's count evenly over its bins. The error of spreading is not noise, so the
    true counts are then the buckets' true counts, spread in the same way.
    """
    questions = LINE if counts.ndim == 1 else PLANE
    found = []
    for seed in range(runs):
        made = release(name, counts, EPSILON, noise=SeededNoise(10_000 + seed), **options)
        stated = made.variance(questions)
        assert stated is not None
        truth = counts
        if "edges" in made.published and not name.startswith("cdf"):
            edges = made.published["edges"]
            truth = uniform_expansion(bucket_counts(counts, edges).astype(np.float64), edges)
        found.append((made.answer(questions) - exact_answers(truth, questions)) ** 2 / stated)
    return np.array(found)


def exact_answers(counts: np.ndarray, questions: np.ndarray) -> np.ndarray:
    if counts.ndim == 1:
        return np.array([counts[a:b].sum() for a, b in questions])
    return np.array([counts[a:b, c:d].sum() for a, b, c, d in questions])


def off_by(squared: np.ndarray) -> np.ndarray:
    """Return how far each mean of squared errors is from 1, in multiples of the bound.

    Answers whose variance is not stated are left out.
    """
    known = ~np.isnan(squared).any(axis=0)
    return np.asarray(np.abs(squared[:, known].mean(axis=0) - 1) * np.sqrt(len(squared)) / BOUND)


@pytest.mark.parametrize(("name", "options"), STATING)
def test_stated_variances_match_many_releases_of_equal_counts(name, options):
    """If all counts are equal, all errors come from noise, and all choices depend on noise only."""
    squared = squared_errors(name, options, constant(name, 0), RUNS)
    assert (off_by(squared) < 1).all()


@pytest.mark.parametrize(
    ("name", "options"),
    [(n, o) for n, o in STATING if describe(n).dimensions == 1 and n not in NOT_OF_COUNTS],
)
def test_stated_variances_match_many_releases_of_uneven_counts(name, options):
    squared = squared_errors(name, options, with_steps(name), FEW_RUNS)
    assert (off_by(squared) < 1).all()


def test_half_of_a_variance_would_be_noticed():
    squared = squared_errors("identity", {}, constant("identity", 5), 1_000)
    assert (off_by(2 * squared) > 1).all()


@pytest.mark.parametrize("merge", [False, True])
def test_dawa_states_a_variance_only_if_other_noise_chose_the_buckets(merge):
    made = release("dawa", np.arange(13), 1, noise=SeededNoise(1), merge=merge)
    assert (made.variance([[0, 4]]) is None) == merge
