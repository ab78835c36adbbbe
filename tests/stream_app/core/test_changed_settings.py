"""Answers over epochs of several strategies: exact without noise; with noise, errors add up by epoch."""

from __future__ import annotations

import asyncio
from itertools import combinations

import numpy as np
import pytest

from dphist.tree.design import Release
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds.tables import SeriesKind, SeriesView, Span
from stream_app.core.ledger import statement
from stream_app.core.segments.strategies import before_change, by_hash, strategy_before
from tests.models.memory import MemoryStore
from tests.stream_app.core.test_query import EXACT, read
from tests.stream_app.published import FIRST_BIN, Published

BINS = 6
COUNTS = [[3, 0, 5, 1, 1, 2], [4, 4, 0, 9, 1, 0], [7, 1, 0, 0, 2, 5], [1, 2, 3]]
ENDS = [0, 1, 5, 6, 7, 12, 14, 18, 20, 21]


async def published(epsilons: list[str], release: Release) -> tuple[StreamView, Published]:
    """Release an epoch at each epsilon, each with another tree than the one before."""
    stream = Published(MemoryStore(), epsilon=epsilons[0], epoch_bins=BINS, branching=(2, 3), release=release)
    for number, (epsilon, counts) in enumerate(zip(epsilons, COUNTS, strict=True)):
        if number and epsilon != epsilons[number - 1]:
            stream.change(epsilon, (6,) if number % 2 else (3, 2))
        await stream.open(number, FIRST_BIN + number * BINS)
        await stream.close(counts)
    return await read(None, stream.store), stream


@pytest.mark.parametrize("release", ["causal", "anticipating"])
def test_ranges_over_several_strategies_are_exact_without_noise(release: Release) -> None:
    view, _ = asyncio.run(published([EXACT, "2000000000", EXACT, "3000000000"], release))
    truth = np.concatenate([np.array(counts) for counts in COUNTS])
    assert len(view.runs) == 4
    for start, stop in combinations(ENDS, 2):
        span = Span(FIRST_BIN + start, FIRST_BIN + stop)
        assert view.count(span).value == truth[start:stop].sum()
        assert view.series("bin", span).values.tolist() == truth[start:stop].tolist()
    edges = np.array([FIRST_BIN + 1]), np.array([FIRST_BIN + 20])
    assert view.consistent(*edges).tolist() == [truth[1:20].sum()]


@pytest.mark.parametrize("release", ["causal", "anticipating"])
@pytest.mark.parametrize("shown", ["unbiased", "first_published"])
def test_errors_are_those_of_each_epoch_s_strategy(release: Release, shown: SeriesView) -> None:
    epsilons = ["1", "0.25", "2", "2"]
    view, stream = asyncio.run(published(epsilons, release))
    for start, stop in combinations(ENDS, 2):
        span = Span(FIRST_BIN + start, FIRST_BIN + stop)
        parts = [epoch.estimate(part, "unbiased") for epoch, part in view.parts(span)]
        assert view.count(span).variance == pytest.approx(sum(part.variance for part in parts))
    kinds: tuple[SeriesKind, ...] = ("running", "bin", "window")
    for kind in kinds:
        found = view.series(kind, view.span, window=7, view=shown)
        for row, span in enumerate(found.spans):
            alone = 0.0
            for epoch, part in view.parts(span):
                own = view.kind_of(epoch.record).errors(shown)
                if own.leaf is not None and kind != "running":
                    alone += float(own.leaf.law(0).variance) * (part.stop - part.start)
                else:
                    one = own.within(epoch.bins, np.array([part.start]), np.array([part.stop]))
                    alone += float(one.laws.law(0).variance)
            assert found.laws.law(row).variance == pytest.approx(alone)
    told = asyncio.run(stream.store.ledger(stream.source))
    assert statement(stream.source, told).epsilon == 2


def test_a_larger_epsilon_shrinks_the_errors_of_its_own_epochs_only() -> None:
    view, _ = asyncio.run(published(["0.5", "0.5", "5", "5"], "anticipating"))
    before, after = (view.count(Span(FIRST_BIN + a, FIRST_BIN + a + BINS)) for a in (0, 12))
    assert before.variance > 20 * after.variance


async def test_a_change_is_public_with_the_epoch_that_it_begins() -> None:
    stream = Published(MemoryStore(), epoch_bins=BINS, epsilon="1")
    await stream.open(0)
    await stream.close(COUNTS[0], show=False)
    first = stream.strategy
    stream.change("2")
    await stream.open(1, FIRST_BIN + BINS)
    reader = stream.store.reader()
    hidden = await reader.public_state(stream.name)
    assert hidden is not None
    assert hidden.texts == (first.to_json(),)
    await stream.show()
    shown = await reader.public_state(stream.name)
    assert shown is not None
    assert shown.texts == (first.to_json(), stream.strategy.to_json())
    assert list(by_hash(shown.texts)) == [epoch.strategy_hash for epoch in shown.epochs]


def test_a_row_says_what_the_strategy_before_was() -> None:
    one = Published(MemoryStore(), epoch_bins=BINS, epsilon="1", branching=(2, 3))
    before = one.strategy
    one.change("0.3")
    said = before_change(before, one.strategy)
    assert strategy_before(one.strategy, said).to_json() == before.to_json()
    with pytest.raises(ValueError, match="does not match"):
        strategy_before(one.strategy, {**said, "from": "0" * 64})
