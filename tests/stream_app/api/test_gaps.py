"""Ranges over several epochs: times between them that nobody measured, empty epochs, changed settings.

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
from dphist.tree.design import Release
from stream_app.api.admission.long_questions import grown, growth
from stream_app.api.answers.counts import nodes
from stream_app.api.answers.preview import preview
from stream_app.api.answers.streams import detail
from stream_app.api.replicas import Replicas
from stream_app.api.schemas import PreviewQuery
from stream_app.api.schemas.questions import NodesQuery
from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.readings import readings
from stream_app.core.alerts.rules import Rule
from stream_app.core.answers.sums import mean_over, sum_of
from stream_app.core.kinds.tables import Span
from tests.models.memory import MemoryStore
from tests.stream_app.api.client import EXACT, Api, api_at, released
from tests.stream_app.published import FIRST_BIN, Published
from tests.stream_app.published_axes import PublishedSums, sales_of

pytestmark = pytest.mark.slow

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
        view = api.view
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
        found = readings([rule(6), rule(7), rule(18)], api.view)
        assert [one is not None for one in found] == [True, False, False]


async def test_mean_of_a_range_over_epochs_divides_both_totals() -> None:
    stream, _, _ = await sold("1")
    async with api_at(stream) as api:
        view, span = api.view, Span(FIRST_BIN + 2, FIRST_BIN + 17)
        found: Mean = mean_over(view, span)
        quotient = sum_of(view, span).value / view.count(span).value
        assert found.value == pytest.approx(quotient, rel=1e-9)
        assert found.lower < quotient < found.upper


RELEASES: tuple[Release, ...] = ("causal", "anticipating")
KINDS = ("running", "bin")
VIEWS: tuple[dict[str, Any], ...] = (
    {},
    {"view": "first_published"},
    {"view": "consistent"},
    {"view": "consistent", "method": "isotonic"},
)
REASON = "its noise was lost"


async def ended_at_once(stream: Published, epoch: int, first_bin: int) -> None:
    """Open an epoch and end it before its first release."""
    await stream.open(epoch, first_bin)
    state = await stream.store.load(stream.name)
    assert state is not None
    await stream.store.end_epoch(stream.name, epoch, state.seq, REASON)


async def everything_answers(api: Api, start: str, counts: list[float]) -> None:
    """Request all releases from every address."""
    for kind in KINDS:
        for view in VIEWS:
            found = await api.json("series", kind=kind, **view)
            assert len(found["value"]) == len(counts), (kind, view)
    assert len((await api.json("series", kind="window", window=2))["value"]) > 0
    assert (await api.json("count"))["start"] == start
    [glance] = (await api.json("/v1/overview"))["streams"]
    assert len(glance["sparkline"]["value"]) == len(counts)
    assert (await api.json("/v1/streams"))["streams"][0]["running"] is not None
    await api.json("preview", epsilon=2)
    await api.json("/api/v1/query", query="private_counts_running")
    assert b"private_counts_running_stderr" in (await api.get("/metrics")).content


@pytest.mark.parametrize("release", RELEASES)
async def test_first_epoch_without_releases_is_shown_as_ended(release: Release) -> None:
    stream = Published(MemoryStore(), release=release)
    await ended_at_once(stream, 0, FIRST_BIN)
    async with api_at(stream) as api:
        for path in ("", "privacy", "marks", "/v1/overview", "/v1/streams", "/metrics"):
            assert (await api.get(path)).status_code == 200, path
        status, refused = await api.error("series")
        assert (status, "nothing is released yet" in refused["error"]) == (400, True)
        [epoch] = (await api.json(""))["epochs"]
        assert (epoch["bins_released"], epoch["end_reason"]) == (0, REASON)
        await stream.open(1, FIRST_BIN + 10)
        await api.refresh()
        [glance] = (await api.json("/v1/overview"))["streams"]
        assert glance["running"] is None
        await stream.close([5, 0, 7])
        await api.refresh()
        await everything_answers(api, "2013-01-01T10:00:00Z", [5, 0, 7])
        said = await api.json("")
        assert [one["end_reason"] for one in said["epochs"]] == [REASON, None]
        assert said["start"] == "2013-01-01T10:00:00Z"


@pytest.mark.parametrize("release", RELEASES)
async def test_middle_epoch_without_releases_changes_no_answer(release: Release) -> None:
    stream = await released([5, 0, 7, 9], release=release, epoch_bins=4)
    await ended_at_once(stream, 1, FIRST_BIN + 4)
    await stream.open(2, FIRST_BIN + 4)
    await stream.close([2])
    async with api_at(stream) as api:
        await everything_answers(api, "2013-01-01T00:00:00Z", [5, 0, 7, 9, 2])
        assert [one["bins_released"] for one in (await api.json(""))["epochs"]] == [4, 0, 1]


BINS = 6


@pytest.mark.parametrize("release", ["causal", "anticipating"])
async def test_followers_and_answers_go_on_over_a_change(release: Release) -> None:
    stream = Published(MemoryStore(), epsilon="1", epoch_bins=BINS, branching=(2, 3), release=release)
    replicas = Replicas(stream.store.reader())
    await stream.open(0)
    await stream.close([5, 0, 1, 2, 3, 4])
    await replicas.refresh()
    replica = replicas.by_name[stream.name]
    before = replica.view
    assert before is not None
    copied = grown(None, growth(before, None))
    stream.change("3", (6,))
    await stream.open(1, FIRST_BIN + BINS)
    await stream.close([7, 8])
    await replica.read_news(BINS + 2)
    view = replica.view
    assert view is not None
    assert (view.span.stop - view.span.start, len(view.runs)) == (BINS + 2, 2)
    assert [seq for seq, _ in await replica.rows_after(BINS - 1)] == [BINS, BINS + 1, BINS + 2]
    assert "changed" in (await replica.rows_after(BINS))[0][1].decode()
    # The first epoch's answers do not change with the settings.
    assert view.count(before.span) == before.count(before.span)
    assert copied.count(before.span) == before.count(before.span)
    again = grown(None, growth(view, None))
    assert again.count(view.span) == view.count(view.span)
    assert view.statement is not None
    assert view.statement.epsilon == 3
    told = detail(view, 1_000_000)
    assert (told.epsilon, told.strategy_hash) == ("3", stream.strategy.hash)
    wider = preview(view, PreviewQuery(epsilon=0.5))
    assert wider.half_width[0] < wider.preview_half_width[0]
    if release == "causal":
        assert len(nodes(view, NodesQuery(epoch=0, level=2)).values) == BINS
        assert len(nodes(view, NodesQuery(epoch=1, level=1)).values) == 2
