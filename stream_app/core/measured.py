"""What an epoch says about its own entry in the ledger: the two are stored in different places.

In a cluster the ledger of a source is on another node than its streams. If that node alone is lost, the
streams still know which epochs they have measured, and at what cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from stream_app.core.changes import strategy_of
from stream_app.core.ledger import entry_of
from stream_app.core.records import EpochRecord, LedgerEntry, PublicState
from stream_app.core.strategy import Strategy


def ledger_entry(strategy: Strategy, record: EpochRecord) -> LedgerEntry:
    """Return the ledger entry of an epoch, with the promise at which its noise is really drawn."""
    entry, kind = entry_of(strategy.declared, strategy.stream, record), strategy.kind
    delta, mu = (None if number is None else str(number) for number in (kind.delta, kind.mu))
    return replace(entry, epsilon=str(kind.epsilon), neighbours=strategy.time.neighbours, delta=delta, mu=mu)


class KnownEpochs:
    """The epochs that a reader knows: part of what their source costs, even if its ledger has lost them."""

    def __init__(self) -> None:
        # By stream: its source and its strategies' texts.
        self._learned: dict[str, tuple[str, tuple[bytes, ...]]] = {}
        self._by_source: dict[str, dict[str, dict[EpochRecord, LedgerEntry]]] = defaultdict(dict)

    def learn(self, stream: str, state: PublicState | None) -> None:
        """Take over which epochs a stream has; None: the stream is gone."""
        source, texts = self._learned.get(stream, ("", ()))
        before = self._by_source[source].get(stream, {})
        if state is None or state.texts[: len(texts)] != texts:
            self._by_source[source].pop(stream, None)
            self._learned.pop(stream, None)
            before = {}
        elif tuple(before) == state.epochs and texts:
            return
        if state is None:
            return
        source = Strategy.from_json(state.strategy).source
        self._learned[stream] = source, state.texts
        self._by_source[source][stream] = {
            record: before.get(record) or ledger_entry(strategy_of(state.texts, record), record)
            for record in state.epochs
        }

    def forget_all_but(self, streams: Iterable[str]) -> None:
        """Forget the streams that are no longer among these."""
        for gone in set(self._learned).difference(streams):
            self.learn(gone, None)

    def source_of(self, stream: str) -> str | None:
        """Return the source of a stream; None if nothing is known about the stream."""
        return self._learned[stream][0] if stream in self._learned else None

    def entries(self, source: str) -> list[LedgerEntry]:
        """Return the ledger entries of all known epochs over a source."""
        streams = self._by_source.get(source, {})
        return [entry for epochs in streams.values() for entry in epochs.values()]
