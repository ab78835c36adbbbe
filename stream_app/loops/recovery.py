"""Recovery from the witness: a store that was lost or set back, lost ledger entries, an unknown witness.

The witness of a stream knows its segments, epochs, costs and rows (``WitnessedStream``). From it a start puts
back the ledger entries and the rows that the store has lost. If a machine is lost with its witness, and Redis
restored from a copy, nothing knows which rows readers have seen since the copy. These would get noise a
second time, so the start is refused.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from stream_app.core.instants import format_instant
from stream_app.core.records import EpochRecord, Reply, StreamState, Trimmed, WitnessRow
from stream_app.core.releases.release import RowLink
from stream_app.core.releases.restored import WitnessedStream
from stream_app.core.segments.endings import Ending
from stream_app.core.segments.strategies import by_hash
from stream_app.core.segments.visible_costs import ledger_entry
from stream_app.core.strategy import Strategy
from stream_app.loops import noise_ahead
from stream_app.loops.configured import running_strategy, stored_strategy
from stream_app.loops.lease import LEASE_S, Lease
from stream_app.loops.publishing import write_rows
from stream_app.loops.stream import OnEnd, Ports, Stream
from stream_app.ports import OperatorError, Store, Witness
from stream_app.ports.errors import WorkerError
from stream_app.source_ledger import SourceLedger

log = logging.getLogger(__name__)


class Recovery:
    """Puts one stream's history from the witness back into a store that lost it, and notifies the operator.

    Args: on_end, called when an epoch has ended early, with the reason and the number of uncounted bins.
    """

    def __init__(self, on_end: OnEnd) -> None:
        self.on_end = on_end
        self._given_up = ""  # the hash of the witness's last row at the last failed attempt

    def report_loss(
        self, strategy: Strategy, ending: Ending, head: RowLink, begun: EpochRecord, next_bin: int
    ) -> None:
        """Report that an epoch ended because the store was lost or set back, with the consequences.

        Args: head, the witness's last row; begun, the epoch that begins; next_bin, after all released bins.
        """
        start_us, name = strategy.declared.time.binning.start_us, strategy.stream
        first = format_instant(start_us(begun.first_bin))
        what = "lost" if ending is Ending.STORE_LOST else "set back"
        log.error(
            "stream %s: the store was %s: epoch %d has ended, epoch %d begins at %s",
            *(name, what, head.epoch, begun.epoch, first),
        )
        missing = begun.first_bin - next_bin
        if missing > 0:
            log.error(
                "stream %s: the bins from %s to %s are missing: some of their records are no longer in the "
                "log",
                *(name, format_instant(start_us(next_bin)), first),
            )
        self.on_end(ending, missing)

    async def put_back(
        self, store: Store, witness: Witness, strategy: Strategy, state: StreamState, head: RowLink
    ) -> None:
        """Put back the rows of earlier epochs that the witness holds and the store lost.

        Guarantee: the rows are put back before the running epoch releases a row, in steps that may be
            interrupted and repeated. Rows that the store holds stay unchanged.
        Cost: one question to the store until the epoch's first release, none afterwards.
        """
        stream = strategy.stream
        if (
            state.released_bin >= state.epoch.first_bin
            or head.seq >= state.epoch.first_seq
            or self._given_up == head.hash
            or await holds(store, stream, head.seq)
        ):
            return
        rows = await witness.rows(stream, 0)
        kept = await _kept(store, stream, rows)
        try:
            witnessed = WitnessedStream.of(rows, map(Strategy.from_json, state.texts))
            steps = witnessed.restored(rows[kept - 1].seq if kept else 0, strategy.hash)
            while (step := await noise_ahead.in_thread(noise_ahead.SHARED, next, steps, None)) is not None:
                if await store.put_back(stream, step) not in (Reply.DONE, Reply.ALREADY):
                    self._give_up(head, stream, "the store holds other rows than the witness; these stay")
                    return
        except ValueError as refusal:
            self._give_up(head, stream, f"{refusal}; restore a newer backup of the store if there is one")
            return
        log.warning("stream %s: %d bins were put back from the witness", stream, len(rows) - kept)

    def _give_up(self, head: RowLink, stream: str, why: str) -> None:
        self._given_up = head.hash
        log.error("stream %s: what the store lost cannot be put back: %s", stream, why)


async def _kept(store: Store, stream: str, rows: Sequence[WitnessRow]) -> int:
    """Return how many of the rows, counted from the first, the store still holds."""
    kept, end = 0, len(rows)
    while kept < end:
        middle = (kept + end) // 2
        if await holds(store, stream, rows[middle].seq):
            kept = middle + 1
        else:
            end = middle
    return kept


async def holds(store: Store, stream: str, seq: int) -> bool:
    """Return whether the store has this row or a later one. A store that was set back lacks its last rows.

    The first rows may be missing because retention removed them. They do not come back.
    """
    return bool(await store.rows(stream, seq - 1, 1))


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


async def restore_ledgers(ports: Ports, streams: Sequence[Stream]) -> None:
    """Put back the ledger entries that the store has lost of all these streams.

    Raises: OperatorError for a witness of another strategy, whose cost is not known here.
    """
    measuring = {stream.strategy.stream: stream for stream in streams}
    ledgers = {
        name: ledger_of(stream, ports).names(stream.strategy.source) for name, stream in measuring.items()
    }
    for name in await with_lost_entries(ports.store, ports.witnesses, ledgers):
        # The stream's own closer may have put them back meanwhile.
        if not await with_lost_entries(ports.store, ports.witnesses, {name: ledgers[name]}):
            continue
        planned = measuring[name].strategy
        if (state := await ports.store.load(name)) is not None:
            running_strategy(state, planned)
        ledger = ledger_of(measuring[name], ports)
        await restore_ledger(ports.store, ports.witnesses[name], ledger, [planned])


def ledger_of(stream: Stream, ports: Ports) -> SourceLedger:
    return stream.ledger or SourceLedger(ports.store)


async def restore_ledger(
    store: Store, witness: Witness, ledger: SourceLedger, known: Sequence[Strategy]
) -> None:
    """Put back the ledger entries of epochs that the witness knows: a store that was set back lost them.

    Args: known, at least one strategy of the stream. Rows that hold no settings have one of these, or one of
        those in the store.
    """
    name, state = known[0].stream, await store.load(known[0].stream)
    stored = () if state is None else by_hash(state.texts).values()
    witnessed = witnessed_stream(name, await witness.rows(name, 0), (*stored, *known))
    for record in witnessed.epochs:
        await ledger.reserve(ledger_entry(witnessed.strategies[record.strategy_hash], record))


def witnessed_stream(stream: str, rows: Sequence[WitnessRow], known: Iterable[Strategy]) -> WitnessedStream:
    """Return a stream as its witness knows it. Args: as ``WitnessedStream.of``. Raises: OperatorError."""
    try:
        return WitnessedStream.of(rows, known)
    except ValueError as refusal:
        raise OperatorError(
            f"stream {stream}: {refusal} under this name; put back the settings with which it last ran, or "
            "give the stream another name"
        ) from None


WAIT_S = 0.5
PATIENCE_S = 2 * LEASE_S  # in this time another worker can begin to close a stream that its witness knows


class OwnWitness:
    """A worker's own witness of one stream; if workers share the witness, all methods do nothing."""

    def __init__(self, ports: Ports, stream: Stream) -> None:
        self._store, self._lease = ports.store, stream.lease
        self._clock = ports.clock
        self._witness = ports.witnesses[stream.strategy.stream]
        self._is_checked = self._is_shared = stream.witness_is_public
        self._expected_us = 0  # the end of the bin after the last row that ``keep_up`` wrote

    async def check(self, wanted: Strategy) -> None:
        """Check once, at a start, that the witness knows the stream. Raises: WorkerError; OSError."""
        if not self._is_checked:
            has_rows = await self._witness.head(wanted.stream) is not None
            if not has_rows and (state := await self._store.load(wanted.stream)) is not None:
                running_strategy(state, wanted)  # a machine with another file says so first
            await check_witnessed(self._store, wanted.stream, self._lease, has_rows, PATIENCE_S)
            self._is_checked = True

    async def keep_up(self, wanted: Strategy) -> None:
        """Write the rows that readers have seen and the witness lacks, so that this worker remembers them.

        For a worker that does not close the stream. If the store's rows do not follow the witness's last row,
        nothing is written: this worker ends the epoch if it becomes the closer.
        Cost: nothing until the bin after the last row has ended; then one question until readers see its row.
        Raises: WorkerError; OSError.
        """
        clock, name = self._clock, wanted.stream
        if self._is_shared or (not clock.virtual and await clock.now_us() < self._expected_us):
            return
        has_written = await catch_up(self._store, self._witness, name)
        if has_written and self._lease is not None:
            self._lease.cannot_write = False
        if has_written and (head := await self._witness.head(name)) is not None:
            # Bins never change, but grace may: so the next row is expected from its bin's end on.
            next_bin = RowLink.of(head[1]).bin + 1
            self._expected_us = wanted.declared.time.binning.start_us(next_bin + 1)


async def catch_up(store: Store, witness: Witness, stream: str) -> bool:
    """Write the rows of a stream that readers have seen and a worker's own witness lacks.

    Returns: whether it has written. It does not if the store's rows do not follow the witness's last row.
    Raises: OSError.
    """
    seen, head = await store.visible_seq(stream), await witness.head(stream)
    if seen <= (head[0] if head is not None else 0) or (state := await store.load(stream)) is None:
        return False
    if head is not None and not await follows(store, stream, state, RowLink.of(head[1])):
        return False
    await write_rows(store, witness, stored_strategy(stream, state.strategy), seen)
    return True


async def check_witnessed(
    store: Store, stream: str, lease: Lease | None, has_rows: bool, patience_s: float = 0.0
) -> None:
    """Check that the witness has rows of a stream, or readers have none, or another worker closes it.

    The witness of a worker that closes the stream now has shown that the store lacks nothing.
    Args: lease, None for a stream that has one worker; has_rows, of the witness; patience_s, how long to wait
        for another worker. Raises: WorkerError; OSError.
    """
    if has_rows or not (seen := await store.visible_seq(stream)):
        return
    waited_s = 0.0
    while lease is not None:
        if await lease.is_anothers():
            return
        if waited_s >= patience_s:
            break
        await asyncio.sleep(WAIT_S)
        waited_s += WAIT_S
    last = await store.rows(stream, seen - 1, 1)
    until = f"up to the bin of {json.loads(last[0][1])['start']}" if last else "that readers saw"
    raise WorkerError(
        f"stream {stream}: Redis has rows {until}, and state.dir/witness has none, so state.dir is new or "
        "lost; if Redis was restored from a copy, the rows after it would get noise twice: put the state.dir "
        "of then back, or give the stream another name; if Redis has lost nothing, run stream-app new-witness"
    )


async def agrees(store: Store, witness: Witness, planned: Strategy) -> bool:
    """Return whether the stream is open and its chain contains the witness's last row.

    Raises: OperatorError for a declaration that may not change so.
    """
    witnessed = await witness.head(planned.stream)
    state = await store.load(planned.stream)
    if state is None:
        return False
    running_strategy(state, planned)
    return witnessed is None or await follows(store, planned.stream, state, RowLink.of(witnessed[1]))


async def follows(store: Store, stream: str, state: StreamState, head: RowLink) -> bool:
    """Return whether the store's chain contains the witness's last row, or contained it until it left.

    Also if the running epoch begins after this row: then no bin of the witness gets noise again. Its rows may
    differ from the store's after a loss, if no worker that ran had them.
    A worker with an own witness may be away until retention has removed rows that its witness lacks.
    """
    epoch = state.epoch
    if head.epoch < epoch.epoch and head.seq < epoch.first_seq and head.bin < epoch.first_bin:
        return True
    if head.seq >= state.seq:
        return head.seq == state.seq and head.hash == state.head
    following = await store.rows(stream, head.seq, 1)
    if (RowLink.of(following[0][1]).prev if following else state.head) == head.hash:
        return True
    # Read after the rows, because an epoch may leave at any moment.
    now = await store.load(stream)
    left = Trimmed() if now is None else now.trimmed
    return head.seq < left.seq and (head.epoch, head.bin) < (left.epoch, left.bin)
