"""When bins close and when results become visible: by the clock, never because an event arrived."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stream_app.core.counting.bins import Binning

# The longest list of due bins: after a long outage many bins are due at once.
MOST_DUE_BINS = 10_000


@dataclass(frozen=True, slots=True)
class Closing:
    """The closing instants of a stream's bins.

    Args: grace_us, how long after its end a bin closes.
    Raises: ValueError for a negative grace.

    >>> closing = Closing(Binning(bin_us=60), grace_us=5)
    >>> closing.instant_us(0), closing.last_due_bin(64), closing.last_due_bin(65)
    (65, -1, 0)
    >>> closing.due(after_bin=0, now_us=190)
    [(1, 125), (2, 185)]
    """

    binning: Binning
    grace_us: int

    def __post_init__(self) -> None:
        if self.grace_us < 0:
            raise ValueError(f"grace: {self.grace_us} us is negative; a bin cannot close before its end")

    def instant_us(self, bin: int) -> int:
        """Return the instant at which a bin closes."""
        return self.binning.end_us(bin) + self.grace_us

    def last_due_bin(self, now_us: int) -> int:
        """Return the last bin whose closing instant has passed."""
        return int(self.binning.bin_of(np.array([now_us - self.grace_us]))[0]) - 1

    def due(self, after_bin: int, now_us: int) -> list[tuple[int, int]]:
        """Return (bin, closing instant) of the first ``MOST_DUE_BINS`` due bins after ``after_bin``."""
        last = min(self.last_due_bin(now_us), after_bin + MOST_DUE_BINS)
        return [(bin, self.instant_us(bin)) for bin in range(after_bin + 1, last + 1)]


def next_public_instant_us(now_us: int, publish_every_us: int) -> int:
    """Return the next instant at which results become visible: a multiple of the period, always after now.

    >>> next_public_instant_us(999, 1000), next_public_instant_us(1000, 1000)
    (1000, 2000)
    """
    return (now_us // publish_every_us + 1) * publish_every_us
