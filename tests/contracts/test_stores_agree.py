"""Any sequence of calls gets the same replies from memory and from Redis, and leaves the same state."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dphist.caps import Caps
from stream_app.core.counting.bounding import Bounds
from stream_app.core.kinds.pages import StoredNoise
from stream_app.core.records import GENESIS, Cut, EpochRecord, LedgerEntry, StreamState
from stream_app.core.store_writes import Apply, PartitionCuts, Release
from stream_app.ports.reader import PublicReader
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from tests.contracts.conftest import SERVERS, Servers
from tests.contracts.examples import (
    BINS,
    ENTRY,
    EPOCH,
    FIRST_BIN,
    HASH,
    STRATEGY,
    TEXT,
    WIDTH,
    apply,
    of_users,
    release_of,
    setting_aside,
)
from tests.models.memory import MemoryStore

PARTITIONS = ("0", "1")
bins = st.integers(FIRST_BIN - 1, FIRST_BIN + 2 * BINS)
positions = st.integers(0, 12)
partitions = st.sampled_from(PARTITIONS)
hashes = st.sampled_from([HASH] * 9 + ["0" * 64])  # mostly the right hash: a wrong one stops everything
# Cells. A bin is given by its distance from the first bin without a cut.
near_cells = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 2, 5, -1]), st.integers(0, WIDTH - 1), st.integers(1, 3)), max_size=4
)
bounds = st.sampled_from(
    [
        *(Bounds(Caps(most)) for most in (1, 2, 3)),
        *(Bounds(Caps(*caps)) for caps in [(None, 1, 1), (None, 2, 1), (None, 1, 2), (3, 2, 2)]),
        Bounds(Caps(None, 1, 2), key_places=2),
    ]
)
nonces = st.sampled_from(["a", "b"])
cells = st.lists(st.tuples(bins, st.integers(0, WIDTH - 1), st.integers(1, 3)), max_size=4)

Call = Callable[[MemoryStore | RedisStore, str], Awaitable[Any]]
Look = Callable[[PublicReader, str], Awaitable[Any]]


async def outcome(call: Awaitable[Any]) -> Any:
    """Return the reply of a call, or the type and text of its error."""
    try:
        answer = await call
    except (ValueError, LookupError) as error:
        return type(error).__name__, str(error)
    return answer.tolist() if hasattr(answer, "tolist") else answer


class StoresAgree(RuleBasedStateMachine):
    """Calls with correct, stale, repeated and wrong arguments, all near the stream's state."""

    store: RedisStore
    reader: RedisReader
    run: Callable[[Coroutine[Any, Any, Any]], Any]

    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryStore()
        self.stream = f"stream-{uuid4().hex}"
        self.released: list[Release] = []
        self.last_call: Call | None = None
        self.both(lambda store, stream: store.open_epoch(stream, TEXT, EPOCH, GENESIS))
        self.both(lambda store, stream: store.start_partition(stream, HASH, "0", 0))

    def both(self, call: Call) -> Any:
        """Make a call to both stores, check that the answers are equal, and return the answer."""
        expected, answer = (
            self.run(outcome(call(store, self.stream))) for store in (self.memory, self.store)
        )
        assert answer == expected
        self.last_call = call
        return answer

    def state(self) -> StreamState:
        state: StreamState | None = self.run(self.memory.load(self.stream))
        assert state is not None
        return state

    @rule()
    def repeat_the_last_call(self) -> None:
        assert self.last_call is not None
        self.both(self.last_call)

    @rule(partition=partitions, position=positions, strategy_hash=hashes)
    def start_partition(self, partition: str, position: int, strategy_hash: str) -> None:
        self.both(lambda store, stream: store.start_partition(stream, strategy_hash, partition, position))

    @rule(
        partition=partitions,
        near=st.lists(
            st.tuples(st.integers(0, 5), st.integers(0, WIDTH - 1), st.sampled_from("abc")),
            min_size=1,
            max_size=5,
        ),
    )
    def apply_of_users(self, partition: str, near: list[tuple[int, int, str]]) -> None:
        known = self.state().partitions.get(partition)
        if known is not None:
            open_bin = known.last_cut_bin + 1
            records = [(open_bin + ahead, cell, user) for ahead, cell, user in near]
            here = known.position, known.position + len(records)
            self.apply(of_users(*here, records, last_cut_bin=known.last_cut_bin, partition=partition))

    @rule(
        partition=partitions,
        by=st.integers(1, 4),
        near=near_cells,
        strategy_hash=hashes,
        due_us=st.sampled_from([None, None, None, 1]),
    )
    def apply_next(
        self,
        partition: str,
        by: int,
        near: list[tuple[int, int, int]],
        strategy_hash: str,
        due_us: int | None,
    ) -> None:
        known = self.state().partitions.get(partition)
        start, last = (known.position, known.last_cut_bin) if known else (0, FIRST_BIN - 1)
        change = apply(
            start,
            start + by,
            [(last + 1 + offset, cell, delta) for offset, cell, delta in near],
            last_cut_bin=last,
            due_us=due_us,
            partition=partition,
            strategy_hash=strategy_hash,
        )
        self.apply(change)

    def apply(self, change: Apply) -> None:
        """Apply a change by the rules of the running epoch."""
        running = replace(change, epoch=self.state().epoch.epoch)
        self.both(lambda store, stream: store.apply(stream, running))

    @rule(
        partition=partitions,
        start=positions,
        by=st.integers(0, 4),
        cells=cells,
        last=bins,
        epoch=st.integers(0, 2),
    )
    def apply_anything(
        self, partition: str, start: int, by: int, cells: list[tuple[int, int, int]], last: int, epoch: int
    ) -> None:
        change = apply(start, start + by, cells, last_cut_bin=last, partition=partition, epoch=epoch)
        self.both(lambda store, stream: store.apply(stream, change))

    @rule(
        partition=partitions,
        ahead=st.lists(st.tuples(st.integers(1, 2), st.integers(0, 3)), min_size=1, max_size=3),
        overdue=st.sampled_from([0, 0, 2, 5]),
    )
    def cut_next(self, partition: str, ahead: list[tuple[int, int]], overdue: int) -> None:
        known = self.state().partitions.get(partition)
        position, last = (known.position, known.last_cut_bin) if known else (0, self.state().sealed_bin)
        if known and known.cuts:
            position = known.cuts[-1].position
        cuts, bin = [], last
        for bins_on, records_on in ahead:
            bin, position = bin + bins_on, position + records_on
            cuts.append(Cut(bin, position, overdue))
        self.both(lambda store, stream: store.take_cuts(stream, HASH, partition, last, cuts, 1))
        self.both(lambda store, stream: store.refused_ahead(stream, partition, 100))
        self.both(lambda store, stream: store.operator_counts(stream))

    @rule(bins_on=st.integers(0, 2), records_on=st.integers(-1, 3), overdue=st.sampled_from([0, 2]))
    def cut_together(self, bins_on: int, records_on: int, overdue: int) -> None:
        """Cut all partitions up to the same bin; some of them may have been cut beyond it."""
        known = self.state().partitions
        bin = self.state().sealed_bin + 1 + bins_on
        taken = [
            PartitionCuts(name, bin - 1, [Cut(bin, max(one.position + records_on, 0), overdue)], 1)
            for name, one in known.items()
        ]
        self.both(lambda store, stream: store.take_cuts_together(stream, HASH, taken))
        self.both(lambda store, stream: store.operator_counts(stream))

    @rule(
        partition=partitions,
        far=st.lists(st.tuples(st.integers(4, 8), st.integers(0, WIDTH - 1)), min_size=1, max_size=4),
    )
    def set_aside(self, partition: str, far: list[tuple[int, int]]) -> None:
        """Set records aside that every cut refuses if it is taken on time."""
        known = self.state().partitions.get(partition)
        if known is not None:
            start, last = known.position, known.last_cut_bin
            records = [(last + on, cell, 2) for on, cell in far]
            places = [(bin, start) for bin, _, _ in records]
            change = setting_aside(start, start + 1, records, places, last_cut_bin=last, partition=partition)
            self.apply(change)

    @rule(
        partition=partitions, last=bins, cuts=st.lists(st.builds(Cut, bins, positions), max_size=3), h=hashes
    )
    def cut_anything(self, partition: str, last: int, cuts: list[Cut], h: str) -> None:
        self.both(lambda store, stream: store.take_cuts(stream, h, partition, last, cuts))

    @rule(listed=st.lists(partitions), up_to_bin=bins, strategy_hash=hashes)
    def seal(self, listed: list[str], up_to_bin: int, strategy_hash: str) -> None:
        self.both(lambda store, stream: store.seal(stream, strategy_hash, listed, up_to_bin))

    @precondition(lambda self: self.state().sealed_bin < FIRST_BIN + 2 * BINS)
    @rule(bins_on=st.integers(1, 3), records_on=st.integers(0, 2))
    def close_bins(self, bins_on: int, records_on: int) -> None:
        """Cut every partition a little ahead, move the positions to the cuts, and seal, as the loops do."""
        bin = self.state().sealed_bin + bins_on
        for name, partition in self.state().partitions.items():
            last = partition.last_cut_bin
            if last < bin:
                position = partition.cuts[-1].position if partition.cuts else partition.position
                self.take_cut(name, last, Cut(bin, position + records_on))
            self.reach_cuts(name)
        self.both(lambda store, stream: store.seal(stream, HASH, [], bin))

    def take_cut(self, name: str, last: int, cut: Cut) -> None:
        self.both(lambda store, stream: store.take_cuts(stream, HASH, name, last, [cut]))

    def reach_cuts(self, name: str) -> None:
        partition = self.state().partitions[name]
        if partition.cuts:
            end, last = partition.cuts[-1].position, partition.last_cut_bin
            change = apply(partition.position, end, last_cut_bin=last, partition=name)
            self.apply(change)

    @initialize(bounds=bounds)
    def declare_caps(self, bounds: Bounds) -> None:
        self.bounds = bounds

    @rule(ahead=st.sampled_from([0, 0, 0, -1, 1]), strategy_hash=hashes)
    def tally(self, ahead: int, strategy_hash: str) -> None:
        bin, bounds = self.state().sealed_bin + ahead, self.bounds
        self.both(lambda store, stream: store.tally(stream, strategy_hash, bounds, bin))

    @precondition(lambda self: self.state().released_bin < self.state().sealed_bin)
    @rule(data=st.data(), tallied=st.booleans())
    def release_sealed(self, data: st.DataObject, tallied: bool) -> None:
        state = self.state()
        if tallied:
            self.both(lambda store, stream: store.tally(stream, HASH, self.bounds, state.sealed_bin))
        self.release(data.draw(st.integers(1, state.sealed_bin - state.released_bin)), "a")

    @rule(first=bins, length=st.integers(0, 3))
    def read_cells(self, first: int, length: int) -> None:
        last = min(first + length, max(self.state().sealed_bin, first))
        self.both(lambda store, stream: store.read_cells(stream, first, last, WIDTH))

    @rule(count=st.integers(1, BINS), attempt=st.sampled_from("ab"))
    def release_anything(self, count: int, attempt: str) -> None:
        self.release(count, attempt)

    def release(self, count: int, attempt: str) -> None:
        release = release_of(self.state(), count, attempt)
        self.released.append(release)
        self.both(lambda store, stream: store.release(stream, release))

    @precondition(lambda self: self.released)
    @rule(data=st.data())
    def release_again(self, data: st.DataObject) -> None:
        release = data.draw(st.sampled_from(self.released))
        changed = data.draw(
            st.sampled_from(
                [release, replace(release, epoch=release.epoch + 1), replace(release, head="e" * 64)]
            )
        )
        self.both(lambda store, stream: store.release(stream, changed))

    @rule(seq=st.integers(0, 2 * BINS))
    def publish(self, seq: int) -> None:
        self.both(lambda store, stream: store.publish(stream, seq))

    @rule(
        skip=st.integers(0, 2),
        lost=st.integers(0, 2),
        number=st.integers(0, 2),
        elsewhere=st.booleans(),
        nonce=nonces,
        pages=st.sampled_from([0, 0, 1, 2]),
        carried=st.sampled_from([b"", b"counter"]),
    )
    def open_next(
        self, skip: int, lost: int, number: int, elsewhere: bool, nonce: str, pages: int, carried: bytes
    ) -> None:
        state = self.state()
        record = EpochRecord(
            epoch=state.epoch.epoch + number,
            first_bin=state.released_bin + 1 + skip,
            bins=BINS,
            first_seq=state.seq + 1 + lost,
            strategy_hash=HASH,
        )
        head = "d" * 64 if elsewhere or lost else state.head
        noise = StoredNoise(nonce, pages) if pages else None
        self.both(lambda store, stream: store.open_epoch(stream, TEXT, record, head, noise, carried))

    @rule(nonce=nonces, page=st.integers(0, 2), key=st.sampled_from([b"", b"", b"one", b"other"]))
    def write_noise(self, nonce: str, page: int, key: bytes) -> None:
        data = f"{nonce} {page}".encode()
        self.both(lambda store, stream: store.write_noise(stream, nonce, page, data, key))
        self.both(lambda store, stream: store.noise_key(stream))

    @rule(kept=st.lists(nonces, max_size=1), nonce=nonces, spent=st.integers(0, 3))
    def discard_noise(self, kept: list[str], nonce: str, spent: int) -> None:
        self.both(lambda store, stream: store.discard_noise(stream, kept, nonce, spent))

    @rule(nonce=nonces, page=st.integers(0, 2))
    def read_noise(self, nonce: str, page: int) -> None:
        self.both(lambda store, stream: store.read_noise(stream, nonce, page))

    @rule(record=st.builds(EpochRecord, st.integers(0, 2), bins, st.integers(0, 4), positions, hashes))
    def open_anything(self, record: EpochRecord) -> None:
        self.both(lambda store, stream: store.open_epoch(stream, TEXT, record, GENESIS))

    @rule(
        epoch=st.integers(0, 2),
        behind=st.sampled_from([0, 0, 1]),
        reason=st.sampled_from(["operator", "witness"]),
    )
    def end_epoch(self, epoch: int, behind: int, reason: str) -> None:
        seq = self.state().seq - behind
        self.both(lambda store, stream: store.end_epoch(stream, epoch, seq, reason))

    @rule(epoch=st.integers(0, 2), behind=st.sampled_from([0, 0, 1]))
    def stop(self, epoch: int, behind: int) -> None:
        seq = self.state().seq - behind
        self.both(lambda store, stream: store.stop(stream, epoch, seq))

    @rule(
        epoch=st.integers(0, 1),
        epsilon=st.sampled_from(["1/1", "1/2"]),
        after=st.sampled_from([None, 0, 1, 2]),
    )
    def reserve(self, epoch: int, epsilon: str, after: int | None) -> None:
        entry: LedgerEntry = replace(ENTRY, source=self.stream, epoch=epoch, epsilon=epsilon)
        self.both(lambda store, stream: store.reserve(entry, after))
        self.both(lambda store, stream: store.ledger(stream))

    @invariant()
    def states_are_equal(self) -> None:
        last_call = self.last_call
        self.both(lambda store, stream: store.load(stream))
        self.both(lambda store, stream: store.rows(stream, 0, 100))
        self.last_call = last_call  # calls that only read need no repetition

    @invariant()
    def readers_see_the_same(self) -> None:
        looks: list[Look] = [
            lambda reader, stream: reader.public_state(stream),
            lambda reader, stream: reader.rows(stream, 1, 5),
            *(
                lambda reader, stream, table=table: reader.tile_rows(stream, 0, table, 0, 2, WIDTH)
                for table in STRATEGY.kind.tables
            ),
        ]
        for look in looks:
            expected, answer = (
                self.run(outcome(look(reader, self.stream))) for reader in (self.memory.reader(), self.reader)
            )
            assert answer == expected

    @invariant()
    def seqs_of_rows_rise_up_to_the_state_s(self) -> None:
        """Stored rows have rising seqs, and the last one is at most the state's seq."""
        rows = self.run(self.memory.rows(self.stream, 0, 100))
        seqs = [seq for seq, _ in rows]
        assert seqs == sorted(set(seqs))
        assert not seqs or seqs[-1] <= self.state().seq


@pytest.fixture(params=SERVERS)
def machine(request: pytest.FixtureRequest, servers: Servers) -> Iterator[type[StoresAgree]]:
    server = servers[request.param]
    with asyncio.Runner() as runner:
        store, reader = RedisStore(server.worker_url), RedisReader(server.api_url)
        attributes = {"store": store, "reader": reader, "run": staticmethod(runner.run)}
        yield type("StoresAgree", (StoresAgree,), attributes)
        runner.run(store.close())
        runner.run(reader.close())


def test_same_calls_same_replies_same_state(machine: type[StoresAgree]) -> None:
    examples = int(os.environ.get("STORE_EXAMPLES", "30"))
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=40))
