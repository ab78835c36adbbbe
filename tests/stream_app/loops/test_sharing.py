"""Several workers share a stream: one at a time closes it, and rows reach readers at public instants only.

Each may have a witness of its own: who may start with which, and what a follower copies into its own.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_app.core.records import WitnessRow
from stream_app.loops.clocks import LiveClock
from stream_app.loops.lease import Lease
from stream_app.loops.recovery import OwnWitness
from stream_app.loops.stream import Stream
from stream_app.ports import NoiseKeys, OperatorError
from stream_app.vault.key_files import KeyFiles
from stream_app.vault.key_ring import KeyRing, SharedKey
from tests.simulator.memory_sinks import MemoryWitness
from tests.stream_app.declared import BIN_US, STREAM, design_of, strategy_of
from tests.world import Struck, World, first, slow
from tests.world.faults import Call
from tests.world.world import Worker

pytestmark = pytest.mark.slow

BIN_S = BIN_US / 1e6
EXACT = strategy_of(design_of((2, 3)))
AHEAD = strategy_of(replace(design_of((2, 3)), release="anticipating"))


class OneWriter(MemoryWitness):
    """A witness that accepts rows only from the worker that claimed it last, as a topic does."""

    def __init__(self) -> None:
        super().__init__()
        self.claims = self.fenced = 0

    def seen_by_a_worker(self) -> _WorkersWitness:
        """Return the witness as a single worker uses it."""
        return _WorkersWitness(self)


class _WorkersWitness:
    def __init__(self, witness: OneWriter) -> None:
        self.witness, self.claimed = witness, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.witness, name)

    async def head(self, stream: str) -> tuple[int, bytes] | None:
        return await self.witness.head(stream)

    async def claim(self, stream: str) -> None:
        self.witness.claims += 1
        self.claimed = self.witness.claims

    async def resign(self, stream: str) -> None:
        self.claimed = 0

    async def append(self, stream: str, rows: Sequence[WitnessRow]) -> None:
        if self.claimed != self.witness.claims:
            self.witness.fenced += 1
            raise ConnectionError("fenced")
        await self.witness.append(stream, rows)


class Shared(World):
    """A world whose witness is a topic."""

    def __init__(self, strategy: Any, **options: Any) -> None:
        super().__init__(strategy, **options)
        self.topic = self.witness = OneWriter()

    def join(self, name: str, lease_s: float = 60.0, **changed: Any) -> Worker:
        """Start a worker that may close the stream. Args: name, of its lease."""
        store = changed.setdefault("store", self.store)
        changed.setdefault("witness", self.topic.seen_by_a_worker())
        return self.start(lease=Lease(store, STREAM, name, lease_s), witness_is_public=True, **changed)


@pytest.fixture
def world() -> Iterator[Shared]:
    """Yield a world with one stream whose noise is zero."""
    with Shared(EXACT) as world:
        world.arrive(100)
        yield world


def bins_of(rows: list[dict[str, Any]]) -> list[int]:
    return [row["bin"] for row in rows]


def test_rows_reach_a_public_witness_at_public_instants_only(world: Shared) -> None:
    world.join("a")
    world.until(101.05)
    assert len(world.stored()) == 1
    assert world.witnessed() == world.rows() == []
    world.until(101.15)
    assert bins_of(world.witnessed()) == world.bins() == [100]


@pytest.mark.parametrize("moment", ["head", "append"])
def test_a_row_released_while_the_witness_is_written_waits_for_the_next_instant(
    world: Shared, moment: str
) -> None:
    """How long closing takes depends on the events; it must not choose the instant of a row."""
    late = first(slow(0.96 * BIN_S))

    async def at_the_instant(call: Call) -> Any:
        return await (late(call) if world.now > 101.09 else call())

    world.join("a", witness=Struck(world.topic.seen_by_a_worker(), **{moment: at_the_instant}))
    world.until(102.08)  # the row of bin 101 was released at 102, and row 100 was written at 102.06
    assert len(world.stored()) == 2
    assert bins_of(world.witnessed()) == world.bins() == [100]
    world.until(102.2)
    assert bins_of(world.witnessed()) == world.bins() == [100, 101]


@pytest.mark.parametrize("public", [True, False])
def test_a_row_released_after_an_instant_waits_even_if_the_loop_is_late(public: bool) -> None:
    """There is one instant a bin, and each bin closes just after one, while the loop is late for it."""

    async def late(call: Call) -> Any:
        await call()
        await asyncio.sleep(0.2 * BIN_S)

    with World(strategy_of(grace_us=BIN_US // 100)) as world:
        wall = Struck(LiveClock(world.store), sleep_until_us=late)
        world.start(wall=wall, witness_is_public=public, publish_every_us=BIN_US)
        world.until(102.3)
        assert len(world.stored()) == 2
        assert world.bins() == [100]
        world.until(103.3)
        assert world.bins() == [100, 101]


def test_a_worker_takes_over_and_its_predecessor_is_kept_out(world: Shared) -> None:
    """The first worker's calls stand still for longer than its lease, just before it shows a row."""

    stopped: list[float] = []

    async def stops(call: Call) -> Any:
        stopped.append(world.now)
        await asyncio.sleep(0.5 * BIN_S)
        return await call()

    async def held(call: Call) -> Any:
        return await (slow(0.5 * BIN_S)(call) if stopped else call())

    witness = Struck(world.topic.seen_by_a_worker(), append=first(stops))
    world.join("a", lease_s=3.0, store=Struck(world.store, hold=held), witness=witness)
    world.until(101.2)
    world.join("b")
    world.until(104.2)
    assert world.topic.fenced > 0
    assert bins_of(world.witnessed()) == world.bins() == [100, 101, 102, 103]
    assert world.topic.claims >= 2


def test_a_second_worker_waits_until_the_closing_one_has_ended_the_epoch(world: Shared) -> None:
    """After a store was set back, a worker must count nothing before the epoch has ended."""
    world.join("a", store=Struck(world.store, end_epoch=slow(0.1 * BIN_S)))
    world.join("b")
    world.until(100.5)
    backup = world.backup()
    world.until(101.3)
    world.restore(backup)
    world.arrive(101)
    world.until(104)
    assert world.epochs() == [(0, 100, 1), (1, 101, 2)]
    assert world.counts() == {100: 1, 101: 1}


def test_another_declaration_is_refused_by_who_does_not_close_as_well(world: Shared) -> None:
    world.join("a")
    world.until(100.5)
    other = strategy_of(design_of((2, 3)), field="then")
    with pytest.raises(ValueError, match=r"time\.field was at when the stream began and is then now"):
        world.run_until(world.now, strategies=[other], lease=Lease(world.store, STREAM, "b"))


def test_a_lease_is_asked_for_again_before_it_ends_and_begins_a_term_when_it_lapsed(world: Shared) -> None:
    async def run() -> None:
        lease = Lease(world.store, STREAM, "a", lease_s=2.0)
        assert await lease.held()
        await asyncio.sleep(1.0)
        assert await lease.held()
        assert lease.term == 1
        await asyncio.sleep(2.1)
        assert await lease.held()
        assert lease.term == 2
        await lease.give_up()
        assert await Lease(world.store, STREAM, "b", 60).held()
        assert not await lease.held()

    world.run(run())


def test_a_closing_that_takes_long_does_not_lose_the_lease(world: Shared) -> None:
    world.join("a", lease_s=5.0, store=Struck(world.store, seal=slow(3 * BIN_S)))
    other = Lease(world.store, STREAM, "b")
    for bin in (100.5, 101.5, 102.5, 103.5):
        world.until(bin)
        assert not world.run(other.held())


def files(folder: Path, name: str) -> NoiseKeys:
    """Return the keys of a machine, in files."""
    return KeyFiles(folder / name)


def secret(folder: Path, name: str) -> NoiseKeys:
    """Return the keys of a shared secret."""
    return SharedKey(KeyRing.of(name.encode().ljust(32)))


@pytest.mark.parametrize("keys", [files, secret])
def test_a_worker_without_the_keys_of_the_one_that_closes_is_refused(
    tmp_path: Path, keys: Callable[[Path, str], NoiseKeys]
) -> None:
    """The worker runs on another machine, without a shared secret or with another secret."""
    with Shared(AHEAD) as world:
        world.join("a", keys=keys(tmp_path, "a"))
        world.until(100.5)
        world.join("b", keys=keys(tmp_path, "b"))
        with pytest.raises(OperatorError, match=r"secrets\.key_file"):
            world.until(104)
        assert world.epochs() == [(0, 100, 1)]


@pytest.mark.parametrize("keys", [files, secret])
def test_a_worker_with_the_same_keys_may_follow(
    tmp_path: Path, keys: Callable[[Path, str], NoiseKeys]
) -> None:
    """The workers share a machine or a secret."""
    with Shared(AHEAD) as world:
        for name, bin in (("a", 100.5), ("b", 102), ("c", 107.5)):  # an epoch has six bins
            world.join(name, keys=keys(tmp_path, "same"))
            world.until(bin)
        world.until(109)
        assert world.epochs() == [(0, 100, 1), (1, 106, 7)]


def test_a_successor_without_the_keys_takes_over_and_ends_the_epoch(tmp_path: Path) -> None:
    """No other worker has the keys, so the noise is lost, and the epoch's record says so."""
    with Shared(AHEAD) as world:
        gone = world.join("a", lease_s=1.0, keys=files(tmp_path, "a"))
        world.until(100.5)
        world.end(gone)
        world.join("b", keys=files(tmp_path, "b"))
        world.until(103)
        assert world.epochs()[0] == (0, 100, 1)
        assert world.epochs()[-1][0] == 1


@pytest.fixture
def alone() -> Iterator[World]:
    """Yield a world with one stream whose noise is zero; its workers share no witness."""
    with World(EXACT) as world:
        yield world


def lease(world: World, name: str) -> Lease:
    return Lease(world.store, STREAM, name, 5.0)


def join(world: World, name: str, witness: MemoryWitness) -> Worker:
    """Start a worker whose witness is its own. Args: name, of its lease."""
    return world.start(lease=lease(world, name), witness=witness)


@pytest.mark.parametrize("name", [None, "b"])
def test_a_start_with_another_witness_is_refused_once_readers_have_seen_rows(
    alone: World, name: str | None
) -> None:
    kept, lost = MemoryWitness(), MemoryWitness()

    def start(witness: MemoryWitness, until: float) -> None:
        alone.start(witness=witness, lease=None if name is None else lease(alone, name))
        alone.until(until)
        alone.end()

    start(kept, 101.05)
    assert (len(alone.stored()), alone.rows()) == (1, [])
    start(MemoryWitness(), 101.06)  # nobody has seen the row
    alone.until(102)
    start(kept, 102.7)  # workers that share a stream wait half a bin for others with more rows
    before = alone.state()
    with pytest.raises(
        OperatorError, match=rf"^stream {STREAM}: Redis has rows up to the bin of .*new-witness$"
    ):
        start(lost, 106)
    assert lost.kept.get(STREAM, []) == []
    assert alone.state() == before
    assert alone.run(lease(alone, "other").held()), "a start that is refused holds no lease"
    alone.run(lease(alone, "other").give_up())
    start(kept, alone.now + 0.5)


def test_a_worker_that_joins_witnesses_what_readers_see_and_may_start_alone_later(alone: World) -> None:
    closes, joins = MemoryWitness(), MemoryWitness()
    join(alone, "a", closes)
    alone.until(102.2)
    join(alone, "b", joins)
    alone.until(103.9)
    assert joins.kept[STREAM] == closes.kept[STREAM]
    assert len(joins.kept[STREAM]) == 3
    alone.end()
    join(alone, "c", joins)
    alone.until(106.2)
    assert alone.bins() == [*range(100, 106)]


def test_after_a_loss_the_worker_that_followed_gives_no_bin_that_it_copied_noise_again(alone: World) -> None:
    """The machine of the worker that closed is lost, with the store, which comes back from a copy."""
    closes, follows = MemoryWitness(), MemoryWitness()
    join(alone, "a", closes)
    alone.until(101.2)
    backup = alone.backup()
    join(alone, "b", follows)
    alone.until(104.9)
    alone.end()
    copied = list(follows.kept[STREAM])
    assert copied == closes.kept[STREAM]
    assert len(copied) == 4
    alone.restore(backup)
    join(alone, "b", follows)
    alone.until(107.5)
    alone.end()
    rows = follows.kept[STREAM]
    assert rows[:4] == copied
    assert alone.bins() == [*range(100, 107)], "each bin once"
    assert alone.epochs() == [(0, 100, 1), (1, 104, 5)]
    assert [row for _, row in alone.stored()] == [row.row for row in rows]


def test_a_worker_that_follows_copies_nothing_that_nobody_sees_or_that_does_not_follow_its_rows(
    alone: World,
) -> None:
    closes, follows = MemoryWitness(), MemoryWitness()
    following = OwnWitness(
        alone.ports(witness=follows), Stream(strategy=EXACT, lease=lease(alone, "follower"))
    )
    join(alone, "a", closes)
    alone.until(100.2)
    empty = alone.backup()
    alone.until(102.05)
    alone.run(following.keep_up(EXACT))
    assert len(follows.kept[STREAM]) == 1, "a row is copied once readers see it"
    assert len(closes.kept[STREAM]) == 2
    alone.until(102.9)
    alone.end()
    alone.run(following.keep_up(EXACT))
    kept = list(follows.kept[STREAM])
    assert kept == closes.kept[STREAM]
    # The store is set back, and a worker that knows nothing of it releases the bins again, and one more.
    alone.restore(empty)
    alone.arrive(101)
    join(alone, "a", MemoryWitness())
    alone.until(103.9)
    assert bins_of(alone.rows()) == [100, 101, 102]
    alone.run(following.keep_up(EXACT))
    assert follows.kept[STREAM] == kept, "its rows tell it later that the store was set back"


class Forgetful:
    """A stream whose store was set back, and two workers, each with its own witness.

    Worker "a" has closed bins 100 to 102; "b" has copied bin 100 only, as has the backup.
    """

    def __init__(self, world: World) -> None:
        self.world, self.remembers, self.forgets = world, MemoryWitness(), MemoryWitness()
        join(world, "a", self.remembers)
        world.until(101.2)
        self.forgets.kept[STREAM] = list(self.remembers.kept[STREAM])
        backup = world.backup()
        world.until(103.9)
        world.end()
        self.shown = list(self.remembers.kept[STREAM])
        world.restore(backup)

    def rows(self, witness: MemoryWitness) -> list[bytes]:
        """Return the rows of a witness."""
        return [row.row for row in witness.kept[STREAM]]


def test_after_a_loss_the_worker_whose_witness_has_most_rows_closes_first(alone: World) -> None:
    """The other one holds the lease already, and its witness agrees with the store."""
    one = Forgetful(alone)
    join(alone, "b", one.forgets)
    alone.until(alone.now + 0.1)
    join(alone, "a", one.remembers)
    alone.until(107.5)
    assert one.remembers.kept[STREAM][:3] == one.shown, "no row has a second value"
    assert one.rows(one.forgets) == one.rows(one.remembers) == [row for _, row in alone.stored()]
    assert alone.epochs() == [(0, 100, 1), (1, 103, 4)]
    assert alone.bins() == [*range(100, 107)]


def test_a_worker_without_the_lost_rows_closes_when_none_comes_that_has_them(alone: World) -> None:
    one = Forgetful(alone)
    join(alone, "b", one.forgets)
    alone.until(alone.now + 0.4)
    assert len(alone.stored()) == 1
    alone.until(107.5)
    assert alone.bins() == [*range(100, 107)]


def test_a_worker_that_comes_too_late_with_lost_rows_ends_one_epoch_and_both_go_on(
    alone: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The bins of its rows have got noise again: no worker that ran had these rows."""
    one = Forgetful(alone)
    join(alone, "b", one.forgets)
    alone.until(106.5)
    join(alone, "a", one.remembers)
    alone.until(112.5)
    assert alone.bins() == [*range(100, 112)]
    assert alone.epochs()[:2] == [(0, 100, 1), (1, 106, 7)]
    assert one.rows(one.forgets) == [row for _, row in alone.stored()]
    assert one.rows(one.remembers) == [*(row.row for row in one.shown), *one.rows(one.forgets)[6:]]
    assert "are missing" not in caplog.text


class Disk(MemoryWitness):
    """A witness on a disk that may be full."""

    is_full = False

    async def append(self, stream: str, rows: Sequence[WitnessRow]) -> None:
        """Keep the rows if there is room."""
        if self.is_full:
            raise OSError(errno.ENOSPC, "state.dir: its disk is full")
        await super().append(stream, rows)


def test_a_worker_whose_disk_is_full_hands_its_streams_over_until_it_has_room(
    alone: World, caplog: pytest.LogCaptureFixture
) -> None:
    disks = {"a": Disk(), "b": Disk()}
    for name, disk in disks.items():
        join(alone, name, disk)
    alone.until(102.3)
    first = alone.store.leases[STREAM][0]
    [other] = disks.keys() - {first}
    disks[first].is_full = True
    alone.until(103.9)
    closers = set[str]()
    for tenth in range(100):  # longer than a worker that is not preferred keeps a lease
        alone.until(104 + tenth / 10)
        closers.add(alone.store.leases[STREAM][0])
    assert closers == {other}
    assert alone.bins() == [*range(100, 113)]
    assert caplog.text.count("this worker cannot write its witness") == 1
    disks[first].is_full = False
    alone.until(115)
    assert disks[first].kept == disks[other].kept
    disks[other].is_full = True
    alone.until(119)
    assert alone.store.leases[STREAM][0] == first
    assert alone.bins() == [*range(100, 118)]


def test_a_worker_alone_goes_on_when_its_disk_has_room_again(alone: World) -> None:
    disk = Disk()
    join(alone, "a", disk)
    alone.until(101.2)
    disk.is_full = True
    alone.until(104)
    assert alone.bins() == [100]
    disk.is_full = False
    alone.until(104.35)
    assert alone.bins() == [*range(100, 104)]
