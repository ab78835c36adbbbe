"""The real loops over every store count a user's records by that user's records alone.

The oracle needs no recount. It splits the log into one log per user, counts each of these logs, and adds up
the counts. The sums must equal the counts of the whole log, in any order of reading, with batches of any
size, and under faults.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dphist.noise import SystemNoise
from stream_app.core.incoming import RecordBatch
from stream_app.core.strategy import Strategy
from stream_app.loops.closer import Closer
from stream_app.loops.ingest import Ingest
from stream_app.loops.stream import Ports, Stream
from stream_app.state.redis_store import RedisStore
from stream_app.wiring.pipeline import Counting
from tests.contracts.conftest import SERVERS, Servers
from tests.models.memory import MemoryStore
from tests.simulator.cap_mutants import FirstAppliedStore
from tests.simulator.memory_sinks import MemoryDeadLetters, MemoryKeys, MemoryWitness
from tests.simulator.schedule import BIN_US, FIRST_BIN, KEYS, Schedule
from tests.stream_app.declared import changed

MOST = 1
BINS = 5  # the bins in which records arrive; a window of the cap has four bins
PARTITIONS = ("0", "1")
USERS = ("ann", "bob")
STRATEGY = Schedule(
    seed=0,
    keys=len(KEYS),
    max_events=MOST,
    release="causal",
    epsilon=Fraction(10**9),
    grace_us=0,
    max_ahead_bins=2,
).strategy
Cell = tuple[int, int]


@dataclass(frozen=True)
class Event:
    """A record: the bin in which it arrives, its partition, its own bin, its key and its user."""

    arrival: int
    partition: str
    ahead: int
    key: str
    user: str


events = st.builds(
    Event,
    st.integers(0, BINS - 1),
    st.sampled_from(PARTITIONS),
    st.sampled_from([-1, 0, 0, 1, 4]),  # 4: beyond what may be counted before the next cut
    st.sampled_from(KEYS),
    st.sampled_from(USERS),
)
logs = st.lists(events, min_size=8, max_size=24)
days = st.integers(0, 2**16)  # a seed for the order of reading, the sizes of batches, and the faults


@dataclass
class HandClock:
    """A clock that moves only when a test sets it."""

    time_us: int = FIRST_BIN * BIN_US
    virtual = True

    async def now_us(self) -> int:
        return self.time_us

    async def sleep_until_us(self, instant_us: int) -> None:
        self.time_us = max(self.time_us, instant_us)


@dataclass
class PartitionedLog:
    """A source over a log: each read brings a few records of one partition."""

    log: Mapping[str, Sequence[Event]]
    rng: random.Random
    arrived: int = -1  # the last bin whose records have arrived

    @classmethod
    def of(cls, log: Sequence[Event], rng: random.Random) -> PartitionedLog:
        """Sort records by their arrival."""
        in_order = sorted(log, key=lambda event: event.arrival)
        return cls({name: [e for e in in_order if e.partition == name] for name in PARTITIONS}, rng)

    async def partitions(self) -> Sequence[str]:
        return PARTITIONS

    owned = partitions

    async def first_position(self, partition: str, since_us: int | None) -> int:
        return 0

    def end(self, partition: str) -> int:
        """Return how many records have arrived."""
        return sum(event.arrival <= self.arrived for event in self.log[partition])

    async def positions_at(
        self, partitions: Sequence[str], instants_us: Sequence[int]
    ) -> Mapping[str, Sequence[int]]:
        return {name: [self.end(name)] * len(instants_us) for name in partitions}

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        behind = [name for name, position in positions.items() if position < self.end(name)]
        if not behind:
            return []
        name = self.rng.choice(behind)
        start = positions[name]
        end = min(self.end(name), start + self.rng.choice([1, 1, 2, 5, 30]))
        part = self.log[name][start:end]
        columns = {
            "time": np.array([(FIRST_BIN + e.arrival + e.ahead) * BIN_US for e in part], dtype=np.int64),
            "key": np.array([e.key for e in part], dtype=object),
            "user": np.array([e.user for e in part], dtype=object),
        }
        return [RecordBatch(name, start, end, np.arange(start, end), columns)]

    async def close(self) -> None:
        pass


@dataclass
class Troubled:
    """A store that loses some calls or replies, and remembers the exact counts that it returned."""

    inner: Any
    rng: random.Random
    rate: float
    counts: Counter[Cell] = field(default_factory=Counter)

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> Any:
            dice = self.rng.random()
            if dice < self.rate / 2:
                raise OSError("lost")
            reply = await getattr(self.inner, name)(*arguments)
            if dice < self.rate:
                raise OSError("the reply was lost")
            if name == "read_cells":
                first_bin = arguments[1]
                for (row, cell), count in np.ndenumerate(reply):
                    self.counts[first_bin - FIRST_BIN + row, cell] = int(count)
            return reply

        return call


async def counts_of(inner: Any, log: Sequence[Event], day: int) -> Counter[Cell]:
    """Count and release a log; return its exact counts, without empty cells."""
    rng = random.Random(day)
    source, clock, witness, keys = PartitionedLog.of(log, rng), HandClock(), MemoryWitness(), MemoryKeys()
    strategy: Strategy = replace(
        STRATEGY,
        stream=f"visits {uuid4().hex}",
        declared=changed(STRATEGY.declared, source={"name": uuid4().hex}),
    )
    store = Troubled(inner, rng, rate=0.0)

    def ports() -> Ports:
        return Ports(
            store=store,
            source=source,  # type: ignore[arg-type]
            clock=clock,
            wall=clock,
            witnesses={strategy.stream: witness},
            dead_letters=MemoryDeadLetters(),
            noise={strategy.stream: SystemNoise()},
            keys=keys,
        )

    def closer() -> Closer:
        return Closer(ports(), Stream(strategy=strategy))

    def ingest() -> Ingest:
        return Counting.over(ports(), [strategy.stream]).ingest

    counting, closing = ingest(), closer()
    await closing.reconcile()
    store.rate = rng.choice([0.0, 0.2])
    for bin in range(BINS + 2):
        source.arrived = bin
        for _ in range(rng.randrange(4)):
            counting = await stepped(counting, ingest)
        clock.time_us = (FIRST_BIN + bin + 1) * BIN_US
        next_bin = 0
        while next_bin <= FIRST_BIN + bin:
            counting = await stepped(counting, ingest)
            try:
                next_bin, _ = await closing.close_due()
            except OSError:
                closing = closer()
    return +store.counts


async def stepped(counting: Ingest, restart: Callable[[], Ingest]) -> Ingest:
    """Let a worker continue; if its store does not answer, another worker takes its place."""
    try:
        await counting.step()
    except OSError:
        return restart()
    return counting


Count = Callable[[Sequence[Event], int], Counter[Cell]]


@pytest.fixture(params=["memory", *SERVERS])
def count(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Count]:
    """Yield a function that counts a log of one day over a store of each kind."""
    with asyncio.Runner() as runner:
        if request.param == "memory":
            yield lambda log, day: runner.run(counts_of(MemoryStore(), log, day))
            return
        store = RedisStore(servers[request.param].worker_url)
        yield lambda log, day: runner.run(counts_of(store, log, day))
        runner.run(store.close())


def test_each_users_counts_are_those_of_their_own_log(request: pytest.FixtureRequest, count: Count) -> None:
    in_memory = "memory" in request.node.name

    @settings(max_examples=12 if in_memory else 2, deadline=None)
    @given(logs, days, days)
    def add_up(log: list[Event], day: int, other_day: int) -> None:
        apart = [count([event for event in log if event.user == user], other_day) for user in USERS]
        assert count(log, day) == sum(apart, Counter[Cell]())
        for own in apart:
            for window in (range(4), range(4, 8)):
                assert sum(number for (bin, _), number in own.items() if bin in window) <= MOST

    add_up()


# Ann's second record is one too many. Bob's come before it in its partition, so that reading it takes longer.
ANN_AND_BOB = [
    *[Event(0, "1", 0, "c", "bob")] * 6,
    Event(0, "0", 0, "a", "ann"),
    Event(0, "1", 0, "b", "ann"),
]


def test_the_order_of_reading_partitions_chooses_nothing(count: Count) -> None:
    outcomes = [count(ANN_AND_BOB, day) for day in range(3)]
    assert outcomes == outcomes[:1] * 3
    assert outcomes[0][0, 2] == 1  # bob's record
    assert sum(outcomes[0].values()) == 2


def test_counting_in_order_of_application_is_caught() -> None:
    outcomes = [asyncio.run(counts_of(FirstAppliedStore(), ANN_AND_BOB, day)) for day in range(6)]
    assert outcomes != outcomes[:1] * 6
