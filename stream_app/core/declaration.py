"""What a strategy declares, as the loops use it: the typed view of ``Strategy.declared``."""

from __future__ import annotations

from dataclasses import dataclass

from stream_app.core.bins import Binning, BinRules, LatePolicy
from stream_app.core.closing import Closing
from stream_app.core.records import EpochRecord
from stream_app.core.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declared facts that decide bins, closing and what is said about privacy.

    Args:
        time_field: the column that holds the event time.
        binning: the time line.
        closing: when its bins close.
        max_ahead_bins, late: see ``BinRules``.
        private: False where epsilon is too large to protect anybody.
    """

    time_field: str
    binning: Binning
    closing: Closing
    max_ahead_bins: int
    late: LatePolicy
    private: bool

    @classmethod
    def of(cls, strategy: Strategy) -> Declaration:
        """Read the declared part of a strategy. Raises: KeyError where it lacks a fact."""
        time = strategy.declared["time"]
        binning = Binning(time["bin_us"], time.get("timezone"))
        return cls(
            time_field=time["field"],
            binning=binning,
            closing=Closing(binning, time["grace_us"]),
            max_ahead_bins=time["max_ahead_bins"],
            late=strategy.declared["late"],
            private=strategy.declared["privacy"]["private"],
        )

    def rules(self, epoch: EpochRecord) -> BinRules:
        """Return how records are binned while an epoch runs."""
        first_bin = epoch.first_bin if epoch.counts_from_bin is None else epoch.counts_from_bin
        return BinRules(first_bin, self.max_ahead_bins, self.late)
