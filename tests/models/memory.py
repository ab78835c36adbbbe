"""The store in memory: it behaves like the scripts in ``lua/``, and is readable from top to bottom.

It is for tests, the simulator and experiments, and keeps nothing after exit. A contract test compares it with
Redis.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, repeat

import numpy as np

from dphist.arrays import Int64Array
from stream_app.core.counting.bounding import Bounds
from stream_app.core.counting.unlisted import Slots
from stream_app.core.epochs import SealedKey
from stream_app.core.kinds.pages import StoredNoise
from stream_app.core.records import (
    Cut,
    EpochRecord,
    LateEvents,
    LedgerEntry,
    PartitionState,
    Reply,
    StreamState,
    WitnessRow,
)
from stream_app.core.releases.restored import Restored
from stream_app.core.releases.row_values import settings_beside, witness_row
from stream_app.core.segments.retention import removable
from stream_app.core.segments.strategies import read_strategies, source_of
from stream_app.core.store_writes import ALL_WAIT, Apply, PartitionCuts, Release, Waiting
from stream_app.core.strategy import Strategy
from stream_app.ports import Store
from stream_app.state.checks import (
    check_apply,
    check_changes,
    check_cuts,
    check_epoch,
    check_noise,
    check_noise_page,
    check_read,
    check_release,
    check_tally,
)
from tests.models.memory_reader import MemoryReader
from tests.models.memory_stream import MemoryPartition, MemoryStream


def system_clock_us() -> int:
    """Return the operating system's time in microseconds since 1970."""
    return time.time_ns() // 1_000


class MemoryStore(Store):
    """All streams in this process. ``reader()`` returns the reader of visible releases.

    Args: clock_us, returns the time in microseconds since 1970. The store's own clock never goes back, even
        if this one does.
    """

    def __init__(self, clock_us: Callable[[], int] = system_clock_us) -> None:
        self.clock_us = clock_us
        self.last_us = 0
        self.streams: dict[str, MemoryStream] = {}
        self.ledgers: dict[str, list[LedgerEntry]] = {}
        self.noise: dict[str, dict[tuple[str, int], bytes]] = {}
        self.noise_keys: dict[str, bytes] = {}  # by stream: the mark of the key that encrypts its noise
        # By stream: the lease's owner, its end, and the lost row that the owner's witness has.
        self.leases: dict[str, tuple[str, int, int]] = {}
        self.workers: dict[tuple[str, str], dict[str, int]] = {}  # until when each worker lives
        self.times_set_back = 0

    @property
    def servers_met(self) -> int:
        """One, and one more each time that the store is set back."""
        return 1 + self.times_set_back

    def copy(self) -> MemoryStore:
        """Return an independent copy of the store on the same clock, as a backup."""
        backup = MemoryStore(self.clock_us)
        backup.restore(self)
        return backup

    def restore(self, backup: MemoryStore) -> None:
        """Set this store back to a backup, as an operator does. The backup can be used again.

        Leases have ended meanwhile.
        """
        self.times_set_back += 1
        self.leases.clear()
        # In place, because readers use these same dictionaries.
        self.streams.clear()
        self.streams.update(copy.deepcopy(backup.streams))
        self.ledgers.clear()
        self.ledgers.update(copy.deepcopy(backup.ledgers))
        self.noise = copy.deepcopy(backup.noise)
        self.noise_keys = dict(backup.noise_keys)

    def reader(self) -> MemoryReader:
        """Return the reader of visible releases."""
        return MemoryReader(self.streams, self.ledgers)

    async def now_us(self, latest_us: int = 0) -> tuple[int, int]:
        now_us, mark_us = self.clock_us(), self.last_us
        if now_us <= latest_us:
            self.last_us = max(mark_us, now_us)
        return now_us, mark_us

    async def reserve(self, entry: LedgerEntry, after: int | None = None) -> Reply:
        entries = self.ledgers.setdefault(entry.source, [])
        for other in entries:
            if (other.stream, other.epoch) == (entry.stream, entry.epoch):
                return Reply.ALREADY if other == entry else Reply.CONFLICT
        if after is not None and len(entries) != after:
            return Reply.CONFLICT
        entries.append(entry)
        return Reply.DONE

    async def ledger(self, source: str) -> tuple[LedgerEntry, ...]:
        return tuple(self.ledgers.get(source, ()))

    async def sources(self) -> dict[str, str]:
        return {name: source_of(state.strategy) for name, state in self.streams.items()}

    async def load(self, stream: str) -> StreamState | None:
        state = self.streams.get(stream)
        if state is None:
            return None
        *earlier, current = read_strategies(state.strategy)
        return StreamState(
            strategy=current,
            earlier=tuple(earlier),
            epoch=state.epoch,
            seq=state.seq,
            head=state.head,
            released_bin=state.released_bin,
            sealed_bin=state.sealed_bin,
            counter=state.counter,
            partitions={
                name: PartitionState(p.position, p.base_bin, tuple(p.cuts), p.late_before, p.origins)
                for name, p in sorted(state.partitions.items())
            },
            noise=state.noise,
            stopped=state.stopped,
            until_bin=state.until_bin,
            late_from=None if state.late_from is None else dict(state.late_from),
            user_keys=state.noted_keys,
            trimmed=state.trimmed,
            halted=state.halted,
        )

    async def open_epoch(
        self,
        stream: str,
        strategy: bytes,
        record: EpochRecord,
        head: str,
        noise: StoredNoise | None = None,
        carried: bytes = b"",
        replaced: bytes = b"",
    ) -> Reply:
        check_epoch(record)
        check_noise(noise)
        state, nonce = self.streams.get(stream), noise.nonce if noise else ""
        if state is None:
            if not self._is_stored(stream, noise):
                return Reply.CONFLICT
            self.streams[stream] = MemoryStream(
                strategy,
                [record],
                opening_head=head,
                seq=record.first_seq - 1,
                head=head,
                released_bin=record.first_bin - 1,
                sealed_bin=record.first_bin - 1,
                noise=nonce,
            )
            return Reply.DONE
        changes = state.strategy == replaced
        if not changes and (state.strategy, state.strategy_hash) != (strategy, record.strategy_hash):
            return Reply.STRATEGY
        if record.epoch == state.epoch.epoch:
            opened = replace(state.epoch, last_bin=None, end_reason=None, found=())
            same = (opened, state.opening_head, state.noise) == (replace(record, found=()), head, nonce)
            return Reply.ALREADY if same else Reply.CONFLICT
        if (
            record.epoch < state.epoch.epoch
            or record.first_bin <= state.released_bin
            or record.first_seq <= state.seq
            or not self._is_stored(stream, noise)
        ):
            return Reply.CONFLICT
        if state.follows(record, head):
            if state.epoch.end_reason is None:
                state.end_epoch("a later epoch was opened")
        else:
            state.discard_invisible("the chain went on elsewhere")
            carried = b""
        state.strategy = strategy
        state.epochs.append(record)
        state.stopped = False
        state.opening_head = state.head = head
        state.seq = record.first_seq - 1
        state.released_bin = record.first_bin - 1
        state.sealed_bin = max(state.sealed_bin, state.released_bin)
        state.counter, state.noise = carried, nonce
        for bin in [bin for bin in state.cells if bin < record.first_bin]:
            del state.cells[bin]
        for window in [window for window in state.user_keys if window < record.first_bin]:
            state.forget_users(window, window)
        for shard in state.untallied_shards(record.first_bin - 1):
            del state.untallied[shard]
        return Reply.DONE

    def _is_stored(self, stream: str, noise: StoredNoise | None) -> bool:
        held = self.noise.get(stream, {})
        return noise is None or all((noise.nonce, page) in held for page in range(noise.pages))

    async def noise_key(self, stream: str) -> bytes:
        return self.noise_keys.get(stream, b"")

    async def write_noise(self, stream: str, nonce: str, page: int, data: bytes, key: bytes = b"") -> bool:
        check_noise_page(nonce, page, data)
        if key and (self.noise_keys.get(stream) or key) != key:
            return False
        self.noise_keys[stream] = key
        self.noise.setdefault(stream, {}).setdefault((nonce, page), data)
        return True

    async def read_noise(self, stream: str, nonce: str, page: int) -> bytes | None:
        return self.noise.get(stream, {}).get((nonce, page))

    async def discard_noise(self, stream: str, kept: Sequence[str], nonce: str = "", spent: int = 0) -> None:
        state, held = self.streams.get(stream), self.noise.get(stream, {})
        wanted = {*kept, state.noise if state else ""}
        for key in list(held):
            if key[0] not in wanted or (key[0] == nonce and key[1] < spent):
                del held[key]

    async def end_epoch(self, stream: str, epoch: int, expected_seq: int, reason: str) -> Reply:
        state = self.streams.get(stream)
        if state is None or (state.epoch.epoch, state.seq) != (epoch, expected_seq):
            return Reply.CONFLICT
        if state.epoch.end_reason is not None:
            return Reply.ALREADY if state.epoch.end_reason == reason else Reply.CONFLICT
        state.end_epoch(reason)
        return Reply.DONE

    async def stop(self, stream: str, epoch: int, expected_seq: int) -> Reply:
        state = self.streams.get(stream)
        if state is None or (state.epoch.epoch, state.seq) != (epoch, expected_seq):
            return Reply.CONFLICT
        if state.epoch.end_reason is None:
            return Reply.CONFLICT
        state.stop()
        return Reply.DONE

    async def end_at(self, stream: str, until_bin: int, late_to_next: bool = False) -> Reply:
        state = self.streams.get(stream)
        if state is None or state.until_bin not in (None, until_bin):
            return Reply.CONFLICT
        is_new = state.until_bin is None
        if is_new and state.sealed_bin >= until_bin:
            return Reply.SEALED
        state.until_bin = until_bin
        last_cuts = [one.last_cut_bin for one in state.partitions.values()]
        if late_to_next and state.late_from is None and max(last_cuts, default=until_bin - 2) < until_bin - 1:
            state.late_from = {}
        return Reply.DONE if is_new else Reply.ALREADY

    async def mark_halted(self, stream: str, halted: bool) -> Reply:
        state = self.streams.get(stream)
        if state is None or state.history is not None:
            return Reply.CONFLICT
        before, state.halted = state.halted, halted
        return Reply.ALREADY if before == halted else Reply.DONE

    async def apply(self, stream: str, change: Apply) -> Reply:
        check_apply(change)
        state = self.streams.get(stream)
        if state is None:
            return Reply.CONFLICT
        if state.strategy_hash != change.strategy_hash:
            return Reply.STRATEGY
        partition = state.partitions.get(change.partition)
        if partition is None or state.epoch.epoch != change.epoch:
            return Reply.CONFLICT
        if partition.position != change.expected:
            return Reply.ALREADY if partition.position == change.new else Reply.CONFLICT
        if not self._knows_cuts(partition, change):
            return Reply.CUTS_CHANGED
        if change.bins.size and int(change.bins.min()) <= state.sealed_bin:
            return Reply.SEALED
        if state.stopped and (change.bins.size or change.ahead is not None):
            return Reply.SEALED
        if change.users is not None and not state.same_key(change.users):
            return Reply.USER_KEY
        if change.ahead is not None:
            if not state.same_key_ahead(partition, change.ahead):
                return Reply.USER_KEY
            partition.ahead.append(change.ahead)
        state.add(change)
        for name, number in change.operator_counts.items():
            state.count_for_operator(name, number)
        partition.apply(change)
        return Reply.DONE

    async def apply_together(
        self, stream: str, strategy_hash: str, epoch: int, changes: Sequence[Apply]
    ) -> Sequence[Reply]:
        check_changes(changes)
        own = [replace(change, strategy_hash=strategy_hash, epoch=epoch) for change in changes]
        return [await self.apply(stream, change) for change in own]

    def _knows_cuts(self, partition: MemoryPartition, change: Apply) -> bool:
        """Return whether the caller knew every cut that can decide about its records."""
        if change.below is not None:
            known = [(cut.bin, cut.position) for cut in partition.cuts]
            return (change.below.bin, change.below.position) in known
        due = change.due_us is not None and self.clock_us() >= change.due_us
        return not due and partition.last_cut_bin == change.last_cut_bin

    async def take_cuts(
        self,
        stream: str,
        strategy_hash: str,
        partition: str,
        expected_last_cut_bin: int,
        cuts: Sequence[Cut],
        max_ahead_bins: int = 0,
        waiting: Waiting = ALL_WAIT,
    ) -> Reply:
        check_cuts(expected_last_cut_bin, cuts)
        taken = PartitionCuts(partition, expected_last_cut_bin, cuts, max_ahead_bins)
        return self._take(stream, strategy_hash, taken, may_accept=True)

    async def take_cuts_together(
        self, stream: str, strategy_hash: str, taken: Sequence[PartitionCuts]
    ) -> list[Reply]:
        for one in taken:
            check_cuts(one.expected_last_cut_bin, one.cuts)
        return [self._take(stream, strategy_hash, one, may_accept=False) for one in taken]

    def _take(
        self,
        stream: str,
        strategy_hash: str,
        taken: PartitionCuts,
        *,
        may_accept: bool,
    ) -> Reply:
        state = self.streams.get(stream)
        if state is None:
            return Reply.CONFLICT
        if state.strategy_hash != strategy_hash:
            return Reply.STRATEGY
        cuts, expected = taken.cuts, taken.expected_last_cut_bin
        known = state.partitions.get(taken.partition) or MemoryPartition(0, 0, state.sealed_bin)
        call = (expected, tuple(cuts))
        if known.last_cut_bin != expected:
            # Equal bins are not enough: cuts at other positions would put records into other bins.
            return Reply.ALREADY if known.last_call == call else Reply.CONFLICT
        if cuts[0].position < known.position or (known.cuts and cuts[0].position < known.cuts[-1].position):
            return Reply.CONFLICT
        if not may_accept and known.ahead and taken.open_bin > expected + 2:
            return Reply.SET_ASIDE
        state.decide_ahead(known, taken.open_bin + taken.max_ahead_bins)
        state.hand_over(taken.partition, cuts)
        known.cuts.extend(cuts)
        known.last_call = call
        known.move(known.position)
        state.partitions[taken.partition] = known
        return Reply.DONE

    async def refused_ahead(self, stream: str, partition: str, limit: int) -> list[int]:
        known = self._opened(stream).partitions.get(partition)
        return known.refused_ahead[:limit] if known else []

    async def forget_refused(self, stream: str, partition: str, positions: Sequence[int]) -> None:
        refused = self._opened(stream).partitions[partition].refused_ahead
        first = len(positions)
        refused[:first] = [position for position in refused[:first] if position not in positions]

    async def start_partition(
        self,
        stream: str,
        strategy_hash: str,
        partition: str,
        position: int,
        late_before: LateEvents | None = None,
    ) -> Reply:
        state = self.streams.get(stream)
        if state is None:
            return Reply.CONFLICT
        if state.strategy_hash != strategy_hash:
            return Reply.STRATEGY
        if partition in state.partitions:
            return Reply.ALREADY if state.partitions[partition].start == position else Reply.CONFLICT
        started = MemoryPartition(position, position, state.sealed_bin, late_before=late_before)
        state.partitions[partition] = started
        state.hand_over(partition, [Cut(state.sealed_bin, position)])
        return Reply.DONE

    async def seal(self, stream: str, strategy_hash: str, partitions: Sequence[str], up_to_bin: int) -> int:
        state = self._opened(stream)
        if state.strategy_hash == strategy_hash and state.partitions.keys() >= set(partitions):
            allowed = min((p.base_bin for p in state.partitions.values()), default=state.sealed_bin)
            if state.until_bin is not None:
                up_to_bin = min(up_to_bin, state.until_bin - 1)
            state.sealed_bin = max(state.sealed_bin, min(allowed, up_to_bin))
        return state.sealed_bin

    async def tally(
        self, stream: str, strategy_hash: str, bounds: Bounds, up_to_bin: int, slots: Slots | None = None
    ) -> Reply:
        check_tally(bounds, up_to_bin)
        state = self.streams.get(stream)
        if state is None:
            return Reply.CONFLICT
        if state.strategy_hash != strategy_hash:
            return Reply.STRATEGY
        if up_to_bin > state.sealed_bin:
            return Reply.NOT_SEALED
        if slots is not None and (state.epoch.epoch, state.seq) != (slots.epoch, slots.seq):
            return Reply.CONFLICT
        return Reply.DONE if state.tally(bounds, up_to_bin, slots) else Reply.ALREADY

    async def name_keys(
        self, stream: str, strategy_hash: str, window: int, mark: bytes, names: Sequence[SealedKey]
    ) -> list[int] | Reply:
        state = self.streams.get(stream)
        if state is None:
            return Reply.CONFLICT
        if state.strategy_hash != strategy_hash:
            return Reply.STRATEGY
        if state.user_key_of(window) not in (mark, b""):
            return Reply.USER_KEY
        known = {one.hash for one in state.unlisted.get(window, [])}
        is_over = state.stopped or window <= state.released_bin
        if is_over and not known.issuperset(one.hash for one in names):
            return Reply.SEALED
        return state.name_keys(window, mark, names)

    async def thin_keys(
        self, stream: str, seen: StreamState, window: int, gone: Mapping[int, Sequence[int]]
    ) -> Reply:
        state = self._opened(stream)
        if (state.epoch.epoch, state.seq) != (seen.epoch.epoch, seen.seq):
            return Reply.CONFLICT
        state.thin_keys(window, seen.epoch.thinned, gone)
        return Reply.DONE

    async def named_keys(self, stream: str, window: int, numbers: Sequence[int]) -> list[SealedKey]:
        held = dict(enumerate(self._opened(stream).unlisted.get(window, [])))
        return [held[number] for number in numbers]

    async def read_kept(self, stream: str, bins: Sequence[int], cells: Sequence[int]) -> list[dict[int, int]]:
        held = (self._opened(stream).cells.get(bin, {}) for bin in bins)
        return [{c: n for c, n in counts.items() if not cells or c in cells} for counts in held]

    async def forget_kept(self, stream: str, epoch: int, finished: bool = False) -> Reply:
        state = self._opened(stream)
        gone = [bin for bin in state.cells if finished or bin <= state.released_bin]
        windows = [window for window in state.users if finished or window <= state.released_bin]
        if state.epoch.epoch != epoch or (state.epoch.end_reason is None and not finished):
            return Reply.CONFLICT
        if not gone and not windows:
            return Reply.ALREADY
        for bin in gone:
            del state.cells[bin]
        for window in windows:
            state.forget_users(window, window)
        return Reply.DONE

    async def read_cells(self, stream: str, first_bin: int, last_bin: int, width: int) -> Int64Array:
        state = self._opened(stream)
        check_read(last_bin, state.sealed_bin, len(state.untallied_shards(last_bin)))
        counts = np.zeros((max(last_bin - first_bin + 1, 0), width), dtype=np.int64)
        for row, bin in enumerate(range(first_bin, last_bin + 1)):
            for cell, count in state.cells.get(bin, {}).items():
                if cell >= width:
                    raise ValueError(f"read_cells: cell {cell} is outside a width of {width}")
                counts[row, cell] = count
        return counts

    async def release(self, stream: str, release: Release) -> Reply:
        check_release(release)
        state = self.streams.get(stream)
        if state is None:
            return Reply.CONFLICT
        if state.strategy_hash != release.strategy_hash:
            return Reply.STRATEGY
        seq = release.expected_seq + len(release.rows)
        if (state.seq, state.head) == (seq, release.head):
            return Reply.ALREADY
        if (
            (state.epoch.epoch, state.epoch.end_reason) != (release.epoch, None)
            or (state.seq, state.head) != (release.expected_seq, release.expected_head)
            or release.first_bin != state.released_bin + 1
            or release.last_bin > state.epoch.final_bin
        ):
            return Reply.CONFLICT
        if release.last_bin > state.sealed_bin:
            return Reply.NOT_SEALED
        if state.untallied_shards(release.last_bin):
            return Reply.NOT_TALLIED
        if any(len(state.tiles.get(append.key, b"")) != append.offset_bytes for append in release.tiles):
            return Reply.CONFLICT
        for offset, row in enumerate(release.rows, start=1):
            state.chain[release.expected_seq + offset] = bytes(row)
        for append in release.tiles:
            state.tiles.setdefault(append.key, bytearray()).extend(append.data)
        state.forget_released(release)
        state.seq, state.head, state.released_bin = seq, release.head, release.last_bin
        state.counter = release.counter
        state.forget_users(release.first_bin, release.last_bin)
        if release.last_bin == state.epoch.final_bin:
            state.end_epoch("complete")
        return Reply.DONE

    async def put_back(self, stream: str, lost: Restored) -> Reply:
        state = self.streams.get(stream)
        if state is None:
            return Reply.CONFLICT
        if state.strategy_hash != lost.strategy_hash:
            return Reply.STRATEGY
        newest, last = max(state.chain, default=0), lost.rows[-1][0]
        if newest == last:
            return Reply.ALREADY
        if (
            newest != lost.after_seq
            or lost.epoch.epoch >= state.epoch.epoch
            or last > state.seq
            or any(len(state.tiles.get(append.key, b"")) != append.offset_bytes for append in lost.tiles)
        ):
            return Reply.CONFLICT
        state.put_back(lost)
        return Reply.DONE

    async def publish(self, stream: str, seq: int) -> None:
        state = self.streams.get(stream)
        if state is not None and state.visible_seq < seq <= state.seq:
            state.visible_seq = seq

    async def visible_seq(self, stream: str) -> int:
        state = self.streams.get(stream)
        return 0 if state is None else state.visible_seq

    async def oldest_epoch(self, stream: str) -> EpochRecord | None:
        state = self.streams.get(stream)
        return state.epochs[0] if state is not None and state.epochs else None

    async def trim(self, stream: str, before_us: int) -> int:
        state = self.streams.get(stream)
        if state is None or state.history is not None:
            return 0
        leaving = list(removable(read_strategies(state.strategy), state.epochs, state.visible_seq, before_us))
        for epoch in leaving:
            state.remove(epoch)
        return len(leaving)

    async def forget(self) -> None:
        """Do nothing: memory keeps no log."""

    async def hold(
        self, streams: Sequence[str], owner: str, for_ms: int, lost: Sequence[int] = ()
    ) -> list[Reply]:
        asked = zip(streams, lost or repeat(0), strict=False)
        return [self._hold(stream, owner, for_ms, seq) for stream, seq in asked]

    def _hold(self, stream: str, owner: str, for_ms: int, lost: int) -> Reply:
        now_us = self.clock_us()
        holder, until_us, others = self.leases.get(stream, (owner, 0, 0))
        if holder != owner and now_us < until_us and others >= lost:
            return Reply.BEHIND if others else Reply.CONFLICT
        if for_ms:
            self.leases[stream] = owner, now_us + for_ms * 1000, lost
        else:  # it does not last if the clock goes back
            self.leases.pop(stream, None)
        return Reply.DONE

    async def attend(self, source: str, alike: str, worker: str, for_ms: int) -> list[str]:
        now_us = self.clock_us()
        until_us = self.workers.get((source, alike), {}) | {worker: now_us + for_ms * 1000}
        live = {name: until for name, until in until_us.items() if until > now_us}
        self.workers[source, alike] = live
        return sorted(live)

    async def operator_counts(self, stream: str) -> dict[str, int]:
        return dict(self._opened(stream).operator_counts)

    async def rows(self, stream: str, after_seq: int, limit: int) -> list[tuple[int, bytes]]:
        state = self.streams.get(stream)
        chain = state.chain if state else {}
        return list(islice(((seq, row) for seq, row in chain.items() if seq > after_seq), limit))

    async def witness_rows(
        self, stream: str, strategy: Strategy, after_seq: int, limit: int
    ) -> list[WitnessRow]:
        rows = await self.rows(stream, after_seq, limit)
        if strategy.kind.rows_hold_values or not rows:
            return [WitnessRow(seq, row, settings_beside(strategy, row)) for seq, row in rows]
        state = self._opened(stream)
        try:
            return [witness_row(strategy, state.epochs, seq, row, state.part_of_tile) for seq, row in rows]
        except (LookupError, ValueError):
            raise ConnectionError(f"stream {stream}: its last rows changed while they were read") from None

    def _opened(self, stream: str) -> MemoryStream:
        """Return a stream's state. Raises: LookupError for a stream that was never opened."""
        if stream not in self.streams:
            raise LookupError(f"stream {stream!r} was never opened; open its first epoch")
        return self.streams[stream]


async def time_of(store: Store) -> int:
    """Return a store's time, for the parts of commands that get it from their caller."""
    return (await store.now_us())[0]
