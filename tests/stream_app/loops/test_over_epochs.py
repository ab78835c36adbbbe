"""Levels over epochs through the service: each node has one value, and long counts have smaller errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.epochs.levels import EpochLevels
from dphist.tree.design import Release as ReleaseKind
from dphist.tree.design import TreeDesign
from stream_app.api.app import create_app
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds import kind_of
from stream_app.core.kinds.over_epochs import EpochsState, OverEpochs
from stream_app.core.kinds.tables import OVER_EPOCHS, Span
from stream_app.core.kinds.tree import Tree
from stream_app.core.records import StreamState
from stream_app.core.releases import release
from stream_app.core.strategy import Strategy
from stream_app.loops.closer import NOISE_LOST
from stream_app.loops.next_epoch import following_start
from tests.examples import examples
from tests.models.memory import MemoryStore
from tests.oracles import KeyedNoise
from tests.stream_app.api.client import SHARED
from tests.stream_app.core.test_release import after, state_of
from tests.stream_app.declared import BIN_US, FIRST_BIN, NO_NOISE, STREAM, design_of, strategy_of
from tests.stream_app.loops.test_noise_ahead import Stopping
from tests.stream_app.one_source import OneSource
from tests.stream_app.product_stream import view_of
from tests.stream_app.series import estimates

pytestmark = pytest.mark.slow

EPOCH = 4  # bins
BRANCHING = (2, 3)  # nodes of two and of six epochs


def over_epochs(epsilon: Fraction = NO_NOISE, kind: ReleaseKind = "causal") -> Strategy:
    """Return a strategy with epochs of four bins. Two levels over epochs get half of epsilon."""
    design = replace(design_of((2, 2), epsilon / 2), release=kind)
    levels = EpochLevels(design, epsilon, BRANCHING, (epsilon * 3 / 8, epsilon / 8))
    return replace(strategy_of(design), kind=kind_of(levels))


@pytest.fixture(params=["causal", "anticipating"])
def one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[OneSource]:
    """Yield a service with one stream without noise."""
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
    with closing(OneSource(tmp_path, over_epochs(kind=request.param))) as one:
        yield one


async def run_until(one: OneSource, bin: int, store: Any = None) -> None:
    """Count ``number % 5`` events in each bin, and release all bins before ``bin``, each by a new worker."""
    while (now := one.clock.now_us // BIN_US) < bin:
        closer = one.closer(store=store)
        await closer.reconcile()
        one.append(*[now] * (now % 5))
        one.clock.set_bin(now + 1)
        ingest = one.ingest()
        await ingest.step()
        await ingest.step()
        await closer.close_due()
        await closer.publisher.publish()


def true_count(start: int, stop: int) -> int:
    return sum(bin % 5 for bin in range(start, stop))


async def nodes_in_rows(one: OneSource) -> dict[int, list[Any]]:
    """Return all nodes over epochs in the chain, by the bin of the row that holds them."""
    rows = [json.loads(row) for _, row in await one.store.rows(STREAM, 0, 1000)]
    return {row["bin"] - FIRST_BIN: row["over_epochs"] for row in rows if row["over_epochs"]}


def test_nodes_are_released_with_the_last_bin_and_equal_a_recount(one: OneSource) -> None:
    """Each bin has a new worker, so all state must be in the store."""

    async def run() -> None:
        await run_until(one, FIRST_BIN + 6 * EPOCH + 2)
        expected: dict[int, list[Any]] = {}
        for number in range(3):
            first = FIRST_BIN + 2 * EPOCH * number
            exact = true_count(first, first + 2 * EPOCH)
            expected[2 * EPOCH * (number + 1) - 1] = [[1, number, [exact]]]
        expected[6 * EPOCH - 1].append([2, 0, [true_count(FIRST_BIN, FIRST_BIN + 6 * EPOCH)]])
        assert await nodes_in_rows(one) == expected
        witnessed = [row.row for row in await one.witness.rows(STREAM, 0)]
        assert witnessed == [row for _, row in await one.store.rows(STREAM, 0, 1000)]
        view = await view_of(one.store)
        for span in (
            view.span,
            Span(FIRST_BIN + 1, FIRST_BIN + 6 * EPOCH),
            Span(FIRST_BIN + 8, FIRST_BIN + 16),
        ):
            estimate = view.count(span)
            assert estimate.value == pytest.approx(true_count(*span), abs=estimate.rounding + 1e-9)

    asyncio.run(run())


class Losing:
    """A store that loses each call of one kind once, before or after the call takes effect."""

    def __init__(self, store: MemoryStore, call: str, has_happened: bool) -> None:
        self._store, self._call, self._has_happened, self._lose = store, call, has_happened, True

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)

        async def call(*arguments: Any) -> Any:
            if name != self._call:
                return await real(*arguments)
            self._lose = not self._lose
            if self._lose:
                return await real(*arguments)
            if self._has_happened:
                await real(*arguments)
            raise ConnectionError("the reply was lost")

        return call


@pytest.mark.parametrize("has_happened", [False, True])
@pytest.mark.parametrize("call", ["release", "open_epoch"])
def test_a_lost_reply_at_the_roll_over_neither_repeats_nor_skips_a_node(
    one: OneSource, call: str, has_happened: bool
) -> None:
    async def run() -> None:
        store = Losing(one.store, call, has_happened)
        while one.clock.now_us < (FIRST_BIN + 6 * EPOCH + 1) * BIN_US:
            try:
                await run_until(one, one.clock.now_us // BIN_US + 1, store)
            except ConnectionError:
                continue
        await run_until(one, FIRST_BIN + 6 * EPOCH + 2)
        nodes = [(level, index) for row in (await nodes_in_rows(one)).values() for level, index, _ in row]
        assert nodes == [(1, 0), (1, 1), (1, 2), (2, 0)]
        kept = one.store._streams[STREAM].cells
        found = [values for row in (await nodes_in_rows(one)).values() for _, _, values in row]
        view = await view_of(one.store)
        counted = round(float(view.running().value)) + sum(sum(cells.values()) for cells in kept.values())
        assert counted == len(one.path.read_text().splitlines())
        assert found[0][0] + found[1][0] + found[2][0] == found[3][0]

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("after_effect", [False, True])
def test_a_worker_stopped_at_any_call_of_a_roll_over_leaves_each_node_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_effect: bool
) -> None:
    """The calls run from the last bins of the second epoch into the third. Each node has one value."""
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
    stop, ended_alone = 0, False
    while not ended_alone:
        stop += 1
        directory = tmp_path / str(stop)
        directory.mkdir()
        with closing(OneSource(directory, over_epochs(kind="anticipating"))) as one:
            left = [stop]

            async def run(one: OneSource = one, left: list[int] = left) -> None:
                await run_until(one, FIRST_BIN + 2 * EPOCH - 1)
                with suppress(asyncio.CancelledError):
                    await run_until(one, FIRST_BIN + 2 * EPOCH + 1, Stopping(one.store, left, after_effect))
                seen = await one.store.rows(STREAM, 0, 1000)
                await run_until(one, FIRST_BIN + 4 * EPOCH)
                assert (await one.store.rows(STREAM, 0, 1000))[: len(seen)] == seen
                nodes = [node for row in (await nodes_in_rows(one)).values() for node in row]
                assert [node[:2] for node in nodes] == [[1, 0], [1, 1]]
                view = await view_of(one.store)
                for index, (_, _, (value,)) in enumerate(nodes):
                    epochs = view.epochs[2 * index : 2 * index + 2]
                    assert value == sum(round(epoch.published[-1][0] / 2**16) for epoch in epochs)

            asyncio.run(run())
            ended_alone = left[0] > 0
    assert stop > 15


def test_an_epoch_that_ends_early_breaks_off_what_is_open(one: OneSource) -> None:
    """Three epochs are complete and one ends early: its node over two epochs is never released."""

    async def run() -> None:
        await run_until(one, FIRST_BIN + 3 * EPOCH + 1)
        state = await one.store.load(STREAM)
        assert state is not None
        await one.store.end_epoch(STREAM, state.epoch.epoch, state.seq, NOISE_LOST)
        again = 3 * EPOCH + 1
        await run_until(one, FIRST_BIN + again + 3 * EPOCH)
        nodes = await nodes_in_rows(one)
        later = true_count(FIRST_BIN + again, FIRST_BIN + again + 2 * EPOCH)
        assert list(nodes) == [2 * EPOCH - 1, again + 2 * EPOCH - 1]
        assert nodes[again + 2 * EPOCH - 1] == [[1, 0, [later]]]
        view = await view_of(one.store)
        assert view.count(view.span).value == pytest.approx(true_count(*view.span), abs=1e-2)

    asyncio.run(run())


def test_a_store_that_was_set_back_begins_new_nodes(one: OneSource) -> None:
    async def run() -> None:
        await run_until(one, FIRST_BIN + EPOCH + 1)
        backup = one.store.copy()
        await run_until(one, FIRST_BIN + 2 * EPOCH)  # the first node over two epochs is released
        one.store.restore(backup)
        await run_until(one, FIRST_BIN + 4 * EPOCH)
        witnessed = [json.loads(row.row) for row in await one.witness.rows(STREAM, 0)]
        told = [(row["bin"] - FIRST_BIN, row["over_epochs"]) for row in witnessed if row["over_epochs"]]
        later = true_count(FIRST_BIN + 2 * EPOCH, FIRST_BIN + 4 * EPOCH)
        assert [bin for bin, _ in told] == [2 * EPOCH - 1, 4 * EPOCH - 1]
        assert told[1][1] == [[1, 0, [later]]]

    asyncio.run(run())


def test_nobody_sees_a_row_over_epochs_before_its_bin(one: OneSource) -> None:
    async def run() -> None:
        await run_until(one, FIRST_BIN + EPOCH - 1)
        reader = one.store.reader()
        with pytest.raises(ValueError, match="0 are visible"):
            await reader.tile_rows(STREAM, 0, OVER_EPOCHS, 0, 1, 3)
        await run_until(one, FIRST_BIN + EPOCH)
        assert (await reader.tile_rows(STREAM, 0, OVER_EPOCHS, 0, 1, 3)).tolist() == [[1, 0, 0]]
        state = await one.store.load(STREAM)
        assert state is not None
        secret = EpochsState.from_bytes(state.counter)
        assert str(true_count(FIRST_BIN, FIRST_BIN + EPOCH)) not in repr(secret)
        with pytest.raises(ValueError, match="damaged"):
            EpochsState.from_bytes(state.counter[1:])

    asyncio.run(run())


# -- privacy, grey box ------------------------------------------------------------------------------


def transcript(strategy: Strategy, counts: np.ndarray, ends: set[int]) -> dict[Any, tuple[Fraction, int]]:
    """Return every released node with its level's scale. Some epochs end early.

    The real code makes the releases and chooses the state with which an epoch begins. The noise belongs to
    nodes.
    """
    state, levels, done, found = state_of(strategy), strategy.kind.levels, 0, {}
    assert levels is not None
    assert isinstance(strategy.design, TreeDesign)
    noise = KeyedNoise(1)
    while done < len(counts):
        bins = 1 if state.epoch.epoch in ends else EPOCH
        part = counts[done : done + bins, np.newaxis]
        made = release.make_release(state, strategy, part, noise, str(done))
        for row in map(json.loads, made.rows):
            for level, index, (value,) in row["nodes"]:
                scale = Fraction(strategy.design.scales[level - 1])
                found["bins", state.epoch.epoch, level, index] = scale, value
            for level, index, (value,) in row["over_epochs"]:
                found["epochs", state.epoch.epoch, level, index] = Fraction(levels.scales[level - 1]), value
        state, done = _opened(strategy, after(state, made)), done + len(part)
    return found


def _opened(strategy: Strategy, state: StreamState) -> StreamState:
    start = following_start(strategy, state, now_us=0)
    return replace(state, epoch=start.record, counter=start.carried)


@examples(40)
@given(st.data())
def test_neighbours_cost_at_most_epsilon_over_the_streams_whole_life(data: st.DataObject) -> None:
    strategy = over_epochs(Fraction(1, 2))
    ends = data.draw(st.sets(st.integers(0, 8), max_size=2))
    bins = 8 * EPOCH
    counts = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 3, bins)
    neighbour = counts.copy()
    neighbour[data.draw(st.integers(0, bins - 1))] += 1
    one, other = (transcript(strategy, stream, ends) for stream in (counts, neighbour))
    assert one.keys() == other.keys()
    loss = sum((abs(value - other[node][1]) / scale for node, (scale, value) in one.items()), Fraction(0))
    assert loss <= strategy.epsilon == Fraction(1, 2)


def test_the_whole_epsilon_is_used_by_an_event_in_a_node_of_each_level() -> None:
    strategy = over_epochs(Fraction(1, 2))
    counts, neighbour = np.zeros((2, 6 * EPOCH), np.int64)
    neighbour[5] = 1
    one, other = (transcript(strategy, stream, set()) for stream in (counts, neighbour))
    changed = {node: scale for node, (scale, value) in one.items() if value != other[node][1]}
    assert len(changed) == 2 + 2
    # Scales are rounded up to dyadic numbers, so a little less than epsilon is spent.
    assert Fraction(99, 100) < sum(1 / scale for scale in changed.values()) / strategy.epsilon <= 1


# -- answers ----------------------------------------------------------------------------------------


def noisy_view(directory: Path, kind: ReleaseKind, epochs: int) -> StreamView:
    """Return a view of several complete epochs and half of the next, without events."""

    async def run(one: OneSource) -> StreamView:
        closer, ingest = one.closer(), one.ingest()
        await closer.reconcile()
        one.clock.set_bin(FIRST_BIN + epochs * EPOCH + 2)
        await ingest.step()
        await ingest.step()
        await closer.close_due()
        await closer.publisher.publish()
        return await view_of(one.store)

    with closing(OneSource(directory, over_epochs(Fraction(1, 2), kind))) as one:
        return asyncio.run(run(one))


@pytest.fixture(params=["causal", "anticipating"])
def nine_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> StreamView:
    """Return a view of nine complete epochs and half of the next."""
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
    return noisy_view(tmp_path, request.param, 9)


def test_counts_over_epochs_have_the_predicted_variance_below_that_of_added_totals(
    nine_epochs: StreamView,
) -> None:
    view, levels = nine_epochs, nine_epochs.strategy.kind.levels
    assert levels is not None
    edge = FIRST_BIN + 9 * EPOCH
    whole = view.count(Span(FIRST_BIN, edge))
    assert whole.variance == pytest.approx(float(levels.complete_variance(9)), rel=1e-6)
    law, rounding = levels.complete_law(9)
    assert whole.law.variance == pytest.approx(law.variance, rel=1e-6)
    assert whole.rounding >= rounding / 2**16 - 1e-12
    assert whole.variance < 0.6 * 9 * levels.total_variance
    within = view.count(Span(edge, edge + 2))
    assert view.running().variance == pytest.approx(whole.variance + within.variance)
    assert view.running().value == pytest.approx(whole.value + within.value)


def test_a_pooled_value_is_the_best_mix_of_what_was_released(nine_epochs: StreamView) -> None:
    """The oracle is generalised least squares over the epochs' totals and the nodes over epochs."""
    view, levels = nine_epochs, nine_epochs.strategy.kind.levels
    assert levels is not None
    rows = np.vstack([np.eye(6), np.kron(np.eye(3), np.ones(2)), np.ones((1, 6))])
    totals = [epoch.published[-1][0] / 2**16 for epoch in view.epochs[:6]]
    last = view.epochs[5].rows(OVER_EPOCHS)[0]
    pairs = [view.epochs[place].rows(OVER_EPOCHS)[0][1] for place in (1, 3, 5)]
    measured = np.array([*totals, *pairs, last[2]], np.float64)
    own = [2 / (4 * np.sinh(0.5 / scale) ** 2) for scale in levels.scales]
    precision = 1 / np.array([levels.total_variance] * 6 + [own[0]] * 3 + [own[1]])
    inverse = np.linalg.inv(rows.T @ (precision[:, np.newaxis] * rows))
    fitted, ones = inverse @ rows.T @ (precision * measured), np.ones(6)
    found = view.count(Span(FIRST_BIN, FIRST_BIN + 6 * EPOCH))
    assert found.value == pytest.approx(fitted.sum(), abs=found.rounding + 1e-4)
    assert found.variance == pytest.approx(ones @ inverse @ ones, rel=1e-6)


@pytest.mark.parametrize(("kind", "step", "window"), [("running", 3, 1), ("bin", 8, 1), ("window", 5, 26)])
def test_points_of_a_series_are_the_counts_of_their_ranges(
    nine_epochs: StreamView, kind: Any, step: int, window: int
) -> None:
    view = nine_epochs
    series = view.series(kind, view.span, step, window)
    assert len(series.spans) > 1
    for span, point in zip(series.spans, estimates(series), strict=True):
        count = view.count(span)
        assert point.value == pytest.approx(count.value, abs=count.rounding + point.rounding + 1e-9)
        assert point.variance == pytest.approx(count.variance, rel=1e-6)
        assert point.rounding == pytest.approx(count.rounding)


# -- strategies -------------------------------------------------------------------------------------


def test_strategies_without_the_option_have_the_text_that_they_had() -> None:
    plain, strategy = strategy_of(), over_epochs(Fraction(1, 2))
    assert "over_epochs" not in json.loads(plain.to_json())
    again = Strategy.from_json(strategy.to_json())
    assert (again, again.hash) == (strategy, strategy.hash)
    assert again.hash != replace(strategy, kind=kind_of(strategy.design)).hash
    other = kind_of(design_of((2, 2), Fraction(1, 3)))
    assert isinstance(strategy.kind, OverEpochs)
    assert isinstance(other, Tree)
    with pytest.raises(ValueError, match="levels over epochs"):
        replace(strategy.kind, tree=other)


def test_the_ledger_has_the_whole_epsilon(one: OneSource) -> None:
    async def run() -> None:
        await run_until(one, FIRST_BIN + EPOCH + 1)
        entries = await one.store.ledger(one.strategies[0].source)
        assert [Fraction(entry.epsilon) for entry in entries] == [NO_NOISE, NO_NOISE]
        assert one.strategies[0].design.epsilon == NO_NOISE / 2

    asyncio.run(run())


def test_the_api_answers_with_nodes_over_epochs_and_the_whole_epsilon(one: OneSource) -> None:
    async def ask(client: httpx.AsyncClient, path: str) -> Any:
        answer = await client.get(f"/v1/streams/{STREAM}/{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def run() -> None:
        await run_until(one, FIRST_BIN + 6 * EPOCH + 2)
        app = create_app(one.store.reader(), apart=SHARED)
        await app.state.replicas.refresh()
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            start, end = (bin * BIN_US // 10**6 for bin in (FIRST_BIN, FIRST_BIN + 6 * EPOCH))
            counted = await ask(client, f"count?start={start}&end={end}")
            assert counted["value"] == pytest.approx(true_count(FIRST_BIN, FIRST_BIN + 6 * EPOCH), abs=0.01)
            assert (await ask(client, "privacy"))["epsilon"] == str(NO_NOISE)
            other = await ask(client, f"preview?epsilon=0.5&start={start}&end={end}")
            assert (other["epsilon"], other["preview_epsilon"]) == (str(NO_NOISE), "0.5")
            assert other["preview_half_width"][0] > 1 > other["half_width"][0]

    asyncio.run(run())


def test_a_view_that_grows_answers_like_a_new_one(one: OneSource) -> None:
    async def run() -> None:
        view: StreamView | None = None
        for bin in range(1, 7 * EPOCH):
            await run_until(one, FIRST_BIN + bin)
            fresh, reader = await view_of(one.store), one.store.reader()
            state = await reader.public_state(STREAM)
            assert state is not None
            if view is None:
                view = fresh
            else:
                width = view.strategy.kind.tables
                wanted = view.missing(state)
                blocks = [(w, await reader.tile_rows(STREAM, *w, width[w.table])) for w in wanted]
                view.extend(state, blocks)
            grown, new = view.running(), fresh.running()
            assert (grown.value, grown.law, grown.rounding) == (new.value, new.law, new.rounding)

    asyncio.run(run())
