"""Opening a stream: its first epoch, the next epoch, or a new epoch because the witness knows more.

The witness is a record of all releases, kept outside the store. A store that is behind the witness was set
back (a restored backup, a lost disk): it would draw noise again for nodes that people have seen. So the
running epoch ends for good. The next epoch starts with the bin after the witness's last row, whose records
are read again from the log. If retention has removed some of these records, the epoch starts with the first
bin whose records are all still there. The rows of earlier bins are put back from the witness.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import NamedTuple

from stream_app.core.records import EpochRecord, LedgerEntry, Reply, StreamState, WitnessRow
from stream_app.core.releases.release import RowLink
from stream_app.core.releases.restored import WitnessedStream
from stream_app.core.segments.names import key_of
from stream_app.core.segments.strategies import by_hash, strategies_text, with_strategy
from stream_app.core.segments.visible_costs import ledger_entry
from stream_app.core.strategy import Strategy
from stream_app.loops.configured import check_change, running_strategy
from stream_app.loops.ending import announce_ends, changed_by_end, last_bin_to_begin
from stream_app.loops.next_epoch import (
    Start,
    as_reserved,
    first_start,
    following_start,
    is_finished,
    start_after_witness,
)
from stream_app.loops.noise_ahead import NoiseAhead
from stream_app.loops.recovery import Recovery, follows, ledger_of, restore_ledgers, witnessed_stream
from stream_app.loops.stream import Ports, Stream
from stream_app.ports import OperatorError, Source, Store
from stream_app.source_ledger import SourceLedger, TotalSpent

log = logging.getLogger(__name__)

_ATTEMPTS = 5  # other workers may be opening the same stream; in each attempt one of them succeeds


async def open_stream(
    ports: Ports, stream: Stream, noise: NoiseAhead, recovery: Recovery
) -> tuple[Strategy, StreamState]:
    """Open the epoch that is due, if any; return the strategy and the state with which the stream runs.

    Guarantee: before an epoch opens, it is in the ledger, and noise that is drawn ahead is stored. A node
        that the witness knows is never released again, whatever happened to the store. An epoch that would
        exceed the stream's total does not open: the stream is stopped, until a start with a larger total.
        Before an epoch opens, the ledger has every epoch that the stream's witness knows, and every epoch of
        another configuration that the ledger outside the store knows. Before a total over several streams
        is compared, the ledger also has every epoch that a configured stream's witness knows.
    Args: stream, with the configured declaration and the tree planned for it now. An existing stream keeps
        the tree it began with, as long as the declaration stays the same.
    Raises: OperatorError for a declaration that may not change so, a strategy that this version cannot read,
        a second measurement without consent, a witness of another strategy, a first epoch beyond its total.
    """
    wanted, store = stream.strategy, ports.store
    name = wanted.stream
    ledger = ledger_of(stream, ports)
    now_us = await ports.clock.now_us()
    for _ in range(_ATTEMPTS):
        seen = await _look(ports, wanted)
        state, strategy, head = seen.state, seen.strategy, seen.head
        if await changed_by_end(store, stream, state, behind=bool(seen.rows)):
            continue
        start = await _due(seen, ports.source, now_us)
        if start is None:
            assert state is not None
            return await _with_lost_rows(recovery, ports, strategy, state, head)
        start = start.under(strategy, seen.last_hash)
        others = stream.measuring if start.ending is not None or ledger.counts_others else ()
        await restore_ledgers(ports, [*others, stream])
        await ledger.recall(strategy.source)
        if await announce_ends(store, stream, strategy, state, is_first=start.is_first):
            continue
        start = start.at_latest(await last_bin_to_begin(store, stream, strategy))
        try:
            opened = await _open(store, noise, strategy, start, ledger, seen)
        except TotalSpent:
            if state is None or start.ending is not None:
                raise _cannot_begin(strategy, start) from None
            await store.stop(name, state.epoch.epoch, state.seq)
            if (state := await store.load(name)) is None or not state.stopped:
                continue
            return await _with_lost_rows(recovery, ports, strategy, state, head)
        if opened and start.ending is not None:
            assert head is not None
            recovery.report_loss(strategy, start.ending, head, start.record, start.earliest_bin)
    raise OperatorError(
        f"stream {name}: the ledger of {wanted.source} holds another measurement in the place of "
        "its next epoch; restore the store, or give the stream another name"
    )


async def _with_lost_rows(
    recovery: Recovery, ports: Ports, strategy: Strategy, state: StreamState, head: RowLink | None
) -> tuple[Strategy, StreamState]:
    """Put back rows that only the witness has; return strategy and state. Args: head, its last row."""
    if head is not None:
        await recovery.put_back(ports.store, ports.witnesses[strategy.stream], strategy, state, head)
    return strategy, state


async def _due(seen: _Seen, source: Source, now_us: int) -> Start | None:
    """Return the start of the epoch that is due; None if there is none."""
    if seen.state is not None and seen.state.has_ended and not seen.rows:
        return None
    if seen.state is None:
        begun = WitnessedStream(seen.rows, seen.found).epochs
        return await first_start(seen.strategy, seen.head, begun, source, now_us)
    if seen.head is not None and seen.rows:
        return start_after_witness(seen.state, seen.head)
    if seen.state.epoch.is_over and not is_finished(seen.strategy, seen.state):
        start = following_start(seen.strategy, seen.state, now_us)
        until_bin = seen.state.until_bin
        return start if until_bin is None or start.record.first_bin < until_bin else None
    return None


class _Seen(NamedTuple):
    """The state of a stream in the store and in the witness.

    Args: strategy, the last row's, or the configured one before the first row; found, all strategies of the
        stream, by hash; head, the witness's last row; rows, all rows of the witness if the store lacks its
        last one, else none.
    """

    state: StreamState | None
    strategy: Strategy
    found: dict[str, Strategy]
    head: RowLink | None
    rows: Sequence[WitnessRow]

    @property
    def last_hash(self) -> str | None:
        """The hash of the last row's strategy; None if there is no row."""
        if self.rows:
            return _strategy_hash(self.rows[-1].row)
        if self.state is None:
            return None
        epoch = self.state.epoch
        released = self.state.released_bin >= epoch.first_bin
        return epoch.strategy_hash if released else epoch.changed_from or epoch.strategy_hash


async def _look(ports: Ports, wanted: Strategy) -> _Seen:
    """Read a stream's state from store and witness. Raises: OperatorError, as ``open_stream``."""
    store, witness, name = ports.store, ports.witnesses[wanted.stream], wanted.stream
    # Read the witness first: then a store that lost nothing has all of its rows, even if another worker
    # releases rows meanwhile.
    last = await witness.head(name)
    head = None if last is None else RowLink.of(last[1])
    state = await store.load(name)
    if state is not None:
        strategy, found = running_strategy(state, wanted), dict(by_hash(state.texts))
        if head is None or await follows(store, name, state, head):
            return _Seen(state, strategy, found, head, ())
        rows = await witness.rows(name, 0)
        witnessed = witnessed_stream(name, rows, (*found.values(), wanted))
        return _Seen(state, strategy, {**found, **witnessed.strategies}, head, witnessed.rows)
    rows = [] if head is None else await witness.rows(name, 0)
    witnessed = witnessed_stream(name, rows, [wanted])
    strategy = witnessed.last or wanted
    check_change(strategy, wanted)
    return _Seen(None, strategy, dict(witnessed.strategies), head, witnessed.rows)


async def next_epoch_fits(ledger: SourceLedger, strategy: Strategy, state: StreamState) -> bool:
    """Return whether the epoch after the running one is within the stream's total, as now known."""
    return await ledger.fits(_next_entry(strategy, state))


def _next_entry(strategy: Strategy, state: StreamState) -> LedgerEntry:
    """Return the ledger entry of the next epoch, assuming that the running one reaches its planned end."""
    running = state.epoch
    following = EpochRecord(
        epoch=running.epoch + 1,
        first_bin=running.first_bin + running.bins,
        bins=strategy.time.horizon,
        first_seq=state.seq + 1,
        strategy_hash=strategy.hash,
        changed_from=None if running.strategy_hash == strategy.hash else running.strategy_hash,
    )
    return ledger_entry(strategy, following)


def _cannot_begin(strategy: Strategy, start: Start) -> OperatorError:
    """Return the error for a stream without a running epoch whose total does not allow the next epoch."""
    why = "its first epoch" if start.is_first else "the store lost the running epoch, and a new one"
    key = key_of(strategy.stream, "privacy.total")
    return OperatorError(
        f"stream {strategy.stream}: {why} would exceed {key}; raise it, "
        + ("or take the stream out" if start.is_first else "restore the store, or take the stream out")
    )


def _strategy_hash(row: bytes) -> str:
    return str(json.loads(row)["strategy"])


async def _open(
    store: Store,
    noise: NoiseAhead,
    strategy: Strategy,
    start: Start,
    ledger: SourceLedger,
    seen: _Seen,
) -> bool:
    """Reserve the epoch in the ledger, then open it; return False if another worker was faster.

    Raises: TotalSpent, before anything is written or drawn.
    """
    outside = await ledger.outside(strategy.source)  # read first: the store knows all of these entries
    record = as_reserved(strategy, start, await store.ledger(strategy.source), outside, seen.found)
    entry = ledger_entry(strategy, record)
    reserve = ledger.begin if start.is_first else ledger.reserve_within_total
    if await reserve(entry) is Reply.CONFLICT:
        return False
    stored = await noise.stored(strategy, record.epoch)
    texts = with_strategy([one.to_json() for one in seen.found.values()], strategy.to_json())
    text, before = strategies_text(texts), b"" if seen.state is None else strategies_text(seen.state.texts)
    replaced = b"" if text == before else before
    reply = await store.open_epoch(strategy.stream, text, record, start.head, stored, start.carried, replaced)
    if reply not in (Reply.DONE, Reply.ALREADY):
        noise.give_up()
    return reply is Reply.DONE
