"""Rules on totals and means, compared with a recount and with the stated intervals."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from pathlib import Path

import pytest

from dphist.tree.design import Release
from stream_app.core.alerts.forecast import forecast
from stream_app.core.alerts.readings import Reading, readings
from stream_app.core.alerts.rules import Rule, RuleError, parse_condition
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import mean_over, sum_of
from stream_app.core.kinds.tables import Span
from tests.stream_app.declared import BIN_US, FIRST_BIN, STREAM
from tests.stream_app.product_stream import view_of
from tests.stream_app.summed_stream import BINS, RELEASES, recounted, released, some_sales, sums_strategy

LAST = f"{4 * BIN_US // 1_000_000}s"  # the last four bins
SPAN = Span(FIRST_BIN + BINS - 4, FIRST_BIN + BINS)


def reading(text: str, view: StreamView, confidence: float = 0.95) -> Reading:
    [found] = readings([Rule("one", text, parse_condition(text), confidence)], view)
    assert found is not None
    return found


@pytest.mark.parametrize("release", RELEASES)
async def test_without_noise_rules_compare_the_recount(tmp_path: Path, release: Release) -> None:
    sales = some_sales(3)
    view = await view_of_sales(tmp_path, release)
    counts, cents = recounted(sales)
    for key, columns in (("", [0, 1, 2]), ("['FR']", [0]), ("['FR', 'other']", [0, 2])):
        total = float(cents[-4:, columns].sum()) / 100
        mean = total / int(counts[-4:, columns].sum())
        for measure, truth in (("total", total), ("mean", mean)):
            for sign, shift in ((">", -0.02), ("<", 0.02)):
                text = f"{measure}({STREAM}{key}, {LAST}) {sign} {truth + shift:.6f}"
                found = reading(text, view)
                assert found.beyond > 0, text
                assert found.show()[0] == pytest.approx(truth, abs=1e-6)
                assert reading(text.replace(sign, "<" if sign == ">" else ">"), view).beyond < 0


async def view_of_sales(directory: Path, release: Release, epsilon: Fraction | None = None) -> StreamView:
    """Return what readers see of the sales."""
    strategy = sums_strategy(release) if epsilon is None else sums_strategy(release, epsilon)
    return await view_of((await asyncio.to_thread(released, directory, strategy, some_sales(3))).store)


@pytest.mark.parametrize("release", RELEASES)
async def test_a_mean_is_past_what_its_interval_leaves_out(tmp_path: Path, release: Release) -> None:
    """A rule at confidence c decides by the same law as the interval at 2 c - 1."""
    view = await view_of_sales(tmp_path, release, Fraction(4))
    mean = mean_over(view, SPAN, None, 0.9)
    assert mean.value is not None
    for threshold, sign, past in (
        (mean.lower - 0.5, ">", True),
        (mean.lower + 0.5, ">", False),
        (mean.upper - 0.5, "<", False),
        (mean.upper + 0.5, "<", True),
    ):
        text = f"mean({STREAM}, {LAST}) {sign} {threshold:.6f}"
        found = reading(text, view)
        assert found.past(Rule("one", text, parse_condition(text))) == past, text


@pytest.mark.parametrize("release", RELEASES)
async def test_the_forecast_of_a_total_has_the_error_of_its_answer(tmp_path: Path, release: Release) -> None:
    strategy = sums_strategy(release, Fraction(1))
    text = f"total({STREAM}['FR'], {4 * BIN_US // 1_000_000}s) > 10"
    one = Rule("one", text, parse_condition(text))
    found = forecast(one, strategy, BIN_US)
    view = await view_of_sales(tmp_path, release, Fraction(1))
    stated = [sum_of(view, Span(FIRST_BIN + a, FIRST_BIN + a + 4), "FR").stderr for a in range(3)]
    assert min(stated) * 0.7 <= found.stderr <= max(stated) * 1.5


@pytest.mark.parametrize("sign", [">=", "<="])
def test_a_mean_is_compared_strictly(sign: str) -> None:
    with pytest.raises(RuleError, match="mean is compared strictly"):
        parse_condition(f"mean(sales, 1h) {sign} 3")
