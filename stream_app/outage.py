"""A loop's log lines while something is unreachable, and when it answers again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

RETRY_S = 0.5


class Outage:
    """Logs one loop's failures, from the first failure to the next success.

    Every failure is logged; log handlers let repeated words through only rarely (``monitoring/logs.py``).

    Args:
        log: the logger.
        loop: the name of the loop, the first word of each line.
    """

    def __init__(self, log: logging.Logger, loop: str) -> None:
        self._log = log
        self._loop = loop
        self._since_s: float | None = None

    async def outlast(
        self, work: Callable[[], Awaitable[T]], doubt: Callable[[OSError], None] = lambda failure: None
    ) -> T:
        """Return the result of ``work``; after each OSError, log it, call ``doubt`` and call ``work`` again.

        ``work`` has to call ``over`` itself, when it has reached the unreachable service.
        """
        while True:
            try:
                return await work()
            except OSError as failure:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise asyncio.CancelledError from failure  # a client took the cancellation for its own
                self.failed(failure)
                doubt(failure)
                await asyncio.sleep(RETRY_S)

    def failed(self, failure: object) -> None:
        """Log a failure. Args: failure, a text, or an OSError with a readable message."""
        if self._since_s is None:
            self._since_s = time.monotonic()
        self._log.warning("%s: %s; trying again", self._loop, failure)

    def over(self) -> None:
        """Log that the loop works again, if it had failed."""
        if self._since_s is not None:
            self._log.warning("%s: works again, after %.0f s", self._loop, time.monotonic() - self._since_s)
            self._since_s = None
