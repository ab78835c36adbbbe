"""What a loop says while something does not answer, and when that is over."""

from __future__ import annotations

import logging
import time


class Outage:
    """One loop's failures, from the first to the next success.

    Every failure is told: log handlers let the same words through seldom (``monitoring/repeats.py``).

    Args:
        log: where to tell it.
        loop: who failed, the first word of each line.
    """

    def __init__(self, log: logging.Logger, loop: str) -> None:
        self._log = log
        self._loop = loop
        self._since_s: float | None = None

    def failed(self, failure: object) -> None:
        """Tell a failure. Args: failure, an OSError, whose words are fit to be read, or words."""
        if self._since_s is None:
            self._since_s = time.monotonic()
        self._log.warning("%s: %s; trying again", self._loop, failure)

    def over(self) -> None:
        """Tell that it works again, if it did not."""
        if self._since_s is not None:
            self._log.warning("%s: works again, after %.0f s", self._loop, time.monotonic() - self._since_s)
            self._since_s = None
