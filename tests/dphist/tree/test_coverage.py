"""Intervals cover at their stated level: 20,000 seeded runs for a bin, a short range, a prefix and a year.

A year of hours is too long to draw 20,000 times node by node, so its runs are drawn from the law itself: the
sum of n discrete Laplace variables is the difference of two negative binomial variables. Real counters run
over a shorter epoch. Bounds are 5 standard errors: a false alarm once in two million.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest

from dphist import AnticipatingCounter, SeededNoise, TreeCounter, plan_tree
from dphist.arrays import Int64Array
from dphist.laws.interval import DITHER, half_width
from dphist.laws.law import WeightedNoise, discrete_laplace_variance
from dphist.tree.design import Release, TreeDesign
from dphist.tree.published_laws import published_law
from tests.dphist.tree.dense import causal_law

pytestmark = pytest.mark.slow

RUNS = 20_000
YEAR = 8_760
QUESTIONS = {"bin": (4_000, 4_001), "short range": (4_000, 4_007), "prefix": (0, 5_003), "year": (0, YEAR)}
RELEASES: list[Release] = ["causal", "anticipating"]


@lru_cache(maxsize=8)
def planned(release: Release, horizon: int) -> TreeDesign:
    return plan_tree(horizon, 1, release=release)


def law_of(design: TreeDesign, a: int, b: int) -> WeightedNoise:
    if design.release == "causal":
        return causal_law(design, design.horizon, a, b)
    return published_law(design, a, b)


def drawn(law: WeightedNoise, rng: np.random.Generator) -> np.ndarray:
    errors = np.zeros(RUNS)
    for weight, copies, scale in law.groups:
        success = -math.expm1(-1.0 / scale)
        first, second = (rng.negative_binomial(copies, success, RUNS) for _ in range(2))
        errors += weight * (first - second)
    return errors


def probability_within(law: WeightedNoise, x: float) -> float:
    """Return P(|S| <= x) by the midpoint rule over 2 / pi sin(x t) / t phi(t), smoothed by a tiny normal."""
    deviation = math.sqrt(law.variance)
    t = (np.arange(40_000) + 0.5) * (160.0 / deviation / 40_000)
    log_phi = -0.5 * (t * deviation / 64) ** 2
    for weight, copies, scale in law.groups:
        variance = discrete_laplace_variance(scale)
        log_phi -= copies * np.log1p(2.0 * variance * np.sin(0.5 * weight * t) ** 2)
    return float(2.0 / math.pi * (np.sin(x * t) / t * np.exp(log_phi)).sum() * (t[1] - t[0]))


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("release", RELEASES)
def test_intervals_over_a_year_cover_at_their_stated_level(release: Release, question: str) -> None:
    a, b = QUESTIONS[question]
    law = law_of(planned(release, YEAR), a, b)
    interval = half_width(law, 0.95)
    assert interval.level >= 0.95
    errors = np.abs(drawn(law, np.random.default_rng(len(release) * 100 + len(question))))
    held = float((errors <= interval.value).mean())
    error = 5 * math.sqrt(0.05 * 0.95 / RUNS)
    exact = probability_within(law, interval.value)
    assert abs(held - exact) < error
    assert 0.95 <= interval.level <= exact + 5e-4
    # Intervals that are one step of the search shorter would hold too rarely.
    step = 2.1 * DITHER * math.sqrt(law.variance)
    assert probability_within(law, interval.value - step) < 0.95 + 1e-4


@pytest.mark.parametrize("narrower", [2 / 3, 1.5])
def test_a_narrower_interval_fails_the_coverage_check(narrower: float) -> None:
    law = law_of(planned("anticipating", YEAR), *QUESTIONS["prefix"])
    errors = np.abs(drawn(law, np.random.default_rng(1)))
    held = float((errors <= narrower * half_width(law, 0.95).value).mean())
    assert abs(held - 0.95) > 5 * math.sqrt(0.05 * 0.95 / RUNS)


@pytest.mark.parametrize("release", RELEASES)
def test_intervals_of_real_counters_cover_at_their_stated_level(release: Release) -> None:
    design, horizon = planned(release, 96), 96
    counter: AnticipatingCounter | TreeCounter
    if release == "anticipating":
        counter = AnticipatingCounter(design, SeededNoise(5), RUNS)
    else:
        counter = TreeCounter(design, SeededNoise(5), RUNS)
    nothing: Int64Array = np.zeros((horizon, RUNS), np.int64)
    counter.push_many(nothing)
    for a, b in ((40, 41), (40, 47), (0, 53), (0, horizon)):
        estimate = counter.range(a, b)
        for confidence in (0.5, 0.95):
            interval = estimate.interval(confidence)
            held = float(((np.asarray(interval.lower) <= 0) & (np.asarray(interval.upper) >= 0)).mean())
            chance = 5 * math.sqrt(confidence * (1 - confidence) / RUNS)
            assert interval.level >= confidence
            assert held > interval.level - chance
            # The certified level may be below the true one by the density within the dither.
            assert held < interval.level + chance + 2 * DITHER
        errors = np.asarray(estimate.value)
        kurtosis = float(np.mean(errors**4) / np.mean(errors**2) ** 2)
        assert np.mean(errors**2) / estimate.variance == pytest.approx(
            1, abs=5 * ((kurtosis - 1) / RUNS) ** 0.5
        )
        assert abs(np.mean(errors)) < 5 * estimate.stderr / math.sqrt(RUNS)
