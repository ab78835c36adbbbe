"""A forecast agrees with the exact law of the noise, and with delays computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dphist import SeededNoise, plan_tree
from stream_app.core.alerts.forecast import forecast, held, tried
from stream_app.core.alerts.rules import Rule, parse_condition

HOUR_US = 3_600_000_000


def rule(text: str, **options: Any) -> Rule:
    return Rule("busy", text, parse_condition(text), **options)


def test_the_false_alarm_rate_is_what_the_confidence_allows() -> None:
    design = plan_tree(128, 1.0)
    for confidence in (0.8, 0.95):
        expected = forecast(
            rule("sum(clicks, 4h) > 9", confidence=confidence), design, HOUR_US, SeededNoise(3)
        )
        assert expected.bins * expected.paths > 50_000
        # Standard error of the rate below 0.3 points: neighbouring releases share at most a few nodes.
        assert expected.false_alarm_rate == pytest.approx(1 - confidence, abs=0.02)
        assert expected.false_alarm_rate < (1 - confidence) * 1.2
        assert expected.false_firings <= expected.false_alarm_rate


def test_a_large_shift_is_noticed_as_soon_as_the_window_allows() -> None:
    design = plan_tree(128, 1.0)
    huge = forecast(rule("sum(clicks, 4h) > 9"), design, HOUR_US, SeededNoise(3), shift_stderrs=1e6)
    assert huge.delay_bins == (1, 1)
    waiting = forecast(
        rule("sum(clicks, 4h) > 9", for_us=3 * HOUR_US), design, HOUR_US, SeededNoise(3), shift_stderrs=1e6
    )
    assert waiting.delay_bins == (4, 4)
    three = forecast(rule("sum(clicks, 4h) > 9", confidence=0.99), design, HOUR_US, SeededNoise(3))
    assert 2 <= three.delay_bins[0] <= three.delay_bins[1] < 40
    assert three.detected > 0.95


def test_window_longer_than_an_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than an epoch"):
        forecast(rule("sum(clicks, 99h) > 9"), plan_tree(16, 1.0), HOUR_US, SeededNoise(3))


def test_delays_equal_those_computed_by_hand() -> None:
    past = np.array([[1], [1], [0], [1], [1], [1]], bool)
    assert held(past, 2)[:, 0].tolist() == [False, True, False, False, True, True]
    # Window 4, shift 8: the truth is 2, 4, 6, 8, 8, ... past; the margin 5 is crossed at the third release.
    one = rule("sum(clicks, 4h) > 9")
    for margin, delay in ((5.0, 3.0), (9.0, np.inf)):

        def is_past(release: int, part: float, margin: float = margin) -> NDArray[np.bool_]:
            return np.array([8.0 * part > margin])

        margins = np.full(40, margin)
        found = tried(one, HOUR_US, is_past, 8, stderr=margins, margin=margins, shift=8.0)
        assert found.delay_bins == (delay, delay)
        assert found.detected == np.isfinite(delay)
