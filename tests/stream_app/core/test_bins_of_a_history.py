"""One history over streams whose bins differ: ranges, steps, errors and refusals."""

from __future__ import annotations

import asyncio
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dphist.product.answers import Histogram
from dphist.product.columns import key_counts
from dphist.product.forest import RangeSum
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.steps import CalendarStep
from stream_app.core.answers.succession import continued, edge_in_words
from stream_app.core.instants import format_instant
from stream_app.core.kinds.tables import SeriesKind, SeriesView, Span
from tests.models.memory import MemoryStore
from tests.stream_app.core.test_query import EXACT, read
from tests.stream_app.core.test_succession import joined, released
from tests.stream_app.published import Published
from tests.stream_app.published_axes import PublishedAxes

pytestmark = pytest.mark.slow

HOUR_US = 3_600_000_000
DAY = 15_706  # 2013-01-01
LENGTHS = {"a": 6, "b": 24, "c": 2}  # hours of a bin
BEGINS = {"a": 24 * DAY + 6, "b": 24 * (DAY + 2), "c": 24 * (DAY + 5)}  # hours since 1970
BINS = {"a": 7, "b": 3, "c": 26}
COUNTS = {name: np.random.default_rng(bins).integers(0, 9, bins).tolist() for name, bins in BINS.items()}
EDGES = [BEGINS[name] + LENGTHS[name] * bin for name in LENGTHS for bin in range(BINS[name])]
EDGES.append(BEGINS["c"] + LENGTHS["c"] * BINS["c"])
TRUTH = [count for name in LENGTHS for count in COUNTS[name]]
OF_EDGE = {hour: sum(TRUTH[:place]) for place, hour in enumerate(EDGES)}


@cache
def chain(epsilon: str) -> tuple[StreamView, ...]:
    """Return three streams: each goes on where the one before ends, with other bins and epochs."""

    async def run() -> tuple[StreamView, ...]:
        store, before = MemoryStore(), None
        for seed, (name, epoch_bins) in enumerate({"a": 3, "b": 2, "c": 8}.items()):
            first = BEGINS[name] // LENGTHS[name]
            length_us = LENGTHS[name] * HOUR_US
            stream = Published(
                store, name, epsilon, epoch_bins, first, length_us, seed=seed, successor_of=before
            )
            await released(store, stream, COUNTS[name])
            before = name
        return tuple([await read(None, store, name) for name in LENGTHS])

    return asyncio.run(run())


def hours(view: StreamView, span: Span) -> tuple[int, int]:
    """Return the edges of a range in hours since 1970."""
    start, stop = (view.binning.start_us(edge) // HOUR_US for edge in span)
    return start, stop


def of_hours(view: StreamView, start: int, stop: int) -> Span:
    """Return the bins between two edges."""
    return view.bins_between(start * HOUR_US, stop * HOUR_US)


def test_every_range_over_three_kinds_of_bins_is_the_recount() -> None:
    view = joined(chain(EXACT))
    assert hours(view, view.span) == (EDGES[0], EDGES[-1])
    for start, stop in combinations(EDGES, 2):
        assert view.count(of_hours(view, start, stop)).value == OF_EDGE[stop] - OF_EDGE[start]
    stops = np.arange(view.span.start + 1, view.span.stop + 1)
    running = view.over_ranges("running", "unbiased", np.full_like(stops, view.span.start), stops, 99)
    assert running.values.tolist() == [OF_EDGE[edge] for edge in EDGES[1:]]
    assert view.consistent(stops - 1, stops).tolist() == TRUTH


@pytest.mark.parametrize(
    ("kind", "step", "window", "first"),
    [
        ("bin", 12, 1, EDGES[0] + 18),  # from the first midnight on
        ("bin", 24, 1, EDGES[0] + 18),
        ("running", 12, 1, EDGES[0] + 18),
        ("window", 12, 24, EDGES[0] + 18),
    ],
)
def test_steps_that_fit_all_bins_are_the_recount(
    kind: SeriesKind, step: int, window: int, first: int
) -> None:
    view = joined(chain(EXACT))
    points = view.series(kind, view.span, step, window)
    found = [hours(view, one) for one in points.spans]
    assert points.values.tolist() == [OF_EDGE[stop] - OF_EDGE[start] for start, stop in found]
    length = 2 * (window if kind == "window" else step)
    ends = range(first + length, EDGES[-1] + 1, 2 * step)
    wanted = [(EDGES[0] if kind == "running" else end - length, end) for end in ends]
    assert found == wanted


def test_a_step_finer_than_an_earlier_bin_is_refused_with_one_that_fits() -> None:
    view = joined(chain(EXACT))
    edge = format_instant(BEGINS["c"] * HOUR_US)
    line = f"step: a bin is 1 day before {edge}, and a step must fit; write 12 or begin there or later"
    with pytest.raises(QueryError) as refused:
        view.series("bin", view.span, 1)
    assert str(refused.value) == line
    with pytest.raises(QueryError, match=r"window: a bin is 1 day .* write 24 or"):
        view.series("window", view.span, 12, 13)
    fine = view.series("bin", of_hours(view, BEGINS["c"], EDGES[-1]), 1)
    assert fine.values.tolist() == COUNTS["c"]
    with pytest.raises(QueryError, match="is inside a bin; the nearest edges are 2013-01-03T00:00:00Z and"):
        of_hours(view, BEGINS["b"] + 2, EDGES[-1])
    coarse = view.series("bin", of_hours(view, EDGES[0], BEGINS["b"]), 3)  # 6 hours, before any day
    assert coarse.values.tolist() == COUNTS["a"]


def test_running_counts_and_windows_have_a_point_at_every_edge_that_fits() -> None:
    view = joined(chain(EXACT))
    points = view.series("running", view.span)
    assert points.values.tolist() == [OF_EDGE[edge] for edge in EDGES[1:]]
    windows = view.series("window", view.span, 1, 24)  # 48 hours
    wanted = [(edge - 48, edge) for edge in EDGES if edge - 48 in EDGES]
    assert [hours(view, one) for one in windows.spans] == wanted
    assert windows.values.tolist() == [OF_EDGE[stop] - OF_EDGE[start] for start, stop in wanted]


def test_days_after_hours_have_days_before_the_edge() -> None:
    view = joined(chain(EXACT)[:2])
    points = view.series("bin", view.span)
    assert [hours(view, one) for one in points.spans] == [
        (hour, hour + 24) for hour in range(24 * (DAY + 1), BEGINS["c"], 24)
    ]
    assert points.values.tolist() == [sum(COUNTS["a"][3:]), *COUNTS["b"]]
    days = CalendarStep(1, "days", "UTC").groups(view.binning, view.span, 99)
    assert hours(view, days[0]) == (EDGES[0], 24 * (DAY + 1))
    assert view.count(days[0]).value == sum(COUNTS["a"][:3])


def test_errors_over_differing_bins_are_those_of_the_streams_together() -> None:
    parts = chain("1")
    view = joined(parts)
    for start, stop in combinations(EDGES, 2):
        ends = [(max(start, hours(one, one.span)[0]), min(stop, hours(one, one.span)[1])) for one in parts]
        alone = [
            one.count(of_hours(one, *pair))
            for one, pair in zip(parts, ends, strict=True)
            if pair[0] < pair[1]
        ]
        found = view.count(of_hours(view, start, stop))
        assert found.value == pytest.approx(sum(one.value for one in alone))
        assert found.variance == pytest.approx(sum(one.variance for one in alone))
        assert found.law.variance == pytest.approx(found.variance)
    views: tuple[SeriesView, ...] = ("unbiased", "first_published")
    for shown in views:
        points = view.series("bin", view.span, 12, view=shown)
        for place, span in enumerate(points.spans):
            start, stop = hours(view, span)
            [one] = [
                one for one in parts if hours(one, one.span)[0] <= start and stop <= hours(one, one.span)[1]
            ]
            own = of_hours(one, start, stop)
            alone_point = one.over_ranges("bin", shown, np.array([own.start]), np.array([own.stop]), 9)
            assert points.values[place] == pytest.approx(alone_point.values[0])
            assert points.laws.law(place).variance == pytest.approx(alone_point.laws.law(0).variance)


async def test_bins_whose_edges_do_not_meet_have_no_history() -> None:
    store = MemoryStore()
    old = Published(store, "a", "1", 3, DAY, 24 * HOUR_US)
    new = Published(store, "b", "1", 3, 24 * (DAY + 3) - 1, HOUR_US, successor_of="a")
    await released(store, old, [1, 2, 3])
    await released(store, new, [5])
    views = {name: await read(None, store, name) for name in "ab"}
    assert continued(views["b"], views.get) == ()


def test_calendar_days_after_hours_and_hours_after_calendar_days() -> None:
    paris = 24 * DAY - 1  # midnight there

    async def run(lengths: tuple[int, int]) -> StreamView:
        store = MemoryStore()
        edge = paris + 48
        for name, length in zip("ab", lengths, strict=True):
            begins = paris if name == "a" else edge
            bins, first = (48 // length, begins // length) if length == 1 else (2, DAY + 2 * (name == "b"))
            zone = None if length == 1 else "Europe/Paris"
            stream = Published(
                store,
                name,
                EXACT,
                bins,
                first,
                length * HOUR_US,
                zone,
                successor_of="a" if name == "b" else None,
            )
            await released(store, stream, [length] * bins)
        views = {name: await read(None, store, name) for name in "ab"}
        return views["b"].following(continued(views["b"], views.get))

    days_last, hours_last = asyncio.run(run((1, 24))), asyncio.run(run((24, 1)))
    assert days_last.series("bin", days_last.span).values.tolist() == [24] * 4
    for view in (days_last, hours_last):
        assert view.running().value == 96
        groups = CalendarStep(1, "days", "Europe/Paris").groups(view.binning, view.span, 9)
        assert [view.count(one).value for one in groups] == [24] * 4
    with pytest.raises(
        QueryError, match=r"step: a bin is 1 day .*ask for days, with timezone=Europe/Paris or"
    ):
        hours_last.series("bin", hours_last.span)


def test_distributions_go_on_over_other_bins() -> None:
    cells = np.random.default_rng(4).integers(0, 30, (8, 5, 10))

    async def run() -> tuple[StreamView, ...]:
        store, hour = MemoryStore(), 24 * DAY
        facts: dict[str, Any] = {"epsilon": "1", "buckets": 10}
        old = PublishedAxes(store, "a", epoch_bins=4, first_bin=hour, **facts)
        new = PublishedAxes(
            *(store, "b"),
            epoch_bins=4,
            first_bin=hour // 2 + 2,
            bin_us=2 * HOUR_US,
            successor_of="a",
            **facts,
        )
        for stream, own in ((old, cells[:4]), (new, cells[4:])):
            await stream.open()
            await stream.close_cells(own)
        return await read(None, store, "a"), await read(None, store, "b")

    parts = asyncio.run(run())
    view = joined(parts)
    alone = [one.cells(one.span) for one in parts]
    found = view.cells(of_hours(view, 24 * DAY, 24 * DAY + 12))
    for group, was, now in zip(found.groups, *(one.groups for one in alone), strict=True):
        assert group.values == pytest.approx(was.values + now.values)
        assert group.law.variance == pytest.approx(was.law.variance + now.law.variance)
    band = Histogram.of(found).cdf(0.95)
    assert band.quantile(0.5) == Histogram.of(RangeSum.joined(alone)).cdf(0.95).quantile(0.5)
    slices = [view.cells(of_hours(view, 24 * DAY + hour, 24 * DAY + hour + 2)) for hour in range(0, 12, 2)]
    whole = view.counts_of_keys(view.span)
    assert sum(np.asarray(key_counts(one).value) for one in slices) == pytest.approx(whole.value)


def test_an_edge_names_both_bins() -> None:
    a, b, _ = chain("1")
    assert "bins 6 hours until then, 1 day from then on;" in edge_in_words(a, b)
