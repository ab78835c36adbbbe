"""What a strategy declares, as the loops use it: the typed view of ``Strategy.declared``."""

from __future__ import annotations

from dataclasses import dataclass, field

from stream_app.core.bins import Binning, BinRules, LatePolicy
from stream_app.core.bounding import PerUser, Windows
from stream_app.core.cells import Cells
from stream_app.core.closing import Closing
from stream_app.core.records import EpochRecord
from stream_app.core.strategy import Strategy

STATE_ID = "state_id"  # for a file source: the id of the state directory that reads the file


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declared facts that determine bins, closing and the privacy statement.

    Args:
        time_field: the column that holds the event time.
        binning: the time line.
        closing: when its bins close.
        max_ahead_bins, late: see ``BinRules``.
        first_us: where the stream's first bin begins; None: the bin in which it first starts.
        until_us: where a replay ends; None for a live stream.
        private: False if epsilon is too large to protect anybody.
        cells: the cells of a bin.
        per_user: the cap per user; None if the unit is the event.
    """

    time_field: str
    binning: Binning
    closing: Closing
    max_ahead_bins: int
    late: LatePolicy
    private: bool
    first_us: int | None = None
    until_us: int | None = None
    cells: Cells = field(default_factory=Cells)
    per_user: PerUser | None = None

    @classmethod
    def of(cls, strategy: Strategy) -> Declaration:
        """Return the declared part of a strategy. Raises: KeyError if a fact is missing."""
        time = strategy.declared["time"]
        replay = strategy.declared.get("source", {}).get("replay")
        binning = Binning(time["bin_us"], time.get("timezone"))
        return cls(
            time_field=time["field"],
            binning=binning,
            closing=Closing(binning, time["grace_us"]),
            max_ahead_bins=time["max_ahead_bins"],
            late=strategy.declared["late"],
            private=strategy.declared["privacy"]["private"],
            first_us=time.get("first_us"),
            until_us=replay["to_us"] if replay else None,
            cells=strategy.cells,
            per_user=PerUser.of(strategy.declared),
        )

    @property
    def last_bin(self) -> int | None:
        """Return the last bin of a replay; None for a stream without end."""
        return None if self.until_us is None else int(self.binning.bin_of([self.until_us - 1])[0])

    def first_bin(self, now_us: int) -> int:
        """Return the first bin of a stream that is opened now."""
        return int(self.binning.bin_of([now_us if self.first_us is None else self.first_us])[0])

    def windows(self, epoch: EpochRecord, horizon: int) -> Windows:
        """Return the user windows, given any epoch of the stream. Args: horizon of the tree, in bins."""
        return Windows(epoch.first_bin + epoch.bins - 1, horizon, self.last_bin)

    def rules(self, epoch: EpochRecord) -> BinRules:
        """Return the binning rules of an epoch."""
        first_bin = epoch.first_bin if epoch.counts_from_bin is None else epoch.counts_from_bin
        return BinRules(first_bin, self.max_ahead_bins, self.late)
