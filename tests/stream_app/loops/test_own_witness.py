"""Each worker has a witness of its own: who may start with which, and what a follower copies into its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream_app.loops.lease import Lease
from stream_app.loops.recovery import OwnWitness
from stream_app.loops.stream import Stream
from stream_app.ports import OperatorError
from tests.simulator.memory_sinks import MemoryWitness
from tests.stream_app.declared import STREAM
from tests.stream_app.loops.test_sharing import EXACT, bins_of
from tests.world import World
from tests.world.world import Worker

pytestmark = pytest.mark.slow


@pytest.fixture
def world() -> Iterator[World]:
    """Yield a world with one stream whose noise is zero."""
    with World(EXACT) as world:
        yield world


def lease(world: World, name: str) -> Lease:
    return Lease(world.store, STREAM, name, 5.0)


def join(world: World, name: str, witness: MemoryWitness) -> Worker:
    """Start a worker whose witness is its own. Args: name, of its lease."""
    return world.start(lease=lease(world, name), witness=witness)


@pytest.mark.parametrize("name", [None, "b"])
def test_a_start_with_another_witness_is_refused_once_readers_have_seen_rows(
    world: World, name: str | None
) -> None:
    kept, lost = MemoryWitness(), MemoryWitness()

    def start(witness: MemoryWitness, until: float) -> None:
        world.start(witness=witness, lease=None if name is None else lease(world, name))
        world.until(until)
        world.end()

    start(kept, 101.05)
    assert (len(world.stored()), world.rows()) == (1, [])
    start(MemoryWitness(), 101.06)  # nobody has seen the row
    world.until(102)
    start(kept, 102.15)
    before = world.state()
    with pytest.raises(
        OperatorError, match=rf"^stream {STREAM}: Redis has rows up to the bin of .*new-witness$"
    ):
        start(lost, 106)
    assert lost.kept.get(STREAM, []) == []
    assert world.state() == before
    assert world.run(lease(world, "other").held()), "a start that is refused holds no lease"
    world.run(lease(world, "other").give_up())
    start(kept, world.now + 0.5)


def test_a_worker_that_joins_witnesses_what_readers_see_and_may_start_alone_later(world: World) -> None:
    closes, joins = MemoryWitness(), MemoryWitness()
    join(world, "a", closes)
    world.until(102.2)
    join(world, "b", joins)
    world.until(103.9)
    assert joins.kept[STREAM] == closes.kept[STREAM]
    assert len(joins.kept[STREAM]) == 3
    world.end()
    join(world, "c", joins)
    world.until(106.2)
    assert world.bins() == [*range(100, 106)]


def test_after_a_loss_the_worker_that_followed_gives_no_bin_that_it_copied_noise_again(world: World) -> None:
    """The machine of the worker that closed is lost, with the store, which comes back from a copy."""
    closes, follows = MemoryWitness(), MemoryWitness()
    join(world, "a", closes)
    world.until(101.2)
    backup = world.backup()
    join(world, "b", follows)
    world.until(104.9)
    world.end()
    copied = list(follows.kept[STREAM])
    assert copied == closes.kept[STREAM]
    assert len(copied) == 4
    world.restore(backup)
    join(world, "b", follows)
    world.until(107.5)
    world.end()
    rows = follows.kept[STREAM]
    assert rows[:4] == copied
    assert world.bins() == [*range(100, 107)], "each bin once"
    assert world.epochs() == [(0, 100, 1), (1, 104, 5)]
    assert [row for _, row in world.stored()] == [row.row for row in rows]


def test_a_worker_that_follows_copies_nothing_that_nobody_sees_or_that_does_not_follow_its_rows(
    world: World,
) -> None:
    closes, follows = MemoryWitness(), MemoryWitness()
    following = OwnWitness(
        world.ports(witness=follows), Stream(strategy=EXACT, lease=lease(world, "follower"))
    )
    join(world, "a", closes)
    world.until(100.2)
    empty = world.backup()
    world.until(102.05)
    world.run(following.keep_up(EXACT))
    assert len(follows.kept[STREAM]) == 1, "a row is copied once readers see it"
    assert len(closes.kept[STREAM]) == 2
    world.until(102.9)
    world.end()
    world.run(following.keep_up(EXACT))
    kept = list(follows.kept[STREAM])
    assert kept == closes.kept[STREAM]
    # The store is set back, and a worker that knows nothing of it releases the bins again, and one more.
    world.restore(empty)
    world.arrive(101)
    join(world, "a", MemoryWitness())
    world.until(103.9)
    assert bins_of(world.rows()) == [100, 101, 102]
    world.run(following.keep_up(EXACT))
    assert follows.kept[STREAM] == kept, "its rows tell it later that the store was set back"
