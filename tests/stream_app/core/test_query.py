"""Answers over absolute time: exact without noise; with noise, equal to what the rows alone give."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.tree.estimate import ReleasedForest
from dphist.tree.release import BinRelease, NodeRelease
from stream_app.core.answers.answered import QueryError, downsampled
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.visible import width_of
from stream_app.core.kinds.tables import SeriesKind, Span
from tests.dphist.tree.dense import published_variance
from tests.models.memory import MemoryStore
from tests.stream_app.published import FIRST_BIN, HOUR_US, Published, estimates

EXACT = "1000000000"  # so large that noise is zero
WINDOWS: tuple[tuple[SeriesKind, int], ...] = (("running", 1), ("bin", 1), ("window", 9))


async def read(view: StreamView | None, store: MemoryStore, name: str = "departures") -> StreamView:
    """Read all rows that a store shows into a view, as the API does."""
    reader = store.reader()
    state = await reader.public_state(name)
    assert state is not None
    view = view or StreamView(state.strategy, state.earlier)
    assert view.continues_to(state)
    wanted = [(want, width_of(state, want)) for want in view.missing(state)]
    view.extend(state, [(want, await reader.tile_rows(name, *want, width)) for want, width in wanted])
    assert view.shown == state
    return view


async def publish(
    epochs: list[list[int]], epoch_bins: int, gap: int = 0, **options: Any
) -> tuple[MemoryStore, Published]:
    """Release epochs one after the other.

    An epoch that is not full ends early. ``gap`` bins without an epoch follow it.
    """
    store = MemoryStore()
    stream = Published(store, epoch_bins=epoch_bins, **options)
    first = stream.first_bin
    for number, counts in enumerate(epochs):
        await stream.open(number, first)
        await stream.close(counts)
        if len(counts) < epoch_bins:
            state = await store.load(stream.name)
            assert state is not None
            await store.end_epoch(stream.name, number, state.seq, "ended early by the test")
            first += gap
        first += len(counts)
    return store, stream


def view_of(epochs: list[list[int]], epoch_bins: int, gap: int = 0, **options: Any) -> StreamView:
    async def run() -> StreamView:
        store, _ = await publish(epochs, epoch_bins, gap, **options)
        return await read(None, store)

    return asyncio.run(run())


def rows_of(store: MemoryStore, name: str = "departures") -> list[dict[str, Any]]:
    return [json.loads(row) for _, row in asyncio.run(store.reader().rows(name, 0, 10_000))]


def forests_from_rows(view: StreamView, rows: list[dict[str, Any]]) -> dict[int, ReleasedForest]:
    """Rebuild the nodes of every epoch from its chain rows alone, without tiles."""
    forests: dict[int, ReleasedForest] = {}
    for row in rows:
        forest = forests.setdefault(row["epoch"], ReleasedForest(view.strategy.design))
        nodes = tuple(NodeRelease(level, index, np.array(values)) for level, index, values in row["nodes"])
        forest.append(BinRelease(forest.bins, nodes, np.array(row["published"])))
    return forests


def test_epochs_are_independent_so_values_variances_and_laws_add() -> None:
    epochs = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3], [5, 8, 9]]
    store, _ = asyncio.run(publish(epochs, 5, branching=(3, 2)))
    view = asyncio.run(read(None, store))
    forests = forests_from_rows(view, rows_of(store))
    got = view.count(Span(FIRST_BIN + 3, FIRST_BIN + 12))
    parts = [forests[0].range(3, 5), forests[1].range(0, 5), forests[2].range(0, 2)]
    assert got.value == pytest.approx(sum(float(part.value) for part in parts), abs=1e-9)
    assert got.variance == pytest.approx(sum(part.variance for part in parts))
    assert got.law.variance == pytest.approx(got.variance)
    assert got.law.groups == type(got.law).of(g for part in parts for g in part.law.groups).groups
    assert got.rounding == pytest.approx(sum(part.rounding for part in parts))


def test_running_counts_as_first_published_are_those_of_the_rows() -> None:
    epochs = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3], [5, 8, 9]]
    store, _ = asyncio.run(publish(epochs, 5, branching=(3, 2)))
    view = asyncio.run(read(None, store))
    series = view.series("running", view.span, view="first_published")
    base = base_variance = 0.0
    for row, span, estimate in zip(rows_of(store), series.spans, estimates(series), strict=True):
        assert span.stop == row["bin"] + 1
        assert estimate.value == pytest.approx(base + row["estimate"][0], abs=1e-9)
        assert estimate.variance == pytest.approx(base_variance + row["variance"])
        if (row["bin"] + 1 - FIRST_BIN) % 5 == 0:
            base, base_variance = base + row["estimate"][0], base_variance + row["variance"]


def test_anticipating_answers_are_differences_of_published_counts_with_their_law() -> None:
    """Two epochs are complete, one ended early, one is running. Answers are single or points of a series."""
    epochs = [[3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8, 2, 8, 1], [1, 4, 1], [5, 7, 7, 2]]
    store, _ = asyncio.run(publish(epochs, 7, branching=(3, 3), release="anticipating"))
    view = asyncio.run(read(None, store))
    design, published = view.strategy.design, [row["published"][0] for row in rows_of(store)]
    firsts = [0, 7, 14, 17]

    def total(stop: int) -> float:
        """Return the sum of the published counts of the bins before ``stop``."""
        done = [first for first in firsts if first < stop]
        ends = [*[first - 1 for first in done[1:]], stop - 1] if done else []
        return float(sum(published[end] for end in ends)) / 2**16

    def variance(start: int, stop: int) -> float:
        parts = [(max(start, f), min(stop, f + len(e)), f) for f, e in zip(firsts, epochs, strict=True)]
        return sum(published_variance(design, a - f, b - f) for a, b, f in parts if a < b)

    for shown in ("unbiased", "first_published"):
        for kind, window in WINDOWS:
            series = view.series(kind, view.span, window=window, view=shown)
            for span, one in zip(series.spans, estimates(series), strict=True):
                start, stop = span.start - FIRST_BIN, span.stop - FIRST_BIN
                assert one.value == pytest.approx(total(stop) - total(start), abs=1e-9)
                assert one.variance == pytest.approx(variance(start, stop), rel=1e-9)
                alone = view.count(span)
                assert alone.value == pytest.approx(one.value, abs=1e-9)
                assert alone.variance == pytest.approx(one.variance, rel=1e-12)
                assert alone.rounding == pytest.approx(one.rounding)
    # A row states the same as a reader computes.
    for row in rows_of(store)[17:]:
        running = view.epochs[3].estimate(Span(0, row["bin"] - FIRST_BIN - 16), "unbiased")
        assert row["estimate"] == [running.value]
        assert row["variance"] == pytest.approx(running.variance)
        assert row["interval"][0] == pytest.approx(
            [running.interval(0.95).lower, running.interval(0.95).upper], abs=0.2
        )


def test_points_of_a_causal_series_have_the_laws_of_single_answers() -> None:
    """Two epochs are complete, two ended early and one is running."""
    epochs = [[3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8, 2, 8, 1], [1, 4, 1], [1, 0], [5, 7, 7, 2]]
    view = view_of(epochs, 7, branching=(3, 3))
    steps: list[tuple[SeriesKind, int, int]] = [(kind, 1, window) for kind, window in WINDOWS]
    for kind, step, window in [*steps, ("bin", 4, 1)]:
        series = view.series(kind, view.span, step, window)
        assert len(series.spans) > 4
        for span, one in zip(series.spans, estimates(series), strict=True):
            alone = view.count(span)
            assert alone.value == pytest.approx(one.value, abs=1e-9)
            assert alone.variance == pytest.approx(one.variance, rel=1e-12)
            assert alone.rounding == pytest.approx(one.rounding)
            assert [(round(w, 9), n, s) for w, n, s in alone.law.groups if w > 1e-12] == [
                (round(w, 9), n, s) for w, n, s in one.law.groups if w > 1e-12
            ]
    live = view.series("running", view.span, view="first_published")
    for span, one in zip(live.spans, estimates(live), strict=True):
        alone = view.running("first_published", span.stop)
        assert alone.law.groups == one.law.groups
        assert alone.value == pytest.approx(one.value, abs=1e-9)
        assert alone.rounding == pytest.approx(one.rounding)


def test_bins_as_first_published_are_sums_of_the_bins_own_nodes() -> None:
    store, _ = asyncio.run(publish([[3, 1, 4, 1, 5, 9, 2, 6]], 8, branching=(4, 2)))
    view = asyncio.run(read(None, store))
    design = view.strategy.design
    leaves = [row["nodes"][0][2][0] for row in rows_of(store)]
    series = view.series("window", view.span, window=3, view="first_published")
    assert [one.value for one in estimates(series)] == [sum(leaves[t : t + 3]) for t in range(6)]
    assert {one.variance for one in estimates(series)} == {3 * design.variances[-1]}
    assert estimates(view.series("bin", view.span))[2].variance < design.variances[-1]


@pytest.mark.slow
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_view_that_grows_in_steps_equals_a_view_read_at_once(steps: list[int]) -> None:
    async def run() -> tuple[StreamView, StreamView]:
        store, grown = MemoryStore(), None
        stream = Published(store, epoch_bins=8, branching=(3, 3))
        await stream.open()
        epoch, room = 0, 8
        for bins in steps:
            if room == 0:
                epoch, room = epoch + 1, 8
                await stream.open(epoch, FIRST_BIN + 8 * epoch)
            taken = min(bins, room)
            await stream.close([7] * taken)
            room -= taken
            grown = await read(grown, store)
        assert grown is not None
        return grown, await read(None, store)

    grown, fresh = asyncio.run(run())
    assert grown.span == fresh.span
    for kind in ("running", "bin"):
        one, other = grown.series(kind, grown.span), fresh.series(kind, fresh.span)
        assert one.spans == other.spans
        assert [(point.value, point.variance) for point in estimates(one)] == [
            (point.value, point.variance) for point in estimates(other)
        ]


def test_bins_between_epochs_were_never_measured_and_are_not_zero() -> None:
    view = view_of([[1, 2, 3], [4, 5]], 5, gap=2, epsilon=EXACT)
    assert view.span == (FIRST_BIN, FIRST_BIN + 7)
    assert view.count(Span(FIRST_BIN, FIRST_BIN + 3)).value == 6
    assert view.count(Span(FIRST_BIN + 5, FIRST_BIN + 7)).value == 9
    assert view.count(Span(FIRST_BIN + 1, FIRST_BIN + 6)).value == 9
    assert view.unmeasured(Span(FIRST_BIN + 1, FIRST_BIN + 6)) == [(FIRST_BIN + 3, FIRST_BIN + 5)]
    within = "no epoch measured the bins from 2013-01-01T03:00:00Z to 2013-01-01T05:00:00Z"
    for start, stop in ((3, 5), (3, 4), (4, 5)):
        with pytest.raises(QueryError, match=within) as refused:
            view.count(Span(FIRST_BIN + start, FIRST_BIN + stop))
        assert [us // HOUR_US - FIRST_BIN for us in refused.value.nearest_us] == [3, 5]
    bins = view.series("bin", view.span)
    assert [one.value for one in estimates(bins)] == [1, 2, 3, 4, 5]
    assert [span.start - FIRST_BIN for span in bins.spans] == [0, 1, 2, 5, 6]
    assert (bins.available, bins.unmeasured) == (7, 2)
    running = view.series("running", view.span)
    assert [one.value for one in estimates(running)] == [1, 3, 6, 10, 15]
    assert view.series("window", view.span, window=2).unmeasured == 3


def test_times_inside_bins_are_refused_with_the_nearest_edges() -> None:
    view = view_of([[1] * 5], 5)
    start = FIRST_BIN * HOUR_US
    assert view.bins_between(None, None) == view.span
    assert view.bins_between(start + HOUR_US, start + 3 * HOUR_US) == (FIRST_BIN + 1, FIRST_BIN + 3)
    with pytest.raises(
        QueryError, match="nearest edges are 2013-01-01T01:00:00Z and 2013-01-01T02:00:00Z"
    ) as off:
        view.bins_between(start + HOUR_US + 1, None)
    assert off.value.nearest_us == (start + HOUR_US, start + 2 * HOUR_US)
    assert off.value.parameter == "start"
    for time_us, nearest in ((start - HOUR_US, start), (start + 6 * HOUR_US, start + 5 * HOUR_US)):
        with pytest.raises(QueryError, match="outside what is released") as outside:
            view.bins_between(None, time_us)
        assert outside.value.nearest_us == (nearest,)
    for start_us, end_us in ((start + HOUR_US, start + HOUR_US), (start + 2 * HOUR_US, start + HOUR_US)):
        with pytest.raises(QueryError, match="later than start"):
            view.bins_between(start_us, end_us)


def test_calendar_days_have_edges_at_local_midnight() -> None:
    # Clocks in Paris go forward on 2024-03-31 (day 19813): that day has 23 hours.
    view = view_of([[1] * 4], 4, first_bin=19_812, bin_us=24 * HOUR_US, timezone="Europe/Paris")
    edges = [view.binning.start_us(day) for day in range(19_812, 19_817)]
    assert [(b - a) // HOUR_US for a, b in pairwise(edges)] == [24, 23, 24, 24]
    assert view.bins_between(edges[1], edges[2]) == (19_813, 19_814)
    with pytest.raises(QueryError) as off:
        view.bins_between(edges[1] + 24 * HOUR_US, None)
    assert off.value.nearest_us == (edges[2], edges[3])


async def test_question_before_the_first_release_is_refused() -> None:
    async def run() -> StreamView:
        store = MemoryStore()
        stream = Published(store, epoch_bins=8)
        await stream.open()
        await stream.close([5, 5], show=False)
        return await read(None, store)

    view = await run()
    assert (view.released_until_us, view.visible_seq) == (None, 0)
    with pytest.raises(QueryError, match="nothing is released yet"):
        view.bins_between(None, None)


async def test_view_does_not_continue_to_a_stream_that_was_started_anew() -> None:
    store, stream = await publish([[1, 2, 3]], 5)
    view = await read(None, store)
    state = await store.reader().public_state("departures")
    assert state is not None
    assert not view.continues_to(replace(state, visible_seq=2))
    assert not view.continues_to(replace(state, strategy=state.strategy + b" "))
    moved = replace(state.epochs[0], first_bin=stream.first_bin + 1)
    assert not view.continues_to(replace(state, epochs=(moved,)))


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=300), st.integers(4, 40))
def test_downsampling_keeps_extremes_and_ends(values: list[int], points: int) -> None:
    column = np.array(values, dtype=np.float64)
    shown = downsampled(column, points)
    assert len(shown) <= max(points, 2)
    assert sorted(set(shown.tolist())) == shown.tolist()
    assert (shown[0], shown[-1]) == (0, len(values) - 1)
    assert (column[shown].max(), column[shown].min()) == (max(values), min(values))


def test_a_long_series_is_shortened_and_keeps_its_peak() -> None:
    counts = [0] * 500
    counts[321] = 10_000
    view = view_of([counts], 500)
    kinds: tuple[SeriesKind, ...] = ("bin", "window")
    for kind in kinds:
        series = view.series(kind, view.span, points=50)
        assert len(series.spans) <= 50 < series.available
        assert max(float(one.value) for one in estimates(series)) > 9_000
