"""Builds a worker from the service's own pipeline. A mutant replaces one part with a wrong one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from stream_app.core.ledger import ACCEPTED
from stream_app.loops.clocks import LiveClock
from stream_app.loops.lease import Lease
from stream_app.loops.stream import Ports, Stream
from stream_app.ports import Clock
from stream_app.source_ledger import SourceLedger
from stream_app.together import SharedAnswer
from stream_app.wiring import pipeline as wiring
from stream_app.wiring.starting import compare
from tests.models.memory import MemoryStore
from tests.simulator.memory_sinks import MemoryLedger
from tests.simulator.schedule import SOURCE, Schedule


class Pipeline:
    """The service as it is; a mutant has another store, or other parts in ``wrong``: owner, name, by what.

    ``outside`` is the ledger outside the store, if there is one; a world sets it.
    """

    outside: MemoryLedger | None = None
    store: type[MemoryStore] = MemoryStore
    wrong: tuple[tuple[Any, str, Any], ...] = ()

    def patched(self) -> AbstractContextManager[object]:
        """Return a context manager around a world's run, in which everything in ``wrong`` is replaced."""
        patches = ExitStack()
        for part in self.wrong:
            patches.enter_context(patch.object(*part))
        return patches

    def make_clock(self, store: Any, source: Any) -> Clock:
        """Return the clock that all loops of a worker share."""
        return LiveClock(store)

    async def run(self, schedule: Schedule, ports: Ports) -> None:
        """Run a worker over the given ports."""
        ports = replace(ports, source=SharedListing(ports.source))
        measuring = [self._stream(stream, ports) for stream in schedule.streams]
        owner = ports.make_nonce() if schedule.workers > 1 else None
        opened = [self._stream(stream, ports, owner) for stream in schedule.streams]
        streams = [replace(stream, measuring=measuring) for stream in opened]
        if self.outside is not None:
            await compare(ports.store, self.outside, SOURCE, await self.outside.entries())
        pipeline = wiring.Pipeline.over(ports, streams)
        await pipeline.agree()
        await pipeline.run()

    def make_ledger(self, schedule: Schedule, ports: Ports) -> SourceLedger:
        """Return the ledger of a stream's source."""
        return SourceLedger(ports.store, ACCEPTED, outside=self.outside, total=schedule.allowed)

    def _stream(self, schedule: Schedule, ports: Ports, owner: str | None = None) -> Stream:
        return Stream(
            strategy=schedule.strategy,
            publish_every_us=schedule.publish_every_us,
            witness_is_public=schedule.witness_is_public,
            keep_us=schedule.keep_us,
            ledger=self.make_ledger(schedule, ports),
            lease=Lease(ports.store, schedule.name, owner) if owner is not None else None,
        )


class Passing:
    """A port that passes each call on; its subclasses change some of them."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class SharedListing(Passing):
    """A source that is asked for its partitions once for all closers that ask together, like a topic."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._listed = SharedAnswer[Sequence[str]](source.partitions)

    async def partitions(self) -> Sequence[str]:
        """List the partitions that exist now."""
        return await self._listed()
