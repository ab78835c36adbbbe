"""Requests that arrive together share one sync; no sender fills the memory for the others."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from stream_app.receiving.known_keys import Stored
from stream_app.receiving.spool_writer import Incoming, SpoolFullError, SpoolWriter
from stream_app.together import in_thread_to_its_end

MOST_WAITING_BYTES = 16 << 20
MOST_OF_ONE_BYTES = 4 << 20
_TURN_OVER_S = 60.0

log = logging.getLogger(__name__)


class TooManyKeysError(Exception):
    """A batch is not stored, because too many idempotency keys of its sender are remembered."""


class GroupCommit:
    """Stores batches through a writer, in a thread, all that wait at once.

    Args: writer, used by nobody else while ``run`` runs.
    """

    def __init__(self, writer: SpoolWriter) -> None:
        self._writer = writer
        self._waiting: list[tuple[Incoming, asyncio.Future[Stored]]] = []
        self._bytes: Counter[str] = Counter()  # that wait or are being written, by sender
        self._changed = asyncio.Condition()
        self._arrived = asyncio.Event()
        self._failure: OSError | None = None

    async def store(self, sender: str, batch: Incoming) -> Stored:
        """Store a batch; return its place in the spool once it is durable.

        Raises: as ``SpoolWriter.append``; TooManyKeysError, and this batch was not stored.
        """
        length = len(batch.data)
        async with self._changed:
            await self._changed.wait_for(lambda: self._has_room(sender, length))
            self._bytes[sender] += length
        stored: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        self._waiting.append((batch, stored))
        self._arrived.set()
        try:
            return await stored
        finally:
            async with self._changed:
                self._bytes[sender] -= length
                if not self._bytes[sender]:
                    del self._bytes[sender]
                self._changed.notify_all()

    def _has_room(self, sender: str, length: int) -> bool:
        """Return whether a batch may wait. A batch above a limit may still wait alone."""
        own = self._bytes.get(sender, 0)
        total = self._bytes.total()
        return (own == 0 or own + length <= MOST_OF_ONE_BYTES) and (
            total == 0 or total + length <= MOST_WAITING_BYTES
        )

    async def run(self) -> None:
        """Store arriving batches until cancelled. A running write ends first, without an answer."""
        while True:
            try:
                async with asyncio.timeout(_TURN_OVER_S):
                    await self._arrived.wait()
            except TimeoutError:
                await in_thread_to_its_end(self._writer.turn_over)
                continue
            self._arrived.clear()
            group, self._waiting = self._waiting, []
            await self._store(group)

    async def _store(self, group: list[tuple[Incoming, asyncio.Future[Stored]]]) -> None:
        batches = [batch for batch, _ in group]
        try:
            replies = await in_thread_to_its_end(lambda: self._writer.append(batches))
        except OSError as failure:
            for _, stored in group:
                if not stored.done():
                    stored.set_exception(failure)
            self._log_change(failure)
            return
        self._log_change(None)
        for (_, stored), reply in zip(group, replies, strict=True):
            if stored.done():
                continue
            if reply is None:
                stored.set_exception(TooManyKeysError("too many keys of this sender are remembered"))
            else:
                stored.set_result(reply)

    def _log_change(self, failure: OSError | None) -> None:
        """Log when storing begins to fail and when it works again, not each refused request."""
        if (failure is None) == (self._failure is None):
            return
        self._failure = failure
        if failure is None:
            log.warning("%s: events are stored again", self._writer.directory)
        elif isinstance(failure, SpoolFullError):
            log.error(
                "%s: the spool is full, and new events are refused; raise ingest.max_size, or find out which "
                "stream has not counted",
                self._writer.directory,
            )
        else:
            why = failure.strerror or failure
            log.error("%s: events cannot be stored (%s); trying again", self._writer.directory, why)
