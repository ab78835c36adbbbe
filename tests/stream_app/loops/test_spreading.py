"""Workers that run the same streams close about equal shares of them, and hand streams over between bins."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from stream_app.loops.clocks import LiveClock
from stream_app.loops.lease import LEASE_S, STAY_S, YIELD_S, Lease, Spreading, give_up, keep, preferred
from tests.models.memory import MemoryStore
from tests.simulator.loop import simulate

NAMES = [f"s{number:03}" for number in range(200)]


class Worker:
    """The leases of a worker. Its closers hand over at once, as between two bins."""

    def __init__(self, store: MemoryStore, name: str, streams: Sequence[str] = NAMES) -> None:
        self.leases = [Lease(store, stream, name) for stream in streams]
        self._store = store
        self.spreading = Spreading(store, "clicks", self.leases)
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self) -> None:
        """Keep the leases until the worker is killed."""
        kept = keep(self.leases, LiveClock(self._store), division=self.spreading)
        self._tasks = [asyncio.create_task(kept), asyncio.create_task(self._hand_over())]

    async def _hand_over(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            for lease in self.leases:
                if lease.leaves:
                    await lease.hand_over()

    def kill(self) -> None:
        """End without giving anything up."""
        for task in self._tasks:
            task.cancel()

    @property
    def held(self) -> set[str]:
        """The streams whose lease this worker holds."""
        return {lease.stream for lease in self.leases if lease.is_held}


def store() -> MemoryStore:
    """Return a store on the virtual clock."""
    return MemoryStore(lambda: int((1e9 + asyncio.get_running_loop().time()) * 1e6))


def test_a_worker_that_comes_or_goes_moves_only_its_own_share() -> None:
    before = {name: preferred(name, ["a", "b", "c"]) for name in NAMES}
    after = {name: preferred(name, ["a", "c"]) for name in NAMES}
    assert min(Counter(before.values()).values()) > 40
    assert all(after[name] == worker for name, worker in before.items() if worker != "b")
    assert min(Counter(after.values()).values()) > 70


def test_workers_that_join_and_die_always_share_all_streams() -> None:
    async def run() -> None:
        shared = store()
        a, b, c = (Worker(shared, name) for name in "abc")
        a.start()
        await asyncio.sleep(1.0)
        assert a.held == set(NAMES)
        b.start()
        c.start()
        await asyncio.sleep(2 * LEASE_S)
        for worker, name in ((a, "a"), (b, "b"), (c, "c")):
            assert worker.held == {one for one in NAMES if preferred(one, ["a", "b", "c"]) == name}
        b.kill()
        await asyncio.sleep(3 * LEASE_S)
        assert not b.held
        assert a.held == {one for one in NAMES if preferred(one, ["a", "c"]) == "a"}
        assert a.held | c.held == set(NAMES)
        assert not a.held & c.held
        a.kill()
        await a.spreading.leave()  # as a worker does that ends by itself
        await give_up(a.leases)
        await asyncio.sleep(LEASE_S / 2)
        assert c.held == set(NAMES)
        c.kill()

    simulate(1, run())


def test_workers_with_other_streams_divide_nothing() -> None:
    async def run() -> None:
        shared = store()
        a, b = Worker(shared, "a"), Worker(shared, "b", [*NAMES, "new"])
        a.start()
        await asyncio.sleep(1.0)
        b.start()
        await asyncio.sleep(4 * YIELD_S)
        assert a.held == set(NAMES)
        assert b.held == {"new"}
        a.kill()
        b.kill()

    simulate(1, run())


@pytest.mark.parametrize("lives", [True, False])
def test_a_stream_that_its_preferred_worker_does_not_take_is_taken_back(lives: bool) -> None:
    """The preferred worker lives, but takes no lease, or it dies between the two."""

    async def run() -> None:
        shared = store()
        a, b = Worker(shared, "a"), Worker(shared, "b")
        a.start()
        await asyncio.sleep(1.0)
        await b.spreading.divide()
        attending = asyncio.create_task(_attend(b, 1.0)) if lives else None
        await asyncio.sleep(2.0)
        assert a.held == {one for one in NAMES if preferred(one, ["a", "b"]) == "a"}
        await asyncio.sleep(YIELD_S + 1.0)
        assert a.held == set(NAMES)
        await asyncio.sleep(STAY_S - YIELD_S)
        assert a.held == set(NAMES), "it does not hand them over again at once"
        if attending is not None:
            attending.cancel()
        a.kill()

    simulate(1, run())


async def _attend(worker: Worker, every_s: float) -> None:
    while True:
        await worker.spreading.divide()
        await asyncio.sleep(every_s)


def test_a_closer_is_woken_when_it_holds_the_lease_again_or_is_to_hand_over() -> None:
    async def run() -> None:
        shared = store()
        lease = Lease(shared, "s000", "a")
        assert await lease.held()
        term = lease.term
        waiting = asyncio.create_task(lease.until_news(term))
        await lease.give_up()
        assert await Lease(shared, "s000", "b", 2.0).held()
        assert not await lease.held()
        assert not waiting.done()
        await asyncio.sleep(2.1)
        assert await lease.held()
        await waiting
        waiting = asyncio.create_task(lease.until_news(lease.term))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        lease.prefer(is_preferred=False)
        await waiting
        assert lease.leaves

    simulate(1, run())
