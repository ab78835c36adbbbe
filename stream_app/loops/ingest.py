"""Counts events: one loop per source reads batches and counts each record in exactly one atomic apply.

    read -> bins -> apply
         -> dead letters, written beside (``dead_letters.py``)

The time of cuts does not depend on this loop (``cutting.py``). The store refuses an apply that was binned
against older cuts, or while a cut is due; the slice is then binned again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Literal, NamedTuple

from stream_app.core.incoming import Reason, RecordBatch
from stream_app.core.records import PartitionState, Reply
from stream_app.core.store_writes import Apply
from stream_app.loops.cutting import Cutter
from stream_app.loops.dead_letters import LettersBeside
from stream_app.loops.ending import LateOfBefore, late_of_before
from stream_app.loops.loaded_streams import LoadedStream, LoadedStreams, asking_source
from stream_app.loops.numbering_keys import learn
from stream_app.loops.slices import Slice, Slices, calls_of
from stream_app.loops.stream import Ports
from stream_app.outage import Outage
from stream_app.ports import OperatorError
from stream_app.ports.errors import about
from stream_app.together import each_to_its_end

READ_TIMEOUT_S = 0.1
READ_EVERY_S = 0.05  # between reads that bring few records: each read costs every stream a call to the store
READ_S_PER_STREAM = 0.005  # so more than 10 streams are read more rarely, except after a cut
FEW_RECORDS = 1_000
CUT_WAIT_S = 0.05  # the wait for a due cut, before the store is asked about it
MOST_BINNED = 20_000  # records binned in one turn of the event loop, for all streams: cuts need turns too
MOST_APPLIED = 100  # streams to which batches are applied in one turn
MOST_SLICES = 400  # of all batches and streams in one turn
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
        self._making_keys = asyncio.Lock()

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
        await self._letters.room()  # here, so that no record waits for its own letter
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
                self._letters.put(letters)
        await self._apply_to_all(streams, batches)
        return sum(len(batch.positions) + len(batch.refused) for batch in batches)

    async def _with_partitions(
        self, streams: list[LoadedStream], partitions: Sequence[str]
    ) -> list[LoadedStream]:
        """Start the partitions that streams have never read; return the streams.

        Streams that begin at the same place share the question where it is.
        """
        lacking = [stream for stream in streams if not stream.partitions.keys() >= set(partitions)]
        taken = {
            stream.name: await late_of_before(self._store, self._clock, stream.strategy) for stream in lacking
        }
        begins_now = {name: one for name, one in taken.items() if one is not None}
        new = [stream for stream in lacking if stream.name in begins_now]
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
            *(
                self._started(
                    one, {at.partition: positions[at] for at in begins[one.name]}, begins_now[one.name]
                )
                for one in new
            )
        )
        by_name = {stream.name: stream for stream in started}
        return [by_name.get(stream.name, stream) for stream in streams]

    async def _started(
        self, stream: LoadedStream, positions: Mapping[str, int], taken: LateOfBefore
    ) -> LoadedStream:
        """Start partitions of a stream at these positions; return the stream."""
        for partition, position in positions.items():
            await self._store.start_partition(
                *(stream.name, stream.strategy.hash, partition),
                *(taken.start(partition, position), taken.of(partition)),
            )
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

    async def _apply_to_all(self, streams: Sequence[LoadedStream], batches: Sequence[RecordBatch]) -> None:
        """Apply the batches of a read to all streams, as many at once as the batches' size allows."""
        closes_itself = any(stream.declared.source.origins for stream in streams) and batches
        now_us = await self._clock.now_us() if closes_itself else 0
        read = [Slices(batch, self._keys, self._clock.virtual, now_us) for batch in batches]
        at_once = min(MOST_APPLIED, max(MOST_SLICES // max(len(read), 1), 1))
        rest = streams if read else []
        while rest:
            number = _binned_for(read, rest[:at_once])
            await each_to_its_end(*(self._apply_batches(stream, read) for stream in rest[:number]))
            rest = rest[number:]

    async def _apply_batches(self, stream: LoadedStream, read: Sequence[Slices]) -> None:
        """Apply the parts of batches that this stream has not applied."""
        with about(stream.name):
            await self._apply_to_one(stream, read)

    async def _apply_to_one(self, stream: LoadedStream, read: Sequence[Slices]) -> None:
        # Of a segment that is over nobody takes cuts, so the store would refuse its records for ever.
        while not stream.is_over and (left := _begun(read, stream)):
            if unmade := [slices for slices, _ in left if slices.lacks_keys(stream)]:
                async with self._making_keys:  # others may need the same keys
                    for slices in filter(lambda one: one.lacks_keys(stream), unmade):
                        await slices.make_keys(stream)
                continue  # cuts may have been taken meanwhile
            try:
                refusal = await self._learn(stream, left)
                refused = {} if refusal is None else {left[0][0].batch.partition: refusal}
                if refusal is None:
                    parts = [slices.of(stream, state) for slices, state in left]
                    refused = await self._apply_slices(stream, parts)
                if Reply.USER_KEY in refused.values():
                    raise OperatorError(_other_user_key(stream.name))
            except OperatorError:  # the key of users may have changed since the stream was loaded
                stream.first_keys.clear()
                before, stream = stream, await self._views.load(stream.name, self._store)
                now = {one.batch.partition: stream.partitions.get(one.batch.partition) for one, _ in left}
                held = {one.batch.partition: state for one, state in left}
                if (stream.user_keys, now) == (before.user_keys, held):
                    raise
                continue
            if not refused:
                continue
            stream.first_keys.clear()  # the records may count in other bins
            known = {slices.batch.partition: state.last_cut_bin for slices, state in left}
            awaited = {name: known[name] for name in refused}
            if {*refused.values()} != {Reply.CUTS_CHANGED} or not await self._sees_cuts(stream, awaited):
                stream = await self._views.load(stream.name, self._store)

    async def _learn(
        self, stream: LoadedStream, left: Sequence[tuple[Slices, PartitionState]]
    ) -> Reply | None:
        """Give the keys that no list names their numbers. Returns: as ``learn``."""
        refusal: Reply | None = None
        # Any loop may forget the numbers at any await.
        while refusal is None and stream.declared.finds_keys:
            if not (names := {name for one, state in left for name in one.unlisted(stream, state)}):
                break
            refusal = await learn(stream, names, self._store, self._keys)
        return refusal

    async def _sees_cuts(self, stream: LoadedStream, known_bins: Mapping[str, int]) -> bool:
        """Wait a little for due cuts; return whether the view has newer cuts than these, by partition."""

        def newer() -> bool:
            return all(stream.partitions[name].last_cut_bin != bin for name, bin in known_bins.items())

        if self._clock.virtual:
            await self._cutter.take_due(sorted(known_bins))
        elif not newer():
            await self._views.cuts_within(CUT_WAIT_S, newer)
        return newer()

    async def _apply_slices(self, stream: LoadedStream, parts: Sequence[Slice]) -> dict[str, Reply]:
        """Apply slices, each in order up to a reply that refuses; return these replies by partition."""
        for part in parts:
            if part.refusals:
                self._letters.put(part.refusals, stream.name)
        refused: dict[str, Reply] = {}
        for call in calls_of(change for part in parts for change in part.changes):
            changes = [change for change in call if change.partition not in refused]
            # Before the call, which may take effect without a reply.
            stream.aside.update(change.partition for change in changes if change.ahead is not None)
            moved: list[Apply] = []
            for change, reply in zip(changes, await self._replies(stream, changes), strict=True):
                if change.partition not in refused and reply in (Reply.DONE, Reply.ALREADY):
                    moved.append(change)
                else:
                    refused.setdefault(change.partition, reply)
                if reply is Reply.ALREADY:  # perhaps by another worker, in other bins
                    stream.first_keys.clear()
            self._views.move(stream, moved)
        return refused

    async def _replies(self, stream: LoadedStream, changes: Sequence[Apply]) -> Sequence[Reply]:
        name, strategy_hash, epoch = stream.name, stream.strategy.hash, stream.epoch
        if len(changes) == 1:
            change = replace(changes[0], strategy_hash=strategy_hash, epoch=epoch)
            return [await self._store.apply(name, change)]
        return await self._store.apply_together(name, strategy_hash, epoch, changes) if changes else []


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


def _binned_for(read: Sequence[Slices], streams: Sequence[LoadedStream]) -> int:
    """Return how many of the first streams, at least one, together bin at most ``MOST_BINNED`` records."""
    records, seen = 0, set[Hashable]()
    for number, stream in enumerate(streams):
        records += sum(slices.to_bin(stream, seen) for slices in read)
        if records > MOST_BINNED and number:
            return number
    return len(streams)


def _begun(read: Sequence[Slices], stream: LoadedStream) -> list[tuple[Slices, PartitionState]]:
    """Return the first batches that hold a stream's next records, with its states there.

    They have at most ``MOST_BINNED`` records, or are one batch. The others wait for the next turn.
    """
    found, records = list[tuple[Slices, PartitionState]](), 0
    for one in read:
        if (state := one.begins_for(stream)) is not None:
            records += len(one.batch.positions)
            if found and records > MOST_BINNED:
                break
            found.append((one, state))
    return found
