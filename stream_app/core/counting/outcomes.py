"""The operator's counters of a slice: which records were refused, late, how late, or set aside. SECRET.

The numbers are exact. The store adds them in the step that counts the records, so each record is in them
once, after any crash or retry. Only the operator's endpoint shows them (docs/privacy.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dphist.arrays import Int64Array
from stream_app.core.counting.bins import Assignment
from stream_app.core.incoming import Reason, Refusal

SET_ASIDE = "set_aside"  # until the next cut decides about them
LATE_BINS = "late_bins"  # how many bins late all late records together were
# The longest delays of each class of late records, in seconds; longer ones are in a class of their own.
LATE_WITHIN_S = (1, 2, 5, 10, 30, 60, 300, 900, 3_600, 21_600, 86_400, 604_800)
LATE_CLASSES = (*(f"late_within_{seconds}" for seconds in LATE_WITHIN_S), "late_longer")

_CLASS_EDGES_US = np.array(LATE_WITHIN_S, dtype=np.int64) * 1_000_000


@dataclass(frozen=True, slots=True)
class Outcomes:
    """For each counter, the positions of its records in rising order, and the running sums of their amounts.

    The sums of n records have shape (n + 1,) and begin with 0.
    """

    by_counter: Mapping[str, tuple[Int64Array, Int64Array]]

    def between(self, start: int, end: int) -> dict[str, int]:
        """Return, by counter, the sum over the records at positions from ``start`` to before ``end``."""
        added = {}
        for counter, (positions, sums) in self.by_counter.items():
            first, last = np.searchsorted(positions, (start, end))
            if by := int(sums[last] - sums[first]):
                added[counter] = by
        return added


def outcomes(
    own: Int64Array,
    positions: Int64Array,
    assignment: Assignment,
    bin_us: int,
    undecodable: Sequence[Refusal] = (),
) -> Outcomes:
    """Return the operator's counters of the records of a slice: counted, late, and refused by reason.

    A record is late if the bin of its own time had closed when the record arrived, whether it then counts in
    a later bin or not. It is late by the bins that a longer grace must wait for it: by 1 if the next bin was
    still open. So the number depends on the record, its position and the cuts, not on the time of the call.
    Args: own bins and positions, shape (n,), rising positions; bin_us, length of a bin; undecodable, records
        of the batch that have no time or bin.
    """
    refused_late = assignment.refused.get(Reason.LATE, np.zeros_like(assignment.kept))
    late = (assignment.kept & (assignment.bins > own)) | refused_late
    by_bins = (assignment.bins - own)[late]
    classes = np.searchsorted(_CLASS_EDGES_US, by_bins * bin_us)
    late_at = positions[late]
    counted = {
        SET_ASIDE: _ones(positions[assignment.ahead]),
        LATE_BINS: (late_at, np.append(0, np.cumsum(by_bins)).astype(np.int64)),
    }
    for number in np.unique(classes).tolist():
        counted[LATE_CLASSES[number]] = _ones(late_at[classes == number])
    refused = {str(reason): positions[mask] for reason, mask in assignment.refused.items()}
    for reason in {refusal.reason for refusal in undecodable}:
        places = [refusal.position for refusal in undecodable if refusal.reason == reason]
        held = refused.get(str(reason), positions[:0])
        refused[str(reason)] = np.sort(np.append(held, np.array(places, dtype=np.int64)))
    return Outcomes(counted | {reason: _ones(places) for reason, places in refused.items()})


def _ones(positions: Int64Array) -> tuple[Int64Array, Int64Array]:
    return positions, np.arange(len(positions) + 1, dtype=np.int64)
