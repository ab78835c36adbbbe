"""Releases out: one loop a stream, from the clock to what everybody may see.

    clock -> seal -> exact counts -> release -> read back -> witness -> publish at the next public instant

Anticipating streams take a release's noise from what was stored before the epoch opened, and draw the next
epoch's while the running one is in its second half. Causal ones over keys and values draw between closings.

Visible <= witnessed <= released, at every moment and after any crash. A release whose reply is lost is never
repeated from memory: the store is loaded again, and what it holds is the truth.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from dphist.noise import NoiseSource
from dphist.tree.anticipating_step import BinsNoise
from stream_app.core.closing import next_public_instant_us
from stream_app.core.declaration import Declaration
from stream_app.core.records import Ending, Reply, StreamState
from stream_app.core.release import make_release
from stream_app.core.strategy import Strategy
from stream_app.loops import noise_ahead
from stream_app.loops.lease import LEASE_S, Lease
from stream_app.loops.noise_ahead import NoiseAhead, NoiseLost
from stream_app.loops.noise_pool import NoisePool
from stream_app.loops.opening import agrees, open_stream
from stream_app.loops.recovery import OnEnd, Recovery
from stream_app.loops.witnessing import copy_released
from stream_app.outage import Outage
from stream_app.ports import Clock, ClockDoubt, NoiseKeys, OperatorError, Source, Store, Witness
from stream_app.source_ledger import SourceLedger

MOST_BINS = 256  # bins in one release: one fsync for all of them, and never a long script
POLL_S = 0.01  # how soon to ask again for a bin that is due while a partition has not reached its cut
MOST_POLLS = 50  # then everything is looked at again: the stream, its lease, its witness
FOLLOW_S = 0.5  # how soon a worker that does not close a stream looks again
PATIENCE_S = 2 * LEASE_S
RETRY_S = 0.5
PART_OF_INSTANT = 4  # of the time between two public instants: whoever is later has missed one
MOST_MISSED = 10  # in a row, then what is due is shown late: nobody is served by never
NOISE_LOST = "its stored noise was lost"

log = logging.getLogger(__name__)


class Closer:
    """Close one stream's bins when they are due, release them once, and make them visible.

    Args:
        source: asked for its partitions only.
        clock: closes bins; ``wall`` makes results visible. They differ in a replay.
        noise: a private source; a seeded one is refused.
        keys: of noise that is drawn ahead and stored.
        planned: what the configuration declares, with a tree planned for it (see ``open_stream``).
        publish_every_us: results become visible at multiples of this on the wall clock.
        ledger: of the stream's source; None: the store's, where nothing accepts a second measurement.
        lease: where several workers may close the stream; None: this is the only one.
        witness_is_public: readers see the witness, so that it is written at public instants only.
        make_nonce: names an attempt to release; no two may be equal.
        on_end: notified when an epoch has ended early, with the reason and the bins that nobody will count.
    Raises: ValueError for noise that protects nobody.
    """

    def __init__(
        self,
        store: Store,
        source: Source,
        clock: Clock,
        wall: Clock,
        witness: Witness,
        noise: NoiseSource,
        keys: NoiseKeys,
        planned: Strategy,
        *,
        publish_every_us: int = 1_000_000,
        ledger: SourceLedger | None = None,
        lease: Lease | None = None,
        witness_is_public: bool = False,
        make_nonce: Callable[[], str] = lambda: secrets.token_hex(16),
        on_end: OnEnd = lambda ending, skipped_bins: None,
    ) -> None:
        if not noise.private:
            raise ValueError(
                f"noise: {type(noise).__name__} can be repeated and protects nobody; use SystemNoise"
            )
        self._store = store
        self._source = source
        self._clock = clock
        self._wall = wall
        self._witness = witness
        self._noise = noise
        self._ahead = NoiseAhead(store, keys, noise, planned.stream, make_nonce)
        self._pool: NoisePool | None = None
        self._pool_wanted = asyncio.Event()
        self._next_epoch = asyncio.Event()
        self._next_number = 0  # the epoch whose noise is drawn next, once the running one is half over
        self._strategy = planned  # after open(): the strategy under which the stream runs
        self._name = planned.stream
        self._declaration = Declaration.of(planned)
        self._publish_every_us = publish_every_us
        self._ledger = ledger or SourceLedger(store)
        self._lease = lease
        self._witness_is_public = witness_is_public
        self._make_nonce = make_nonce
        self._recovery = Recovery(on_end)
        self._epoch: int | None = None
        self._claiming = asyncio.Lock()
        self._claimed_term: int | None = None
        self._released_seq = 0
        self._witnessed_seq = 0
        self._published_seq = 0
        self._finished = False
        self._forgotten: tuple[int, bool] | None = None  # the epoch, and whether it had finished

    @property
    def finished(self) -> bool:
        """Whether this is a replay that has released its last bin."""
        return self._finished

    async def open(self) -> StreamState:
        """Load the stream, opened and in agreement with the witness, which then holds all that is released.

        Ingest may start after the first return. Returns: the state. SECRET.
        Raises: OperatorError where the stream may not run; OSError where the store did not answer.
        """
        self._strategy, state = await open_stream(
            self._store,
            self._witness,
            self._ahead,
            self._strategy,
            self._source,
            await self._clock.now_us(),
            self._ledger,
            self._recovery,
        )
        if self._epoch != state.epoch.epoch:  # what was shown before may be lost, and is shown again
            self._epoch, self._published_seq = state.epoch.epoch, 0
        self._released_seq = state.seq
        if not self._witness_is_public:
            await self._witness_released(state.seq)
        last_bin = self._declaration.last_bin
        self._finished = last_bin is not None and state.released_bin >= last_bin
        await self._ahead.settle(self._strategy, state)
        await self._forget(state)
        self._look_ahead(state)
        return state

    async def agree(self) -> None:
        """Return when store and witness agree; who does not close the stream waits for the one who does.

        Raises: as ``open``; OperatorError where another worker closes it under keys that this one lacks.
        """
        followed_s = 0.0
        self._claimed_term = None  # the witness is asked, not remembered
        while True:
            if await self._leads():
                await self.open()
                return
            if await agrees(self._store, self._witness, self._strategy):
                if await self._ahead.shares_keys():
                    return
                if followed_s > PATIENCE_S:  # somebody alive keeps the lease, or it would be ours by now
                    raise OperatorError(
                        f"stream {self._name}: another worker closes it, and this one has no keys of its "
                        "stored noise; give all workers one secrets.key_file, or write tree.release: causal"
                    )
            await asyncio.sleep(FOLLOW_S)
            followed_s += FOLLOW_S

    async def run(self) -> None:
        """Close and publish until cancelled, which may happen at any await; a replay returns at its end."""
        try:
            async with asyncio.TaskGroup() as loops:
                drawing = loops.create_task(self._persistently(self._draw_ahead))
                pooling = loops.create_task(self._persistently(self._fill_pool))
                keeping = loops.create_task(self._persistently(self._keep_lease))
                closing = loops.create_task(self._persistently(self._close))
                loops.create_task(self._persistently(self._publish))
                await closing
                for helping in (drawing, pooling, keeping):
                    helping.cancel()
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _close(self, outage: Outage) -> None:
        """Close bins for ever: what is due, then sleep until the next closing instant."""
        while True:
            if not await self._leads():
                await asyncio.sleep(FOLLOW_S)
                continue
            next_bin, all_due_released = await self.close_due()
            outage.over()
            if self._finished:
                return
            if all_due_released:
                self._pool_wanted.set()
                await self._clock.sleep_until_us(self._declaration.closing.instant_us(next_bin))
            else:
                await self._until_sealed(next_bin)

    async def _until_sealed(self, bin: int) -> None:
        """Return when every partition has reached its cut of a bin, or a while later."""
        for _ in range(MOST_POLLS):
            await asyncio.sleep(POLL_S)
            if await self._sealed(bin) >= bin:
                return

    async def _keep_lease(self, _outage: Outage) -> None:
        """Keep the lease, if there is one: neither a long release nor a slow witness may lose it."""
        while self._lease is not None:
            await self._held(self._lease)
            await asyncio.sleep(self._lease.keep_every_s)

    async def _draw_ahead(self, outage: Outage) -> None:
        """Draw the next epoch's noise when it is time, so that its opening does not wait for that."""
        while True:
            await self._next_epoch.wait()
            number = self._next_number
            await self._ahead.stored(self._strategy, number)
            outage.over()
            if number == self._next_number:
                self._next_epoch.clear()

    async def _fill_pool(self, _outage: Outage) -> None:
        """Between two closings, draw what the next one of a causal stream over many columns will ask for."""
        while True:
            await self._pool_wanted.wait()
            self._pool_wanted.clear()
            wanted = self._strategy.kind.vectors()
            if not wanted:
                continue
            if self._pool is None:
                self._pool = NoisePool(self._noise, wanted)
            while await noise_ahead.in_thread(self._pool.draw_one):
                pass

    def _look_ahead(self, state: StreamState) -> None:
        last_bin = state.epoch.first_bin + state.epoch.bins - 1
        is_last = self._declaration.last_bin is not None and self._declaration.last_bin <= last_bin
        number, half = state.epoch.epoch + 1, last_bin - state.epoch.bins // 2
        if number != self._next_number and state.released_bin >= half and not is_last:
            self._next_number = number
            self._next_epoch.set()
        elif state.epoch.epoch >= self._next_number:
            self._next_epoch.clear()

    async def _publish(self, outage: Outage) -> None:
        """Make what is witnessed visible at public instants; a missed instant waits for the next one."""
        missed = 0
        while not (self._finished and self._published_seq == self._witnessed_seq == self._released_seq):
            instant_us = next_public_instant_us(await self._wall.now_us(), self._publish_every_us)
            await self._wall.sleep_until_us(instant_us)
            # How long the loop was busy follows the events: whoever comes late waits for the next instant.
            late_us = await self._wall.now_us() - instant_us
            missed = missed + 1 if late_us > self._publish_every_us // PART_OF_INSTANT else 0
            if missed % MOST_MISSED == 0:
                await self.show_released()
                outage.over()

    async def show_released(self) -> None:
        """Make visible what is released; this is the one moment at which a public witness is written."""
        if self._witness_is_public and self._witnessed_seq < self._released_seq and await self._leads():
            await self._witness_released(self._released_seq)
        await self.publish_witnessed()

    async def _leads(self) -> bool:
        """Say whether this worker closes the stream; if it has just begun to, its predecessors may not.

        They are kept out before the witness is read, or one that had stood still could still add a row.
        """
        if self._lease is not None and not await self._held(self._lease):
            async with self._claiming:
                if self._claimed_term is not None:
                    self._claimed_term = None
                    await self._witness.resign(self._name)
            return False
        term = self._lease.term if self._lease is not None else 0
        async with self._claiming:
            if self._claimed_term != term:
                await self._witness.claim(self._name)
                self._claimed_term = term
        return True

    async def _held(self, lease: Lease) -> bool:
        """Say whether this worker holds the lease; it gives it up while it cannot tell the time.

        Raises: OSError, ClockDoubt among them.
        """
        try:
            await self._wall.now_us()
        except ClockDoubt:
            await lease.give_up()
            raise
        return await lease.held()

    async def close_due(self) -> tuple[int, bool]:
        """Release every due bin that all partitions have reached the cut of, in steps of ``MOST_BINS``.

        Returns: the next bin to release, and whether all due ones are released.
        """
        while True:
            state = await self.open()
            next_bin = state.released_bin + 1
            due = self._declaration.closing.last_due_bin(await self._clock.now_us())
            if self._finished or due < next_bin:
                return next_bin, True
            sealed = await self._seal(state, due)
            if sealed < next_bin:
                return next_bin, False
            await self._release(state, min(sealed, state.released_bin + MOST_BINS))

    async def publish_witnessed(self) -> None:
        """Make visible what the witness holds."""
        seq = self._witnessed_seq
        if seq > self._published_seq:
            await self._store.publish(self._name, seq)
            self._published_seq = seq

    async def _seal(self, state: StreamState, due: int) -> int:
        """Seal what is due, within the epoch and the replay; return the last sealed bin of these."""
        limits = [due, state.epoch.first_bin + state.epoch.bins - 1]
        if self._declaration.last_bin is not None:
            limits.append(self._declaration.last_bin)
        return min(await self._sealed(min(limits)), *limits)

    async def _sealed(self, bin: int) -> int:
        listed = await self._source.partitions()
        return await self._store.seal(self._name, self._strategy.hash, listed, bin)

    async def _release(self, state: StreamState, last_bin: int) -> None:
        """Noise sealed bins and offer the release; whatever the store answers, it is loaded again."""
        first_bin, width = state.released_bin + 1, self._strategy.width
        ahead: BinsNoise | None = None
        if self._strategy.kind.drawn_ahead:
            try:
                ahead = await self._ahead.of_bins(self._strategy, state, last_bin)
            except NoiseLost as loss:
                log.error("%s; its epoch ends here, the next one begins", str(loss))
                reply = await self._store.end_epoch(self._name, state.epoch.epoch, state.seq, NOISE_LOST)
                if reply is Reply.DONE:
                    self._recovery.on_end(Ending.NOISE_LOST, 0)
                return
            last_bin = state.released_bin + len(ahead.errors)
        await self._tally(last_bin)
        counts = await self._store.read_cells(self._name, first_bin, last_bin, width)
        noise = self._pool or self._noise
        arguments = state, self._strategy, counts, noise, self._make_nonce(), ahead
        if self._strategy.kind.slow:
            # A mechanism may take long, and longer for some counts: cuts and other streams do not wait.
            release = await noise_ahead.in_thread(make_release, *arguments)
        else:
            release = make_release(*arguments)
        reply = await self._store.release(self._name, release)
        self._check_strategy(reply)

    async def _tally(self, last_bin: int) -> None:
        """Where only so many of a user's records count, choose them in all bins up to this one."""
        per_user = self._declaration.per_user
        reply = Reply.ALREADY if per_user is None else Reply.DONE
        while per_user is not None and reply is Reply.DONE:
            await self._leads()  # many users may take longer than the lease
            reply = await self._store.tally(self._name, self._strategy.hash, per_user.max_events, last_bin)
        self._check_strategy(reply)

    def _check_strategy(self, reply: Reply) -> None:
        if reply is Reply.STRATEGY:
            raise OperatorError(f"stream {self._name}: another strategy was started under its name; stop one")

    async def _forget(self, state: StreamState) -> None:
        """At each start, new epoch and end of a replay, drop deleted counts from the store's log as well."""
        now = state.epoch.epoch, self._finished
        if self._forgotten != now:
            await self._store.forget()
            self._forgotten = now

    async def _witness_released(self, released_seq: int) -> None:
        """Read back what the store holds and the witness does not, and write it there durably."""
        try:
            self._witnessed_seq = await copy_released(
                self._store, self._witness, self._strategy, released_seq
            )
        except OSError:
            self._claimed_term = None  # somebody else may have claimed it
            if self._lease is not None:
                self._lease.drop()
            raise

    async def _persistently(self, loop: Callable[[Outage], Awaitable[None]]) -> None:
        """Run a loop again whenever the store or the witness did not answer: it begins by loading.

        The loop says when the outage is over.
        """
        outage = Outage(log, "closer")
        while True:
            try:
                return await loop(outage)
            except OSError as failure:
                self._claimed_term = None  # the store may be another one: the witness is asked anew
                outage.failed(failure)
                await asyncio.sleep(RETRY_S)
