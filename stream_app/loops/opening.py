"""Opening a stream: its first epoch, the next one, or a new one because the witness knows more.

The witness is a record outside the store of what was released. A store that is behind it was set back (a
restored backup, a lost disk): nodes that people have seen would be noised again. So that epoch ends for ever,
and a new one starts after everything the witness knows: with the bin after the witness's last row, whose
records are read again from the log, or where retention has removed some of them, with the first bin whose
records are all still there. What readers need of earlier bins is put back from the witness.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stream_app.core.declaration import STATE_ID, Declaration
from stream_app.core.records import GENESIS, Ending, EpochRecord, LedgerEntry, Reply, StreamState
from stream_app.core.release import RowLink
from stream_app.core.restored import epochs_of
from stream_app.core.strategy import Strategy, canonical_json
from stream_app.loops.noise_ahead import NoiseAhead
from stream_app.loops.recovery import Recovery, tell_loss
from stream_app.ports import OperatorError, Source, Store, Witness
from stream_app.source_ledger import SourceLedger

_ATTEMPTS = 5  # others may be opening the same stream; each time round, one of us has succeeded


async def open_stream(
    store: Store,
    witness: Witness,
    noise: NoiseAhead,
    planned: Strategy,
    source: Source,
    now_us: int,
    ledger: SourceLedger,
    recovery: Recovery,
) -> tuple[Strategy, StreamState]:
    """Make sure that the stream has an open epoch which follows all that the store and the witness know.

    Guarantee: an epoch is in the ledger, and its noise stored where it is drawn ahead, before it is open; a
        node that the witness knows is never released again, whatever happened to the store.
    Args:
        planned: the configuration's declaration and the tree planned for it now. A stream that exists keeps
            the tree that it began with.
        ledger: of the stream's source; it asks before a first measurement.
        source: asked for how far back its records reach, where the store lost its positions.
        recovery: puts history back and notifies, where the store was lost or set back.
    Returns: the strategy and the state under which the stream runs.
    Raises: OperatorError for another declaration, a strategy that this version cannot read, a second
        measurement, a foreign witness.
    """
    for _ in range(_ATTEMPTS):
        # The witness first: a store that lost nothing holds at least what the witness knew before, whatever
        # another closer releases meanwhile.
        witnessed = await witness.head(planned.stream)
        state = await store.load(planned.stream)
        strategy = planned if state is None else _running(state, planned)
        head = _checked_head(witnessed, strategy)
        if state is None:
            begun = epochs_of(strategy, await witness.rows(strategy.stream, 0))
            start = await _first(strategy, head, begun, source, now_us)
            await restore_ledger(ledger, witness, strategy)
        elif head is not None and not await _follows(store, strategy.stream, state, head):
            start = _after_witness(state, head)
            await restore_ledger(ledger, witness, strategy)
        elif state.epoch.end_reason is not None and not _finished(strategy, state):
            start = _next(strategy, state)
        else:
            if head is not None:
                await recovery.put_back(store, witness, strategy, state, head)
            return strategy, state
        if await _open(store, noise, strategy, start, ledger) and start.ending is not None:
            assert head is not None
            tell_loss(strategy, start.ending, head, start.record)
            recovery.on_end(start.ending, start.record.first_bin - head.bin - 1)
    raise OperatorError(
        f"stream {planned.stream}: the ledger of {planned.source} holds another measurement in the place of "
        "its next epoch; restore the store, or give the stream another name"
    )


async def agrees(store: Store, witness: Witness, planned: Strategy) -> bool:
    """Say whether the stream is open and follows all that the witness knows, changing nothing.

    Raises: OperatorError for another declaration, a foreign witness.
    """
    witnessed = await witness.head(planned.stream)
    state = await store.load(planned.stream)
    if state is None:
        return False
    head = _checked_head(witnessed, _running(state, planned))
    return head is None or await _follows(store, planned.stream, state, head)


async def _follows(store: Store, stream: str, state: StreamState, head: RowLink) -> bool:
    """Say whether the store's chain ends with the witness's last row or goes on from it."""
    if head.seq >= state.seq:
        return head.seq == state.seq and head.hash == state.head
    following = await store.rows(stream, head.seq, 1)
    return (RowLink.of(following[0][1]).prev if following else state.head) == head.hash


def _finished(strategy: Strategy, state: StreamState) -> bool:
    """Say whether a replay has released its last bin: nothing comes after it."""
    last_bin = Declaration.of(strategy).last_bin
    return last_bin is not None and state.released_bin >= last_bin


def _running(state: StreamState, planned: Strategy) -> Strategy:
    """Return the stored strategy, if its declaration is the configured one."""
    try:
        running = Strategy.from_json(state.strategy)
    except ValueError as refusal:
        raise OperatorError(f"stream {planned.stream}: {refusal}; give the new stream another name") from None
    then, now = (
        {"ledger": strategy.source, "width": strategy.width}
        | json.loads(canonical_json(dict(strategy.declared)))
        for strategy in (running, planned)
    )
    if STATE_ID not in then.get("source", {}):
        now.get("source", {}).pop(STATE_ID, None)  # it began before state directories were known
    for key, before, after in _differences(then, now):
        if key == f"source.{STATE_ID}":
            raise OperatorError(
                f"stream {planned.stream}: its file is counted from another state directory, whose file id "
                f"holds {before} (here {after}); go on with that one, or give the new stream another name"
            )
        raise OperatorError(
            f"stream {planned.stream}: {key} was {before} when the stream began and is {after} now; put it "
            "back, or give the new stream another name"
        )
    return running


def _differences(then: Any, now: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted(then.keys() | now.keys()):
            yield from _differences(then.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif then != now:
        yield path, json.dumps(then), json.dumps(now)


def _checked_head(head: tuple[int, bytes] | None, strategy: Strategy) -> RowLink | None:
    if head is None:
        return None
    if json.loads(head[1])["strategy"] != strategy.hash:
        raise OperatorError(
            f"stream {strategy.stream}: the witness holds releases of another strategy under this name; "
            "give the stream another name"
        )
    return RowLink.of(head[1])


class _Start(NamedTuple):
    """How the stream goes on: an epoch after a head, that may not begin before ``earliest_bin``.

    ``last`` is an epoch of before: under a cap of users, the new one ends where a window of that one's does.
    ``carried`` is what levels over epochs know when it begins. SECRET. ``is_first`` says that nothing of the
    stream was opened before, so its measurement was not asked about yet.
    """

    record: EpochRecord
    head: str
    earliest_bin: int
    last: EpochRecord | None = None
    carried: bytes = b""
    is_first: bool = False
    ending: Ending | None = None  # why the epoch before ended, where the store was behind the witness


async def _first(
    strategy: Strategy, head: RowLink | None, begun: Sequence[EpochRecord], source: Source, now_us: int
) -> _Start:
    """Return the epoch of a stream that the store does not know; the witness may. Args: begun, its epochs."""
    declaration, bins = Declaration.of(strategy), strategy.design.horizon
    if head is None:
        # A live stream may have been reserved, but not opened, in an earlier bin.
        first_bin = declaration.first_bin(now_us)
        return _Start(EpochRecord(0, first_bin, bins, 1, strategy.hash), GENESIS, -sys.maxsize, is_first=True)
    first_bin = head.bin + 1
    kept_since_us = await source.kept_since_us()
    if kept_since_us is not None:
        kept_from, now = declaration.binning.bin_of([kept_since_us, now_us]).tolist()
        # A bin's first records may have been written while an earlier one was open. The bin after the
        # present one is whole whatever a record says about its own time.
        first_bin = max(first_bin, min(kept_from + declaration.max_ahead_bins + 1, now + 1))
    record = EpochRecord(head.epoch + 1, first_bin, bins, head.seq + 1, strategy.hash)
    return _Start(record, head.hash, head.bin + 1, begun[-1], ending=Ending.STORE_LOST)


def _next(strategy: Strategy, state: StreamState) -> _Start:
    """Return the epoch after one that has ended. Late records still count, so their floor stays."""
    last = state.epoch
    record = EpochRecord(
        epoch=last.epoch + 1,
        first_bin=state.released_bin + 1,
        bins=last.bins,
        first_seq=state.seq + 1,
        strategy_hash=last.strategy_hash,
        counts_from_bin=last.first_bin if last.counts_from_bin is None else last.counts_from_bin,
    )
    return _Start(record, state.head, record.first_bin, last, _carried(strategy, state))


def _carried(strategy: Strategy, state: StreamState) -> bytes:
    """Return what goes on from a complete epoch. After any other end, nodes over epochs begin anew: those
    that were open are never released, so every event is still in at most one of each level.
    """
    is_complete = state.released_bin == state.epoch.first_bin + strategy.design.horizon - 1
    return strategy.kind.kept(state.counter) if is_complete else b""


def _after_witness(state: StreamState, head: RowLink) -> _Start:
    """Return the epoch after all that store and witness know; earlier records may have been counted."""
    record = EpochRecord(
        epoch=max(state.epoch.epoch, head.epoch) + 1,
        first_bin=max(state.released_bin, head.bin) + 1,
        bins=state.epoch.bins,
        first_seq=max(state.seq, head.seq) + 1,
        strategy_hash=state.epoch.strategy_hash,
    )
    return _Start(record, head.hash, record.first_bin, state.epoch, ending=Ending.STORE_SET_BACK)


async def restore_ledger(ledger: SourceLedger, witness: Witness, strategy: Strategy) -> None:
    """Put back the entries of epochs that the witness has seen: a store that was set back lost them too."""
    for record in epochs_of(strategy, await witness.rows(strategy.stream, 0)):
        await ledger.reserve(_ledger_entry(strategy, record))


async def _open(
    store: Store, noise: NoiseAhead, strategy: Strategy, start: _Start, ledger: SourceLedger
) -> bool:
    """Reserve the epoch in the ledger, then open it; return whether it is open, and nobody was quicker."""
    outside = await ledger.outside(strategy.source)  # first: the store knows of whatever is there
    record = _as_reserved(strategy, start, await ledger.entries(strategy.source), outside)
    entry = _ledger_entry(strategy, record)
    reserve = ledger.begin if start.is_first else ledger.reserve
    if await reserve(entry) is Reply.CONFLICT:
        return False
    stored = await noise.stored(strategy, record.epoch)
    reply = await store.open_epoch(
        strategy.stream, strategy.to_json(), record, start.head, stored, start.carried
    )
    if reply not in (Reply.DONE, Reply.ALREADY):
        noise.give_up()
    return reply is Reply.DONE


def _as_reserved(
    strategy: Strategy, start: _Start, ledger: Sequence[LedgerEntry], outside: Sequence[LedgerEntry]
) -> EpochRecord:
    """Return the epoch as an earlier start reserved it, or under the next number that is free.

    That start may have been interrupted before it opened the epoch; what it reserved is used if it begins
    late enough, and left unused if the stream has been released further since. A number is not free either
    where only the ledger outside the store knows an epoch under it that began elsewhere: a store lost it.
    """
    declaration = Declaration.of(strategy)

    def first_bin_of(entry: LedgerEntry) -> int:
        return int(declaration.binning.bin_of([entry.start_us])[0])

    reserved = {
        entry.epoch: first_bin_of(entry)
        for entry in ledger
        if (entry.stream, entry.strategy_hash) == (strategy.stream, strategy.hash)
    }
    elsewhere = {
        (entry.epoch, entry.strategy_hash, first_bin_of(entry))
        for entry in outside
        if entry.stream == strategy.stream
    }
    taken = {number for number, _, _ in elsewhere}
    epoch = start.record.epoch
    while True:
        first_bin = reserved.get(epoch, start.record.first_bin)
        is_late_enough = epoch not in reserved or first_bin >= start.earliest_bin
        if is_late_enough and (epoch not in taken or (epoch, strategy.hash, first_bin) in elsewhere):
            break
        epoch += 1
    bins = strategy.design.horizon
    if start.last is not None and declaration.per_user is not None:
        # One that fills the rest of its window: an epoch over parts of two could count a user twice.
        bins = declaration.windows(start.last, bins).left(first_bin)
    return replace(start.record, epoch=epoch, first_bin=first_bin, bins=bins)


def _ledger_entry(strategy: Strategy, record: EpochRecord) -> LedgerEntry:
    declaration = Declaration.of(strategy)
    return LedgerEntry(
        source=strategy.source,
        stream=strategy.stream,
        epoch=record.epoch,
        start_us=declaration.binning.start_us(record.first_bin),
        end_us=declaration.binning.start_us(record.first_bin + record.bins),
        epsilon=str(strategy.epsilon),
        unit="event" if declaration.per_user is None else "user",
        strategy_hash=record.strategy_hash,
        private=declaration.private,
        neighbours=strategy.design.neighbours,
        until_us=declaration.until_us,
        user=None if declaration.per_user is None else declaration.per_user.field,
    )
