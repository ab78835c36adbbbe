"""Whether a worker closes a stream: it holds the lease, has waited for others, and claimed the witness."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from stream_app.loops.lease import Lease
from stream_app.loops.stream import Ports, Stream
from stream_app.ports import ClockDoubt

FOLLOWED_S = 2.0
_A_MOMENT_S = 0.01  # so that a clock of whole microseconds has passed the end of a wait

log = logging.getLogger(__name__)


class Leadership:
    """Whether this worker closes a stream."""

    def __init__(self, ports: Ports, stream: Stream) -> None:
        self._stream = stream.strategy.stream
        self._store, self._wall = ports.store, ports.wall
        self._witness = ports.witnesses[self._stream]
        self._lease = stream.lease
        self.compares = stream.lease is not None and not stream.witness_is_public
        self._met: int | None = None  # the server processes that the store has met at the last question
        self._claiming = asyncio.Lock()
        self._claimed_term: int | None = None
        self._term = 0  # of the lease at the last question who leads

    async def leads(self) -> bool:
        """Return whether this worker closes the stream; claim the witness if it has just become the closer.

        The claim comes before the witness is read: otherwise a paused predecessor could still add a row.
        """
        if not await self._held():
            self._term = self._lease.term if self._lease is not None else 0
            async with self._claiming:
                if self._claimed_term is not None:
                    self._claimed_term = None
                    await self._witness.resign(self._stream)
            return False
        self._term = term = self._lease.term if self._lease is not None else 0
        async with self._claiming:
            if self._claimed_term != term:
                await self._witness.claim(self._stream)
                self._claimed_term = term
        return True

    @property
    def leaves(self) -> bool:
        """Whether another worker should close the stream, and waits for this one to hand it over."""
        return self._lease is not None and self._lease.leaves

    @property
    def in_doubt(self) -> bool:
        """Whether the store may have been set back without any worker having ended the epoch."""
        return self._lease is not None and (self.lost_seq > 0 or self._lease.settles_s > 0)

    @property
    def lost_seq(self) -> int:
        """The last row of this worker's witness if it has stated that the store lacks it, else 0."""
        return 0 if self._lease is None else self._lease.lost_seq

    async def hand_over(self) -> None:
        """Let the preferred worker close the stream. Raises: OSError."""
        if self._lease is not None:
            await self._lease.hand_over()

    async def until_news(self) -> None:
        """Return when this worker has become the stream's closer anew, or is to hand it over."""
        assert self._lease is not None  # without a lease there is one closer
        await self._lease.until_news(self._term)

    async def until_asked_again(self) -> None:
        """Return when a worker that does not close the stream asks for its lease."""
        if self._lease is not None and (left_s := self._lease.settles_s):
            await asyncio.sleep(min(left_s + _A_MOMENT_S, FOLLOWED_S))
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(FOLLOWED_S):
                await self.until_news()

    def doubt(self) -> None:
        """Make ``leads`` claim the witness again, because another worker may have claimed it."""
        self._claimed_term = None

    def drop(self) -> None:
        """Make ``leads`` begin a new term, because the witness refused a row."""
        self.doubt()
        if self._lease is not None:
            self._lease.drop()

    def insist(self, lost_seq: int) -> None:
        """Ask for the lease before workers whose witness has fewer lost rows. Args: as ``Lease.insist``."""
        if self._lease is not None:
            self._lease.insist(lost_seq)

    async def note_written(self, failure: OSError | None) -> None:
        """Note whether this worker can write its own witness; if not, let another one close the stream."""
        if self._lease is None:
            return
        if failure is None:
            self._lease.cannot_write = False
            return
        if not self._lease.cannot_write:
            log.error(
                "stream %s: this worker cannot write its witness; until it can, another worker closes the "
                "stream, or nobody if this one is alone: %s",
                *(self._stream, failure),
            )
        with suppress(OSError):  # the lease ends by itself
            await self._lease.step_down()

    async def _held(self) -> bool:
        """Return whether this worker holds the lease; give the lease up while the clocks disagree."""
        if self._lease is None:
            return True
        try:
            await self._wall.now_us()
        except ClockDoubt:
            await self._lease.give_up()
            raise
        is_held = await self._lease.held()
        if self.compares:
            await self._settle(self._lease)
        return is_held and not self._lease.settles_s

    async def _settle(self, lease: Lease) -> None:
        """Close nothing for a while after another server process has answered, and after a start."""
        if self._met != self._store.servers_met:
            is_known = await self._witness.head(self._stream) is not None
            is_known = is_known or await self._store.load(self._stream) is not None
            self._met = self._store.servers_met
            if is_known:
                lease.settle()
