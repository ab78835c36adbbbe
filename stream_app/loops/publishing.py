"""Makes released rows visible: reads them back, writes the witness, publishes at the next public instant.

Visible <= witnessed <= released, at every moment and after any crash.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from stream_app.core.counting.bins import next_public_instant_us
from stream_app.core.records import EpochRecord, StreamState, WitnessRow
from stream_app.core.releases.release import RowLink
from stream_app.core.releases.row_values import rows_at_once
from stream_app.core.segments.retention import ended_us
from stream_app.core.strategy import Strategy
from stream_app.loops.leadership import Leadership
from stream_app.loops.stream import Ports, Stream
from stream_app.outage import Outage
from stream_app.ports import Store, Witness

log = logging.getLogger(__name__)

PART_OF_INSTANT = 4  # a loop that is late by more than a quarter of the period has missed the instant
MOST_MISSED = 10  # instants missed in a row; after that, due rows are shown late rather than never


class Publisher:
    """Makes one stream's released rows visible."""

    def __init__(self, ports: Ports, stream: Stream, leadership: Leadership) -> None:
        self._store = ports.store
        self._witness = ports.witnesses[stream.strategy.stream]
        self._wall = ports.wall
        self._every_us = stream.publish_every_us
        self._keep_us = stream.keep_us
        self._witness_is_public = stream.witness_is_public
        self._leadership = leadership
        self._strategy = stream.strategy
        self._epoch: int | None = None
        self._oldest: EpochRecord | None = None  # the oldest epoch that the store keeps
        self._leaves_us: int | None = None  # when the oldest epoch is removed; None: not yet known, or never
        self._time_has_come = False
        self._before: dict[int, int] = {}  # by public instant: the last row that was released before it
        self._released_seq = self._witnessed_seq = self._published_seq = 0
        self._news = asyncio.Event()  # rows were released, or the stream has finished

    async def witness_released(self, strategy: Strategy, state: StreamState) -> None:
        """Write released rows to the witness; if readers can see it, ``publish`` writes them instead."""
        epoch, seq = state.epoch.epoch, state.seq
        await self._note_oldest(state)
        if self._epoch != epoch:  # rows shown before may be lost, so they are shown again
            self._epoch, self._published_seq, self._before = epoch, 0, {}
        self._strategy, self._released_seq = strategy, seq
        if seq not in self._before.values():
            instant_us = next_public_instant_us(await self._wall.now_us(), self._every_us)
            earlier = {at_us: last for at_us, last in self._before.items() if last < seq}
            self._before = {**earlier, instant_us: seq}
        self._news.set()
        if not self._witness_is_public:
            await self._write(seq)

    async def run(self, outage: Outage, finished: Callable[[], bool]) -> None:
        """Publish at public instants; return when a finished stream is wholly visible.

        Rows that missed an instant wait for the next instant. While all rows are visible and no epoch's
        time has come, nothing runs.
        """
        missed = 0
        while True:
            if self.all_is_visible and not self._may_trim:
                if finished():
                    return
                self._news.clear()
                await self._news.wait()
                continue
            instant_us = next_public_instant_us(await self._wall.now_us(), self._every_us)
            await self._wall.sleep_until_us(instant_us)
            # The loop's busy time depends on the events, so a late loop waits for the next instant.
            late_us = await self._wall.now_us() - instant_us
            missed = missed + 1 if late_us > self._every_us // PART_OF_INSTANT else 0
            if missed % MOST_MISSED == 0:
                await self.publish(instant_us)
                outage.over()

    @property
    def all_is_visible(self) -> bool:
        """Whether readers see all rows that this worker has released."""
        return self._published_seq == self._witnessed_seq == self._released_seq

    def look_again(self) -> None:
        """Make ``run`` ask again whether the stream has finished."""
        self._news.set()

    async def publish(self, instant_us: int | None = None) -> None:
        """Make the rows visible that were released before a public instant. Args: None: all rows.

        Rows that are released during the calls wait for the next instant: how long the calls take may depend
        on the events.
        """
        last_seq = self._released_seq if instant_us is None else self._released_before(instant_us)
        behind = self._witnessed_seq < last_seq
        if self._witness_is_public and behind and await self._leadership.leads():
            await self._write(last_seq)
        seq = min(self._witnessed_seq, last_seq)
        if seq > self._published_seq:
            await self._store.publish(self._strategy.stream, seq)
            self._published_seq = seq
        if instant_us is not None:
            self.note_time(instant_us)
            if self._may_trim:
                await self._trim(instant_us)

    @property
    def wakes_us(self) -> int | None:
        """When to call ``note_time`` next, so that an old epoch leaves in time; None: at the next pass."""
        return None if self._time_has_come else self._leaves_us

    def note_time(self, now_us: int) -> None:
        """If the oldest epoch's retention has ended, let it leave at the next public instant."""
        if self.wakes_us is not None and self.wakes_us <= now_us:
            self._time_has_come = True
            self._news.set()

    async def _note_oldest(self, state: StreamState) -> None:
        """Ask which epoch is the oldest, unless it is known: once for each epoch, and after a start."""
        known = self._oldest is not None and (self._leaves_us is not None or self._oldest == state.epoch)
        if self._keep_us is None or known:
            return
        self._oldest = await self._store.oldest_epoch(self._strategy.stream)
        ended = None if self._oldest is None else ended_us(state.texts, self._oldest)
        self._leaves_us = None if ended is None else ended + self._keep_us
        self._time_has_come = False

    @property
    def _may_trim(self) -> bool:
        """Whether the oldest epoch's time has come, and readers see a row after it."""
        seen = self._oldest is not None and self._oldest.final_seq < self._published_seq
        return seen and self._time_has_come

    async def _trim(self, instant_us: int) -> None:
        """Remove from the store the epochs that ended longer ago than the stream's retention.

        Readers may notice when an epoch leaves, so epochs leave at a public instant. The instant also
        decides which epochs leave.
        """
        assert self._keep_us is not None
        await self._store.trim(self._strategy.stream, instant_us - self._keep_us)
        # The next pass reads which epoch is the oldest now.
        self._oldest, self._leaves_us, self._time_has_come = None, None, False

    def _released_before(self, instant_us: int) -> int:
        """Return the last row that was released before a public instant; forget earlier instants."""
        reached = [at_us for at_us in self._before if at_us <= instant_us]
        for at_us in reached[:-1]:
            del self._before[at_us]
        return self._before[reached[-1]] if reached else 0

    async def _write(self, last_seq: int) -> None:
        """Write released rows up to ``last_seq`` to the witness, durably."""
        try:
            append = self._append
            self._witnessed_seq = await write_rows(
                self._store, self._witness, self._strategy, last_seq, append
            )
        except OSError:
            self._leadership.drop()
            raise

    async def _append(self, stream: str, rows: Sequence[WitnessRow]) -> None:
        try:
            await self._witness.append(stream, rows)
        except OSError as failure:
            if not self._witness_is_public:
                await self._leadership.note_written(failure)
            raise
        await self._leadership.note_written(None)


async def write_rows(
    store: Store,
    witness: Witness,
    strategy: Strategy,
    last_seq: int,
    append: Callable[[str, Sequence[WitnessRow]], Awaitable[None]] | None = None,
) -> int:
    """Read back released rows up to ``last_seq`` that the witness lacks; write them there, durably.

    Args: append, called in place of the witness's. Returns: the witness's last row. Raises: OSError.
    """
    stream, limit, append = strategy.stream, rows_at_once(strategy.kind), append or witness.append
    head = await witness.head(stream)
    seq = 0 if head is None else head[0]
    while seq < last_seq:
        found = await store.witness_rows(stream, strategy, seq, limit)
        rows = [row for row in found if row.seq <= last_seq]
        if not rows:
            break  # the epoch has just opened; the missing seqs are from a store that was lost
        if head is not None and rows[0].seq > seq + 1:
            await _log_what_left(store, stream, seq)
        elif head is not None and RowLink.of(rows[0].row).prev != RowLink.of(head[1]).hash:
            # Another worker released these rows over a store that was set back. The running epoch begins
            # after the rows of both.
            state, head = await store.load(stream), None
            if state is None or state.epoch.first_seq <= seq + 1:
                break
            seq = state.epoch.first_seq - 1
            continue
        head = None
        await append(stream, rows)
        seq = rows[-1].seq
    return seq


async def _log_what_left(store: Store, stream: str, seq: int) -> None:
    """Log which rows left the store before this witness had them. Args: seq, the witness's last row."""
    state = await store.load(stream)
    if state is not None and state.trimmed.seq > seq:
        log.warning(
            "stream %s: this worker's witness goes on without the rows %d to %d: after releases.keep "
            "they left the store; it cannot put them back, and an audit with it misses them",
            *(stream, seq + 1, state.trimmed.seq),
        )
