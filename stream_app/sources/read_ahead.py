"""Reads and decodes a log's next batches while the store counts the last ones."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from stream_app.core.incoming import RecordBatch
from stream_app.ports import Source
from stream_app.together import ignore_failure

CLOSE_S = 0.5  # for a read to end: a client that lost its server may never give it back
LEAST_RECORDS = 1_000  # of a read; after fewer the log's end is near


def read_ahead(source: Source) -> Source:
    """Wrap a source so that it reads on while the caller counts, as long as each read brings many records.

    Guarantee: a read returns what the source itself would have returned from the same positions. The source
        does one read at a time. An error comes with the read whose records it is about.
    Cost: the memory of one more read.
    """
    return cast("Source", _ReadAhead(source))


class _ReadAhead:
    def __init__(self, source: Any) -> None:
        self._source = source
        # Where the read under way began, and what it will return.
        self._next: tuple[Mapping[str, int], asyncio.Task[Sequence[RecordBatch]]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        self._source.counted = positions
        batches = await self._read_before(positions) or await self._source.read(positions, timeout_s)
        if sum(len(batch.positions) for batch in batches) >= LEAST_RECORDS:
            after = {**positions, **{batch.partition: batch.end for batch in batches}}
            self._next = after, asyncio.create_task(self._source.read(after, 0.0))
            self._next[1].add_done_callback(ignore_failure)
        return batches

    async def _read_before(self, positions: Mapping[str, int]) -> Sequence[RecordBatch]:
        """Return the records that were read from these positions; nothing if they were others'."""
        if self._next is None:
            return ()
        (begun_at, reading), self._next = self._next, None
        if begun_at == positions:
            return await reading
        await asyncio.wait([reading])  # cancelled, it might have taken records that it does not return
        return ()

    async def close(self) -> None:
        try:
            if self._next is not None:
                self._next[1].cancel()
                await asyncio.wait([self._next[1]], timeout=CLOSE_S)
        finally:
            await self._source.close()
