"""A forecast agrees with the exact law of the noise, and the noise with the forecast."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dphist import SeededNoise, plan_tree
from dphist.tree.anticipating import new_counter
from dphist.tree.design import Release
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.forecast import Forecast, forecast
from stream_app.core.alerts.readings import margins
from stream_app.core.alerts.rules import Rule
from stream_app.core.kinds import kind_of
from stream_app.core.strategy import Strategy
from tests.stream_app.declared import BIN_US
from tests.stream_app.product_stream import product_strategy
from tests.stream_app.published import HOUR_US, declared

pytestmark = pytest.mark.slow

RUNS = 500


def rule(text: str, **options: Any) -> Rule:
    return Rule("busy", text, parse_condition(text), **options)


def of_tree(one: Rule, horizon: int, release: Release = "causal") -> Forecast:
    strategy = Strategy("clicks", declared("1"), kind_of(plan_tree(horizon, 1.0, release=release)))
    return forecast(one, strategy, HOUR_US)


@pytest.mark.parametrize("release", ["causal", "anticipating"])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_noise_exceeds_the_margin_as_rarely_as_the_confidence_allows(
    release: Release, confidence: float
) -> None:
    """The standard error of the rate is below 0.3 points: releases close together share few nodes."""
    drawn = new_counter(plan_tree(128, 1.0, release=release), SeededNoise(3), RUNS)
    wrong, medians = [], []
    for bin in range(128):
        drawn.push(np.zeros(RUNS, np.int64))
        if bin >= 3:
            found = drawn.range(bin - 3, bin + 1)
            [margin] = margins([found], confidence)
            wrong.append(np.asarray(found.value) > margin)
            medians.append(margin)
    assert np.mean(wrong) == pytest.approx(1 - confidence, abs=0.02)
    expected = of_tree(rule("sum(clicks, 4h) > 9", confidence=confidence), 128, release)
    assert expected.margin == pytest.approx(np.median(medians), rel=1e-9)


def test_change_that_is_seen_moves_the_estimate_past_its_margin() -> None:
    sure, half = (of_tree(rule("sum(clicks, 4h) > 9", confidence=c), 128) for c in (0.99, 0.95))
    assert half.seen == pytest.approx(2 * half.margin, rel=1e-9)
    assert half.margin < sure.margin < sure.seen
    assert sure.seen < sure.margin + 2 * half.margin


def test_running_count_is_forecast_over_all_releases_of_an_epoch() -> None:
    running, window = (of_tree(rule(text), 128) for text in ("count(clicks) > 9", "sum(clicks, 128h) > 9"))
    assert 0 < running.stderr < window.stderr * 1.5


@pytest.mark.parametrize("release", ["causal", "anticipating"])
def test_the_forecast_against_the_past_has_the_exact_law_of_a_difference(release: Release) -> None:
    """Far apart both errors add up; a past right before the window shares nodes with it."""
    alone, near, far = (
        of_tree(rule(f"sum(clicks, 4h) {than}"), 128, release)
        for than in ("> 9", "> sum(clicks, 4h, 4h ago)", "> sum(clicks, 4h, 256h ago)")
    )
    assert far.stderr == pytest.approx(2**0.5 * alone.stderr, rel=0.1)
    drawn = new_counter(plan_tree(128, 1.0, release=release), SeededNoise(4), RUNS)
    squares = []
    for bin in range(128):
        drawn.push(np.zeros(RUNS, np.int64))
        if bin >= 7:
            now, then = (np.asarray(drawn.range(a, a + 4).value) for a in (bin - 3, bin - 7))
            squares.append(((now - then) ** 2).mean())
    assert near.stderr == pytest.approx(np.median(np.sqrt(squares)), rel=0.05)


def test_window_longer_than_an_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than an epoch"):
        of_tree(rule("sum(clicks, 99h) > 9"), 16)


@pytest.mark.parametrize("release", ["causal", "anticipating"])
def test_forecast_of_a_distance_depends_on_the_number_of_events(release: Release) -> None:
    strategy = product_strategy(Fraction(1), horizon=32, release=release)
    length, longer = (f"{count * BIN_US // 1_000_000}s" for count in (4, 8))
    one = rule(f"ks(s, {length}, {longer}) > 0.2", confidence=0.9)
    few, many = (forecast(one, strategy, BIN_US, events) for events in (1e3, 1e6))
    assert few.margin == pytest.approx(1e3 * many.margin)
    assert few.stderr < few.margin < few.seen
    with pytest.raises(ValueError, match="add --events NUMBER"):
        forecast(one, strategy, BIN_US)
    far = f"{30 * BIN_US // 1_000_000}s"
    with pytest.raises(ValueError, match="longer than an epoch"):
        forecast(rule(f"ks(s, {length}, {far}) > 0.2"), strategy, BIN_US, 9)
