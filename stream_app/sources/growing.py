"""The base of sources over files that other programs lengthen."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence

from stream_app.core.incoming import RecordBatch
from stream_app.sources.lines import PARTITION, OneFile

_POLL_S = 0.05


class GrowingFile(OneFile):
    """A file, or files that are one log, which the source checks again until there is a new record."""

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        if PARTITION not in positions:
            await asyncio.sleep(timeout_s)
            return ()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while (batch := await self._after(positions[PARTITION])) is None:
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                return ()
            await asyncio.sleep(min(_POLL_S, left_s))
        return (batch,)

    @abstractmethod
    async def _after(self, position: int) -> RecordBatch | None:
        """Check the file; return the records after a position, or None if it has none yet.

        Raises: OperatorError if the file is not the one counted so far.
        """
