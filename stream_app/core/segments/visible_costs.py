"""The part of a source's ledger that readers may know: all epochs that they see, and none early.

In a cluster the ledger of a source is on another node than its streams. If that node alone is lost, the
streams still know which epochs they have measured, and at what cost.

The worker reserves an epoch as soon as it has released the last bin of the epoch before. That instant
follows the work of the worker, so readers may see the entry only once that bin is visible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import is_

from stream_app.core.ledger import composed, entry_of, place_of
from stream_app.core.records import EpochRecord, LedgerEntry, PublicState
from stream_app.core.segments.strategies import strategy_of
from stream_app.core.strategy import Strategy


def ledger_entry(strategy: Strategy, record: EpochRecord) -> LedgerEntry:
    """Return the ledger entry of an epoch, with the promise at which its noise is really drawn."""
    entry, kind = entry_of(strategy.declared, strategy.stream, record), strategy.kind
    delta, mu = (None if number is None else str(number) for number in (kind.delta, kind.mu))
    return replace(entry, epsilon=str(kind.epsilon), neighbours=strategy.time.neighbours, delta=delta, mu=mu)


class KnownEpochs:
    """The epochs that a reader knows: their source's cost includes them, even if its ledger has lost them."""

    def __init__(self) -> None:
        # By stream: its source and its strategies' texts.
        self._learned: dict[str, tuple[str, tuple[bytes, ...]]] = {}
        self._by_source: dict[str, dict[str, dict[EpochRecord, LedgerEntry]]] = defaultdict(dict)
        # By readable stream: its last visible epoch, the last one that readers may know, and the strategies
        # of its visible epochs.
        self._visible: dict[str, tuple[int, int, frozenset[str]]] = {}
        self._last: dict[str, PublicState] = {}  # by stream: what was learned last
        # A cache, by source: the ledgers of the last question and its answer. New facts clear it.
        self._counted: dict[str, tuple[list[Sequence[LedgerEntry]], tuple[LedgerEntry, ...]]] = {}

    def learn(self, stream: str, state: PublicState | None) -> None:
        """Take over which epochs a stream has; None: the stream is gone."""
        before_state = self._last.pop(stream, None)
        if state is not None:
            self._last[stream] = state
            if before_state is not None and _says_the_same(before_state, state):
                return
        self._counted.clear()
        self._set_visible(stream, state)
        source, texts = self._learned.get(stream, ("", ()))
        before = self._by_source[source].get(stream, {})
        if state is None or state.texts[: len(texts)] != texts:
            self._by_source[source].pop(stream, None)
            self._learned.pop(stream, None)
            before = {}
        if state is None:
            return
        first = state.epochs[0].epoch if state.epochs else 0
        # Retention removed these, if they are missing now. What they cost still counts.
        earlier = {record: entry for record, entry in before.items() if record.epoch < first}
        if texts and (*earlier, *state.epochs) == tuple(before):
            return
        source = Strategy.from_json(state.strategy).source
        self._learned[stream] = source, state.texts
        self._by_source[source][stream] = earlier | {
            record: before.get(record) or ledger_entry(strategy_of(state.texts, record), record)
            for record in state.epochs
        }

    def unreadable(self, stream: str) -> None:
        """Count every entry of a stream from now on: its visible epochs can no longer be read."""
        self._last.pop(stream, None)
        if self._visible.pop(stream, None) is not None:
            self._counted.clear()

    def _set_visible(self, stream: str, state: PublicState | None) -> None:
        if state is None or not state.epochs:
            self._visible.pop(stream, None)
            return
        last = state.epochs[-1]
        upto = last.epoch + (last.final_seq <= state.visible_seq)
        self._visible[stream] = last.epoch, upto, frozenset(one.strategy_hash for one in state.epochs)

    def forget_all_but(self, streams: Iterable[str]) -> None:
        """Forget the streams that are no longer among these."""
        for gone in set(self._learned).difference(streams):
            self.learn(gone, None)

    def source_of(self, stream: str) -> str | None:
        """Return the source of a stream; None if nothing is known about the stream."""
        return self._learned[stream][0] if stream in self._learned else None

    def counted(self, source: str, ledgers: Iterable[Sequence[LedgerEntry]]) -> tuple[LedgerEntry, ...]:
        """Return the measurements of a source that readers may know. Args: ledgers, under all its names.

        The same tuple comes back while nothing has changed.
        Guarantee: they cover all visible rows, if the states that the rows belong to were learned.
        """
        asked = list(ledgers)
        known, answer = self._counted.get(source, ([], ()))
        if not asked or len(asked) != len(known) or not all(map(is_, asked, known)):
            answer = composed(source, [*map(self._without_early, asked), self.entries(source)])
            self._counted[source] = asked, answer
        return answer

    def _without_early(self, ledger: Sequence[LedgerEntry]) -> Sequence[LedgerEntry]:
        """Leave out epochs that follow a row which is not visible yet.

        An entry that was lost and put back, or that no change of settings links with a visible epoch, is from
        another time of the stream: readers may have seen its rows, so it counts.
        """
        early: set[tuple[str, int, str, int]] = set()
        hashes_of: dict[str, set[str]] = {}
        for entry in sorted(filter(self._is_ahead, ledger), key=lambda entry: entry.epoch):
            _, upto, visible = self._visible[entry.stream]
            hashes = hashes_of.setdefault(entry.stream, set(visible))
            if entry.strategy_hash in hashes or entry.changed_from in hashes:
                hashes.add(entry.strategy_hash)
                if entry.epoch > upto:
                    early.add(place_of(entry))
        return [entry for entry in ledger if place_of(entry) not in early] if early else ledger

    def _is_ahead(self, entry: LedgerEntry) -> bool:
        known = self._visible.get(entry.stream)
        return known is not None and entry.epoch > known[0] and not entry.lost

    def entries(self, source: str) -> list[LedgerEntry]:
        """Return the ledger entries of all known epochs over a source."""
        streams = self._by_source.get(source, {})
        return [entry for epochs in streams.values() for entry in epochs.values()]


def _says_the_same(one: PublicState, other: PublicState) -> bool:
    """Return whether two states of a stream certainly mean the same cost."""
    if one.epochs is not other.epochs or not one.epochs or one.texts != other.texts:
        return False
    last = one.epochs[-1]
    return (last.final_seq <= one.visible_seq) == (last.final_seq <= other.visible_seq)
