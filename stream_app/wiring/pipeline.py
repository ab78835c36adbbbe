"""Joins all loops of a source, over given ports: adapters in the worker, models and faults in tests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

from stream_app.loops.closer import Closer
from stream_app.loops.cutting import Cutter
from stream_app.loops.ingest import Ingest, Start
from stream_app.loops.lease import Lease, Spreading, give_up, keep
from stream_app.loops.loaded_streams import LoadedStreams
from stream_app.loops.stream import Ports, Stream
from stream_app.outage import Outage
from stream_app.ports.errors import about
from stream_app.together import until_all_end, until_one_ends

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Counting:
    """A reader of a log and the cutter beside it."""

    cutter: Cutter
    ingest: Ingest
    views: LoadedStreams

    @classmethod
    def over(
        cls,
        ports: Ports,
        streams: Sequence[str],
        *,
        agree: Callable[[str], Awaitable[object]] | None = None,
        start: Start = "earliest",
    ) -> Counting:
        """Return the reader and the cutter of open streams. Args: as for ``LoadedStreams`` and ``Ingest``."""
        views = LoadedStreams(streams, agree)
        cutter = Cutter(ports.of_one_loop(), views)
        return cls(cutter, Ingest(ports.of_one_loop(), cutter, views, start), views)

    async def run(self) -> None:
        """Run until cancelled."""
        # A replay has no cutter to wait for: it returns at once, and counting goes on.
        await until_all_end(self.cutter.run(), self.ingest.run())


@dataclass(frozen=True, slots=True)
class Pipeline:
    """All loops of one source: they cut its log, count its events and release its streams.

    The loops return when a replay has ended. Its source is then closed and a sorted copy is deleted.
    Args: by_name, the closers of all streams, also of those that are to join; is_live, whether streams may
        join; none joins a replay.
    """

    ports: Ports
    counting: Counting
    by_name: dict[str, Closer]
    leases: list[Lease]
    spreading: Spreading | None
    is_live: bool
    _joining: asyncio.Queue[Closer] = field(default_factory=asyncio.Queue)

    @property
    def closers(self) -> Sequence[Closer]:
        """The closers of all streams, in their order."""
        return list(self.by_name.values())

    @classmethod
    def over(
        cls,
        ports: Ports,
        streams: Sequence[Stream],
        *,
        start: Start = "earliest",
    ) -> Pipeline:
        """Return the loops of these streams, which use these ports. Args: as ``Counting.over``."""
        closers: dict[str, Closer] = {}
        counting = Counting.over(
            ports,
            [stream.strategy.stream for stream in streams],
            agree=lambda name: closers[name].agree(),
            start=start,
        )
        closers |= {one.strategy.stream: Closer(ports, one, counting.views.has_reached) for one in streams}
        leases = [stream.lease for stream in streams if stream.lease is not None]
        log = streams[0].strategy.declared.source
        spreading = Spreading(ports.store, log.name, leases) if leases else None
        return cls(ports, counting, closers, leases, spreading, log.replay is None)

    def join(self, stream: Stream) -> None:
        """Have ``run`` open one more stream, and then count and release it beside the others.

        ``run`` raises the errors of its opening.
        """
        closer = Closer(self.ports, stream, self.counting.views.has_reached)
        if stream.lease is not None:
            self.leases.append(stream.lease)
        self.by_name[closer.name] = closer
        self._joining.put_nowait(closer)

    async def agree(self, opened: Callable[[str], None] = lambda stream: None) -> None:
        """Return when store and witness agree about every stream; only then may ``run`` start.

        Args: opened, called for each stream when that is true of it.
        Streams begin beside each other. Only a stream for which the order matters begins alone, in its turn.
        """
        for alone, some in groupby(self.closers, lambda closer: closer.begins_in_turn):
            for together in ([closer] for closer in some) if alone else [some]:
                await until_all_end(*(_agree(closer, opened) for closer in together))

    async def run(self, closes: Callable[[int], None] = lambda number: None) -> None:
        """Run until cancelled; a replay returns when its last bin is visible.

        Args: closes, called after each renewal of the leases with the number that are held.
        """
        loops = [self.counting.run(), self._release()]
        if self.leases:
            outage = Outage(log, "leases")

            def kept() -> None:
                outage.over()
                closes(sum(lease.is_held for lease in self.leases))

            keeping = partial(keep, self.leases, self.ports.wall, kept=kept, division=self.spreading)
            loops.append(outage.outlast(keeping))
        await until_one_ends(*loops)
        await self.ports.source.close()

    async def _release(self) -> None:
        joining = [self._keep_joining()] if self.is_live else []
        await until_all_end(*(_run(closer) for closer in self.closers), *joining)

    async def _keep_joining(self) -> None:
        """Open the streams that join, one after the other, and release each beside all others."""
        closer, outage = await self._joining.get(), Outage(log, "joining")
        await outage.outlast(partial(_agree, closer, lambda stream: None))
        outage.over()
        self.counting.views.add(closer.name)
        await until_all_end(_run(closer), self._keep_joining())

    async def leave(self) -> None:
        """Let other workers close the streams at once. Raises: OSError."""
        if self.spreading is not None:
            await self.spreading.leave()
        await give_up(self.leases)


async def _agree(closer: Closer, opened: Callable[[str], None]) -> None:
    with about(closer.name):
        await closer.agree()
    opened(closer.name)


async def _run(closer: Closer) -> None:
    with about(closer.name):
        await closer.run()
