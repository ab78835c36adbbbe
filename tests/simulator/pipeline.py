"""How a worker is built from the service's own loops; a mutant builds it a little wrong."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from dphist.noise import NoiseSource
from stream_app.loops.clocks import LiveClock
from stream_app.loops.closer import Closer
from stream_app.loops.cutting import Cutter
from stream_app.loops.ingest import Ingest
from stream_app.loops.lease import Lease
from stream_app.loops.loaded_streams import LoadedStreams
from stream_app.ports import Clock
from tests.models.memory import MemoryStore
from tests.simulator.schedule import STREAM, Schedule


@dataclass(frozen=True)
class Ports:
    """One worker's view of the outside, faults included."""

    store: Any
    source: Any
    witness: Any
    dead_letters: Any
    clock: Clock
    noise: NoiseSource
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
        """Return the clock that closes a worker's bins."""
        return LiveClock(store)

    def loops(self, schedule: Schedule, ports: Ports) -> list[Coroutine[Any, Any, None]]:
        """Return a worker's loops, ready to run."""
        closer = Closer(
            ports.store,
            ports.source,
            ports.clock,
            LiveClock(ports.store),
            ports.witness,
            ports.noise,
            ports.keys,
            schedule.strategy,
            publish_every_us=schedule.publish_every_us,
            lease=Lease(ports.store, STREAM, ports.make_nonce()) if schedule.workers > 1 else None,
            make_nonce=ports.make_nonce,
        )
        views = LoadedStreams([STREAM], agree=lambda _: closer.open())
        cutter = Cutter(ports.source, ports.store, ports.clock, ports.dead_letters, views)
        ingest = Ingest(
            ports.source, ports.store, ports.clock, ports.dead_letters, cutter, views, user_key=bytes(32)
        )

        async def opened(loop: Ingest | Cutter) -> None:
            await closer.open()
            await loop.run()

        # Under a virtual clock the reader asks for cuts, and a cutter beside it has nothing to do.
        cutting = [] if ports.clock.virtual else [opened(cutter)]
        return [*cutting, opened(ingest), closer.run()]
