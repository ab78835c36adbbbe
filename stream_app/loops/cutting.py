"""Cuts: one loop per source that stores, at each closing instant, where every partition's log ends.

    clock -> where the logs end -> clock again -> store the cuts

A cut proves two facts about arrival; each rests on one reading of the clock.
1. The reading *before* the log is asked says which bins had closed. Records beyond the answered end arrived
   after those bins closed, so they are late for them.
2. The reading *after* the answer says which bin closes next. Records before the answered end arrived before
   that bin closes, so how far ahead they are dated is measured from that bin.
The process may pause for any time between the two readings; both facts still hold.

The loop never waits for reading, decoding or applying: the time of a cut must not depend on records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from stream_app.core.records import Cut, Reason, Refusal, Reply
from stream_app.loops.loaded_streams import LoadedStream, LoadedStreams, asking_source, check_strategy
from stream_app.outage import Outage
from stream_app.ports import Clock, DeadLetters, Source, Store

RETRY_S = 0.5
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


class Cutter:
    """Take the cuts of one source for all its streams.

    Args: the loaded streams, shared with the reader.
    Raises: OperatorError from ``run`` and ``take_due``. No error or log line contains a position.
    """

    def __init__(
        self, source: Source, store: Store, clock: Clock, dead_letters: DeadLetters, views: LoadedStreams
    ) -> None:
        self._source = source
        self._store = store
        self._clock = clock
        self._dead_letters = dead_letters
        self._views = views
        self._one_at_a_time = asyncio.Lock()

    async def run(self) -> None:
        """Take each cut at its instant until cancelled; cancelling is safe at any await.

        Under a virtual clock this does nothing: the reader asks for cuts before it applies, and time waits.
        """
        outage = Outage(log, "cuts")
        while not self._clock.virtual:
            try:
                await self._wait_until_due()
                await self.take_due(await self._source.owned())
                outage.over()
            except OSError as failure:
                outage.failed(failure)
                self._views.doubt(failure)
                await asyncio.sleep(RETRY_S)

    async def take_due(self, partitions: Sequence[str]) -> None:
        """Store a cut for every bin whose closing instant has passed by now."""
        async with self._one_at_a_time:
            while due := await self._due(partitions, now_us := await self._clock.now_us()):
                await self._take(due)
                if all(one.bins[-1][0] >= _last_due_bin(one.view, now_us) for one in due):
                    break  # bins that closed meanwhile wait for the next call; this loop must end

    async def _wait_until_due(self) -> None:
        views = await self._views.complete(self._store)
        owned = await self._source.owned()
        now_us = await self._clock.now_us()
        instants = [
            view.declared.time.closing.instant_us(view.partitions[partition].last_cut_bin + 1)
            for view in views
            for partition in owned
            if partition in view.partitions
        ]
        await self._clock.sleep_until_us(min([*instants, now_us + LONGEST_WAIT_US]))

    async def _due(self, partitions: Sequence[str], now_us: int) -> list[_Due]:
        found = []
        for view in await self._views.complete(self._store):
            for partition in partitions:
                state = view.partitions.get(partition)
                if state is not None and (bins := view.declared.time.closing.due(state.last_cut_bin, now_us)):
                    found.append(_Due(view, partition, state.last_cut_bin, bins))
        return found

    async def _take(self, due: Sequence[_Due]) -> None:
        """Ask once where the logs end, and store the resulting cuts of every stream."""
        partitions = sorted({one.partition for one in due})
        instants_us = sorted({instant_us for one in due for _, instant_us in one.bins})
        with asking_source():
            ends = await self._source.positions_at(partitions, instants_us)
        answered_us = await self._clock.now_us()
        cuts = [_cuts(one, instants_us, ends[one.partition], answered_us) for one in due]
        # Concurrently: setting records aside in one partition must not delay the cut of another.
        stored = await asyncio.gather(*map(self._store_cuts, due, cuts), return_exceptions=True)
        self._views.tell_cuts()
        for failure in filter(None, stored):
            raise failure
        for one in due:
            await self._write_letters(one.view, one.partition)

    async def _store_cuts(self, due: _Due, cuts: Sequence[Cut]) -> None:
        view, partition = due.view, due.partition
        reply = await self._store.take_cuts(
            view.name, view.strategy.hash, partition, due.last_cut_bin, cuts, view.rules.max_ahead_bins
        )
        check_strategy(view.name, reply)
        if reply is Reply.DONE:
            view.partitions[partition] = view.partitions[partition].with_cuts(cuts)
        else:
            await self._views.load(view.name, self._store)

    async def _write_letters(self, view: LoadedStream, partition: str) -> None:
        """Write a dead letter for each known record that a cut refused because it is dated too far ahead."""
        if partition not in view.aside:
            return
        positions = await self._store.refused_ahead(view.name, partition)
        if positions:
            letters = [Refusal(partition, position, Reason.FUTURE, b"") for position in positions]
            await self._dead_letters.write(letters, view.name)
            await self._store.forget_refused(view.name, partition, len(positions))
        view.aside.discard(partition)


def _cuts(due: _Due, instants_us: Sequence[int], ends: Sequence[int], answered_us: int) -> list[Cut]:
    """Return one cut per position, for the last bin that has it; earlier bins without a cut take it too."""
    positions = dict(zip(instants_us, ends, strict=True))
    last_of = {positions[instant_us]: bin for bin, instant_us in due.bins}
    cuts = [Cut(bin, position) for position, bin in last_of.items()]
    last = cuts[-1]
    # Only the last answer can be late: the earlier ones belong to past instants of a replay.
    overdue = max(_last_due_bin(due.view, answered_us) - last.bin, 0)
    return [*cuts[:-1], Cut(last.bin, last.position, overdue)]


def _last_due_bin(view: LoadedStream, now_us: int) -> int:
    return view.declared.time.closing.last_due_bin(now_us)
