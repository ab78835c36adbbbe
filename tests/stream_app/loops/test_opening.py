"""Opening a stream: refusals, the kept tree, and the next epoch's first bin after the store was set back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dphist.noise import SeededNoise
from stream_app.core.kinds import kind_of
from stream_app.core.records import Cut, EpochRecord, Reply
from stream_app.core.strategy import Strategy
from stream_app.loops.cutting import Cutter
from stream_app.loops.ingest import Ingest
from stream_app.loops.loaded_streams import LoadedStreams
from stream_app.ports import OperatorError
from tests.simulator.memory_sinks import MemoryWitness
from tests.stream_app.declared import changed, design_of, strategy_of
from tests.world import Struck, World, first, lost_call
from tests.world.faults import Call


@pytest.fixture
def world() -> Iterator[World]:
    """Yield a world with one stream. Its first bin is 100, and its epochs have six bins."""
    with World(strategy_of()) as world:
        yield world


def release_until(world: World, bin: int) -> None:
    """Count an event in each bin and release every bin before ``bin``, with one new worker."""
    worker = world.start()
    for now in range(int(world.now), bin):
        world.until(now + 0.4)
        world.arrive(now)
    world.until(bin + 0.35)
    world.end(worker)


def once_each(start: int, stop: int) -> dict[int, int]:
    return dict.fromkeys(range(start, stop), 1)


def test_an_epoch_is_in_the_ledger_and_follows_the_one_before(world: World) -> None:
    release_until(world, 108)
    assert world.epochs() == [(0, 100, 1), (1, 106, 7)]
    assert world.reserved() == [("visits", 0, 100), ("visits", 1, 106)]
    assert world.counts() == once_each(100, 108)


def test_a_late_event_of_an_ended_epoch_counts_in_the_next(world: World) -> None:
    release_until(world, 107)
    world.arrive(103)
    world.run_until(108)
    assert world.counts() == once_each(100, 108)
    assert world.letters.reasons() == []


def test_a_store_that_was_set_back_ends_the_epoch(world: World) -> None:
    release_until(world, 103)
    backup = world.backup()
    release_until(world, 108)  # one epoch further
    seen = world.witnessed()
    world.restore(backup)
    release_until(world, 110)
    assert world.epochs() == [(0, 100, 1), (1, 106, 7), (2, 108, 9)]
    # The entries that the store lost are in the ledger again.
    assert sorted(world.reserved()) == [("visits", 0, 100), ("visits", 1, 106), ("visits", 2, 108)]
    assert world.witnessed()[:8] == seen
    assert world.counts() == once_each(100, 110)
    # The events of bins 103 to 107 are read again and refused: people have seen nodes that count them.
    assert world.letters.reasons() == ["before_first_bin"] * 5


def test_a_worker_that_knows_a_lost_epoch_measures_no_record_twice(world: World) -> None:
    """By the lost epoch's rules the record would be late, and count once more in the next open bin."""
    world.arrive(100)
    release_until(world, 101)
    backup = world.backup()
    release_until(world, 103)
    seen = world.witnessed()
    world.restore(backup)
    state, [strategy] = world.state(), world.strategies
    # A cut that another worker took before the record arrived, and that arrives only now.
    cut = Cut(102, state.partitions["0"].position)
    taken = world.store.take_cuts(strategy.stream, strategy.hash, "0", 100, [cut])
    assert world.run(taken) is Reply.DONE
    after = EpochRecord(1, 103, state.epoch.bins, len(seen) + 1, strategy.hash)

    async def opened_meanwhile(call: Call) -> Any:
        await world.store.open_epoch(strategy.stream, state.strategy, after, "f" * 64)
        return await call()

    ports = world.ports(store=Struck(world.store, apply=first(opened_meanwhile)))
    views = LoadedStreams([strategy.stream])
    world.run(Ingest(ports, Cutter(ports, views), views).step())
    assert world.letters.reasons() == ["before_first_bin"] * 2
    assert not world.secrets().exact_counts


def test_an_empty_store_goes_on_after_the_witness(world: World) -> None:
    release_until(world, 103)
    world.restore()
    release_until(world, 105)
    assert world.epochs() == [(0, 100, 1), (1, 103, 4)]
    assert world.reserved() == [("visits", 0, 100), ("visits", 1, 103)]
    assert [row["bin"] for row in world.witnessed()] == [100, 101, 102, 103, 104]
    assert world.counts() == once_each(100, 105)


def test_another_chain_than_the_witness_s_is_left(world: World) -> None:
    """Two stores released rows under one witness. The store whose rows the witness lacks releases no more."""
    release_until(world, 102)
    backup, kept = world.backup(), MemoryWitness()
    kept.kept = {name: list(rows) for name, rows in world.witness.kept.items()}
    release_until(world, 103)
    world.restore(backup)
    # A worker with a copy of the witness from before continues, and releases bin 102 again. Nobody sees it.
    world.arrive(102)
    blind = world.start(witness=kept)
    world.until(103.38)
    world.end(blind)
    assert len(world.stored()) == 3
    assert world.stored()[2][1] != world.witness.kept["visits"][2].row
    world.run_until(103.5)
    assert world.epochs()[-1] == (1, 103, 4)
    assert world.stored() == [row[:2] for row in world.witness.kept["visits"]]


def test_an_interrupted_opening_is_taken_up() -> None:
    """A live stream starts in the bin of its first start, even if that start opened no epoch."""
    with World(strategy_of(first_us=None)) as world:
        with pytest.raises(ConnectionError):
            world.run_until(100, store=Struck(world.store, open_epoch=first(lost_call)))
        world.until(103)
        world.run_until(104)
        assert world.epochs() == [(0, 100, 1)]
        assert world.reserved() == [("visits", 0, 100)]


def refusal(world: World, strategy: Strategy, **changed: object) -> str:
    """Return the one line with which a worker is refused that starts with another strategy."""
    with pytest.raises(OperatorError) as refused:
        world.run_until(world.now, strategies=[strategy], **changed)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("changed", "named", "may_continue"),
    [
        (strategy_of(field="then"), "time.field was at when the stream began and is then now", False),
        (strategy_of(bin_us=500_000), "time.bin was 10s when the stream began and is 500ms now", True),
        (strategy_of(bins=3), "source.replay was not set when the stream began and is from 1970-01-", False),
        (strategy_of(source="elsewhere"), "source was file:visits", False),
        (
            Strategy("visits", strategy_of().declared, kind_of(design_of(), 2)),
            "the number of counted cells was 1",
            True,
        ),
    ],
)
def test_another_declaration_is_refused_by_its_key(
    world: World, changed: Strategy, named: str, may_continue: bool
) -> None:
    world.run_until(100)
    line = refusal(world, changed)
    assert named in line
    assert ("successor_of" in line) == may_continue


def read_from(state_id: str | None) -> Strategy:
    """Return the strategy of a stream that reads a file, with the id of a state directory."""
    strategy = strategy_of()
    return replace(strategy, declared=changed(strategy.declared, source={"state_id": state_id}))


@pytest.mark.parametrize("began", ["here", None])
def test_a_file_goes_on_from_its_state_directory(world: World, began: str | None) -> None:
    """A stream from before state directories had ids continues in any directory."""
    world.run_until(100, strategies=[read_from(began)])
    world.run_until(102, strategies=[read_from("here")])
    assert world.epochs() == [(0, 100, 1)]


def test_a_file_is_refused_from_another_state_directory(world: World) -> None:
    """In another directory, the same path may be another file, in which positions mean nothing."""
    world.run_until(100, strategies=[read_from("here")])
    assert "whose file id holds here (here there)" in refusal(world, read_from("there"))


def test_a_running_stream_keeps_the_tree_it_began_with(world: World) -> None:
    world.run_until(100)
    world.run_until(102, strategies=[strategy_of(design_of((3, 2)))])
    assert Strategy.from_json(world.state().strategy).design.branching == (2, 3)


def test_a_stream_that_began_with_a_share_per_node_is_refused(world: World) -> None:
    """The intervals of such streams held less often than stated, so a start refuses them in one line."""
    world.run_until(100)
    fields = json.loads(world.state().strategy)
    fields["design"] = json.dumps(json.loads(fields["design"]) | {"share_parts": "AAEC"})
    world.secrets().begin_anew(json.dumps(fields).encode())
    line = refusal(world, strategy_of())
    assert "visits: it began with a share " in line
    assert line.endswith(" another name")


def test_second_measurement_needs_the_words_of_consent(world: World) -> None:
    again, without_consent = strategy_of(stream="again"), {"accept": None}
    world.run_until(100)
    assert "already measured by visits" in refusal(world, again, ledger=without_consent)
    assert world.run(world.store.load("again")) is None
    assert world.reserved() == [("visits", 0, 100)]
    world.run_until(102, strategies=[again])
    # The stream runs: consent was needed only the first time.
    world.run_until(103, strategies=[again], ledger=without_consent)
    assert ("again", 0, 100) in world.reserved()


def test_the_witness_of_another_strategy_is_refused(world: World) -> None:
    release_until(world, 102)
    world.restore()
    assert "time.grace was 0s when the stream began and is 5us now" in refusal(world, strategy_of(grace_us=5))


def test_the_place_of_an_epoch_in_the_ledger_is_taken(world: World) -> None:
    """The stream's state is gone, but its ledger entries remain. So a new start cannot reserve its epoch."""
    world.run_until(100)
    world.secrets().begin_anew(None)
    assert "another measurement in the place of" in refusal(world, strategy_of(grace_us=5))


def test_seeded_noise_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="SeededNoise can be repeated"):
        world.start(noise=SeededNoise(1))
