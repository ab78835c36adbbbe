"""The cost of caps on a user's events, from the released histogram of users (``kinds/wrappers.py``)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stream_app.core.answers.visible_epochs import VisibleEpochs
from stream_app.core.instants import format_instant
from stream_app.core.kinds import Measuring
from stream_app.core.kinds.tables import USERS, Span


@dataclass(frozen=True, slots=True)
class Cap:
    """What a cap costs: events of seen users left out, least and most (None: unknown), and the 95 % error."""

    max_events: int
    least: float
    most: float | None
    error: float

    @property
    def together(self) -> float:
        """How far the shown count of the window may be from the count of all its events."""
        most = self.least if self.most is None else self.most
        return math.hypot((self.least + most) / 2.0, self.error)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Caps for the next segment, from the last histogram.

    Args: start_us, end_us, of its cap window; users, the noisy numbers by bucket; reach, the 95 % error of
        all of them together; now, the present cap; caps, rising powers of two.
    """

    start_us: int
    end_us: int
    users: tuple[int, ...]
    reach: float
    now: int
    caps: tuple[Cap, ...]

    @property
    def best(self) -> Cap:
        """The cap with the least of both errors together."""
        return min(self.caps, key=lambda cap: cap.together)

    @property
    def sentence(self) -> str:
        """The proposal in words."""
        best, unseen = self.best, self.caps[-1].max_events
        left = (
            f"at least {best.least:,.0f}" if best.most is None else f"{best.least:,.0f} to {best.most:,.0f}"
        )
        start, end = format_instant(self.start_us), format_instant(self.end_us)
        return (
            f"From {start} to {end} max_events: {best.max_events:,} would have left out {left} "
            f"events of the users that are seen, with a 95 % error of {best.error:,.0f}; "
            f"now it is {self.now:,}. A power of two with under about {math.ceil(self.reach):,} users is "
            f"not seen, such as all from {unseen:,} events on: a cap may leave out many of their events."
        )


def proposed(view: VisibleEpochs) -> Proposal | None:
    """Return the cap that the last released histogram proposes; None without a histogram.

    The error of the counts grows with the cap; that of other caps is scaled from the present one.
    """
    for epoch in reversed(view.epochs):
        kind = view.kind_of(epoch.record)
        if not isinstance(kind, Measuring) or not len(rows := epoch.rows(USERS)):
            continue
        users, now = kind.users, view.declared.privacy.max_events  # a cap changes with a segment only
        window = Span(epoch.bins - users.bins, epoch.bins)
        interval = epoch.estimate(window, "unbiased").interval()
        error = float(np.max(interval.upper - interval.lower)) / 2.0
        top = int(np.flatnonzero(rows[0] > users.reach).max(initial=0))
        caps = (2**power for power in range(top + 2))
        first = epoch.record.first_bin
        return Proposal(
            view.binning.start_us(first + window.start),
            view.binning.start_us(first + window.stop),
            tuple(rows[0].tolist()),
            users.reach,
            now,
            tuple(Cap(cap, *users.left_out(rows[0], cap), error * cap / now) for cap in caps),
        )
    return None
