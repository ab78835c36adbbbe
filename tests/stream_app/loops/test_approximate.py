"""An approximate stream through the service: compared with a recount, covered, continued after restarts."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from dphist.caps import Caps
from dphist.toeplitz import plan_toeplitz
from stream_app.api.answers.streams import detail, summary
from stream_app.api.overview import overview_of
from stream_app.core.answers.query import StreamView
from stream_app.core.counting.cells import KeyList
from stream_app.core.kinds.tables import Span
from stream_app.core.kinds.toeplitz import Toeplitz
from stream_app.core.ledger import statement
from stream_app.core.strategy import Strategy
from tests.stream_app.declared import FIRST_BIN, NO_NOISE, STREAM, strategy_of
from tests.stream_app.loops.test_count_users import (
    BINS,
    COUNTRIES,
    EPOCH_BINS,
    ServiceNoise,
    Visits,
    recounted,
    some_visits,
)
from tests.stream_app.product_stream import view_of

DELTA = Fraction(1, 10**6)


def approximate(epsilon: Fraction = NO_NOISE, *, keyed: bool = True) -> Strategy:
    """Return a strategy that counts users, by country if it is keyed."""
    keys = KeyList("country", COUNTRIES, False, False) if keyed else None
    plain = strategy_of(keys=keys, max_events=1, count="users")
    privacy = structs.replace(plain.declared.privacy, epsilon=epsilon, delta=DELTA)
    width = len(COUNTRIES) if keyed else 1
    design = plan_toeplitz(EPOCH_BINS, epsilon, DELTA, Caps(max_events=1), width=width)
    return replace(
        plain, declared=structs.replace(plain.declared, privacy=privacy), kind=Toeplitz(design, keyed)
    )


def released(directory: Path, strategy: Strategy, seed: int, noise: ServiceNoise | None = None) -> StreamView:
    """Count and release the visits of a seed, with new loops every three bins; return what readers see."""
    one, visits = Visits(directory, strategy), some_visits(seed)

    async def run() -> StreamView:
        for start in range(0, BINS, 3):
            stop = FIRST_BIN + start + 3
            one.append_visits([visit for visit in visits if stop - 3 <= visit[0] < stop])
            await one.run_until(stop, noise)
        return await view_of(one.store)

    view = asyncio.run(run())
    one.close()
    return view


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("keyed", [True, False])
def test_counts_are_those_of_a_recount_where_noise_vanishes(tmp_path: Path, seed: int, keyed: bool) -> None:
    truth = recounted(some_visits(seed))
    view = released(tmp_path, approximate(keyed=keyed), seed)
    names: list[str | None] = [*COUNTRIES] if keyed else [None]
    for place, name in enumerate(names):
        bins = view.of_key(name).series("bin", view.span)
        exact = truth[:, place] if keyed else truth.sum(axis=1)
        assert bins.values == pytest.approx(exact, abs=0.01)
        assert np.rint(bins.values).astype(int).tolist() == exact.tolist()
    found = view.count(view.span)
    interval = found.interval(0.999)
    assert interval.lower <= truth.sum() <= interval.upper
    assert found.value == pytest.approx(truth.sum(), abs=0.01)


def test_rows_vouch_for_the_columns_and_each_epoch_is_entered_with_its_mu(tmp_path: Path) -> None:
    strategy = approximate(Fraction(1))
    one = Visits(tmp_path, strategy)
    one.append_visits(some_visits(1))
    asyncio.run(one.run_until(FIRST_BIN + BINS, None))
    one.close()
    rows = [json.loads(row) for _, row in asyncio.run(one.store.rows(STREAM, 0, BINS))]
    assert len({row["columns_hash"] for row in rows}) == BINS
    ledger = asyncio.run(one.store.ledger(strategy.source))
    assert {(entry.epsilon, entry.delta) for entry in ledger} == {("1", "1/1000000")}
    assert {Fraction(entry.mu or 0) for entry in ledger} == {strategy.kind.mu}
    # Three epochs of a user add up by their mu, to less than the sum of their epsilons.
    stated = statement(strategy.source, ledger)
    assert stated.epsilon == 3
    assert stated.delta == 3 * DELTA
    assert 1 < stated.composed < 3


def test_a_range_is_a_difference_of_published_counts_that_never_change(tmp_path: Path) -> None:
    strategy, shown = approximate(Fraction(1)), list[list[float]]()
    one = Visits(tmp_path, strategy)
    for stop in range(3, BINS + 1, 3):
        asyncio.run(one.run_until(FIRST_BIN + stop, None))
        view = asyncio.run(view_of(one.store))
        shown.append(view.series("running", view.span).values.tolist())
    one.close()
    for before, after in pairwise(shown):
        assert after[: len(before)] == before
    running = [0.0, *shown[-1]]
    for start, stop in ((0, 3), (2, 5), (1, 14)):
        expected = running[stop] - running[start]
        assert view.count(_span(start, stop)).value == pytest.approx(expected, abs=1e-9)


def test_every_description_of_a_stream_names_its_delta(tmp_path: Path) -> None:
    view = released(tmp_path, approximate(Fraction(1)), 2)
    assert summary(view).delta == detail(view, 1_000_000).delta == "1e-6"
    assert overview_of(view, {}, 1_000_000).delta == "1e-6"
    assert detail(view, 1_000_000).never_revised
    assert view.series("running", view.span).laws.draws().tolist() == [0.0] * BINS


def test_strategy_without_gaussian_noise_is_refused(tmp_path: Path) -> None:
    class OnlyLaplace:
        private = True

    with pytest.raises(ValueError, match="OnlyLaplace draws no Gaussian noise"):
        approximate().kind.close(b"", np.zeros((1, 3), np.int64), OnlyLaplace(), None)  # type: ignore[arg-type]


def _span(start: int, stop: int) -> Span:
    return Span(FIRST_BIN + start, FIRST_BIN + stop)
