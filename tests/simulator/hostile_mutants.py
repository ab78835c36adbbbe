"""Mutants in which one record changes what is public about other records. Tests must catch each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from stream_app.core.counting.bins import assign
from stream_app.core.incoming import RecordBatch
from stream_app.loops.ingest import Ingest
from stream_app.loops.loaded_streams import LoadedStream
from stream_app.loops.slices import Slices
from stream_app.loops.stream import Ports
from stream_app.sources.schema_registry import SchemaRegistry
from tests.simulator.pipeline import Passing, Pipeline
from tests.simulator.schedule import Schedule


async def _fetch_once(registry: SchemaRegistry[Any], schema_ids: Sequence[int]) -> dict[int, OSError]:
    absent: set[int] = registry.__dict__.setdefault("absent", set())
    asked = [schema_id for schema_id in schema_ids if schema_id not in absent]
    unanswered = await _fetch(registry, asked)
    absent.update(set(asked) - registry.known.keys() - unanswered.keys())
    return unanswered


class AbsenceIsRemembered(Pipeline):
    """If the registry lacked a schema once, the worker does not ask for it again."""

    wrong = ((SchemaRegistry, "fetch", _fetch_once),)


class CutsWaitForReads(Pipeline):
    """One connection both reads records and asks for the log's end, so a cut waits until a read returns."""

    async def run(self, schedule: Schedule, ports: Ports) -> None:
        """Run over a source that handles one call at a time."""
        await super().run(schedule, replace(ports, source=_OneAtATime(ports.source)))


class _OneAtATime(Passing):
    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._busy = asyncio.Lock()

    async def read(self, *asked: Any) -> Any:
        """Read when no other call is under way."""
        async with self._busy:
            return await self._inner.read(*asked)

    async def positions_at(self, *asked: Any) -> Any:
        """Return where partitions end, when no other call is under way."""
        async with self._busy:
            return await self._inner.positions_at(*asked)


class FutureHoldsThePosition(Pipeline):
    """Records that follow a record from the future wait until a cut has decided about it."""

    def patched(self) -> AbstractContextManager[object]:
        """End each batch before its first record about which no cut has decided."""
        return held_up()


def held_up() -> AbstractContextManager[object]:
    """Return a context manager in which a record from the future holds back a worker's position."""
    return patch.object(Ingest, "_apply_batches", _up_to_the_future)


async def _up_to_the_future(ingest: Ingest, stream: LoadedStream, read: Sequence[Slices]) -> None:
    held = [_held(ingest, stream, made) for made in read]
    await _apply_batches(ingest, stream, [made for made in held if made.batch.start < made.batch.end])


def _held(ingest: Ingest, stream: LoadedStream, made: Slices) -> Slices:
    batch = made.batch
    state = stream.partitions.get(batch.partition)
    if state is not None:
        own = stream.declared.time.binning.bin_of(batch.columns[stream.declared.time.field])
        found = assign(own, batch.positions, state, stream.rules)
        if found.ahead.any():
            batch = _before(batch, int(np.argmax(found.ahead)))
            return Slices(batch, ingest._keys, virtual=ingest._clock.virtual)
    return made


def _before(batch: RecordBatch, index: int) -> RecordBatch:
    end = int(batch.positions[index])
    return replace(
        batch,
        end=end,
        positions=batch.positions[:index],
        columns={name: column[:index] for name, column in batch.columns.items()},
        refused=[refusal for refusal in batch.refused if refusal.position < end],
        records=batch.records[:index],
    )


_fetch, _apply_batches = SchemaRegistry.fetch, Ingest._apply_batches
