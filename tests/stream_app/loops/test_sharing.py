"""Several workers share a stream. One at a time closes it, and reads the witness again after a failure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stream_app.core.records import WitnessRow
from stream_app.core.strategy import Strategy
from stream_app.loops.closer import Closer
from stream_app.loops.lease import Lease, keep
from stream_app.ports import OperatorError
from stream_app.together import until_one_ends
from stream_app.vault.key_files import KeyFiles
from stream_app.vault.key_ring import KeyRing
from stream_app.vault.shared_key import SharedKey
from tests.patience import PATIENCE_S, ended
from tests.simulator.loop import simulate
from tests.simulator.memory_sinks import MemoryWitness
from tests.stream_app.declared import FIRST_BIN, STREAM, design_of, strategy_of
from tests.stream_app.one_source import OneSource

pytestmark = pytest.mark.slow

EXACT = strategy_of(design_of((2, 3)))


class OneWriter(MemoryWitness):
    """A witness that accepts rows only from the worker that claimed it last, as a topic does."""

    def __init__(self) -> None:
        super().__init__()
        self.claims = 0

    def seen_by_a_worker(self) -> _WorkersWitness:
        """Return the witness as a single worker uses it."""
        return _WorkersWitness(self)


class _WorkersWitness:
    def __init__(self, witness: OneWriter) -> None:
        self._witness = witness
        self._claim = 0
        self.head, self.rows = witness.head, witness.rows

    async def claim(self, stream: str) -> None:
        self._witness.claims += 1
        self._claim = self._witness.claims

    async def resign(self, stream: str) -> None:
        self._claim = 0

    async def append(self, stream: str, rows: Sequence[WitnessRow]) -> None:
        if self._claim != self._witness.claims:
            raise ConnectionError("fenced")
        await self._witness.append(stream, rows)


class SharedSource(OneSource):
    """A file and a store, with a witness that accepts rows of one writer at a time."""

    witness: OneWriter

    def __init__(self, directory: Path, *strategies: Strategy) -> None:
        super().__init__(directory, *strategies)
        self.witness = OneWriter()


@pytest.fixture
def one(tmp_path: Path) -> Iterator[SharedSource]:
    """Yield a service with one stream whose noise is zero."""
    with closing(SharedSource(tmp_path, EXACT)) as one:
        yield one


def worker(one: SharedSource, name: str, lease_s: float = 60.0) -> Closer:
    """Start a worker that may close the stream. Its witness behaves like a topic."""
    lease = Lease(one.store, STREAM, name, lease_s)
    witness = one.witness.seen_by_a_worker()
    return one.closer(witness=witness, sharing={"lease": lease, "witness_is_public": True})


async def count_to(one: SharedSource, closer: Closer, bin: int, *events: float) -> None:
    """Count events and cut every bin before ``bin``."""
    await closer.agree()
    one.append(*events)
    one.clock.set_bin(bin)
    ingest = one.ingest()
    while await ingest.step():
        pass


def witnessed(one: SharedSource) -> list[tuple[int, int]]:
    rows = [json.loads(row.row) for row in one.witness.kept.get(STREAM, [])]
    return [(row["epoch"], row["bin"]) for row in rows]


def test_rows_reach_a_public_witness_at_public_instants_only(one: SharedSource) -> None:
    async def run() -> None:
        closer = worker(one, "a")
        await count_to(one, closer, FIRST_BIN + 2, FIRST_BIN)
        await closer.close_due()
        assert await one.released() == {FIRST_BIN: 1, FIRST_BIN + 1: 0}
        assert witnessed(one) == []
        assert (await visible(one)) == 0
        await closer.publisher.publish()
        assert witnessed(one) == [(0, FIRST_BIN), (0, FIRST_BIN + 1)]
        assert (await visible(one)) == 2

    asyncio.run(run())


async def visible(one: SharedSource) -> int:
    state = await one.store.reader().public_state(STREAM)
    assert state is not None
    return state.visible_seq


def _later_s(now_s: Callable[[], float]) -> float:
    """Return the time after the end of every lease."""
    return now_s() + 61


def test_a_worker_takes_over_and_its_predecessor_is_kept_out(
    one: SharedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        first, second = worker(one, "a"), worker(one, "b")
        await count_to(one, first, FIRST_BIN + 1, FIRST_BIN)
        await first.close_due()
        # The worker is stopped for longer than its lease, with a row that it has not made visible.
        one.clock.set_bin(FIRST_BIN + 1.5)
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", partial(_later_s, loop.time))
        one.store._leases.clear()
        await second.agree()
        with pytest.raises(ConnectionError, match="fenced"):
            await first.publisher._write(1)
        assert not await first._leadership.leads()
        await second.close_due()
        await second.publisher.publish()
        assert witnessed(one) == [(0, FIRST_BIN)]
        assert one.witness.claims == 2

    asyncio.run(run())


def test_a_second_worker_waits_until_the_closing_one_has_ended_the_epoch(one: SharedSource) -> None:
    """After a store was set back, a worker must count nothing before the epoch has ended."""

    async def run() -> None:
        leader, follower = worker(one, "a"), worker(one, "b")
        await count_to(one, leader, FIRST_BIN + 1, FIRST_BIN)
        backup = one.store.copy()
        await leader.close_due()
        await leader.publisher.publish()
        await follower.agree()
        one.store.restore(backup)
        waiting = asyncio.ensure_future(follower.agree())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await leader.agree()
        await asyncio.wait_for(waiting, PATIENCE_S)
        assert await one.epochs() == [(0, FIRST_BIN, 1), (1, FIRST_BIN + 1, 2)]

    asyncio.run(run())


def test_another_declaration_is_refused_by_who_does_not_close_as_well(one: SharedSource) -> None:
    async def run() -> None:
        await worker(one, "a").agree()
        other = strategy_of(design_of((2, 3)), field="then")
        lease = Lease(one.store, STREAM, "b")
        with pytest.raises(ValueError, match=r"time\.field was at when the stream began and is then now"):
            await one.closer(other, witness=one.witness.seen_by_a_worker(), sharing={"lease": lease}).agree()

    asyncio.run(run())


def test_a_lease_is_asked_for_again_before_it_ends_and_begins_a_term_when_it_lapsed(
    one: SharedSource,
) -> None:
    async def run() -> None:
        lease = Lease(one.store, STREAM, "a", lease_s=2.0)
        assert await lease.held()
        await asyncio.sleep(1.0)
        assert await lease.held()
        assert lease.term == 1
        await asyncio.sleep(2.1)
        assert await lease.held()
        assert lease.term == 2
        await lease.give_up()
        assert await Lease(one.store, STREAM, "b", 60).held()
        assert not await lease.held()

    simulate(1, run())  # in virtual time


def test_a_closing_that_takes_long_does_not_lose_the_lease(one: SharedSource) -> None:
    async def run() -> None:
        closer, other = worker(one, "a", lease_s=0.4), Lease(one.store, STREAM, "b")
        own = closer._stream.lease
        assert own is not None
        await closer.agree()
        taken, waiting = asyncio.Event(), asyncio.Event()

        async def close_slowly() -> tuple[int, bool]:
            waiting.set()
            await taken.wait()
            raise AssertionError("it is cancelled first")

        closer.close_due = close_slowly  # type: ignore[method-assign]
        kept = keep([own], closer._ports.wall, every_s=0.1)
        running = asyncio.ensure_future(until_one_ends(closer.run(), kept))
        await waiting.wait()
        for _ in range(20):  # for longer than the lease
            one.clock.now_us += 50_000
            await asyncio.sleep(0.05)
            assert not await other.held()
        await ended(running)

    asyncio.run(run())


AHEAD = strategy_of(replace(design_of((2, 3)), release="anticipating"))


@pytest.fixture
def ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedSource]:
    """Yield a service with one stream whose noise is drawn ahead, and whose workers wait only briefly."""
    monkeypatch.setattr("stream_app.loops.closer.FOLLOW_S", 0.01)
    monkeypatch.setattr("stream_app.loops.closer.PATIENCE_S", 0.03)
    with closing(SharedSource(tmp_path, AHEAD)) as one:
        yield one


def with_keys(one: SharedSource, name: str, keys: Any) -> Closer:
    """Start a worker with its own noise keys."""
    one.keys = keys
    return worker(one, name)


@pytest.mark.parametrize("secret", [None, b"other" * 8])
def test_a_worker_without_the_keys_of_the_one_that_closes_is_refused(
    ahead: SharedSource, tmp_path: Path, secret: bytes | None
) -> None:
    """The worker runs on another machine, without a shared secret or with another secret."""

    def keys(name: str, own: bytes) -> Any:
        return KeyFiles(tmp_path / name) if secret is None else SharedKey(KeyRing.of(own))

    async def run() -> None:
        await with_keys(ahead, "a", keys("a", b"right" * 7)).agree()
        with pytest.raises(OperatorError, match=r"secrets\.key_file"):
            await with_keys(ahead, "b", keys("b", secret or b"")).agree()
        assert await ahead.epochs() == [(0, FIRST_BIN, 1)]

    asyncio.run(run())


@pytest.mark.parametrize("shared", [False, True])
def test_a_worker_with_the_same_keys_may_follow(ahead: SharedSource, tmp_path: Path, shared: bool) -> None:
    """The workers share a machine or a secret."""
    keys = [SharedKey(KeyRing.of(b"right" * 7)) if shared else KeyFiles(tmp_path / "keys") for _ in range(2)]

    async def run() -> None:
        leader = with_keys(ahead, "a", keys[0])
        await leader.agree()
        await with_keys(ahead, "b", keys[1]).agree()
        await count_to(ahead, leader, FIRST_BIN + 6, FIRST_BIN)
        await leader.close_due()  # one epoch further, whose pages are spent
        await with_keys(ahead, "c", keys[1]).agree()

    asyncio.run(run())


def test_a_successor_without_the_keys_takes_over_and_ends_the_epoch(
    ahead: SharedSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other worker has the keys, so the noise is lost, and the epoch's record says so."""
    monkeypatch.setattr("stream_app.loops.closer.PATIENCE_S", 5.0)

    async def run() -> None:
        ahead.keys = KeyFiles(tmp_path / "a")
        await worker(ahead, "a", lease_s=0.05).agree()
        ahead.clock.now_us += 60_000
        second = with_keys(ahead, "b", KeyFiles(tmp_path / "b"))
        await count_to(ahead, second, FIRST_BIN + 2, FIRST_BIN)
        await second.close_due()
        state = await ahead.store.load(STREAM)
        assert state is not None
        assert state.epoch.epoch == 1

    asyncio.run(run())
