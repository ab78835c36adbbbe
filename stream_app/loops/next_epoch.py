"""Which epoch of a stream opens next, and where it begins and ends."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from stream_app.core.epochs import FoundKeys
from stream_app.core.records import GENESIS, EpochRecord, LedgerEntry, StreamState
from stream_app.core.releases.release import RowLink
from stream_app.core.segments.endings import Ending
from stream_app.core.strategy import Strategy
from stream_app.ports import Source


def is_finished(strategy: Strategy, state: StreamState) -> bool:
    """Return whether a replay has released its last bin."""
    last_bin = strategy.declared.last_bin
    return last_bin is not None and state.released_bin >= last_bin


class Start(NamedTuple):
    """The epoch that opens next."""

    record: EpochRecord
    head: str  # the hash of the row before its first row
    earliest_bin: int  # a reserved epoch that begins before this bin is not used
    last: EpochRecord | None = None  # an earlier epoch: with a cap per user, its windows end the new epoch
    carried: bytes = b""  # SECRET: the state of the levels over epochs
    is_first: bool = False  # the operator was not yet asked to consent to the stream's measurement
    ending: Ending | None = None  # why the previous epoch ended, if the store was behind the witness

    def may_begin_at(self, bin: int) -> bool:
        """Return whether an epoch that was reserved for this bin may open: no due bin may be left out."""
        return self.is_first or self.earliest_bin <= bin <= self.record.first_bin

    def at_latest(self, last: int | None) -> Start:
        """Return this start in the given bin if it is later, but not in a bin that was released already.

        A log that no longer has a stream's last records must not open an epoch after the stream's end.
        """
        if last is None or self.is_first or self.record.first_bin <= last:
            return self
        return self._replace(record=replace(self.record, first_bin=max(last, self.earliest_bin)))

    def under(self, strategy: Strategy, last_hash: str | None) -> Start:
        """Return this start under a strategy. Args: last_hash, of the stream's last row, if it has one."""
        changed_from = None if last_hash == strategy.hash else last_hash
        record = replace(self.record, strategy_hash=strategy.hash, changed_from=changed_from)
        return self._replace(record=record)


async def first_start(
    strategy: Strategy, head: RowLink | None, begun: Sequence[EpochRecord], source: Source, now_us: int
) -> Start:
    """Return the start of a stream that the store does not know. Args: begun, the witness's epochs."""
    declared, bins = strategy.declared, strategy.time.horizon
    if head is None:
        # An earlier start may have reserved the stream's epoch in an earlier bin, without opening it.
        first_bin = declared.first_bin(now_us)
        return Start(EpochRecord(0, first_bin, bins, 1, strategy.hash), GENESIS, -sys.maxsize, is_first=True)
    first_bin = head.bin + 1
    kept_since_us = await source.kept_since_us()
    if kept_since_us is not None:
        kept_from, now = declared.time.binning.bin_of([kept_since_us, now_us]).tolist()
        # A bin's first records may have been written while an earlier bin was open. But the bin after the
        # current one is complete, whatever times the records state.
        first_bin = max(first_bin, min(kept_from + declared.time.max_ahead_bins + 1, now + 1))
    record = EpochRecord(head.epoch + 1, first_bin, bins, head.seq + 1, strategy.hash)
    return Start(record, head.hash, head.bin + 1, begun[-1], ending=Ending.STORE_LOST)


def following_start(strategy: Strategy, state: StreamState, now_us: int) -> Start:
    """Return the start after an ended epoch. Late records still count, so ``counts_from_bin`` stays.

    After a stop the epoch begins with the next bin: events dated before it were not counted.
    """
    last = state.epoch
    record = EpochRecord(
        epoch=last.epoch + 1,
        first_bin=state.released_bin + 1,
        bins=last.bins,
        first_seq=state.seq + 1,
        strategy_hash=last.strategy_hash,
        counts_from_bin=last.first_bin if last.counts_from_bin is None else last.counts_from_bin,
        found=still_listed(strategy, last, state.released_bin + 1),
    )
    if not state.stopped:
        return Start(record, state.head, record.first_bin, last, _carried(strategy, state))
    [now] = strategy.declared.time.binning.bin_of([now_us]).tolist()
    later = replace(record, first_bin=max(record.first_bin, now + 1), counts_from_bin=None)
    return Start(later, state.head, record.first_bin, last)


def still_listed(strategy: Strategy, last: EpochRecord, first_bin: int) -> tuple[FoundKeys, ...]:
    """Return the keys that the next epoch lists because earlier ones found them; public.

    A key is listed for as many bins as ``keys.discover.epochs`` whole epochs have.
    """
    keys = strategy.declared.keys
    if keys is None or keys.discover is None:
        return ()
    oldest = first_bin - keys.discover.epochs * strategy.time.horizon
    listed = (FoundKeys(one.bin, one.names) for one in last.found if one.names and one.bin >= oldest)
    return *listed, *_thinned(last, first_bin)


def _thinned(last: EpochRecord, first_bin: int) -> tuple[FoundKeys, ...]:
    """Return how many hidden keys stay, for a next epoch that begins within the window of the last one."""
    is_within = first_bin < last.first_bin + last.bins
    return (FoundKeys(first_bin - 1, (), last.thinned),) if last.thinned and is_within else ()


def _carried(strategy: Strategy, state: StreamState) -> bytes:
    """Return the state of levels over epochs that a complete epoch hands on.

    After any other end these levels start afresh. Their open nodes are never released, so every event is
    still in at most one node of each level.
    """
    is_complete = state.released_bin == state.epoch.first_bin + strategy.time.horizon - 1
    return strategy.kind.kept(state.counter) if is_complete else b""


def start_after_witness(state: StreamState, head: RowLink) -> Start:
    """Return the start after the last bins of store and witness, which may already have counted records."""
    record = EpochRecord(
        epoch=max(state.epoch.epoch, head.epoch) + 1,
        first_bin=max(state.released_bin, head.bin) + 1,
        bins=state.epoch.bins,
        first_seq=max(state.seq, head.seq) + 1,
        strategy_hash=state.epoch.strategy_hash,
    )
    record = replace(record, found=_thinned(state.epoch, record.first_bin))
    return Start(record, head.hash, record.first_bin, state.epoch, ending=Ending.STORE_SET_BACK)


def as_reserved(
    strategy: Strategy,
    start: Start,
    ledger: Sequence[LedgerEntry],
    outside: Sequence[LedgerEntry],
    found: Collection[str],
) -> EpochRecord:
    """Return the epoch that an earlier start reserved, or a new one under the next free number.

    The earlier start may have stopped before it opened the epoch. Its reservation is used unless the stream
    has released more bins since, or fewer: a lost store may have reserved the epoch after rows that nobody
    has seen. A number is taken if the store has lost its epoch. The ledger outside the store then has it,
    for another first bin, or the entry was copied from there and says so. It is taken, too, if the epoch was
    reserved under settings that have changed again before it opened: those of a stream's first segment,
    or any of a later one. A worker with other settings may have reserved that one and died, and its entry
    stays in the sum.
    """
    declared = strategy.declared

    def first_bin_of(entry: LedgerEntry) -> int:
        return int(declared.time.binning.bin_of([entry.start_us])[0])

    epoch = start.record.epoch

    def is_asked(entry: LedgerEntry) -> bool:
        # The ledger has an entry of every epoch that ever was; no lower number is looked for.
        return entry.stream == strategy.stream and entry.epoch >= epoch

    own = list(filter(is_asked, ledger))
    lost = {entry.epoch for entry in own if entry.lost}
    reserved = {
        entry.epoch: first_bin_of(entry)
        for entry in own
        if entry.strategy_hash == strategy.hash and not entry.lost
    }
    elsewhere = {
        (entry.epoch, entry.strategy_hash, first_bin_of(entry)) for entry in filter(is_asked, outside)
    }
    taken = {number for number, _, _ in elsewhere}
    others = {
        entry.epoch
        for entry in own
        if entry.strategy_hash != strategy.hash
        and (strategy.number > 1 or {entry.strategy_hash, entry.changed_from} & set(found))
    }
    while True:
        first_bin = reserved.get(epoch, start.record.first_bin)
        is_free = epoch not in taken or (epoch, strategy.hash, first_bin) in elsewhere
        if is_free and epoch not in lost | others and start.may_begin_at(first_bin):
            break
        epoch += 1
    bins = declared.epoch_bins(first_bin, start.last, strategy.time.horizon)
    return replace(start.record, epoch=epoch, first_bin=first_bin, bins=bins)
