"""Puts back ledger entries that the store has lost, from the rows of the streams' witnesses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from stream_app.core.records import WitnessRow
from stream_app.core.releases.release import RowLink
from stream_app.core.releases.restored import WitnessedStream
from stream_app.core.segments.strategies import by_hash
from stream_app.core.segments.visible_costs import ledger_entry
from stream_app.core.strategy import Strategy
from stream_app.loops.configured import running_strategy
from stream_app.loops.stream import Ports, Stream
from stream_app.ports import OperatorError, Store, Witness
from stream_app.source_ledger import SourceLedger


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

    Args: known, strategies of the stream, at least one, for rows that tell none; those of the store are, too.
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
