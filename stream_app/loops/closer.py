"""Closes bins: one loop per stream, from the clock to a release in the store; ``publishing.py`` continues.

    clock -> seal -> exact counts -> release -> read back -> witness -> publish at the next public instant

A release whose reply is lost is never repeated from memory: the loop loads the store again, and the loaded
state is the truth.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from dphist.tree.anticipating import BinsNoise
from dphist.units import FullError
from stream_app.core.counting.unlisted import Slots
from stream_app.core.records import Reply, StreamState
from stream_app.core.releases.release import make_release
from stream_app.core.segments.endings import Ending
from stream_app.core.segments.names import key_of
from stream_app.core.strategy import Strategy
from stream_app.loops import noise_ahead
from stream_app.loops.agreement import Agreement
from stream_app.loops.configured import check_not_overtaken
from stream_app.loops.finding_keys import Naming
from stream_app.loops.leadership import Leadership
from stream_app.loops.next_epoch import is_finished
from stream_app.loops.noise_ahead import NoiseAhead, NoiseLost, NoisePool
from stream_app.loops.opening import next_epoch_fits, open_stream
from stream_app.loops.publishing import Publisher
from stream_app.loops.recovery import OwnWitness, Recovery
from stream_app.loops.stream import Ports, Stream
from stream_app.outage import Outage
from stream_app.ports import OperatorError, Store
from stream_app.ports.errors import StreamError
from stream_app.together import until_all_end, until_one_ends

MOST_BINS = 256  # in one release: they share an fsync; more would make the script long
POLL_S = 0.01  # first pause before asking again for a due bin whose cut a partition has not reached
POLLS = 6  # each after twice the pause; then everything is checked again: stream, lease, witness
REACH_S = 2.0  # while a closer waits for this worker's reader: how often it checks its lease
REACHES = 15  # each after such a check; then everything is checked again: stream, lease, witness
FOLLOW_S = 0.5  # how often a start checks a stream that another worker closes
STOPPED_S = 60.0  # how often a stopped stream checks whether an epoch may open
NOISE_LOST = "its stored noise was lost"

log = logging.getLogger(__name__)

T = TypeVar("T")
_Loop = Callable[[Outage], Awaitable[None]]
HasReached = Callable[[str, int, float], Awaitable[bool]]  # stream, bin, the longest wait in seconds


class Closer:
    """Closes one stream's bins when they are due, releases them once, and makes them visible.

    Args:
        ports: of the stream's source; the closer asks the source for its partitions only.
        has_reached: waits for this worker's reader (``LoadedStreams.has_reached``). No bin can be sealed
            before the reader has reached its cut, so the closer waits for it; None: it asks at once.
    Raises: ValueError for noise that protects nobody.
    """

    def __init__(self, ports: Ports, stream: Stream, has_reached: HasReached | None = None) -> None:
        self.name = name = stream.strategy.stream
        self._noise = noise = ports.noise[name]
        if not noise.private:
            raise ValueError(
                f"noise: {type(noise).__name__} can be repeated and protects nobody; use SystemNoise"
            )
        self._ports = ports
        self._has_reached = has_reached
        self._store = ports.store
        self._stream = stream
        self._strategy = stream.strategy  # after reconcile(): the strategy under which the stream runs
        self._leadership = Leadership(ports, stream)
        self.publisher = Publisher(ports, stream, self._leadership)
        self._ahead = ahead = NoiseAhead(ports.store, ports.keys, noise, name, ports.make_nonce)
        self._naming = Naming(ports, name, ahead)
        self._recovery = Recovery(stream.on_end)
        self._own_witness = OwnWitness(ports, stream)
        self._agreement = Agreement(ports, stream, self._leadership, self._own_witness, ahead)
        self._pool: NoisePool | None = None
        self._pool_wanted = asyncio.Event()
        self._finished = False  # a replay has released its last bin, or was stopped
        self._stopped = False  # its total allows no more epochs, or it has ended
        self.was_halted = False  # it is marked for readers as halted by a fault
        self._deletions = Deletions(ports.store)
        self._reconciling = asyncio.Lock()  # the readers' loop agrees anew beside the closing loop

    @property
    def begins_in_turn(self) -> bool:
        """Whether it matters which streams of the source began before this one."""
        ledger, declared = self._stream.ledger, self._stream.strategy.declared
        return declared.successor_of is not None or ledger is None or ledger.begins_in_turn

    def end_at(self, until_us: int) -> None:
        """Note where the stream ends, because the next segment is about to begin there."""
        self._stream = replace(self._stream, until_us=until_us)

    async def reconcile(self) -> StreamState:
        """Make store and witness agree, open the epoch that is due, and return the stream's state. SECRET.

        The witness then has all released rows, unless readers can see the witness. Spent noise is deleted.
        Ingest may start after the first return.
        Raises: OperatorError if the stream may not run; OSError if the store did not answer.
        """
        async with self._reconciling:
            return await self._reconcile()

    async def _reconcile(self) -> StreamState:
        self._strategy, state = await open_stream(self._ports, self._stream, self._ahead, self._recovery)
        self._leadership.insist(0)
        await self.publisher.witness_released(self._strategy, state)
        self._note_stop(state)
        self.was_halted = state.halted
        if state.halted and self._stream.lease is not None:  # another worker had to stop; this one goes on
            await self._store.mark_halted(self.name, False)
        self._finished = is_finished(self._strategy, state) or (
            state.stopped and self._strategy.declared.last_bin is not None
        )
        if self._finished:
            self.publisher.look_again()
        await self._ahead.settle(self._strategy, state)
        if self._strategy.kind.seeded and (self._finished or state.epoch.is_over):
            await self._store.forget_kept(self.name, state.epoch.epoch, self._finished)
        self._deletions.note(state.epoch.epoch, self._finished)
        if not state.stopped:
            ends = self._strategy.declared.last_bin
            self._ahead.want_next(state, ends if state.until_bin is None else state.until_bin - 1)
        return state

    def _note_stop(self, state: StreamState) -> None:
        if state.stopped:
            self._ahead.no_epoch_follows()
            if not self._stopped and state.has_ended:
                log.warning("stream %s: %s", self.name, self._stream.end_in_words)
            elif not self._stopped:
                log.warning(
                    "stream %s: one more epoch would exceed its total, so nothing is counted until a start "
                    "with a larger %s",
                    *(self.name, key_of(self.name, "privacy.total")),
                )
        self._stopped = state.stopped

    async def agree(self) -> None:
        """Return when store and witness agree; a worker that does not close the stream waits for its closer.

        Raises: as ``reconcile``; OperatorError if this worker cannot read the noise of its closer;
            OvertakenError if another worker has begun this segment with other settings.
        """
        try:
            if await self._agreement.must_reconcile():
                await self.reconcile()
        except OperatorError:
            if self._stream.begins:
                check_not_overtaken(await self._store.load(self.name), self._stream.strategy)
            raise

    async def run(self) -> None:
        """Close and publish until cancelled, which is safe at any await; a replay returns at its end."""
        closing: list[_Loop] = [self._close, self._draw_ahead, self._fill_pool]
        await until_all_end(
            until_one_ends(*map(self._persistently, closing)),  # only closing ends, with a replay
            self._persistently(lambda outage: self.publisher.run(outage, lambda: self._finished)),
            self._persistently(self._deletions.run),
        )

    async def _close(self, outage: Outage) -> None:
        """Close all due bins, then sleep until the next closing instant; return at the end of a replay."""
        while True:
            if not await self._leadership.leads():
                if await self._agreement.states_a_lost_row():
                    continue
                await self._own_witness.keep_up(self._stream.strategy)
                await self._leadership.until_asked_again()
                continue
            next_bin, all_due_released = await self.close_due()
            outage.over()
            if self._finished:
                return
            if self._stopped:
                await asyncio.sleep(STOPPED_S)
            elif all_due_released and self._leadership.leaves and self.publisher.all_is_visible:
                await self._leadership.hand_over()
            elif all_due_released and self._leadership.leaves:
                await asyncio.sleep(FOLLOW_S)
            elif all_due_released:
                self._pool_wanted.set()
                await self._until_due(next_bin)
            else:
                await self._until_sealed(next_bin)

    async def _until_due(self, bin: int) -> None:
        """Return when a bin has closed and this worker's reader has reached its cut; earlier with news.

        News: this worker holds the lease again, and meanwhile another worker may have released rows and died
        before it showed them; another worker should close the stream; an old epoch's time has come.
        """
        clock, closes_us = self._ports.clock, self._strategy.declared.time.closing.instant_us(bin)
        instant_us = min(closes_us, self.publisher.wakes_us or closes_us)
        if self._stream.lease is None:
            await clock.sleep_until_us(instant_us)
        else:
            await until_one_ends(clock.sleep_until_us(instant_us), self._leadership.until_news())
            if await clock.now_us() < instant_us:
                return
        if instant_us == closes_us and not clock.virtual:
            await self._until_reached(bin)

    async def _until_reached(self, bin: int) -> bool:
        """Return whether this worker's reader has reached a bin's cut; wait for it while this worker closes.

        While the reader is behind, a closer asks the store for nothing. A thousand closers that asked would
        take the processor from the reader for which they wait.
        """
        if self._has_reached is None:
            return True
        for _ in range(REACHES):
            if await self._has_reached(self.name, bin, REACH_S):
                return True
            if not await self._leadership.leads():
                break
        return False

    async def _until_sealed(self, bin: int) -> None:
        """Return when every partition has reached its cut of a bin, or after some time.

        Once this worker's reader is there, the store is asked ``POLLS`` times, because other workers read the
        other partitions. The pauses grow, so that many streams that wait leave the processor to the reader.
        """
        if not await self._until_reached(bin):
            return
        for poll in range(POLLS):
            await asyncio.sleep(POLL_S * 2**poll)
            if await self._sealed(self._strategy, bin) >= bin:
                return

    async def _draw_ahead(self, outage: Outage) -> None:
        while True:
            await self._ahead.draw_wanted(lambda: self._strategy, self._next_fits)
            outage.over()

    async def _next_fits(self) -> bool:
        """Return whether the stream's total allows an epoch after the running one."""
        state, ledger = await self._store.load(self.name), self._stream.ledger
        if state is None or state.stopped:
            return False
        return ledger is None or await next_epoch_fits(ledger, self._strategy, state)

    async def _fill_pool(self, _outage: Outage) -> None:
        """Draw noise between closings for the next closing of a causal stream over many columns."""
        while True:
            await self._pool_wanted.wait()
            self._pool_wanted.clear()
            wanted = self._strategy.kind.vectors() if self._stream.draws_between_closings else {}
            if not wanted:
                continue
            if self._pool is None:
                self._pool = NoisePool(self._noise, wanted)
            while await noise_ahead.in_thread(noise_ahead.SHARED, self._pool.draw_one):
                pass

    async def close_due(self) -> tuple[int, bool]:
        """Release every due bin whose cut all partitions have reached, in steps of ``MOST_BINS``.

        Returns: the next bin to release, and whether all due bins are released.
        """
        while True:
            state = await self.reconcile()
            strategy, next_bin = self._strategy, state.released_bin + 1  # the readers' loop may change ours
            now_us = await self._ports.clock.now_us()
            self.publisher.note_time(now_us)
            due = strategy.declared.time.closing.last_due_bin(now_us)
            if self._finished or self._stopped or due < next_bin:
                return next_bin, True
            sealed = await self._seal(strategy, state, due)
            if sealed < next_bin:
                return next_bin, False
            try:
                await self._release(strategy, state, min(sealed, state.released_bin + MOST_BINS))
            except FullError as full:
                raise StreamError(f"streams.{self.name}: {full}", self.name) from full
            if not await self._leadership.leads():  # another server may have answered meanwhile
                return next_bin, False

    async def _seal(self, strategy: Strategy, state: StreamState, due: int) -> int:
        """Seal the due bins within the epoch and the replay; return the last sealed bin."""
        limits = [due, state.epoch.first_bin + state.epoch.bins - 1]
        if state.until_bin is not None:
            limits.append(state.until_bin - 1)
        if strategy.declared.last_bin is not None:
            limits.append(strategy.declared.last_bin)
        return min(await self._sealed(strategy, min(limits)), *limits)

    async def _sealed(self, strategy: Strategy, bin: int) -> int:
        listed = await self._ports.source.partitions()
        return await self._asked(self._store.seal(self.name, strategy.hash, listed, bin))

    async def _asked(self, answer: Awaitable[T]) -> T:
        """Return what the store answers about the stream. Raises: ConnectionError if the store lost it."""
        try:
            return await answer
        except LookupError as lost:
            # The stream was there: an empty store has taken its place, and perhaps another loop has noticed.
            raise ConnectionError(f"redis: {lost}") from lost

    async def _release(self, strategy: Strategy, state: StreamState, last_bin: int) -> None:
        """Add noise to the counts of sealed bins, and store the release; the caller then loads the store."""
        first_bin, width = state.released_bin + 1, strategy.width
        ahead: BinsNoise | None = None
        if strategy.kind.stores_ahead:
            try:
                if strategy.kind.seeded:
                    await self._naming.release(strategy, state, partial(self._tally, strategy))
                    return
                ahead = await self._ahead.of_bins(strategy, state, last_bin)
            except NoiseLost as loss:
                log.error("%s; its epoch ends here, the next one begins", str(loss))
                reply = await self._store.end_epoch(self.name, state.epoch.epoch, state.seq, NOISE_LOST)
                if reply is Reply.DONE:
                    self._recovery.on_end(Ending.NOISE_LOST, 0)
                return
            last_bin = state.released_bin + len(ahead.errors)
        if not await self._tally(strategy, last_bin):
            return  # the stream has changed: the caller loads it again
        counts = await self._asked(self._store.read_cells(self.name, first_bin, last_bin, width))
        noise = self._pool or self._noise
        arguments = state, strategy, counts, noise, self._ports.make_nonce(), ahead
        if strategy.kind.slow:
            # A mechanism may take long, depending on the counts: cuts and other streams must not wait for it.
            release = await noise_ahead.in_thread(noise_ahead.OWN, make_release, *arguments)
        else:
            release = make_release(*arguments)
        await self._store.release(self.name, release)

    async def _tally(self, strategy: Strategy, last_bin: int, slots: Slots | None = None) -> bool:
        """For capped streams, choose the users' records that count in all bins up to this one.

        Returns: whether this is done, or is not needed.
        """
        bounds = strategy.declared.bounds
        reply = Reply.ALREADY if bounds is None else Reply.DONE
        while bounds is not None and reply is Reply.DONE:
            await self._leadership.leads()  # tallying many users may outlast the lease
            reply = await self._store.tally(self.name, strategy.hash, bounds, last_bin, slots)
        return reply is Reply.ALREADY

    async def _persistently(self, loop: _Loop) -> None:
        """Run a loop; start it again whenever the store or the witness did not answer."""
        outage = Outage(log, "closer")
        # The store may be a different one after a failure: the witness is then asked again.
        await outage.outlast(lambda: loop(outage), lambda _failure: self._leadership.doubt())


class Deletions:
    """Asks the store to rewrite its file at a start, in each new epoch and at the end of a replay.

    The rewritten file no longer has the counts that one stream has deleted.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of = -1, False  # the epoch, and whether the replay had finished
        self._wanted = asyncio.Event()  # set while the store's file may hold deleted counts

    def note(self, epoch: int, finished: bool) -> None:
        """Note the running epoch, and whether a replay has ended; a change of either wakes ``run``."""
        if self._of != (epoch, finished):
            self._of = epoch, finished
            self._wanted.set()

    async def run(self, outage: Outage) -> None:
        """Ask the store whenever woken; return after the end of a replay. Raises: OSError."""
        while self._wanted.is_set() or not self._of[1]:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._store.forget()
            except BaseException:
                self._wanted.set()
                raise
            outage.over()
