"""Opening a stream: its first epoch, the next epoch, or a new epoch because the witness knows more.

The witness is a record of all releases, kept outside the store. A store that is behind the witness was set
back (a restored backup, a lost disk): it would draw noise again for nodes that people have seen. So the
running epoch ends for good. The next epoch starts with the bin after the witness's last row, whose records
are read again from the log. If retention has removed some of these records, the epoch starts with the first
bin whose records are all still there. The rows of earlier bins are put back from the witness.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from stream_app.core.history import in_words, read_strategy
from stream_app.core.measured import ledger_entry
from stream_app.core.records import GENESIS, Ending, EpochRecord, LedgerEntry, Reply, StreamState
from stream_app.core.releases.release import RowLink
from stream_app.core.releases.restored import epochs_of
from stream_app.core.strategy import Strategy
from stream_app.loops.noise_ahead import NoiseAhead
from stream_app.loops.recovery import Recovery
from stream_app.loops.stream import Ports, Stream
from stream_app.ports import OperatorError, Source, Store, Witness
from stream_app.source_ledger import SourceLedger, TotalSpent

_LONGEST_SHOWN = 200  # characters of a value in an error
_ATTEMPTS = 5  # other workers may be opening the same stream; in each attempt one of them succeeds


async def open_stream(
    ports: Ports, stream: Stream, planned: Strategy, noise: NoiseAhead, recovery: Recovery
) -> tuple[Strategy, StreamState]:
    """Open the epoch that is due, if any; return the strategy and the state with which the stream runs.

    Guarantee: before an epoch opens, it is in the ledger, and noise that is drawn ahead is stored. A node
        that the witness knows is never released again, whatever happened to the store. An epoch that would
        exceed the stream's total does not open: the stream is stopped, until a start with a larger total.
        Before an epoch opens, the ledger has every epoch that the stream's witness knows, or the ledger
        outside the store knows of other configurations; before a total of several streams is asked, also
        every epoch that a witness of a configured stream knows.
    Args: planned, the configured declaration and the tree planned for it now. An existing stream keeps the
        tree it began with.
    Raises: OperatorError for a changed declaration, a strategy that this version cannot read, a second
        measurement without consent, a witness of another strategy, or a first epoch beyond its total.
    """
    store, witness = ports.store, ports.witnesses[planned.stream]
    ledger = _ledger(stream, ports)
    now_us = await ports.clock.now_us()
    for _ in range(_ATTEMPTS):
        # Read the witness first: then a store that lost nothing has all of its rows, even if another worker
        # releases rows meanwhile.
        witnessed = await witness.head(planned.stream)
        state = await store.load(planned.stream)
        strategy = planned if state is None else running_strategy(state, planned)
        head = _checked_head(witnessed, strategy)
        if state is None:
            begun = epochs_of(strategy, await witness.rows(strategy.stream, 0))
            start = await _first(strategy, head, begun, ports.source, now_us)
        elif head is not None and not await _follows(store, strategy.stream, state, head):
            start = _after_witness(state, head)
        elif state.epoch.end_reason is not None and not is_finished(strategy, state):
            start = _next(strategy, state, now_us)
        else:
            if head is not None:
                await recovery.put_back(store, witness, strategy, state, head)
            return strategy, state
        others = stream.measuring if start.ending is not None or ledger.counts_others else ()
        await _restore_ledgers(ports, [*others, replace(stream, strategy=planned)])
        await ledger.recall(strategy.source)
        try:
            opened = await _open(store, noise, strategy, start, ledger)
        except TotalSpent:
            if state is None or start.ending is not None:
                raise _cannot_begin(strategy, start) from None
            await store.stop(strategy.stream, state.epoch.epoch, state.seq)
            if (state := await store.load(strategy.stream)) is None or not state.stopped:
                continue
            if head is not None:
                await recovery.put_back(store, witness, strategy, state, head)
            return strategy, state
        if opened and start.ending is not None:
            assert head is not None
            recovery.report_loss(strategy, start.ending, head, start.record)
    raise OperatorError(
        f"stream {planned.stream}: the ledger of {planned.source} holds another measurement in the place of "
        "its next epoch; restore the store, or give the stream another name"
    )


async def next_epoch_fits(ledger: SourceLedger, strategy: Strategy, state: StreamState) -> bool:
    """Return whether the epoch after the running one is within the stream's total, as far as is known now."""
    running = state.epoch
    following = replace(
        running,
        epoch=running.epoch + 1,
        first_bin=running.first_bin + running.bins,
        bins=strategy.time.horizon,
    )
    return await ledger.fits(ledger_entry(strategy, following))


def _cannot_begin(strategy: Strategy, start: _Start) -> OperatorError:
    """Return the error for an epoch that its total does not allow, of a stream that has no running epoch."""
    why = "its first epoch" if start.is_first else "the store lost the running epoch, and a new one"
    return OperatorError(
        f"stream {strategy.stream}: {why} would exceed streams.{strategy.stream}.privacy.total; raise it, "
        + ("or take the stream out" if start.is_first else "restore the store, or take the stream out")
    )


async def agrees(store: Store, witness: Witness, planned: Strategy) -> bool:
    """Return whether the stream is open and its chain contains the witness's last row.

    Raises: OperatorError for a changed declaration or a witness of another strategy.
    """
    witnessed = await witness.head(planned.stream)
    state = await store.load(planned.stream)
    if state is None:
        return False
    head = _checked_head(witnessed, running_strategy(state, planned))
    return head is None or await _follows(store, planned.stream, state, head)


async def _follows(store: Store, stream: str, state: StreamState, head: RowLink) -> bool:
    """Return whether the store's chain contains the witness's last row."""
    if head.seq >= state.seq:
        return head.seq == state.seq and head.hash == state.head
    following = await store.rows(stream, head.seq, 1)
    return (RowLink.of(following[0][1]).prev if following else state.head) == head.hash


def is_finished(strategy: Strategy, state: StreamState) -> bool:
    """Return whether a replay has released its last bin."""
    last_bin = strategy.declared.last_bin
    return last_bin is not None and state.released_bin >= last_bin


def running_strategy(state: StreamState, planned: Strategy) -> Strategy:
    """Return the stored strategy. Raises: OperatorError if its declaration is not the configured one."""
    check_counted(planned.stream, state)
    try:
        running = Strategy.from_json(state.strategy)
    except ValueError as refusal:
        raise OperatorError(f"stream {planned.stream}: {refusal}; give the new stream another name") from None
    then, now = (
        {"ledger": strategy.source, "width": strategy.width} | strategy.declared.plain()
        for strategy in (running, planned)
    )
    for key, before, after in differences(then, now):
        if key == "source.state_id":
            if running.declared.source.state_id is None:
                continue  # the stream began before state directories had ids
            raise OperatorError(
                f"stream {planned.stream}: its file is counted from another state directory, whose file id "
                f"holds {before} (here {after}); go on with that one, or give the new stream another name"
            )
        raise OperatorError(
            f"stream {planned.stream}: {key} was {before} when the stream began and is {after} now; put it "
            "back, or give the new stream another name"
        )
    return running


def check_counted(stream: str, state: StreamState) -> None:
    """Check that a stream is not history. Raises: OperatorError, one line."""
    _, history = read_strategy(state.strategy)
    if history is not None:
        raise OperatorError(
            f"stream {stream}: it {in_words(history)}; take it out of the configuration, or give the new "
            "stream another name"
        )


def differences(then: object, now: object, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the name of each fact that differs between two JSON values, and both values as text."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted(then.keys() | now.keys()):
            yield from differences(then.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif then != now:
        yield path, _shown(then), _shown(now)


def _shown(value: object) -> str:
    """Return a value as text; of a long list its length and its hash, that of a file with one item a line."""
    text = json.dumps(value)
    if len(text) <= _LONGEST_SHOWN or not isinstance(value, (list, tuple)):
        return text
    digest = hashlib.sha256("".join(f"{item}\n" for item in value).encode()).hexdigest()
    return f"a list of {len(value):,} (SHA-256 {digest[:12]})"


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


async def _first(
    strategy: Strategy, head: RowLink | None, begun: Sequence[EpochRecord], source: Source, now_us: int
) -> _Start:
    """Return the start of a stream that the store does not know. Args: begun, the witness's epochs."""
    declared, bins = strategy.declared, strategy.time.horizon
    if head is None:
        # An earlier start may have reserved the stream's epoch in an earlier bin, without opening it.
        first_bin = declared.first_bin(now_us)
        return _Start(EpochRecord(0, first_bin, bins, 1, strategy.hash), GENESIS, -sys.maxsize, is_first=True)
    first_bin = head.bin + 1
    kept_since_us = await source.kept_since_us()
    if kept_since_us is not None:
        kept_from, now = declared.time.binning.bin_of([kept_since_us, now_us]).tolist()
        # A bin's first records may have been written while an earlier bin was open. But the bin after the
        # current one is complete, whatever times the records state.
        first_bin = max(first_bin, min(kept_from + declared.time.max_ahead_bins + 1, now + 1))
    record = EpochRecord(head.epoch + 1, first_bin, bins, head.seq + 1, strategy.hash)
    return _Start(record, head.hash, head.bin + 1, begun[-1], ending=Ending.STORE_LOST)


def _next(strategy: Strategy, state: StreamState, now_us: int) -> _Start:
    """Return the start after an ended epoch. Late records still count, so ``counts_from_bin`` stays.

    After a stop the epoch begins with the next bin: what was dated before it was not counted.
    """
    last = state.epoch
    record = EpochRecord(
        epoch=last.epoch + 1,
        first_bin=state.released_bin + 1,
        bins=last.bins,
        first_seq=state.seq + 1,
        strategy_hash=last.strategy_hash,
        counts_from_bin=last.first_bin if last.counts_from_bin is None else last.counts_from_bin,
    )
    if not state.stopped:
        return _Start(record, state.head, record.first_bin, last, _carried(strategy, state))
    [now] = strategy.declared.time.binning.bin_of([now_us]).tolist()
    later = replace(record, first_bin=max(record.first_bin, now + 1), counts_from_bin=None)
    return _Start(later, state.head, record.first_bin, last)


def _carried(strategy: Strategy, state: StreamState) -> bytes:
    """Return the state of levels over epochs that a complete epoch hands on.

    After any other end these levels start afresh. Their open nodes are never released, so every event is
    still in at most one node of each level.
    """
    is_complete = state.released_bin == state.epoch.first_bin + strategy.time.horizon - 1
    return strategy.kind.kept(state.counter) if is_complete else b""


def _after_witness(state: StreamState, head: RowLink) -> _Start:
    """Return the start after the last bins of store and witness, which may already have counted records."""
    record = EpochRecord(
        epoch=max(state.epoch.epoch, head.epoch) + 1,
        first_bin=max(state.released_bin, head.bin) + 1,
        bins=state.epoch.bins,
        first_seq=max(state.seq, head.seq) + 1,
        strategy_hash=state.epoch.strategy_hash,
    )
    return _Start(record, head.hash, record.first_bin, state.epoch, ending=Ending.STORE_SET_BACK)


async def with_lost_entries(
    store: Store, witnesses: Mapping[str, Witness], ledgers: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the streams of which a ledger lacks the entry of an epoch that the witness knows.

    Args: ledgers, the names of the ledgers that get a stream's entries, by stream.
    """
    known: dict[str, dict[str, set[int]]] = {}  # the epochs, by ledger and stream
    found = []
    for stream, names in ledgers.items():
        if (witnessed := await witnesses[stream].head(stream)) is None:
            continue
        epochs = set(range(RowLink.of(witnessed[1]).epoch + 1))  # some numbers may never have been used
        for name in names:
            if name not in known:
                known[name] = defaultdict(set)
                for entry in await store.ledger(name):
                    known[name][entry.stream].add(entry.epoch)
        if any(epochs - known[name][stream] for name in names):
            found.append(stream)
    return found


async def _restore_ledgers(ports: Ports, streams: Sequence[Stream]) -> None:
    """Put back the ledger entries that the store has lost of all these streams.

    Raises: OperatorError for a witness of another strategy, whose cost is not known here.
    """
    measuring = {stream.strategy.stream: stream for stream in streams}
    ledgers = {
        name: _ledger(stream, ports).names(stream.strategy.source) for name, stream in measuring.items()
    }
    for name in await with_lost_entries(ports.store, ports.witnesses, ledgers):
        # The stream's own closer may have put them back meanwhile.
        if not await with_lost_entries(ports.store, ports.witnesses, {name: ledgers[name]}):
            continue
        witness, planned = ports.witnesses[name], measuring[name].strategy
        state = await ports.store.load(name)
        strategy = planned if state is None else running_strategy(state, planned)
        _checked_head(await witness.head(name), strategy)
        await restore_ledger(_ledger(measuring[name], ports), witness, strategy)


def _ledger(stream: Stream, ports: Ports) -> SourceLedger:
    return stream.ledger or SourceLedger(ports.store)


async def restore_ledger(ledger: SourceLedger, witness: Witness, strategy: Strategy) -> None:
    """Put back the ledger entries of epochs that the witness knows: a store that was set back lost them."""
    for record in epochs_of(strategy, await witness.rows(strategy.stream, 0)):
        await ledger.reserve(ledger_entry(strategy, record))


async def _open(
    store: Store, noise: NoiseAhead, strategy: Strategy, start: _Start, ledger: SourceLedger
) -> bool:
    """Reserve the epoch in the ledger, then open it; return False if another worker was faster.

    Raises: TotalSpent, before anything is written or drawn.
    """
    outside = await ledger.outside(strategy.source)  # read first: the store knows all of these entries
    record = _as_reserved(strategy, start, await store.ledger(strategy.source), outside)
    entry = ledger_entry(strategy, record)
    reserve = ledger.begin if start.is_first else ledger.reserve_within_total
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
    """Return the epoch that an earlier start reserved, or a new one under the next free number.

    The earlier start may have stopped before it opened the epoch. Its reservation is used unless the stream
    has released more bins since, or fewer: a lost store may have reserved the epoch after rows that nobody
    has seen. A number is taken if the store has lost its epoch. The ledger outside the store then has it,
    for another first bin, or the entry was copied from there and says so.
    """
    declared = strategy.declared

    def first_bin_of(entry: LedgerEntry) -> int:
        return int(declared.time.binning.bin_of([entry.start_us])[0])

    own = [entry for entry in ledger if entry.stream == strategy.stream]
    lost = {entry.epoch for entry in own if entry.lost}
    reserved = {
        entry.epoch: first_bin_of(entry)
        for entry in own
        if entry.strategy_hash == strategy.hash and not entry.lost
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
        is_free = epoch not in taken or (epoch, strategy.hash, first_bin) in elsewhere
        if is_free and epoch not in lost and start.may_begin_at(first_bin):
            break
        epoch += 1
    bins = declared.epoch_bins(first_bin, start.last, strategy.time.horizon)
    return replace(start.record, epoch=epoch, first_bin=first_bin, bins=bins)
