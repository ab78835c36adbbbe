"""The public facts of an epoch, and of the keys that it found: keys that no list names."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

ROOM = 1_000_000  # events of hidden keys, unless the configuration says another number
MOST_FOUND = 100_000  # keys of an epoch; then none is named any more
_HASH_BITS = 32  # of a key's hash that decide whether the key stays
MOST_THINNED = _HASH_BITS - 1


class FoundKeys(NamedTuple):
    """Public: keys that are shown from the row of a bin on.

    Args: bin, before the epoch's first one for keys that an earlier epoch found; names, in the order of
        names; thinned, how often the hidden keys have been halved by then (``thinned_for``).
    """

    bin: int
    names: tuple[str, ...]
    thinned: int = 0


class SealedKey(NamedTuple):
    """A key as the store keeps it. SECRET. Args: hash, keyed; name, encrypted."""

    hash: bytes
    name: bytes


def thinned_for(events: float, room: int) -> int:
    """Return how often the hidden keys are halved so that there is room for the cells of the others.

    A hidden key stays if that many of the first bits of its keyed hash are 0. So no key takes another one's
    place, and nobody can choose which keys stay.
    Args: events, released, of all keys that are not shown; room, for how many of them there are cells.

    >>> [thinned_for(events, 100) for events in (-5, 100, 101, 350, 401)]
    [0, 0, 1, 2, 3]
    """
    return next((n for n in range(MOST_THINNED) if events <= room << n), MOST_THINNED)


def stays(key: bytes, thinned: int) -> bool:
    """Return whether a hidden key has a cell. Args: key, its hash; thinned, as ``thinned_for`` returns it."""
    return int.from_bytes(key[: _HASH_BITS // 8]) >> (_HASH_BITS - thinned) == 0


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
    def is_over(self) -> bool:
        """Whether the epoch releases no further bin."""
        return self.end_reason is not None

    @property
    def final_bin(self) -> int:
        """The last bin that the epoch releases: its planned end, or its early end."""
        return self.first_bin + self.bins - 1 if self.last_bin is None else self.last_bin

    @property
    def final_seq(self) -> int:
        """The seq of the final bin's row; if the epoch has no row, the seq before its first."""
        return self.first_seq + self.final_bin - self.first_bin

    def as_begun(self) -> EpochRecord:
        """Return the epoch as if it had not ended."""
        return replace(self, last_bin=None, end_reason=None)

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

    def plain(self) -> dict[str, object]:
        """Return the facts that are stored; older builds know no ``changed_from``, and need none."""
        facts = asdict(self)
        del facts["found"]
        if self.changed_from is None:
            del facts["changed_from"]
        return facts
