"""Levels over epochs through the service: each node has one value, and long counts have smaller errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.epochs import EpochLevels
from dphist.tree.design import Release as ReleaseKind
from dphist.tree.design import TreeDesign
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds import kind_of
from stream_app.core.kinds.tables import OVER_EPOCHS, Span
from stream_app.core.kinds.tree import Tree
from stream_app.core.kinds.wrappers import EpochsState, OverEpochs
from stream_app.core.records import StreamState
from stream_app.core.releases import release
from stream_app.core.strategy import Strategy
from stream_app.loops.closer import NOISE_LOST
from stream_app.loops.next_epoch import following_start
from tests.examples import examples
from tests.oracles import KeyedNoise
from tests.stream_app.core.test_release import after, state_of
from tests.stream_app.declared import BIN_US, FIRST_BIN, NO_NOISE, STREAM, design_of, strategy_of
from tests.world import Struck, World, deaths, every_second, lost_call, lost_reply
from tests.world.faults import Fault
from tests.world.surfaces import grow

pytestmark = pytest.mark.slow

EPOCH = 4  # bins
BRANCHING = (2, 3)  # nodes of two and of six epochs


def over_epochs(epsilon: Fraction = NO_NOISE, kind: ReleaseKind = "causal") -> Strategy:
    """Return a strategy with epochs of four bins. Two levels over epochs get half of epsilon."""
    design = replace(design_of((2, 2), epsilon / 2), release=kind)
    levels = EpochLevels(design, epsilon, BRANCHING, (epsilon * 3 / 8, epsilon / 8))
    return replace(strategy_of(design), kind=kind_of(levels))


@pytest.fixture(params=["causal", "anticipating"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Yield a world with one stream without noise."""
    with World(over_epochs(kind=request.param)) as world:
        yield world


def run_until(world: World, bin: int, **changed: Any) -> None:
    """Count ``number % 5`` events in each bin, and release all bins before ``bin``, each by a new worker."""
    for now in range(int(world.now), bin):
        world.arrive(*[now] * (now % 5))
        world.run_until(now + 1, **changed)


def true_count(start: int, stop: int) -> int:
    return sum(bin % 5 for bin in range(start, stop))


def nodes_in(rows: list[dict[str, Any]]) -> dict[int, list[Any]]:
    """Return all nodes over epochs in the chain, by the bin of the row that holds them."""
    return {row["bin"] - FIRST_BIN: row["over_epochs"] for row in rows if row["over_epochs"]}


def test_nodes_are_released_with_the_last_bin_and_equal_a_recount(world: World) -> None:
    """Each bin has a new worker, so all state must be in the store."""
    run_until(world, FIRST_BIN + 6 * EPOCH + 2)
    expected: dict[int, list[Any]] = {}
    for number in range(3):
        first_bin = FIRST_BIN + 2 * EPOCH * number
        exact = true_count(first_bin, first_bin + 2 * EPOCH)
        expected[2 * EPOCH * (number + 1) - 1] = [[1, number, [exact]]]
    expected[6 * EPOCH - 1].append([2, 0, [true_count(FIRST_BIN, FIRST_BIN + 6 * EPOCH)]])
    assert nodes_in(world.rows()) == expected
    assert world.witnessed() == world.rows()
    view = world.view()
    for start, stop in ((0, 6 * EPOCH + 2), (1, 6 * EPOCH), (8, 16)):
        span = Span(FIRST_BIN + start, FIRST_BIN + stop)
        estimate = view.count(span)
        assert estimate.value == pytest.approx(true_count(*span), abs=estimate.rounding + 1e-9)


@pytest.mark.parametrize("fault", [lost_call, lost_reply])
@pytest.mark.parametrize("call", ["release", "open_epoch"])
def test_lost_replies_at_the_roll_over_neither_repeat_nor_skip_a_node(
    world: World, call: str, fault: Fault
) -> None:
    world.run_until(FIRST_BIN)
    world.start(store=Struck(world.store, **{call: every_second(fault)}))
    for bin in range(FIRST_BIN, FIRST_BIN + 6 * EPOCH + 1):
        world.arrive(*[bin] * (bin % 5))
        world.until(bin + 1)
    world.until(FIRST_BIN + 6 * EPOCH + 3)
    nodes = [node for some in nodes_in(world.rows()).values() for node in some]
    assert [(level, index) for level, index, _ in nodes] == [(1, 0), (1, 1), (1, 2), (2, 0)]
    assert nodes[0][2][0] + nodes[1][2][0] + nodes[2][2][0] == nodes[3][2][0]
    assert round(float(world.view().running().value)) == len(world.log.records["0"])


@pytest.mark.slow
def test_worker_that_dies_at_any_call_of_a_roll_over_leaves_each_node_once() -> None:
    """The calls run from the last bins of the second epoch into the third. Each node has one value."""
    with World(over_epochs(kind="anticipating")) as before:
        run_until(before, FIRST_BIN + 2 * EPOCH - 1)
    number = 0
    for death in deaths():
        number += 1
        with World(over_epochs(kind="anticipating"), following=before) as world:
            run_until(world, FIRST_BIN + 2 * EPOCH + 1, death=death)
            seen = world.stored()
            run_until(world, FIRST_BIN + 4 * EPOCH)
            assert world.stored()[: len(seen)] == seen
            nodes = [node for some in nodes_in(world.rows()).values() for node in some]
            assert [node[:2] for node in nodes] == [[1, 0], [1, 1]]
            view = world.view()
            for index, (_, _, (value,)) in enumerate(nodes):
                epochs = view.epochs[2 * index : 2 * index + 2]
                assert value == sum(round(epoch.published[-1][0] / 2**16) for epoch in epochs)
    assert number > 20


def test_an_epoch_that_ends_early_breaks_off_what_is_open(world: World) -> None:
    """Three epochs are complete and one ends early: its node over two epochs is never released."""
    run_until(world, FIRST_BIN + 3 * EPOCH + 1)
    state = world.state()
    world.run(world.store.end_epoch(STREAM, state.epoch.epoch, state.seq, NOISE_LOST))
    again = 3 * EPOCH + 1
    run_until(world, FIRST_BIN + again + 3 * EPOCH)
    nodes = nodes_in(world.rows())
    later = true_count(FIRST_BIN + again, FIRST_BIN + again + 2 * EPOCH)
    assert list(nodes) == [2 * EPOCH - 1, again + 2 * EPOCH - 1]
    assert nodes[again + 2 * EPOCH - 1] == [[1, 0, [later]]]
    view = world.view()
    assert view.count(view.span).value == pytest.approx(true_count(*view.span), abs=1e-2)


def test_a_store_that_was_set_back_begins_new_nodes(world: World) -> None:
    run_until(world, FIRST_BIN + EPOCH + 1)
    backup = world.backup()
    run_until(world, FIRST_BIN + 2 * EPOCH)  # the first node over two epochs is released
    world.restore(backup)
    run_until(world, FIRST_BIN + 4 * EPOCH)
    later = true_count(FIRST_BIN + 2 * EPOCH, FIRST_BIN + 4 * EPOCH)
    told = nodes_in(world.witnessed())
    assert list(told) == [2 * EPOCH - 1, 4 * EPOCH - 1]
    assert told[4 * EPOCH - 1] == [[1, 0, [later]]]


def test_nobody_sees_a_row_over_epochs_before_its_bin(world: World) -> None:
    reader = world.store.reader()
    run_until(world, FIRST_BIN + EPOCH - 1)
    with pytest.raises(ValueError, match="0 are visible"):
        world.run(reader.tile_rows(STREAM, 0, OVER_EPOCHS, 0, 1, 3))
    run_until(world, FIRST_BIN + EPOCH)
    assert world.run(reader.tile_rows(STREAM, 0, OVER_EPOCHS, 0, 1, 3)).tolist() == [[1, 0, 0]]
    held = world.state().counter
    assert str(true_count(FIRST_BIN, FIRST_BIN + EPOCH)) not in repr(EpochsState.from_bytes(held))
    with pytest.raises(ValueError, match="damaged"):
        EpochsState.from_bytes(held[1:])


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


@pytest.fixture(params=["causal", "anticipating"])
def nine_epochs(request: pytest.FixtureRequest) -> StreamView:
    """Return a view of nine complete epochs and half of the next, without events."""
    with World(over_epochs(Fraction(1, 2), request.param)) as world:
        world.run_until(FIRST_BIN + 9 * EPOCH + 2)
        return world.view()


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


def test_the_ledger_and_the_api_say_the_whole_epsilon(world: World) -> None:
    run_until(world, FIRST_BIN + 6 * EPOCH + 2)
    assert {Fraction(entry.epsilon) for entry in world.ledger()} == {NO_NOISE}
    assert world.strategies[0].design.epsilon == NO_NOISE / 2
    start, end = (bin * BIN_US // 10**6 for bin in (FIRST_BIN, FIRST_BIN + 6 * EPOCH))
    counted = world.json(f"count?start={start}&end={end}")
    assert counted["value"] == pytest.approx(true_count(FIRST_BIN, FIRST_BIN + 6 * EPOCH), abs=0.01)
    assert world.json("privacy")["epsilon"] == str(NO_NOISE)
    other = world.json(f"preview?epsilon=0.5&start={start}&end={end}")
    assert (other["epsilon"], other["preview_epsilon"]) == (str(NO_NOISE), "0.5")
    assert other["preview_half_width"][0] > 1 > other["half_width"][0]


def test_a_view_that_grows_answers_like_a_new_one(world: World) -> None:
    run_until(world, FIRST_BIN + 1)
    view = world.view()
    for bin in range(2, 7 * EPOCH):
        run_until(world, FIRST_BIN + bin)
        world.run(grow(view, world.public_reader(), STREAM))
        grown, new = view.running(), world.view().running()
        assert (grown.value, grown.law, grown.rounding) == (new.value, new.law, new.rounding)
