"""Ranges over several epochs, with times between them that nobody measured.

Answers add up the measured bins, with the exact law of the sum, and name the rest. The oracles recount the
bins of each epoch alone, from a view that holds that epoch only.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dphist.laws.interval import half_width
from dphist.laws.law import WeightedNoise
from dphist.product.sums import Mean
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.readings import readings
from stream_app.core.alerts.rules import Rule
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import mean_over, sum_of
from stream_app.core.kinds.tables import Span
from tests.models.memory import MemoryStore
from tests.stream_app.api.client import EXACT, Api, api_at
from tests.stream_app.published import FIRST_BIN
from tests.stream_app.published_axes import PublishedSums, sales_of

EPOCHS = ((0, 5), (7, 4), (14, 6))  # first bin and number of bins; all but the last end early
MEASURED = [hour for first, bins in EPOCHS for hour in range(first, first + bins)]
LAST = 20
GAPS = [(5, 7), (11, 14)]


def at(hour: int) -> str:
    return f"2013-01-01T{hour:02}:00:00Z"


async def sold(
    epsilon: str, store: MemoryStore | None = None, **options: Any
) -> tuple[PublishedSums, np.ndarray, np.ndarray]:
    """Return a stream with three epochs, and the sales and cents of each hour; gaps have sales, too."""
    stream = PublishedSums(store or MemoryStore(), epsilon=epsilon, epoch_bins=8, **options)
    cells, cents = sales_of(stream, LAST, busiest=60)
    cells[:, 0, 1] += stream.amounts.range.weight  # one more sale of the largest amount, so no hour is empty
    cents[:, 0] += stream.amounts.range.weight
    for epoch, (first, bins) in enumerate(EPOCHS):
        await stream.open(epoch, FIRST_BIN + first)
        await stream.close_cells(cells[first : first + bins])
        if first + bins < LAST:
            state = await stream.store.load(stream.name)
            assert state is not None
            await stream.store.end_epoch(stream.name, epoch, state.seq, "ended early by the test")
    return stream, cells.sum(axis=(1, 2)) // stream.amounts.range.weight, cents.sum(axis=1)


def view_of(api: Api) -> StreamView:
    assert api.replica.view is not None
    return api.replica.view


def ranges() -> list[tuple[int, int]]:
    """Return all ranges between edges of epochs, and between hours within epochs and gaps."""
    return list(combinations((0, 2, 5, 6, 7, 9, 11, 12, 14, 17, LAST), 2))


def measured_in(start: int, end: int) -> list[int]:
    return [hour for hour in MEASURED if start <= hour < end]


async def test_every_range_is_the_recount_of_its_measured_hours() -> None:
    stream, sales, cents = await sold(EXACT)
    async with api_at(stream) as api:
        for start, end in ranges()[::2]:
            hours, asked = measured_in(start, end), {"start": at(start), "end": at(end)}
            if not hours:
                continue
            truth = {"count": int(sales[hours].sum()), "sum": int(cents[hours].sum()) / 100}
            truth["mean"] = truth["sum"] / truth["count"]
            missing = [(max(a, start), min(b, end)) for a, b in GAPS if a < end and start < b]
            for path, value in truth.items():
                found = await api.json(path, **asked)
                assert found["value"] == pytest.approx(value, abs=1e-9), (path, start, end)
                assert found["interval"] == pytest.approx([value, value], abs=1e-9)
                assert found["unmeasured"] == [{"start": at(a), "end": at(b)} for a, b in missing]


async def test_errors_of_a_range_are_the_sum_of_the_errors_within_each_epoch() -> None:
    stream, _, _ = await sold("1")
    async with api_at(stream) as api:
        view = view_of(api)
        for start, end in ranges():
            parts = [
                Span(FIRST_BIN + max(start, first), FIRST_BIN + min(end, first + bins))
                for first, bins in EPOCHS
                if max(start, first) < min(end, first + bins)
            ]
            if not parts:
                continue
            whole = Span(FIRST_BIN + start, FIRST_BIN + end)
            for of in (sum_of, lambda view, span: view.count(span)):
                alone = [of(view, part) for part in parts]
                law = WeightedNoise.joined([one.law for one in alone], 1)
                found = of(view, whole)
                assert found.value == pytest.approx(sum(one.value for one in alone), rel=1e-9)
                assert found.variance == pytest.approx(sum(one.variance for one in alone), rel=1e-9)
                reach = found.interval(0.95).upper - found.value
                assert reach == pytest.approx(half_width(law, 0.95).value + found.rounding, rel=1e-6)


async def refused(api: Api, path: str, start: int, end: int, **query: Any) -> dict[str, Any]:
    status, answer = await api.error(path, start=at(start), end=at(end), **query)
    assert status == 400
    return answer


async def test_range_without_a_measured_hour_is_refused_with_the_edges_of_the_gap() -> None:
    stream, _, _ = await sold("1")
    async with api_at(stream) as api:
        for path in ("count", "sum", "mean"):
            for start, end in ((5, 7), (5, 6), (6, 7), (11, 14), (12, 13)):
                gap = next(gap for gap in GAPS if gap[0] <= start < gap[1])
                answer = await refused(api, path, start, end)
                assert f"no epoch measured the bins from {at(gap[0])} to {at(gap[1])}" in answer["error"]
                assert answer["nearest"] == [at(edge) for edge in gap]


async def test_summary_and_overview_name_every_gap() -> None:
    stream, _, _ = await sold("1")
    async with api_at(stream) as api:
        gaps = [{"start": at(a), "end": at(b)} for a, b in GAPS]
        assert (await api.json(""))["unmeasured"] == gaps
        assert (await api.json("/v1/overview"))["streams"][0]["unmeasured"] == gaps
        assert (await api.json("mean/keys"))["unmeasured"] == gaps
        assert "Slices that no epoch measured whole" in (await api.json("keys", step=1))["note"]
        assert "5 points are left out" in (await api.json("mean/series", kind="bin"))["note"]


async def test_alert_rule_reads_no_gap_as_a_quiet_time() -> None:
    """A sum over a window with a gap is too small, so it decides nothing; windows after it do."""

    def rule(hours: int) -> Rule:
        text = f"sum(sales, {hours}h) < 1000000"
        return Rule(f"quiet-{hours}", text, parse_condition(text))

    stream, _, _ = await sold("1")
    async with api_at(stream) as api:
        found = readings([rule(6), rule(7), rule(18)], view_of(api))
        assert [one is not None for one in found] == [True, False, False]


async def test_mean_of_a_range_over_epochs_divides_both_totals() -> None:
    stream, _, _ = await sold("1")
    async with api_at(stream) as api:
        view, span = view_of(api), Span(FIRST_BIN + 2, FIRST_BIN + 17)
        found: Mean = mean_over(view, span)
        quotient = sum_of(view, span).value / view.count(span).value
        assert found.value == pytest.approx(quotient, rel=1e-9)
        assert found.lower < quotient < found.upper
