"""What a record's arrival decides: how long bins stay open, how early a record may be, what late ones do.

These settings of a running stream may change, at an edge of its bins that was stored well before. Each open
bin then has one of both settings, by its number. So which settings a record meets depends on the cuts of its
partition, as its bin does, and never on when it was read (docs/decisions/0051-announced-changes.md).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from dphist.arrays import Int64Array

LatePolicy = Literal["next_bin", "drop", "dead_letter"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a stream treats records by their arrival.

    Args: grace_us, how long after its end a bin closes; max_ahead_bins, how many bins a record may be beyond
        the next bin to close when it arrives; late, what happens to a record whose own bin has closed.
    """

    grace_us: int
    max_ahead_bins: int
    late: LatePolicy


@dataclass(frozen=True, slots=True)
class ArrivalChange:
    """A change of these settings. Args: bin, the first one that is open under the settings after it."""

    bin: int
    before: Arrival
    after: Arrival

    def text(self) -> str:
        """Return the canonical text, which the store keeps."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> ArrivalChange:
        """Return the change that ``text`` wrote."""
        facts = json.loads(text)
        return cls(facts["bin"], Arrival(**facts["before"]), Arrival(**facts["after"]))

    @property
    def in_words(self) -> str:
        """What changes, in words.

        >>> before, after = Arrival(10_000_000, 0, "drop"), Arrival(5_000_000, 2, "drop")
        >>> ArrivalChange(7, before, after).in_words
        'grace 5 s instead of 10 s; events up to 2 bins ahead instead of 0'
        """
        then, now = self.before, self.after
        facts = (
            ("grace ", f"{now.grace_us / 1e6:g} s", f"{then.grace_us / 1e6:g} s"),
            ("late events: ", now.late, then.late),
            ("events up to ", f"{now.max_ahead_bins} bins ahead", f"{then.max_ahead_bins}"),
        )
        same = now.grace_us == then.grace_us, now.late == then.late, now.max_ahead_bins == then.max_ahead_bins
        told = (fact for fact, is_same in zip(facts, same, strict=True) if not is_same)
        return "; ".join(f"{name}{is_now} instead of {was}" for name, is_now, was in told)

    @property
    def last_cut_bin(self) -> int:
        """The last bin that may have a cut, or have closed before its answer, when the change is stored.

        A record beyond this cut met the last bin before the change at the latest, as the next one to close.
        """
        return self.bin - 3

    def newest_bins(self, open_bins: Int64Array) -> Int64Array:
        """Return the last bin in which a record may be dated, by the next bin to close when it arrived.

        Guarantee: it never falls as bins close; so a record that is accepted now is accepted at every cut.
        """
        before = np.minimum(open_bins, self.bin - 1) + self.before.max_ahead_bins
        after = np.where(open_bins < self.bin, before, open_bins + self.after.max_ahead_bins)
        newest: Int64Array = np.maximum(before, after)
        return newest

    def is_over(self, released_bin: int) -> bool:
        """Return whether the settings after the change alone decide about every record that is not counted.

        All records that arrived before bin ``released_bin`` closed are counted.
        """
        last_before = self.bin - 1
        is_open_later = released_bin >= last_before
        newest_before = last_before + self.before.max_ahead_bins
        return is_open_later and released_bin + 2 + self.after.max_ahead_bins >= newest_before
