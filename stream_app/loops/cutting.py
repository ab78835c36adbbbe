"""Cuts: one loop per source that stores, at each closing instant, where every partition's log ends.

    clock -> where the logs end -> clock again -> store the cuts

A cut proves two facts about arrival; each rests on one reading of the clock.
1. The reading *before* the log is asked says which bins had closed. Records beyond the answered end arrived
   after those bins closed, so they are late for them.
2. The reading *after* the answer says which bin closes next. Records before the answered end arrived before
   that bin closes, so how far ahead they are dated is measured from that bin.
The process may pause for any time between the two readings; both facts still hold.

The time of a cut must not depend on records. So the loop waits for no reading, decoding, applying or dead
letter. It does not wait until a cut is stored either, which takes long if many records were set aside. Only
the next cut of the same stream and partition waits for that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from stream_app.core.records import Cut, Reply
from stream_app.loops.loaded_streams import LoadedStream, LoadedStreams, asking_source
from stream_app.loops.refused_ahead import RefusedAhead
from stream_app.loops.stream import Ports
from stream_app.outage import RETRY_S, Outage
from stream_app.together import each_to_its_end, until_one_ends

# Partitions move between workers; a worker that gets one looks for its due cuts within this time.
LONGEST_WAIT_US = 500_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Due:
    """The closed bins of one stream for which one partition has no cut yet."""

    view: LoadedStream
    partition: str
    last_cut_bin: int
    bins: Sequence[tuple[int, int]]  # (bin, closing instant)

    @property
    def place(self) -> tuple[str, str]:
        """The stream and the partition."""
        return self.view.name, self.partition


class Cutter:
    """Takes the cuts of one source for all its streams.

    Args: views, the loaded streams, shared with the reader.
    Raises: OperatorError from ``run`` and ``take_due``. No error or log line contains a position.
    """

    def __init__(self, ports: Ports, views: LoadedStreams) -> None:
        self._source = ports.source
        self._store = ports.store
        self._clock = ports.clock
        self._views = views
        self._letters = RefusedAhead(ports.store, ports.dead_letters, views)
        self._outage = Outage(log, "cuts")
        self._one_at_a_time = asyncio.Lock()
        self._storing: dict[tuple[str, str], asyncio.Task[None]] = {}  # by stream and partition
        self._until_us = 0  # the instant for which ``run`` waits
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Take each cut at its instant until cancelled; cancelling is safe at any await.

        Under a virtual clock this does nothing: the reader asks for cuts before it applies, and time waits.
        """
        if not self._clock.virtual:
            await until_one_ends(self._keep_cutting(), self._letters.run())

    async def take_due(self, partitions: Sequence[str]) -> None:
        """Store all cuts that are due, and write their dead letters; for virtual clocks, whose time waits."""
        async with self._one_at_a_time:
            while due := await self._due(partitions, now_us := await self._clock.now_us()):
                await each_to_its_end(*(self._store_cuts(one, cuts) for one, cuts in await self._taken(due)))
                if all(one.bins[-1][0] >= one.view.closing.last_due_bin(now_us) for one in due):
                    break  # bins that closed meanwhile wait for the next call; this loop must end
            await self._letters.write()

    async def _keep_cutting(self) -> None:
        try:
            while True:
                await self._outage.outlast(self._start_due_or_wait, self._views.doubt)
        finally:
            left = self._storing.values()
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _start_due_or_wait(self) -> None:
        """Take the cuts that are due and start to store them; if none is due, wait for one."""
        partitions = await self._source.owned()
        now_us = await self._clock.now_us()
        if due := await self._due(partitions, now_us):
            for one, cuts in await self._taken(due):
                self._storing[one.place] = asyncio.create_task(self._store_apart(one, cuts))
            return
        instants_us = [_next_instant_us(*place) for place in await self._idle(partitions)]
        self._until_us = min([*instants_us, now_us + LONGEST_WAIT_US])
        with suppress(TimeoutError):
            async with asyncio.timeout((self._until_us - now_us) / 1e6):
                await self._wake.wait()
        self._wake.clear()

    def _drop_stored(self) -> None:
        """Drop the tasks that have ended. Raises: OperatorError, if one of them did."""
        for place in [place for place, task in self._storing.items() if task.done()]:
            self._storing.pop(place).result()

    async def _idle(self, partitions: Sequence[str]) -> list[tuple[LoadedStream, str]]:
        """Return the streams and partitions for which no cut is being stored."""
        views = await self._views.complete(self._store)
        self._drop_stored()
        return [
            (view, partition)
            for view in views
            for partition in partitions
            if partition in view.partitions and (view.name, partition) not in self._storing
        ]

    async def _due(self, partitions: Sequence[str], now_us: int) -> list[_Due]:
        found = []
        for view, partition in await self._idle(partitions):
            last_cut_bin = view.partitions[partition].last_cut_bin
            if bins := view.closing.due(last_cut_bin, now_us):
                found.append(_Due(view, partition, last_cut_bin, bins))
        return found

    async def _taken(self, due: Sequence[_Due]) -> list[tuple[_Due, list[Cut]]]:
        """Ask once where the logs end; return the cuts of every stream and partition."""
        partitions = sorted({one.partition for one in due})
        instants_us = sorted({instant_us for one in due for _, instant_us in one.bins})
        with asking_source():
            ends = await self._source.positions_at(partitions, instants_us)
        answered_us = await self._clock.now_us()
        return [(one, _cuts(one, instants_us, ends[one.partition], answered_us)) for one in due]

    async def _store_apart(self, due: _Due, cuts: Sequence[Cut]) -> None:
        """Store cuts while other cuts are taken; a failure delays no other stream or partition."""
        try:
            await self._store_cuts(due, cuts)
            self._outage.over()
        except OSError as failure:
            self._outage.failed(failure)
            self._views.doubt(failure)
            await asyncio.sleep(RETRY_S)
        finally:
            if _next_instant_us(due.view, due.partition) < self._until_us:
                self._wake.set()

    async def _store_cuts(self, due: _Due, cuts: Sequence[Cut]) -> None:
        view, partition, bounds = due.view, due.partition, due.view.declared.bounds
        has_aside = partition in view.aside
        # A record that is set aside after this cut adds the partition again: the store refuses the apply of
        # such a record until the reader knows the cut.
        view.aside.discard(partition)
        reply = await self._store.take_cuts(
            view.name,
            view.strategy.hash,
            partition,
            due.last_cut_bin,
            cuts,
            _most_ahead(view, cuts[0].open_bin),
            0 if bounds is None else bounds.most_places,
            view.change,
        )
        if has_aside:
            self._letters.expect(due.place)
        if reply is Reply.DONE:
            self._views.move(view, partition, view.partitions[partition].with_cuts(cuts))
        else:
            await self._views.load(view.name, self._store)
        self._views.wake_reader()


def _cuts(due: _Due, instants_us: Sequence[int], ends: Sequence[int], answered_us: int) -> list[Cut]:
    """Return one cut for each distinct position: the cut of the last bin that closed at that position."""
    positions = dict(zip(instants_us, ends, strict=True))
    last_of = {positions[instant_us]: bin for bin, instant_us in due.bins}
    cuts = [Cut(bin, position) for position, bin in last_of.items()]
    last = cuts[-1]
    # Only the last answer can be late: the earlier ones belong to past instants of a replay.
    overdue = max(due.view.closing.last_due_bin(answered_us) - last.bin, 0)
    return [*cuts[:-1], Cut(last.bin, last.position, overdue)]


def _next_instant_us(view: LoadedStream, partition: str) -> int:
    """Return when the first bin without a cut closes."""
    return view.closing.instant_us(view.partitions[partition].last_cut_bin + 1)


def _most_ahead(view: LoadedStream, open_bin: int) -> int:
    """Return how many bins beyond this one, which is next to close, a record may be dated."""
    [newest] = view.rules.newest_bins(np.array([open_bin])).tolist()
    return int(newest - open_bin)
