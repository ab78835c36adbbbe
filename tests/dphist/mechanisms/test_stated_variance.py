"""Stated variances against many seeded releases, for every mechanism that states one.

The noise of an answer has a kurtosis of at most 6, so that a squared error over its variance has mean 1 and
variance at most 5. Bounds are 7 standard errors: with the heaviest tail, one false alarm in 10^8 questions.
A variance that is 2.5 times too small is noticed; where equal counts show a smaller flaw, what a mechanism
does with its noise has to tell (``NO_VARIANCE`` in ``test_contract.py``).
"""

from typing import Any

import numpy as np
import pytest

from dphist.mechanisms import describe, names, release
from dphist.mechanisms.dawa.expand import bucket_counts, uniform_expansion
from dphist.noise import SeededNoise

EPSILON = 0.5
RUNS, FEW_RUNS = 120, 40
BOUND = 7 * np.sqrt(5)  # divided by the root of the number of runs
SLOW_TO_PLAN = {"hat_tree", "dawa_hilbert"}  # seconds for a release
LINE = np.array([[0, 1], [5, 6], [0, 5], [7, 31], [0, 48]])
PLANE = np.array([[0, 1, 0, 1], [3, 4, 5, 6], [0, 4, 0, 4], [2, 21, 1, 22], [0, 40, 0, 40]])
OPTIONS = [("dawa", {"merge": True}), ("adaptive_grid", {"constant": 1.0}), ("p_hp", {"depth": 2})]
ALL = [*((name, {}) for name in names() if name not in SLOW_TO_PLAN), *OPTIONS]


def constant(name: str, level: int) -> np.ndarray:
    return np.full((48,) if describe(name).dimensions == 1 else (40, 40), level)


def with_steps(name: str) -> np.ndarray:
    counts = constant(name, 0)
    counts.flat[::7] = 60
    counts.flat[: counts.size // 3] += 25
    return counts


def squared_errors(name: str, options: dict[str, Any], counts: np.ndarray, runs: int) -> np.ndarray | None:
    """Return squared errors over stated variances, (runs, questions); None where no variance is stated.

    Where bins of a bucket are taken to be alike, that is no noise: the truth is then that of the buckets.
    """
    questions = LINE if counts.ndim == 1 else PLANE
    found = []
    for seed in range(runs):
        made = release(name, counts, EPSILON, noise=SeededNoise(10_000 + seed), **options)
        stated = made.variance(questions)
        if stated is None:
            return None
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
    """Return by how much means of known squared errors are not 1, in units of what is alarming."""
    known = ~np.isnan(squared).any(axis=0)
    return np.asarray(np.abs(squared[:, known].mean(axis=0) - 1) * np.sqrt(len(squared)) / BOUND)


@pytest.mark.parametrize(("name", "options"), ALL)
def test_stated_variances_of_equal_counts_are_those_of_many_releases(name, options):
    """With equal counts nothing but noise can be wrong, and noise alone chooses what follows the data."""
    level = 5 if name == "adaptive_grid" else 0  # where a coarse block is cut or not by its noise
    squared = squared_errors(name, options, constant(name, level), RUNS)
    assert squared is None or (off_by(squared) < 1).all()


@pytest.mark.parametrize(("name", "options"), [(n, o) for n, o in ALL if describe(n).dimensions == 1])
def test_stated_variances_of_uneven_counts_are_those_of_many_releases(name, options):
    if name in ("sorted", "structure_first"):  # errors of ranks; buckets that are not published
        return
    squared = squared_errors(name, options, with_steps(name), FEW_RUNS)
    assert squared is None or (off_by(squared) < 1).all()


def test_half_of_a_variance_would_be_noticed():
    squared = squared_errors("identity", {}, constant("identity", 5), 1_000)
    assert squared is not None
    assert (off_by(2 * squared) > 1).all()


@pytest.mark.parametrize("merge", [False, True])
def test_dawa_states_a_variance_where_other_noise_chose_the_buckets(merge):
    made = release("dawa", np.arange(13), 1, noise=SeededNoise(1), merge=merge)
    assert (made.variance([[0, 4]]) is None) == merge
