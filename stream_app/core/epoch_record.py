"""The public facts of an epoch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from stream_app.core.found_keys import FoundKeys


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """Public: one epoch of a stream. ``last_bin`` and ``end_reason`` are None while it may release."""

    epoch: int
    first_bin: int
    bins: int
    first_seq: int  # the seq of its first bin
    strategy_hash: str
    last_bin: int | None = None
    end_reason: str | None = None
    # Records whose own bin is earlier are refused (None: first_bin). An epoch after a complete one takes this
    # value over; otherwise the time of processing would decide whether a late record counts.
    counts_from_bin: int | None = None
    # The strategy of the stream's last released row, if this epoch begins under another one.
    changed_from: str | None = None
    found: tuple[FoundKeys, ...] = ()  # by bin; the store keeps them apart from the record

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all found keys, in the order of their columns."""
        return tuple(name for one in self.found for name in one.names)

    @property
    def thinned(self) -> int:
        """How often the hidden keys have been halved so far."""
        return max((one.thinned for one in self.found), default=0)

    @property
    def listed(self) -> tuple[FoundKeys, ...]:
        """The keys that earlier epochs found, and other facts about keys from the epoch's start."""
        return tuple(one for one in self.found if one.bin < self.first_bin)

    def plain(self) -> dict[str, Any]:
        """Return the facts that are stored; older builds know no ``changed_from``, and need none."""
        facts = asdict(self)
        del facts["found"]
        if self.changed_from is None:
            del facts["changed_from"]
        return facts
