"""Rows of an engine that has counted events: each adds a number to one cell, or closes bins.

A row names its partition of origin, and an epoch and a sequence that rise there: a row that does not go
beyond the last one of its origin is a repetition and adds nothing. A closing row says that the engine has
sent all that had reached an origin before an instant. A bin is cut right after the row with which all origins
are closed up to its closing instant. So the number that a row adds, and its bin, follow from the log alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from stream_app.core.counting.bins import Closing
from stream_app.core.counting.read_values import number_in
from stream_app.core.incoming import Reason
from stream_app.core.records import Cut, Origin, PartitionState

FIELDS = ("origin", "epoch", "sequence", "delta", "closed", "max_events")
# A larger number counts as this one. To refuse it would let one more event decide about all others of a row.
LARGEST_DELTA = 2**31 - 1
_LARGEST_NUMBER = 2**63 - 1
ANY_BINS_AHEAD = 1 << 40  # a row may be dated anywhere: its origin may be ahead of the slowest one


@dataclass(frozen=True, slots=True)
class RowRules:
    """The conditions of a stream on rows of an engine.

    Args: origins, their number; most_of_user, the largest cap on users that a row may say, None for the unit
        event; latest_us, the latest instant up to which a row may close bins.
    """

    origins: int
    most_of_user: int | None
    closing: Closing
    latest_us: int


@dataclass(frozen=True, slots=True)
class CountRows:
    """The meaning of n rows of an engine.

    Args: deltas, 0 for a row that adds nothing; refused, why; passed, the position and the origin of each row
        that is no repetition; before, the origins before the first row.
    """

    deltas: Int64Array
    refused: Mapping[Reason, NDArray[np.bool_]]
    cuts: tuple[Cut, ...]
    passed: Sequence[tuple[int, Origin]]
    before: Mapping[int, Origin]

    def origins_at(self, position: int) -> tuple[Origin, ...]:
        """Return the origins as the rows below a position leave them."""
        now = {**self.before, **{one.number: one for at, one in self.passed if at < position}}
        return tuple(now[number] for number in sorted(now))

    def closed_at(self, position: int) -> int | None:
        """Return the last bin that the rows below a position cut; None: they cut none."""
        return max((cut.bin for cut in self.cuts if cut.position <= position), default=None)


def read_rows(
    columns: Mapping[str, Sequence[Any]],
    times_us: Sequence[int],
    positions: Sequence[int],
    state: PartitionState,
    rules: RowRules,
) -> CountRows:
    """Return the meaning of rows. Args: columns, times and rising positions of n rows; state, before them."""
    deltas, cuts, passed = np.zeros(len(positions), np.int64), list[Cut](), list[tuple[int, Origin]]()
    refused: dict[Reason, NDArray[np.bool_]] = {}
    before = {one.number: one for one in state.origins}
    now, last_bin = dict(before), state.last_cut_bin
    fields = zip(*(columns[field] for field in FIELDS), strict=True)
    for row, (*place, delta, closed, most) in enumerate(fields):
        numbers: list[Any] = [_whole(value) for value in place]
        number, epoch, sequence = numbers
        if (why := _why_not_next(now, number, epoch, sequence, rules)) is None:
            known, at_us = now.get(number), times_us[row]
            closed_us = None if known is None else known.closed_us
            if closed is True and at_us <= rules.latest_us:
                closed_us = at_us if closed_us is None else max(closed_us, at_us)
                why = None if delta in (None, 0, "0") else Reason.BAD_VALUE  # but it closes
            elif closed is True:
                why = Reason.FUTURE
            else:
                deltas[row], why = _counted(delta, closed, most, rules)
            now[number] = Origin(number, epoch, sequence, closed_us)
            passed.append((positions[row], now[number]))
            bin = _closed_bin(now, rules) if closed is True else None
            if bin is not None and bin > last_bin:
                cuts.append(Cut(bin, positions[row] + 1))
                last_bin = bin
        if why is not None:
            refused.setdefault(why, np.zeros(len(positions), np.bool_))[row] = True
    return CountRows(deltas, refused, tuple(cuts), passed, before)


def _why_not_next(
    origins: Mapping[int, Origin],
    number: int | None,
    epoch: int | None,
    sequence: int | None,
    rules: RowRules,
) -> Reason | None:
    """Return why a row is not the next one of an origin; None if it is."""
    if number is None or number >= rules.origins:
        return Reason.UNKNOWN_ORIGIN
    if epoch is None or sequence is None:
        return Reason.BAD_VALUE
    known = origins.get(number)
    is_beyond = known is None or (epoch, sequence) > (known.epoch, known.sequence)
    return None if is_beyond else Reason.REPEATED


def _counted(delta: Any, closed: Any, most: Any, rules: RowRules) -> tuple[int, Reason | None]:
    """Return the number that a row adds; if it is 0, also the reason."""
    delta = number_in(delta) if isinstance(delta, str) else delta
    is_number = isinstance(delta, int | float) and not isinstance(delta, bool) and delta >= 1
    if closed or not is_number or (delta < LARGEST_DELTA and delta != int(delta)):
        return 0, Reason.BAD_VALUE
    if rules.most_of_user is not None and not 1 <= (_whole(most) or 0) <= rules.most_of_user:
        return 0, Reason.OTHER_CAP
    return int(min(delta, LARGEST_DELTA)), None


def _closed_bin(origins: Mapping[int, Origin], rules: RowRules) -> int | None:
    """Return the last bin up to whose closing instant all origins are closed; None if one never was."""
    closed_us = [one.closed_us for one in origins.values() if one.closed_us is not None]
    return rules.closing.last_due_bin(min(closed_us)) if len(closed_us) == rules.origins else None


def _whole(value: object) -> int | None:
    """Return the whole number from 0 that a value is: 1, 1.0, or "1" as in proto3; None if it is none."""
    number = number_in(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    return int(number) if 0 <= number <= _LARGEST_NUMBER and number == int(number) else None
