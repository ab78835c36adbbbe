"""Rules over keys, quantiles, shares, distances, totals and means, compared with a recount."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_app.core.alerts.conditions import RuleError, parse_condition
from stream_app.core.alerts.forecast import forecast
from stream_app.core.alerts.ranges import edge_of
from stream_app.core.alerts.readings import Reading, readings
from stream_app.core.alerts.rules import Rule
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import mean_over, sum_of
from stream_app.core.counting.cells import Buckets
from stream_app.core.kinds.tables import Span
from tests.stream_app.declared import BIN_US, FIRST_BIN, STREAM
from tests.world.counted import counted as counted_visits
from tests.world.counted import table_of
from tests.world.features import BUCKETS, FEATURES, HIGH, LOW, Recount, total_of

pytestmark = pytest.mark.slow

BINS = 8  # an epoch and a third
EDGES = np.linspace(float(LOW), float(HIGH), BUCKETS + 1)
TABLE = NDArray[np.int64]
FORMS = [
    ("keys-and-values", "causal"),
    ("keys-and-values-and-total", "causal"),
    ("keys-and-values-and-total", "anticipating"),
]

SALES, SOLD_BINS = FEATURES["sums-by-key"], 9
LAST = f"{4 * BIN_US // 1_000_000}s"  # the last four bins
SPAN = Span(FIRST_BIN + SOLD_BINS - 4, FIRST_BIN + SOLD_BINS)
RELEASES = pytest.mark.parametrize("release", ["causal", "anticipating"])


@pytest.fixture(scope="module", params=FORMS, ids=" ".join)
def counted(request: pytest.FixtureRequest) -> tuple[StreamView, TABLE]:
    """Return what readers see of a stream without noise, and its exact table (bins, keys, buckets)."""
    name, release = request.param
    with counted_visits(FEATURES[name], release, BINS, seed=9) as (world, recount):
        return world.view(), table_of(recount, FEATURES[name], BINS)


def rule(text: str, **options: Any) -> Rule:
    return Rule("one", text, parse_condition(text), **options)


def reading(text: str, view: StreamView, **options: object) -> Reading:
    [found] = readings([rule(text, **options)], view)
    assert found is not None, text
    return found


def bins(count: int) -> str:
    return f"{count * BIN_US // 1_000_000}s"


def test_keys_are_counted_apart_and_together(counted: tuple[StreamView, TABLE]) -> None:
    view, table = counted
    for keys, rows in (
        ("['DE']", [1]),
        ("['other', \"FR\"]", [0, 2]),
        ("['other']", [2]),
        ("", [0, 1, 2]),
        ("[not 'FR']", [1, 2]),
        ("[not 'other', 'DE']", [0]),
    ):
        for window in (1, 3, BINS):
            truth = table[BINS - window :, rows].sum()
            found = reading(f"sum({STREAM}{keys}, {bins(window)}) > {truth - 2}", view)
            assert found.beyond == pytest.approx(2, abs=0.01)
            assert found.past(rule(f"sum({STREAM}, 1s) > 0"))
            assert found.show()[0] == pytest.approx(truth, abs=0.01)
        assert reading(f"count({STREAM}{keys}) < 0", view).show()[0] == pytest.approx(
            table[:, rows].sum(), abs=0.01
        )


@pytest.mark.parametrize(
    ("keys", "rows"),
    [("", [0, 1, 2]), ("['FR']", [0]), ("['DE', 'other']", [1, 2]), ("[not 'FR', 'other']", [1])],
)
def test_rule_on_a_quantile_is_past_exactly_when_the_true_quantile_is(
    counted: tuple[StreamView, TABLE], keys: str, rows: list[int]
) -> None:
    view, table = counted
    for window in (2, 5):
        below = table[BINS - window :, rows].sum(axis=(0, 1)).cumsum()
        for level in (0.1237, 0.5003, 0.9491):
            bucket = int(np.argmax(below >= level * below[-1]))
            for edge in range(1, BUCKETS):
                for comparison in "><":
                    text = f"quantile({STREAM}{keys}, {level}, {bins(window)}) {comparison} {EDGES[edge]}"
                    found = reading(text, view)
                    assert found.past(rule(text)) is ((bucket >= edge) == (comparison == ">")), text
            shown = found.show()[0]
            assert shown is not None
            assert EDGES[bucket] <= shown <= EDGES[bucket + 1]


def test_share_below_a_point_is_compared_with_the_threshold(counted: tuple[StreamView, TABLE]) -> None:
    view, table = counted
    for edge in (1, 5, BUCKETS - 1):
        counts = table[BINS - 3 :, 0].sum(axis=0)
        share = counts[:edge].sum() / counts.sum()
        text = f"cdf({STREAM}['FR'], {EDGES[edge]}, {bins(3)})"
        for threshold, comparison in ((share - 0.001, ">"), (share + 0.001, "<")):
            held = f"{text} {comparison} {threshold:.6f}"
            assert reading(held, view).past(rule(held))
            plan = held.replace(comparison, "<" if comparison == ">" else ">")
            assert not reading(plan, view).past(rule(plan))
        assert reading(f"{text} > 0.5", view).show()[0] == pytest.approx(share)


def test_distance_between_distributions_is_compared_with_the_threshold(
    counted: tuple[StreamView, TABLE],
) -> None:
    view, table = counted
    shares = table.sum(axis=1).cumsum(axis=1)

    def distance(now: slice, then: slice) -> float:
        one, two = (shares[part].sum(axis=0) for part in (now, then))
        return float(np.abs(one / one[-1] - two / two[-1]).max())

    instants = [view.binning.start_us(FIRST_BIN + bin) / 1e6 for bin in (1, 4)]
    fixed = "/".join(f"{at:.0f}" for at in instants)
    for reference, then in (
        (bins(4), slice(BINS - 6, BINS - 2)),
        (f"{bins(2)} ago {bins(5)}", slice(BINS - 7, BINS - 5)),
        (f"'{fixed}'", slice(1, 4)),
    ):
        truth = distance(slice(BINS - 2, BINS), then)
        for threshold, comparison in ((truth - 0.01, ">"), (truth + 0.01, "<")):
            text = f"ks({STREAM}, {bins(2)}, {reference}) {comparison} {threshold:.5f}"
            found = reading(text, view)
            assert found.beyond == pytest.approx(0.01, abs=1e-4)
            assert found.past(rule(text))
            shown, rest = found.show()
            assert shown == pytest.approx(truth, abs=1e-3)
            assert rest is None


def test_rule_over_unreleased_bins_has_no_reading(counted: tuple[StreamView, TABLE]) -> None:
    view, _ = counted
    for text in (
        f"sum({STREAM}['FR'], {bins(BINS + 1)}) > 0",
        f"quantile({STREAM}, 0.5, {bins(BINS + 1)}) > 0",
        f"ks({STREAM}, {bins(2)}, {bins(BINS)}) > 0.1",
        f"ks({STREAM}, {bins(2)}, {bins(2)} ago {bins(BINS)}) > 0.1",
        f"sum({STREAM}['LH'], {bins(1)}) > 0",
    ):
        assert readings([rule(text)], view) == [None]


def test_alert_clears_at_its_clear_value(counted: tuple[StreamView, TABLE]) -> None:
    view, table = counted
    below = table[BINS - 3 :].sum(axis=(0, 1)).cumsum()
    bucket = int(np.argmax(below >= 0.6003 * below[-1]))
    text = f"quantile({STREAM}, 0.6003, {bins(3)}) > {EDGES[bucket + 1]}"
    assert reading(text, view, clear=float(EDGES[bucket + 1])).cleared
    assert not reading(text, view, clear=float(EDGES[bucket])).cleared


def test_refusal_of_a_point_between_edges_names_the_nearest_edges() -> None:
    buckets = Buckets("v", Fraction(0), Fraction(60), 120)
    assert [edge_of(buckets, point) for point in (0.5, 30, 59.5)] == [1, 60, 119]
    for point, near in ((30.2, "30 and 30.5"), (0, "0.5 and 1"), (60, "59 and 59.5"), (-9, "0.5 and 1")):
        with pytest.raises(ValueError, match=f"the nearest are {near}"):
            edge_of(buckets, point)


@cache
def sold(release: str, epsilon: str = "1e9") -> tuple[StreamView, Recount]:
    """Return what readers see of sales by country, and the recount."""
    with counted_visits(SALES, release, SOLD_BINS, epsilon=epsilon) as (world, recount):
        return world.view(), recount


@RELEASES
def test_without_noise_rules_compare_the_recount(release: str) -> None:
    view, recount = sold(release)
    for key, names in (("", SALES.keys), ("['FR']", ["FR"]), ("['FR', 'other']", ["FR", "other"])):
        own = [one for name in names for one in recount.within(SOLD_BINS - 4, SOLD_BINS, name)]
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
