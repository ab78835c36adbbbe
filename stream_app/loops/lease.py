"""Which worker closes a stream: one at a time, by a lease in the store that the worker keeps renewing.

The lease only saves work and unused noise. If a worker closes after its lease has expired, the store's
scripts and the fenced witness refuse its writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from stream_app.ports import Clock, ClockDoubt, Store, Witness

LEASE_S = 5.0


class Lease:
    """One worker's lease to close one stream.

    Args: owner, a name that is unique to this process.
    """

    def __init__(self, store: Store, stream: str, owner: str, lease_s: float = LEASE_S) -> None:
        self._store = store
        self.stream = stream
        self._owner = owner
        self._lease_s = lease_s
        self._until_s = 0.0
        self._ask_at_s = 0.0
        self.term = 0  # rises whenever another worker may have held the lease in between

    async def held(self) -> bool:
        """Return whether this worker holds the lease; take or renew it where needed. Raises: OSError."""
        if _now_s() >= self._ask_at_s:
            await renew([self])
        return _now_s() < self._until_s

    def note(self, asked_s: float, is_held: bool) -> None:
        """Note the store's answer. Args: asked_s, when the question was put, on the loop's clock."""
        if not is_held:
            self.drop()
            return
        self.term += asked_s >= self._until_s
        # The term is counted from before the question, so it ends here before it ends in the store.
        self._until_s, self._ask_at_s = asked_s + self._lease_s, asked_s + self._lease_s / 3

    def drop(self) -> None:
        """Forget that the lease is held: the next call of ``held`` asks the store and begins a new term."""
        self._until_s = self._ask_at_s = 0.0

    async def give_up(self) -> None:
        """Release the lease, so that another worker can take it at once."""
        await give_up([self])

    async def ask(self, streams: Sequence[str], *, give_up: bool = False) -> list[bool]:
        """Ask the store for leases like this one, for several streams. Raises: OSError."""
        return await self._store.hold(streams, self._owner, 0 if give_up else int(self._lease_s * 1000))


async def renew(leases: Sequence[Lease]) -> None:
    """Take or keep a worker's leases, in one round trip. Raises: OSError."""
    asked_s = _now_s()
    answers = await leases[0].ask([lease.stream for lease in leases])
    for lease, is_held in zip(leases, answers, strict=True):
        lease.note(asked_s, is_held)


async def give_up(leases: Sequence[Lease]) -> None:
    """Release a worker's leases, so that other workers can take them at once. Raises: OSError."""
    for lease in leases:
        lease.drop()
    if leases:
        await leases[0].ask([lease.stream for lease in leases], give_up=True)


async def keep(
    leases: Sequence[Lease],
    wall: Clock,
    every_s: float = LEASE_S / 4,
    kept: Callable[[], None] = lambda: None,
) -> None:
    """Keep renewing a worker's leases, so that a long release or a slow witness does not lose them.

    Args: kept, called after each renewal.
    Raises: OSError; ClockDoubt, and the leases are given up while the clocks disagree.
    """
    while True:
        try:
            await wall.now_us()
        except ClockDoubt:
            await give_up(leases)
            raise
        await renew(leases)
        kept()
        await asyncio.sleep(every_s)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


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
