"""Rules on totals and means, compared with a recount and with the stated intervals."""

from __future__ import annotations

from functools import cache

import pytest

from stream_app.core.alerts.conditions import RuleError, parse_condition
from stream_app.core.alerts.forecast import forecast
from stream_app.core.alerts.readings import Reading, readings
from stream_app.core.alerts.rules import Rule
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import mean_over, sum_of
from stream_app.core.kinds.tables import Span
from tests.stream_app.declared import BIN_US, FIRST_BIN, STREAM
from tests.world.counted import counted
from tests.world.features import FEATURES, Recount, total_of

SALES, BINS = FEATURES["sums-by-key"], 9
LAST = f"{4 * BIN_US // 1_000_000}s"  # the last four bins
SPAN = Span(FIRST_BIN + BINS - 4, FIRST_BIN + BINS)
RELEASES = pytest.mark.parametrize("release", ["causal", "anticipating"])


@cache
def sold(release: str, epsilon: str = "1e9") -> tuple[StreamView, Recount]:
    """Return what readers see of sales by country, and the recount."""
    with counted(SALES, release, BINS, epsilon=epsilon) as (world, recount):
        return world.view(), recount


def rule(text: str) -> Rule:
    return Rule("one", text, parse_condition(text))


def reading(text: str, view: StreamView) -> Reading:
    [found] = readings([rule(text)], view)
    assert found is not None
    return found


@RELEASES
def test_without_noise_rules_compare_the_recount(release: str) -> None:
    view, recount = sold(release)
    for key, names in (("", SALES.keys), ("['FR']", ["FR"]), ("['FR', 'other']", ["FR", "other"])):
        own = [one for name in names for one in recount.within(BINS - 4, BINS, name)]
        total = float(total_of(own, SALES))
        for measure, truth in (("total", total), ("mean", total / len(own))):
            for sign, shift in ((">", -0.02), ("<", 0.02)):
                text = f"{measure}({STREAM}{key}, {LAST}) {sign} {truth + shift:.6f}"
                found = reading(text, view)
                assert found.beyond > 0, text
                assert found.show()[0] == pytest.approx(truth, abs=1e-6)
                assert reading(text.replace(sign, "<" if sign == ">" else ">"), view).beyond < 0


@RELEASES
def test_a_mean_is_past_what_its_interval_leaves_out(release: str) -> None:
    """A rule at confidence c decides by the same law as the interval at 2 c - 1."""
    view, _ = sold(release, "20")
    mean = mean_over(view, SPAN, None, 0.9)
    assert mean.value is not None
    for threshold, sign, past in (
        (mean.lower - 0.5, ">", True),
        (mean.lower + 0.5, ">", False),
        (mean.upper - 0.5, "<", False),
        (mean.upper + 0.5, "<", True),
    ):
        text = f"mean({STREAM}, {LAST}) {sign} {threshold:.6f}"
        assert reading(text, view).past(rule(text)) == past, text


@RELEASES
def test_the_forecast_of_a_total_has_the_error_of_its_answer(release: str) -> None:
    view, _ = sold(release, "1")
    found = forecast(rule(f"total({STREAM}['FR'], {LAST}) > 10"), view.strategy, BIN_US)
    stated = [sum_of(view, Span(FIRST_BIN + a, FIRST_BIN + a + 4), "FR").stderr for a in range(3)]
    assert min(stated) * 0.7 <= found.stderr <= max(stated) * 1.5


@pytest.mark.parametrize("sign", [">=", "<="])
def test_a_mean_is_compared_strictly(sign: str) -> None:
    with pytest.raises(RuleError, match="mean is compared strictly"):
        parse_condition(f"mean(sales, 1h) {sign} 3")
