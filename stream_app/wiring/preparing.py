"""Says how far a worker's start is: streams over many keys, or many streams, take a while to open.

How long it takes depends on the configuration and the machine, not on events: noise is drawn for every key,
whether it has events or not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

SAY_EVERY_S = 5.0

log = logging.getLogger(__name__)


class Preparing:
    """The streams that a start has not opened yet. Args: streams, by name, in the order of the file."""

    def __init__(self, streams: Iterable[str]) -> None:
        self._left = dict.fromkeys(streams)
        self._all = len(self._left)

    def opened(self, stream: str) -> None:
        """Note that a stream is open."""
        self._left.pop(stream, None)

    def __str__(self) -> str:
        """Return how far the start is, without names: health is answered to everybody.

        >>> start = Preparing(["a", "b", "c"])
        >>> start.opened("a")
        >>> str(start)
        '1 of 3 streams open'
        """
        return f"{self._all - len(self._left):,} of {self._all:,} streams open"

    @asynccontextmanager
    async def said(self) -> AsyncIterator[None]:
        """Log how far the start is, now and then, during the block."""
        saying = asyncio.create_task(self._keep_saying())
        try:
            yield
        finally:
            saying.cancel()

    async def _keep_saying(self) -> None:
        while True:
            await asyncio.sleep(SAY_EVERY_S)
            for first in list(self._left)[:1]:
                log.warning("start: %s; preparing %s", str(self), first)
