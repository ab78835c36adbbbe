"""Cuts: one loop per source that stores, at each closing instant, where every partition's log ends.

    clock -> where the logs end -> clock again -> store the cuts

A cut proves two facts about arrival; each rests on one reading of the clock.
1. The reading *before* the log is asked says which bins had closed. Records beyond the answered end arrived
   after those bins closed, so they are late for them.
2. The reading *after* the answer says which bin closes next. Records before the answered end arrived before
   that bin closes, so how far ahead they are dated is measured from that bin.
The process may pause for any time between the two readings; both facts still hold.

The time of a cut must not depend on records. So the loop waits for no reading, decoding, applying or dead
letter. It does not wait until a cut is stored either: one call stores the cuts of all partitions of a stream.
A late cut takes long if many records were set aside. It has a call of its own, and only the next cut of the
same stream and partition waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from stream_app.core.records import Cut, Reply
from stream_app.core.store_writes import ALL_WAIT, PartitionCuts
from stream_app.loops.dead_letters import RefusedAhead
from stream_app.loops.loaded_streams import LoadedStream, LoadedStreams, asking_source
from stream_app.loops.stream import Ports
from stream_app.outage import RETRY_S, Outage
from stream_app.together import each_to_its_end, until_one_ends

# Partitions move between workers; a worker that gets one looks for its due cuts within this time.
LONGEST_WAIT_US = 500_000

log = logging.getLogger(__name__)


MOST_CUTS = 1_000  # in one call for several partitions: while the store takes them, it serves nobody else


@dataclass(frozen=True, slots=True)
class _Due:
    """The closed bins of one stream for which some partitions have no cut yet."""

    view: LoadedStream
    partitions: Mapping[str, int]  # the last bin with a cut of each
    bins: Sequence[tuple[int, int]]  # (bin, closing instant) after the earliest of them


@dataclass(frozen=True, slots=True)
class _Taken:
    """Cuts of one stream that one call stores."""

    view: LoadedStream
    cuts: Sequence[PartitionCuts]


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
        self._storing: set[asyncio.Task[None]] = set()
        self._busy: dict[str, set[str]] = {}  # by stream: the partitions whose cuts are being stored
        self._until_us = 0  # the instant for which ``run`` waits
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Take each cut at its instant until cancelled; cancelling is safe at any await.

        Under a virtual clock this does nothing: the reader asks for cuts before it applies, and time waits.
        """
        if not self._clock.virtual:
            await until_one_ends(self._keep_cutting(), self._letters.run())

    async def take_due(self, partitions: Sequence[str]) -> None:
        """Store all cuts that are due, and write their dead letters. Replays call this: their clock waits."""
        async with self._one_at_a_time:
            while due := await self._due(partitions, now_us := await self._clock.now_us()):
                taken = await self._taken(due)
                while taken:
                    left = await each_to_its_end(*map(self._store_cuts, taken))
                    taken = [one for alone in left for one in alone]
                if all(one.bins[-1][0] >= one.view.closing.last_due_bin(now_us) for one in due):
                    break  # bins that closed meanwhile wait for the next call; this loop must end
            await self._letters.write()

    async def _keep_cutting(self) -> None:
        try:
            while True:
                await self._outage.outlast(self._start_due_or_wait, self._views.doubt)
        finally:
            for task in self._storing:
                task.cancel()
            await asyncio.gather(*self._storing, return_exceptions=True)

    async def _start_due_or_wait(self) -> None:
        """Take the cuts that are due and start to store them; if none is due, wait for one."""
        partitions = await self._source.owned()
        now_us = await self._clock.now_us()
        if due := await self._due(partitions, now_us):
            for one in await self._taken(due):
                self._busy.setdefault(one.view.name, set()).update(cuts.partition for cuts in one.cuts)
                self._storing.add(asyncio.create_task(self._store_apart(one)))
            return
        instants_us = [
            view.closing.instant_us(min(last_cut_bins.values()) + 1)
            for view, last_cut_bins in await self._idle(partitions)
        ]
        self._until_us = min([*instants_us, now_us + LONGEST_WAIT_US])
        with suppress(TimeoutError):
            async with asyncio.timeout((self._until_us - now_us) / 1e6):
                await self._wake.wait()
        self._wake.clear()

    def _drop_stored(self) -> None:
        """Drop the tasks that have ended. Raises: OperatorError, if one of them did."""
        for task in [task for task in self._storing if task.done()]:
            self._storing.discard(task)
            task.result()

    async def _idle(self, partitions: Sequence[str]) -> list[tuple[LoadedStream, dict[str, int]]]:
        """Return, per stream, the last cut bin of each partition for which no cut is being stored."""
        views = await self._views.complete(self._store)
        self._drop_stored()
        found = []
        for view in views:
            if view.declared.source.origins:
                continue  # rows of an engine close bins themselves
            busy = self._busy.get(view.name, ())
            if last_cut_bins := {
                partition: state.last_cut_bin
                for partition in partitions
                if partition not in busy and (state := view.partitions.get(partition)) is not None
            }:
                found.append((view, last_cut_bins))
        return found

    async def _due(self, partitions: Sequence[str], now_us: int) -> list[_Due]:
        found = []
        for view, last_cut_bins in await self._idle(partitions):
            if bins := view.closing.due(min(last_cut_bins.values()), now_us):
                behind = {name: last for name, last in last_cut_bins.items() if last < bins[-1][0]}
                found.append(_Due(view, behind, bins))
        return found

    async def _taken(self, due: Sequence[_Due]) -> list[_Taken]:
        """Ask once where the logs end; return the cuts of every stream and partition."""
        partitions = sorted({partition for one in due for partition in one.partitions})
        instants_us = sorted({instant_us for one in due for _, instant_us in one.bins})
        with asking_source():
            ends = await self._source.positions_at(partitions, instants_us)
        answered_us = await self._clock.now_us()
        positions = {name: dict(zip(instants_us, ends[name], strict=True)) for name in partitions}
        return [taken for one in due for taken in calls_of(one.view, _cuts(one, positions, answered_us))]

    async def _store_apart(self, taken: _Taken) -> None:
        """Store cuts while other cuts are taken; a failure delays no other stream."""
        view, left = taken.view, list[_Taken]()
        try:
            left = await self._store_cuts(taken)
            self._outage.over()
        except OSError as failure:
            self._outage.failed(failure)
            self._views.doubt(failure)
            await asyncio.sleep(RETRY_S)
        finally:
            stored = {one.partition for one in taken.cuts} - {one.cuts[0].partition for one in left}
            self._busy[view.name] -= stored
            last_cut_bins = [view.partitions[partition].last_cut_bin for partition in stored]
            if stored and view.closing.instant_us(min(last_cut_bins) + 1) < self._until_us:
                self._wake.set()
        if left:
            await each_to_its_end(*map(self._store_apart, left))

    async def _store_cuts(self, taken: _Taken) -> list[_Taken]:
        """Store cuts; return those that need a call each, because they decide about set-aside records."""
        view, left, is_known = taken.view, [], True
        has_aside = view.aside & {one.partition for one in taken.cuts}
        # A record that is set aside after this cut adds the partition again: the store refuses the apply of
        # such a record until the reader knows the cut.
        view.aside.difference_update(has_aside)
        replies = await self._replies(view, taken.cuts)
        for one, reply in zip(taken.cuts, replies, strict=True):
            if reply is Reply.SET_ASIDE:
                view.aside.add(one.partition)
                left.append(_Taken(view, [one]))
                continue
            if one.partition in has_aside:
                self._letters.expect((view.name, one.partition))
            if reply is Reply.DONE:
                self._views.cut(view, [one])
            else:
                is_known = False
        if not is_known:
            await self._views.load(view.name, self._store)
        self._views.wake_reader()
        return left

    async def _replies(self, view: LoadedStream, cuts: Sequence[PartitionCuts]) -> Sequence[Reply]:
        name, strategy_hash = view.name, view.strategy.hash
        if len(cuts) > 1:
            return await self._store.take_cuts_together(name, strategy_hash, cuts)
        [one], bounds = cuts, view.declared.bounds
        waiting = ALL_WAIT if bounds is None else bounds.waiting
        proven = one.partition, one.expected_last_cut_bin, one.cuts, one.max_ahead_bins, waiting
        return [await self._store.take_cuts(name, strategy_hash, *proven)]


def _cuts(due: _Due, positions: Mapping[str, Mapping[int, int]], answered_us: int) -> Iterator[PartitionCuts]:
    """Yield the cuts of each partition: one for each distinct position, of the last bin that closed there.

    Args: positions, where each partition's log ended at each instant.
    """
    last_due_bin = due.view.closing.last_due_bin(answered_us)
    for partition, last_cut_bin in due.partitions.items():
        ends = positions[partition]
        last_of = {ends[instant_us]: bin for bin, instant_us in due.bins if bin > last_cut_bin}
        cuts = [Cut(bin, position) for position, bin in last_of.items()]
        last = cuts.pop()
        # Only the last answer can be late: the earlier ones belong to past instants of a replay.
        cuts.append(Cut(last.bin, last.position, max(last_due_bin - last.bin, 0)))
        yield PartitionCuts(partition, last_cut_bin, cuts, due.view.rules.max_ahead_bins)


def calls_of(view: LoadedStream, cuts: Iterable[PartitionCuts]) -> Iterator[_Taken]:
    """Divide cuts of a stream into calls of limited length."""
    call: list[PartitionCuts] = []
    number = 0
    for one in cuts:
        if call and number + len(one.cuts) > MOST_CUTS:
            yield _Taken(view, call)
            call, number = [], 0
        call.append(one)
        number += len(one.cuts)
    yield _Taken(view, call)
