"""The visible epochs of one stream in memory: they grow with every release.

``query.StreamView`` computes answers from them.
"""

from __future__ import annotations

from collections.abc import Iterable

from dphist.arrays import Int64Array
from stream_app.core.answers.answered import Missing
from stream_app.core.answers.visible import visible_bins
from stream_app.core.kinds import Kind
from stream_app.core.kinds.epoch import EpochView
from stream_app.core.kinds.tables import Span
from stream_app.core.records import EpochRecord, History, PublicState, Trimmed
from stream_app.core.segments.strategies import strategy_of
from stream_app.core.strategy import Strategy


class VisibleEpochs:
    """The epochs of a stream that readers may see, with their released rows.

    Args: strategy, the canonical text of the last epoch's strategy; earlier, those of other epochs, if the
        stream's settings have changed.
    """

    def __init__(self, strategy: bytes, earlier: tuple[bytes, ...] = ()) -> None:
        self.strategy = Strategy.from_json(strategy)
        self._texts = *earlier, strategy
        self.declared = self.strategy.declared
        self.binning = self.declared.time.binning
        self.epochs: list[EpochView] = []
        self.visible_seq = 0
        self.history: History | None = None  # None: a worker may count the stream
        self.trimmed = Trimmed()  # what retention removed before the first epoch

    @property
    def name(self) -> str:
        """Return the name by which readers know the stream; all of its generations have it."""
        return self.strategy.base

    @property
    def generation(self) -> int:
        """Return which generation of the stream this is, from 1."""
        return self.strategy.number

    @property
    def epoch(self) -> int:
        """Return the number of the last epoch that readers may know of."""
        return self.epochs[-1].record.epoch if self.epochs else 0

    @property
    def first_strategy(self) -> Strategy:
        """Return the strategy of the first visible epoch: later epochs may have other settings."""
        return strategy_of(self._texts, self.epochs[0].record) if self.epochs else self.strategy

    @property
    def span(self) -> Span:
        """Return all visible bins, absolute; bins between two epochs may never have been measured.

        Epochs that ended before their first release have no bins. Before any release the range is empty and
        begins at the bin of the first release.
        """
        measured = [epoch.span for epoch in self.epochs if epoch.bins]
        if measured:
            return Span(measured[0].start, measured[-1].stop)
        first = self.epochs[-1].record.first_bin if self.epochs else 0
        return Span(first, first)

    @property
    def next_bin(self) -> int:
        """Return the bin that is released next, as far as readers may know it."""
        return max(self.span.stop, self.epochs[-1].record.first_bin) if self.epochs else 0

    @property
    def start_us(self) -> int:
        """Return the start of the first bin, in microseconds since 1970."""
        return self.binning.start_us(self.span.start)

    @property
    def released_until_us(self) -> int | None:
        """Return the end of the last visible bin; None before the first release."""
        start, stop = self.span
        return self.binning.start_us(stop) if stop > start else None

    # -- growing ------------------------------------------------------------------------------------

    @property
    def shown(self) -> PublicState:
        """Return the state whose rows this view holds."""
        records = tuple(epoch.record for epoch in self.epochs)
        *earlier, strategy = self._texts
        return PublicState(strategy, records, self.visible_seq, self.history, tuple(earlier), self.trimmed)

    def continues_to(self, state: PublicState) -> bool:
        """Return whether the state continues this view; False for a stream that was started anew."""
        beginnings = [(e.epoch, e.first_bin, e.first_seq) for e in state.epochs]
        kept = [epoch.record for epoch in self._kept_at(state)]
        ours = [(record.epoch, record.first_bin, record.first_seq) for record in kept]
        return (
            state.texts == self._texts
            and state.visible_seq >= self.visible_seq
            and beginnings[: len(ours)] == ours
        )

    def missing(self, state: PublicState) -> list[Missing]:
        """Return the rows that must be read to bring this view to the state."""
        # An epoch that this view expects to continue may have ended early meanwhile.
        pairs = zip(self._epochs_at(state), state.epochs, strict=True)
        known = len(self._kept_at(state))
        found = list[Missing]()
        for place, (epoch, record) in enumerate(pairs):
            if place < known and epoch.record is record and record.final_seq <= self.visible_seq:
                continue  # all of its rows are here, as of most epochs of a long history
            bins, kind = visible_bins(record, state.visible_seq), self.kind_of(record)
            for table in kind.tables:
                first = epoch.held(table)
                rows = kind.rows_after(table, bins) - first
                if rows > 0:
                    found.append(Missing(record.epoch, table, first, rows))
        return found

    def extend(self, state: PublicState, blocks: Iterable[tuple[Missing, Int64Array]]) -> None:
        """Append the missing rows; afterwards this view is at the state."""
        epochs = self._epochs_at(state)
        for epoch, record in zip(epochs, state.epochs, strict=True):
            epoch.record = record
        by_number = {epoch.record.epoch: epoch for epoch in epochs}
        for want, values in blocks:
            by_number[want.epoch].append(want.table, values)
        self.epochs, self.visible_seq, self.history = epochs, state.visible_seq, state.history
        self.trimmed = state.trimmed
        if epochs and self.declared.finds_keys:
            self.strategy = strategy_of(self._texts, epochs[-1].record)
            self.declared = self.strategy.declared

    def _epochs_at(self, state: PublicState) -> list[EpochView]:
        """Return this view's epochs, and empty views of the epochs that the state adds.

        The view of an epoch that has found new keys begins anew, with columns for these keys. The rows to
        read include their past.
        """
        kept = self._kept_at(state)
        added = state.epochs[len(kept) :]
        pairs = zip(kept, state.epochs, strict=False)
        same = [one if one.record.found == now.found else self.kind_of(now).epoch(now) for one, now in pairs]
        return [*same, *(self.kind_of(record).epoch(record) for record in added)]

    def _kept_at(self, state: PublicState) -> list[EpochView]:
        """Return this view's epochs without those that retention has removed since."""
        first = state.epochs[0].epoch if state.epochs else state.trimmed.epoch + 1
        return [epoch for epoch in self.epochs if epoch.record.epoch >= first]

    def kind_of(self, epoch: EpochRecord) -> Kind:
        """Return how an epoch was released: by the settings that the stream had then."""
        return strategy_of(self._texts, epoch).kind

    @property
    def runs(self) -> list[tuple[Kind, list[EpochView]]]:
        """Return the epochs, grouped by kind of release; there are several groups only if settings changed.

        Settings that only say how events are counted start no new group. A successor always starts one.
        """
        if len(self._texts) == 1:
            return [(self.strategy.kind, self.epochs)]
        runs: list[tuple[Strategy, list[EpochView]]] = []
        for epoch in self.epochs:
            now = strategy_of(self._texts, epoch.record)
            for known, epochs in runs:
                if known is now or (known.stream, known.kind) == (now.stream, now.kind):
                    epochs.append(epoch)
                    break
            else:
                runs.append((now, [epoch]))
        return [(known.kind, epochs) for known, epochs in runs] or [(self.strategy.kind, [])]

    @property
    def kinds(self) -> list[Kind]:
        """Return how the epochs were released: each kind of each stream once."""
        return [kind for kind, _ in self.runs]
