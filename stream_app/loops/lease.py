"""Which worker closes a stream: one at a time, by a lease in the store that the worker keeps renewing.

The lease only saves work and unused noise. If a worker closes after its lease has expired, the store's
scripts and the fenced witness refuse its writes.
"""

from __future__ import annotations

import asyncio

from stream_app.ports import Clock, ClockDoubt, Store, Witness

LEASE_S = 5.0


class Lease:
    """One worker's lease to close one stream.

    Args: owner, a name that is unique to this process.
    """

    def __init__(self, store: Store, stream: str, owner: str, lease_s: float = LEASE_S) -> None:
        self._store = store
        self._stream = stream
        self._owner = owner
        self._lease_s = lease_s
        self._until_s = 0.0
        self._ask_at_s = 0.0
        self.keep_every_s = lease_s / 4  # renewing this often keeps the lease without a gap
        self.term = 0  # rises whenever another worker may have held the lease in between

    async def held(self) -> bool:
        """Return whether this worker holds the lease; renew it if so. Raises: OSError."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._ask_at_s:
            return True
        lapsed = now_s >= self._until_s
        if not await self._store.hold(self._stream, self._owner, int(self._lease_s * 1000)):
            self.drop()
            return False
        # The term is counted from before the question, so it ends here before it ends in the store.
        self._until_s, self._ask_at_s = now_s + self._lease_s, now_s + self._lease_s / 3
        self.term += lapsed
        return True

    def drop(self) -> None:
        """Forget that the lease is held: the next call of ``held`` asks the store and begins a new term."""
        self._until_s = self._ask_at_s = 0.0

    async def give_up(self) -> None:
        """Release the lease, so that another worker can take it at once."""
        self.drop()
        await self._store.hold(self._stream, self._owner, 0)


class Leadership:
    """Whether this worker closes a stream: it holds the lease, if any, and has claimed the witness."""

    def __init__(self, stream: str, witness: Witness, wall: Clock, lease: Lease | None) -> None:
        self._stream = stream
        self._witness = witness
        self._wall = wall
        self._lease = lease
        self._claiming = asyncio.Lock()
        self._claimed_term: int | None = None

    async def leads(self) -> bool:
        """Return whether this worker closes the stream; claim the witness if it has just become the closer.

        The claim comes before the witness is read: otherwise a paused predecessor could still add a row.
        """
        if self._lease is not None and not await self._held(self._lease):
            async with self._claiming:
                if self._claimed_term is not None:
                    self._claimed_term = None
                    await self._witness.resign(self._stream)
            return False
        term = self._lease.term if self._lease is not None else 0
        async with self._claiming:
            if self._claimed_term != term:
                await self._witness.claim(self._stream)
                self._claimed_term = term
        return True

    async def keep(self) -> None:
        """Keep renewing the lease, so that a long release or a slow witness does not lose it."""
        while self._lease is not None:
            await self._held(self._lease)
            await asyncio.sleep(self._lease.keep_every_s)

    def doubt(self) -> None:
        """Make ``leads`` claim the witness again, because another worker may have claimed it."""
        self._claimed_term = None

    def drop(self) -> None:
        """Make ``leads`` begin a new term, because the witness refused a row."""
        self.doubt()
        if self._lease is not None:
            self._lease.drop()

    async def _held(self, lease: Lease) -> bool:
        """Return whether this worker holds the lease; give the lease up while the clocks disagree."""
        try:
            await self._wall.now_us()
        except ClockDoubt:
            await lease.give_up()
            raise
        return await lease.held()
