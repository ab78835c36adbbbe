"""What an epoch says about its own entry in the ledger: the two are stored in different places.

In a cluster the ledger of a source is on another node than its streams. If that node alone is lost, the
streams still know which epochs they have measured, and at what cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from stream_app.core.ledger import entry_of
from stream_app.core.records import EpochRecord, LedgerEntry
from stream_app.core.strategy import Strategy


def ledger_entry(strategy: Strategy, record: EpochRecord) -> LedgerEntry:
    """Return the ledger entry of an epoch, with the promise at which its noise is really drawn."""
    entry, kind = entry_of(strategy.declared, strategy.stream, record), strategy.kind
    delta, mu = (None if number is None else str(number) for number in (kind.delta, kind.mu))
    return replace(entry, epsilon=str(kind.epsilon), neighbours=strategy.time.neighbours, delta=delta, mu=mu)


def lacking(
    ledger: Iterable[LedgerEntry], streams: Iterable[tuple[Strategy, Sequence[EpochRecord]]]
) -> tuple[LedgerEntry, ...]:
    """Return the entries of epochs that a ledger has lost.

    Args: streams, those over the ledger's source, each with its epochs.
    """
    known = {(entry.stream, entry.epoch) for entry in ledger}
    return tuple(
        ledger_entry(strategy, record)
        for strategy, records in streams
        for record in records
        if (strategy.stream, record.epoch) not in known
    )
