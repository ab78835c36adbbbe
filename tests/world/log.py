"""The log of a world: records as bytes, which the service's own decoder reads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np

from stream_app.core.incoming import RecordBatch, Refusal
from stream_app.core.strategy import Strategy
from stream_app.ports import Source
from stream_app.sources.decode import TimeField
from stream_app.sources.topic_records import topic_decoder

LARGEST_BATCH = 10_000
IDLE_S = 2.0  # how long an empty read waits at least: nothing depends on it, and each read costs time


class MemoryLog:
    """Partitions of records. A position is the number of records before it; all written records stay."""

    def __init__(self, partitions: Sequence[str] = ("0",)) -> None:
        self.records: dict[str, list[bytes]] = {name: [] for name in partitions}
        self.written = asyncio.Event()

    def write(self, partition: str, records: Sequence[bytes]) -> None:
        """Append records; readers that wait get them at once."""
        self.records.setdefault(partition, []).extend(records)
        self.written.set()
        self.written = asyncio.Event()

    async def news(self, timeout_s: float) -> None:
        """Wait until a record is written, or until the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.written.wait()
        except TimeoutError:
            pass


class LogReader(Source):
    """One worker's reader of a log. Args: owned, the partitions of this worker; None: all."""

    def __init__(self, log: MemoryLog, strategies: Sequence[Strategy], owned: set[str] | None = None) -> None:
        self.log, self.assigned = log, owned
        time = strategies[0].declared.time
        others = dict.fromkeys(path for one in strategies for path in one.declared.cell_fields)
        self.decoder = topic_decoder("json", TimeField(time.field, time.format), others=list(others))

    async def partitions(self) -> Sequence[str]:
        return list(self.log.records)

    async def owned(self) -> Sequence[str]:
        return [name for name in self.log.records if self.assigned is None or name in self.assigned]

    async def first_position(self, partition: str, since_us: int | None) -> int:
        return 0

    async def kept_since_us(self) -> int | None:
        return None

    async def positions_at(
        self, partitions: Sequence[str], instants_us: Sequence[int]
    ) -> Mapping[str, Sequence[int]]:
        return {name: [len(self.log.records[name])] * len(instants_us) for name in partitions}

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        if not (found := self.runs_after(positions)):
            await self.log.news(max(timeout_s, IDLE_S))
            found = self.runs_after(positions)
        return [self.batch(*run) for run in found]

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def runs_after(self, positions: Mapping[str, int]) -> list[tuple[str, int, int]]:
        ends = {name: min(len(self.log.records[name]), at + LARGEST_BATCH) for name, at in positions.items()}
        return [(name, at, ends[name]) for name, at in positions.items() if at < ends[name]]

    def batch(self, partition: str, start: int, end: int) -> RecordBatch:
        values = self.log.records[partition][start:end]
        decoded = self.decoder.decode(values, [0] * len(values))
        kept = decoded.kept.tolist()
        return RecordBatch(
            partition,
            start,
            end,
            np.arange(start, end, dtype=np.int64)[kept],
            decoded.columns,
            [Refusal(partition, start + at, reason, values[at]) for at, reason in decoded.refused],
            [values[at] for at in kept],
        )
