"""Counts events: one loop per source reads batches and counts each record in exactly one atomic apply.

    read -> bins -> apply
         -> dead letters, written beside (``letters.py``)

The time of cuts does not depend on this loop (``cutting.py``). The store refuses an apply that was binned
against older cuts, or while a cut is due; the slice is then binned again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Literal, NamedTuple

from stream_app.core.incoming import Reason, RecordBatch
from stream_app.core.records import Reply
from stream_app.loops.cutting import Cutter
from stream_app.loops.letters import LettersBeside
from stream_app.loops.loaded_streams import LoadedStream, LoadedStreams, asking_source
from stream_app.loops.slices import Slice, Slices
from stream_app.loops.stream import Ports
from stream_app.outage import Outage
from stream_app.ports import OperatorError
from stream_app.together import each_to_its_end

READ_TIMEOUT_S = 0.1
READ_EVERY_S = 0.05  # between reads that bring few records: each read costs every stream an apply
READ_S_PER_STREAM = 0.005  # so more than 10 streams are read more rarely, except after a cut
FEW_RECORDS = 1_000
CUT_WAIT_S = 0.05  # the wait for a due cut, before the store is asked about it
MOST_BINNED = 20_000  # records binned in one turn of the event loop, for all streams: cuts need turns too
MOST_APPLIED = 100  # streams to which a batch is applied in one turn
Start = Literal["earliest", "latest"] | int  # an instant in microseconds since 1970

log = logging.getLogger(__name__)


class _Begin(NamedTuple):
    """Where streams begin to read a partition: its oldest record, the first since an instant, or the end.

    Args: until_us, an instant: the log's end now, and in a replay its end at this instant; None: not there.
    """

    partition: str
    since_us: int | None
    until_us: int | None


class Ingest:
    """Counts the events of one source in the cells of its streams.

    Args:
        cutter: takes the cuts of the same streams. This loop calls it only under a virtual clock; a live
            cutter runs beside it.
        views: shared with the cutter. ``Closer.reconcile`` must have opened the streams before this loop
            starts. Each stream counts by the strategy with which it is open.
        start: where a stream without any positions begins to read.
    Raises: OperatorError from ``run`` and ``step``. No error or log line contains a count or a position.
    """

    def __init__(
        self,
        ports: Ports,
        cutter: Cutter,
        views: LoadedStreams,
        start: Start = "earliest",
    ) -> None:
        self._source = ports.source
        self._store = ports.store
        self._clock = ports.clock
        self._letters = LettersBeside(ports.dead_letters)
        self._cutter = cutter
        self._views = views
        self._start = start
        self._keys = ports.keys

    async def run(self) -> None:
        """Count until cancelled, which is safe at any await; then write the letters that wait."""
        outage = Outage(log, "ingest")
        try:
            while True:
                records = await outage.outlast(self.step, self._views.doubt)
                outage.over()
                if records < FEW_RECORDS and not self._clock.virtual:
                    await self._pause()
        finally:
            await self._letters.written()

    async def _pause(self) -> None:
        """Wait until it is time to read again, or until the next cuts, unless a bin waits now.

        The clock and the cuts decide when to read, not the records. So the time that one more record costs
        does not shift later reads.
        """
        if self._views.reached_cuts():
            now_s = asyncio.get_running_loop().time()
            every_s = max(READ_EVERY_S, READ_S_PER_STREAM * self._views.number)
            await self._views.cuts_within(every_s - now_s % every_s)

    async def step(self) -> int:
        """Read once and apply the records; return their number.

        Raises: OSError if it is unknown whether a call took effect; calling again is always safe.
        """
        partitions = await self._source.owned()
        if partitions != self._views.owned:
            self._views.forget()  # another worker may have moved the partitions that are owned now
        streams = await self._views.complete(self._store)
        streams = await self._with_partitions(streams, partitions)
        self._views.own(partitions)
        with asking_source():
            batches = await self._source.read(_positions(streams, partitions), READ_TIMEOUT_S)
        if self._clock.virtual:
            await self._cutter.take_due(partitions)
        for batch in batches:
            letters = [refusal for refusal in batch.refused if refusal.reason != Reason.TOMBSTONE]
            if letters:
                await self._letters.put(letters)
            streams = await self._apply_to_all(streams, batch)
        return sum(len(batch.positions) + len(batch.refused) for batch in batches)

    async def _with_partitions(
        self, streams: list[LoadedStream], partitions: Sequence[str]
    ) -> list[LoadedStream]:
        """Start the partitions that streams have never read; return the streams.

        Streams that begin at the same place share the question where it is.
        """
        new = [stream for stream in streams if not stream.partitions.keys() >= set(partitions)]
        if not new:
            return streams
        everywhere = partitions
        if any(not stream.partitions for stream in new):
            with asking_source():
                everywhere = await self._source.partitions()
        begins = {one.name: self._begins(one, partitions if one.partitions else everywhere) for one in new}
        positions: dict[_Begin, int] = {}
        for begin in dict.fromkeys(chain.from_iterable(begins.values())):
            with asking_source():
                positions[begin] = await self._position(begin)
        started = await each_to_its_end(
            *(self._started(one, {at.partition: positions[at] for at in begins[one.name]}) for one in new)
        )
        by_name = {stream.name: stream for stream in started}
        return [by_name.get(stream.name, stream) for stream in streams]

    async def _started(self, stream: LoadedStream, positions: Mapping[str, int]) -> LoadedStream:
        """Start partitions of a stream at these positions; return the stream."""
        for partition, position in positions.items():
            await self._store.start_partition(stream.name, stream.strategy.hash, partition, position)
        return await self._views.load(stream.name, self._store)

    def _begins(self, stream: LoadedStream, partitions: Sequence[str]) -> list[_Begin]:
        """Return where a stream begins to read each of these partitions that it has never read.

        A partition that appears later is read from its beginning, or its first events would be lost. So the
        worker that starts the stream starts all partitions, including those of other workers.
        """
        start: Start = "earliest" if stream.partitions else self._start
        if (stream.epoch > 0 or stream.declared.successor_of) and not stream.partitions:
            # The stream lost its positions with the store, or goes on where another one ends: read all
            # records that its epoch may count.
            earliest_bin = stream.rules.first_bin - stream.declared.time.max_ahead_bins - 1
            start = stream.declared.time.binning.start_us(earliest_bin)
        since_us = start if isinstance(start, int) else None
        # The current end of the log; in a replay, the start of the stream's first bin.
        until_us = stream.declared.time.binning.end_us(stream.sealed_bin) if start == "latest" else None
        new = [partition for partition in partitions if partition not in stream.partitions]
        return [_Begin(partition, since_us, until_us) for partition in new]

    async def _position(self, begin: _Begin) -> int:
        if begin.until_us is not None:
            return (await self._source.positions_at([begin.partition], [begin.until_us]))[begin.partition][0]
        return await self._source.first_position(begin.partition, begin.since_us)

    async def _apply_to_all(self, streams: Sequence[LoadedStream], batch: RecordBatch) -> list[LoadedStream]:
        """Apply a batch to all streams, as many at once as its size allows; return the streams."""
        applied: list[LoadedStream] = []
        slices = Slices(batch, self._keys, self._clock.virtual)
        most = max(MOST_BINNED // max(len(batch.positions), 1), 1)
        while rest := streams[len(applied) :]:
            together = rest[: slices.binned_for(rest[:MOST_APPLIED], most)]
            applied += await each_to_its_end(*(self._apply_batch(stream, slices) for stream in together))
        return applied

    async def _apply_batch(self, stream: LoadedStream, slices: Slices) -> LoadedStream:
        """Apply the part of a batch that this stream has not applied; return the stream as last loaded."""
        batch = slices.batch
        while True:
            state = stream.partitions.get(batch.partition)
            if state is None or not batch.start <= state.position < batch.end:
                return stream  # another worker is past it, or the store was set back: it is read again
            try:
                part = slices.of(stream, state)
                reply = await self._apply_slice(stream, part)
                if reply is Reply.USER_KEY:
                    raise OperatorError(_other_user_key(stream.name))
            except OperatorError:  # the key of users may have changed since the stream was loaded
                before, stream = stream, await self._views.load(stream.name, self._store)
                if (stream.user_keys, stream.partitions.get(batch.partition)) == (before.user_keys, state):
                    raise
                continue
            if reply in (Reply.DONE, Reply.ALREADY):
                return stream
            if reply is not Reply.CUTS_CHANGED or not await self._sees_cut(stream, part):
                stream = await self._views.load(stream.name, self._store)

    async def _sees_cut(self, stream: LoadedStream, part: Slice) -> bool:
        """Wait a little for a due cut; return whether the view has a cut that is newer than the slice."""
        partition, known_bin = part.batch.partition, part.state.last_cut_bin

        def newer() -> bool:
            return stream.partitions[partition].last_cut_bin != known_bin

        if self._clock.virtual:
            await self._cutter.take_due([partition])
        elif not newer():
            await self._views.cuts_within(CUT_WAIT_S, newer)
        return newer()

    async def _apply_slice(self, stream: LoadedStream, part: Slice) -> Reply:
        """Apply a slice in order; stop at a reply that refuses, and return the last reply."""
        if part.refusals:
            await self._letters.put(part.refusals, stream.name)
        reply = Reply.DONE
        for shared in part.changes:
            change = replace(shared, strategy_hash=stream.strategy.hash)
            if change.ahead is not None:
                stream.aside.add(change.partition)  # before the call, which may take effect without a reply
            reply = await self._store.apply(stream.name, change)
            if reply not in (Reply.DONE, Reply.ALREADY):
                return reply
            state = stream.partitions[change.partition]
            self._views.move(stream, change.partition, state.moved(change.new))
        return reply


def _other_user_key(name: str) -> str:
    return (
        f"stream {name}: the users of this cap window were counted under another key; if Redis was restored "
        "from before a rotation, run stream-app rotate-key finish; otherwise put the key of users' hashes "
        "back (in secrets.key_file; without one, in state.dir), or start the stream under another name"
    )


def _positions(streams: Sequence[LoadedStream], partitions: Sequence[str]) -> dict[str, int]:
    """Return where to read each partition from: the lowest position of any stream."""
    wanted: dict[str, int] = {}
    for stream in streams:
        for partition in partitions:
            if (state := stream.partitions.get(partition)) is not None:
                wanted[partition] = min(state.position, wanted.get(partition, state.position))
    return wanted
