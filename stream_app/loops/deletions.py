"""Makes deleted counts leave the store's file: at a start, in each new epoch, and at the end of a replay."""

from __future__ import annotations

import asyncio

from stream_app.outage import Outage
from stream_app.ports import Store


class Deletions:
    """Asks the store to rewrite its file, so that it forgets the data that one stream has deleted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of = -1, False  # the epoch, and whether the replay had finished
        self._wanted = asyncio.Event()  # set while the store's file may hold deleted counts

    def note(self, epoch: int, finished: bool) -> None:
        """Note the running epoch, and whether a replay has ended; a change of either wakes ``run``."""
        if self._of != (epoch, finished):
            self._of = epoch, finished
            self._wanted.set()

    async def run(self, outage: Outage) -> None:
        """Ask the store whenever woken; return after the end of a replay. Raises: OSError."""
        while self._wanted.is_set() or not self._of[1]:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._store.forget()
            except BaseException:
                self._wanted.set()
                raise
            outage.over()
