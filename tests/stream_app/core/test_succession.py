"""One history over a stream and its successors: a recount without noise; with noise, errors add up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import accumulate, combinations, product
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dphist import plan_tree
from dphist.epochs import EpochLevels
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.succession import continued, edge_in_words
from stream_app.core.counting.bounding import PerUser
from stream_app.core.counting.where import OneOf
from stream_app.core.kinds import kind_of
from stream_app.core.kinds.tables import SeriesKind, SeriesView, Span
from tests.models.memory import MemoryStore
from tests.stream_app.core.test_query import EXACT, read
from tests.stream_app.published import FIRST_BIN, Published
from tests.stream_app.published_axes import PublishedAxes

COUNTS = {"a": [3, 0, 5, 1, 1, 2, 4, 4, 0], "b": [9, 1, 0, 7, 1, 0, 0], "c": [2, 5, 1, 2, 3, 8]}
TRUTH = np.concatenate([np.array(counts) for counts in COUNTS.values()])
EDGES = [FIRST_BIN + edge for edge in accumulate(map(len, COUNTS.values()), initial=0)]
WINDOWS: tuple[tuple[SeriesKind, int, int], ...] = (
    ("running", 1, 1),
    ("running", 2, 1),
    ("bin", 1, 1),
    ("bin", 3, 1),
    ("window", 1, 5),
    ("window", 3, 4),
)


VIEWS: tuple[SeriesView, ...] = ("unbiased", "first_published")


async def released(store: MemoryStore, stream: Published, counts: list[int]) -> None:
    """Open as many epochs as counts need, and release them."""
    for number, first in enumerate(range(0, len(counts), stream.epoch_bins)):
        await stream.open(number, stream.first_bin + first)
        await stream.close(counts[first : first + stream.epoch_bins])


@cache
def chain(epsilon: str, other: str) -> tuple[StreamView, ...]:
    """Return three streams: each goes on where the one before ends, with other settings."""

    async def run() -> tuple[StreamView, ...]:
        store = MemoryStore()
        streams = (
            Published(store, "a", epsilon, 3, EDGES[0], seed=1),
            Published(store, "b", other, 4, EDGES[1], seed=2, release="anticipating", successor_of="a"),
            Published(store, "c", epsilon, 2, EDGES[2], seed=3, successor_of="b"),
        )
        for stream in streams:
            if stream.name == "c":  # nodes over its epochs, as the only one
                half = Fraction(epsilon) / 2
                levels = EpochLevels(plan_tree(2, half), 2 * half, (2,), (half,))
                stream.strategy = replace(stream.strategy, kind=kind_of(levels))
            await released(store, stream, COUNTS[stream.name])
        return tuple([await read(None, store, stream.name) for stream in streams])

    return asyncio.run(run())


def joined(views: tuple[StreamView, ...]) -> StreamView:
    """Return the history that a reader of all these streams sees."""
    by_name = {view.strategy.stream: view for view in views}
    before = continued(views[-1], by_name.get)
    assert before == views[:-1]
    return views[-1].following(before)


def test_every_range_over_three_streams_is_the_recount_without_noise() -> None:
    view = joined(chain(EXACT, "2000000000"))
    assert view.span == (EDGES[0], EDGES[-1])
    for start, stop in combinations(range(len(TRUTH) + 1), 2):
        span = Span(FIRST_BIN + start, FIRST_BIN + stop)
        assert view.count(span).value == TRUTH[start:stop].sum()
        assert view.count(span).interval(0.95).upper == TRUTH[start:stop].sum()
    for (first, last), (kind, step, window), shown in product([(0, len(TRUTH)), (2, 17)], WINDOWS, VIEWS):
        points = view.series(kind, Span(FIRST_BIN + first, FIRST_BIN + last), step, window, shown)
        length = window if kind == "window" else step
        ranges = [(0 if kind == "running" else n - length, n) for n in range(first + length, last + 1, step)]
        assert points.spans == [Span(FIRST_BIN + start, FIRST_BIN + stop) for start, stop in ranges]
        assert points.values.tolist() == [TRUTH[start:stop].sum() for start, stop in ranges]
    assert view.running().value == TRUTH.sum()
    edges = np.array([FIRST_BIN + 1, FIRST_BIN]), np.array([FIRST_BIN + 20, EDGES[-1]])
    for method in ("isotonic", "top_down"):
        assert view.consistent(*edges, method).tolist() == [TRUTH[1:20].sum(), TRUTH.sum()]


@pytest.mark.parametrize("shown", ["unbiased", "first_published"])
def test_errors_over_the_edges_are_those_of_the_streams_together(shown: SeriesView) -> None:
    parts = chain("1", "2")
    view = joined(parts)
    for start, stop in combinations(range(EDGES[0], EDGES[-1] + 1), 2):
        pieces = [(one, Span(max(start, one.span.start), min(stop, one.span.stop))) for one in parts]
        counts = [one.count(part) for one, part in pieces if part.start < part.stop]
        found = view.count(Span(start, stop))
        assert found.value == pytest.approx(sum(one.value for one in counts))
        assert found.variance == pytest.approx(sum(one.variance for one in counts))
        assert found.law.variance == pytest.approx(found.variance)
    for kind, step, window in WINDOWS:
        points = view.series(kind, view.span, step, window, shown)
        for place, span in enumerate(points.spans):
            pieces = [
                (one, Span(max(span.start, one.span.start), min(span.stop, one.span.stop))) for one in parts
            ]
            alone = [
                one.over_ranges(kind, shown, np.array([part.start]), np.array([part.stop]), 9)
                for one, part in pieces
                if part.start < part.stop
            ]
            assert points.values[place] == pytest.approx(sum(one.values[0] for one in alone))
            variance = sum(one.laws.law(0).variance for one in alone)
            assert points.laws.law(place).variance == pytest.approx(variance)


def test_nodes_over_epochs_count_beside_a_stream_without_them() -> None:
    parts = chain("1", "2")
    view, last = joined(parts), parts[-1]
    whole = Span(EDGES[2], EDGES[2] + 4)
    assert last.count(whole).variance < sum(
        epoch.estimate(Span(0, 2), "unbiased").variance for epoch in last.epochs[:2]
    )
    assert view.count(whole) == last.count(whole)


async def test_nodes_over_epochs_grow_over_a_change_of_grace_as_in_a_new_view() -> None:
    store, levels = MemoryStore(), EpochLevels(plan_tree(2, "1/2"), Fraction(1), (2,), (Fraction(1, 2),))
    stream = Published(store, "a", "1", 2)
    stream.strategy = replace(stream.strategy, kind=kind_of(levels))
    await stream.open()
    await stream.close([3, 4])
    declared = stream.strategy.declared
    later = structs.replace(declared, time=structs.replace(declared.time, grace_us=7_000_000))
    stream.strategy = replace(stream.strategy, declared=later)
    view = None
    for epoch in range(1, 4):
        await stream.open(epoch, FIRST_BIN + 2 * epoch)
        await stream.close([5, 6])
        view = await read(view, store, "a")
        fresh = await read(None, store, "a")
        whole = view.span
        assert (view.count(whole), len(view.runs)) == (fresh.count(whole), 1)
        points, again = view.series("running", whole), fresh.series("running", whole)
        assert points.values.tolist() == again.values.tolist()
        assert points.laws.deviations().tolist() == again.laws.deviations().tolist()


async def test_a_history_grows_with_the_stream_and_is_kept_until_then() -> None:
    store = MemoryStore()
    old = Published(store, "a", EXACT, 3)
    new = Published(store, "b", EXACT, 3, FIRST_BIN + 3, successor_of="a")
    await released(store, old, [1, 2, 3])
    await new.open()
    before, view = await read(None, store, "a"), await read(None, store, "b")
    history = view.following(continued(view, {"a": before}.get))
    assert history.running().value == 6  # before the successor has released anything
    await new.close([5])
    await read(view, store, "b")
    history = view.following(continued(view, {"a": before}.get))
    assert history.running().value == 11
    assert view.following((before,)) is history
    assert view.running().value == 5


def test_keys_and_values_have_one_history() -> None:
    cells = np.random.default_rng(3).integers(0, 9, (8, 5, 10))

    async def run() -> tuple[StreamView, ...]:
        store = MemoryStore()
        facts: dict[str, Any] = {"epsilon": EXACT, "buckets": 10}
        old = PublishedAxes(store, "a", epoch_bins=5, **facts)
        new = PublishedAxes(store, "b", epoch_bins=4, first_bin=FIRST_BIN + 5, successor_of="a", **facts)
        await old.open()
        await old.close_cells(cells[:5])
        await new.open()
        await new.close_cells(cells[5:])
        return await read(None, store, "a"), await read(None, store, "b")

    parts = asyncio.run(run())
    view = joined(parts)
    for start, stop in combinations(range(9), 2):
        span, true = Span(FIRST_BIN + start, FIRST_BIN + stop), cells[start:stop]
        assert view.of_key("B6").count(span).value == true[:, 1].sum()
        assert np.asarray(view.counts_of_keys(span).value).tolist() == true.sum(axis=(0, 2)).tolist()
        assert view.count(span).value == true.sum()
    points = view.of_key("B6").series("bin", view.span)
    assert points.values.tolist() == cells[:, 1].sum(axis=1).tolist()
    for shown in ("unbiased", "first_published"):
        assert view.series("running", view.span, view=shown).values[-1] == cells.sum()
    total, key = view.cells(view.span), view.of_key("B6")
    assert [group.law.variance for group in total.groups] == pytest.approx(
        [
            sum(pair)
            for pair in zip(
                *([g.law.variance for g in one.cells(one.span).groups] for one in parts), strict=True
            )
        ]
    )
    assert key.count(view.span).variance == pytest.approx(
        sum(one.of_key("B6").count(one.span).variance for one in parts)
    )


@pytest.mark.parametrize(
    "facts",
    [
        {"where": OneOf("kind", ("a",))},
        {"user": PerUser("user", 2)},
        {"user": PerUser("user", 1), "count": "users"},
        {"source": "elsewhere"},
    ],
)
async def test_counts_that_mean_something_else_are_not_added_up(facts: dict[str, Any]) -> None:
    store = MemoryStore()
    given: dict[str, Any] = {"first_bin": FIRST_BIN + 3, "successor_of": "a"} | facts
    old, new = Published(store, "a", "1", 3), Published(store, "b", "1", 3, **given)
    await released(store, old, [1, 2, 3])
    await released(store, new, [5])
    views = {name: await read(None, store, name) for name in "ab"}
    assert continued(views["b"], views.get) == ()


async def test_a_stream_that_has_not_ended_is_not_part_of_a_history() -> None:
    store = MemoryStore()
    old, new = (Published(store, "a", "1", 3), Published(store, "b", "1", 3, FIRST_BIN + 3, successor_of="a"))
    await old.open()
    await old.close([1, 2])
    await released(store, new, [5])
    views = {name: await read(None, store, name) for name in "ab"}
    assert continued(views["b"], views.get) == ()
    await old.close([3])
    await read(views["a"], store, "a")
    assert continued(views["b"], views.get) == (views["a"],)
    assert continued(views["b"], {"b": views["b"]}.get) == ()  # a key that does not open the first stream


def test_an_edge_names_the_settings_that_differ() -> None:
    a, b, c = chain("1", "2")
    assert edge_in_words(a, b) == (
        "a ends, and b goes on: epsilon 1 until then, 2 from then on; epoch 3 bins until then, 4 bins from "
        "then on; release causal until then, anticipating from then on."
    )
    assert edge_in_words(a, a) == "a ends, and a goes on with the same settings."
    assert edge_in_words(b, c).endswith(
        "epoch 4 bins until then, 2 bins from then on; release anticipating until then, causal from then on."
    )


async def test_an_edge_has_the_settings_of_the_epochs_beside_it() -> None:
    store = MemoryStore()
    old = Published(store, "a", "1", 3)
    new = Published(store, "b", "2", 3, FIRST_BIN + 3, successor_of="a")
    await released(store, old, [1, 2, 3])
    await released(store, new, [4, 5, 6])
    new.change("3")
    await new.open(1, FIRST_BIN + 6)
    await new.close([7])
    a, b = await read(None, store, "a"), await read(None, store, "b")
    assert b.strategy.epsilon == 3
    assert edge_in_words(a, b) == "a ends, and b goes on: epsilon 1 until then, 2 from then on."


def test_an_edge_names_other_conditions_and_caps() -> None:
    store, only = MemoryStore(), OneOf("country", ("FR",))
    cap = PerUser("user", 5)
    settings: tuple[dict[str, Any], ...] = ({}, {"where": only}, {"user": cap})
    streams = [Published(store, name=name, **of) for name, of in zip("abc", settings, strict=True)]
    a, b, c = (StreamView(one.strategy.to_json()) for one in streams)
    assert edge_in_words(a, b) == "a ends, and b goes on: other conditions on events."
    assert (
        edge_in_words(b, c) == "b ends, and c goes on: other caps for each user; other conditions on events."
    )
