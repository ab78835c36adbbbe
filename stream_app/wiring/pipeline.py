"""The one way to have a stream: its loops over given ports.

The worker builds its pipelines here, over real adapters; so do the tests, over models and ports with faults.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from stream_app.loops.closer import Closer
from stream_app.loops.cutting import Cutter
from stream_app.loops.ingest import Ingest, Start
from stream_app.loops.loaded_streams import LoadedStreams
from stream_app.loops.stream import Ports, Stream
from stream_app.ports import Source, Store
from stream_app.together import until_all_end, until_one_ends


@dataclass(frozen=True, slots=True)
class Counting:
    """A reader of a log and the cutter beside it."""

    cutter: Cutter
    ingest: Ingest

    @classmethod
    def over(
        cls,
        ports: Ports,
        streams: Sequence[str],
        *,
        agree: Callable[[str], Awaitable[object]] | None = None,
        start: Start = "earliest",
        user_key: bytes = b"",
        own_store: Callable[[], Store] | None = None,
    ) -> Counting:
        """Return what counts the events of streams that are open.

        Args:
            agree, start, user_key: as ``LoadedStreams`` and ``Ingest`` need them.
            own_store: returns a separate store for one loop; None: both use that of the ports.
        """
        store_of = own_store or (lambda: ports.store)
        views = LoadedStreams(streams, agree)
        cutter = Cutter(ports.source, store_of(), ports.clock, ports.dead_letters, views)
        ingest = Ingest(
            ports.source, store_of(), ports.clock, ports.dead_letters, cutter, views, start, user_key
        )
        return cls(cutter, ingest)

    async def run(self) -> None:
        """Run until cancelled."""
        # A replay has no cutter to wait for: it returns at once, and counting goes on.
        await until_all_end(self.cutter.run(), self.ingest.run())


@dataclass(frozen=True, slots=True)
class Pipeline:
    """All loops of one source: they cut its log, count its events and release its streams.

    The loops return when a replay has ended. Its source is then closed and a sorted copy is deleted.
    """

    source: Source
    counting: Counting
    closers: Sequence[Closer]

    @classmethod
    def over(
        cls,
        ports: Ports,
        streams: Sequence[Stream],
        *,
        start: Start = "earliest",
        user_key: bytes = b"",
        own_store: Callable[[], Store] | None = None,
    ) -> Pipeline:
        """Return the loops over ports. Args: as ``Counting.over``."""
        closers = {stream.strategy.stream: Closer(ports, stream) for stream in streams}
        counting = Counting.over(
            ports,
            list(closers),
            agree=lambda name: closers[name].agree(),
            start=start,
            user_key=user_key,
            own_store=own_store,
        )
        return cls(ports.source, counting, list(closers.values()))

    async def agree(self) -> None:
        """Return when store and witness agree about every stream; only then may ``run`` start."""
        for closer in self.closers:
            await closer.agree()

    async def run(self) -> None:
        """Run until cancelled; a replay returns when its last bin is visible."""
        releasing = until_all_end(*(closer.run() for closer in self.closers))
        await until_one_ends(self.counting.run(), releasing)
        await self.source.close()
