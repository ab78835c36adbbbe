"""How a worker is built from the service's own loops; a mutant builds it a little wrong."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from dphist.noise import NoiseSource
from stream_app.core.ledger import ACCEPTED
from stream_app.loops.clocks import LiveClock, SharedClock
from stream_app.loops.closer import Closer
from stream_app.loops.cutting import Cutter
from stream_app.loops.ingest import Ingest
from stream_app.loops.lease import Lease
from stream_app.loops.loaded_streams import LoadedStreams
from stream_app.ports import Clock
from stream_app.shared_answer import SharedAnswer
from stream_app.source_ledger import SourceLedger
from tests.models.memory import MemoryStore
from tests.simulator.schedule import Schedule


@dataclass(frozen=True)
class Ports:
    """One worker's view of the outside, faults included."""

    store: Any
    source: Any
    witness: Any
    dead_letters: Any
    clock: Clock
    noise: Mapping[str, NoiseSource]  # by stream
    keys: Any
    make_nonce: Callable[[], str]


class Pipeline:
    """The service as it is."""

    def patched(self) -> AbstractContextManager[object]:
        """Return what holds while a world runs: a mutant may replace a pure decision here."""
        return nullcontext()

    def make_store(self, clock_us: Callable[[], int]) -> MemoryStore:
        """Return the store of a world."""
        return MemoryStore(clock_us)

    def make_clock(self, store: Any, source: Any) -> Clock:
        """Return the clock that closes a worker's bins, which all its loops share."""
        return SharedClock(store)

    def loops(self, schedule: Schedule, ports: Ports) -> list[Coroutine[Any, Any, None]]:
        """Return a worker's loops, ready to run: a closer for each stream; all share clock and source."""
        ports = replace(ports, source=SharedListing(ports.source))
        closers = {stream.name: _closer(stream, ports, schedule.workers > 1) for stream in schedule.streams}
        views = LoadedStreams(list(closers), agree=lambda name: closers[name].open())
        cutter = Cutter(ports.source, ports.store, ports.clock, ports.dead_letters, views)
        ingest = Ingest(
            ports.source, ports.store, ports.clock, ports.dead_letters, cutter, views, user_key=bytes(32)
        )

        async def opened(loop: Ingest | Cutter) -> None:
            for closer in closers.values():
                await closer.open()
            await loop.run()

        # Under a virtual clock the reader asks for cuts, and a cutter beside it has nothing to do.
        cutting = [] if ports.clock.virtual else [opened(cutter)]
        return [*cutting, opened(ingest), *(closer.run() for closer in closers.values())]


class SharedListing:
    """A source whose list of partitions is asked for once for all closers that ask together, as a topic's."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._listed = SharedAnswer[Sequence[str]](source.partitions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    async def partitions(self) -> Sequence[str]:
        """List the partitions that exist now."""
        return await self._listed()


def _closer(schedule: Schedule, ports: Ports, leased: bool) -> Closer:
    name = schedule.name
    return Closer(
        ports.store,
        ports.source,
        ports.clock,
        LiveClock(ports.store) if ports.clock.virtual else ports.clock,
        ports.witness,
        ports.noise[name],
        ports.keys,
        schedule.strategy,
        publish_every_us=schedule.publish_every_us,
        ledger=SourceLedger(ports.store, ACCEPTED),
        lease=Lease(ports.store, name, ports.make_nonce()) if leased else None,
        make_nonce=ports.make_nonce,
    )
