"""When readers see a change of settings that a worker has announced."""

from __future__ import annotations

import time

from stream_app.core.arrival import ArrivalChange

SHOWN_EVERY_S = 60  # the instant of the announcement follows how busy the worker was: nobody sees it exactly


class Announced:
    """The announced change of a stream, as readers see it: from the next whole minute on."""

    def __init__(self) -> None:
        self._known: ArrivalChange | None = None
        self._shown: ArrivalChange | None = None
        self._from_s = 0.0

    def shown(self, known: ArrivalChange | None) -> ArrivalChange | None:
        """Return what readers see now. Args: known, what the store holds now."""
        if known != self._known:
            self._known, self._from_s = known, (time.time() // SHOWN_EVERY_S + 1) * SHOWN_EVERY_S
        if time.time() >= self._from_s:
            self._shown = known
        return self._shown
