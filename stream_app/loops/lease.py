"""Which worker closes a stream: one at a time, by a lease in the store that the worker keeps renewing.

The lease only saves work and unused noise. If a worker closes after its lease has expired, the scripts of the
store and the fenced witness refuse its writes.

The live workers of a source divide its streams. Each worker notes in the store, with an expiry, that it
lives. From the same names, all workers compute which of them is preferred for a stream: the worker with the
highest hash of its name and the stream's (rendezvous hashing). So if a worker comes or goes, only the streams
that it gains or loses move. Names of workers are random, and no record decides anything here.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress

from stream_app.ports import Clock, ClockDoubt, Store, Witness

LEASE_S = 5.0
FOLLOWED_S = 2.0
# For how long a worker that is not preferred leaves the lease to others: it asks again in case none can.
YIELD_S = 2 * LEASE_S
STAY_S = 60.0  # for how long it then keeps the lease, which no preferred worker took


class Lease:
    """One worker's lease to close one stream.

    Args: owner, a name that is unique to this process.
    """

    def __init__(self, store: Store, stream: str, owner: str, lease_s: float = LEASE_S) -> None:
        self._store = store
        self.stream = stream
        self.owner = owner
        self.lease_s = lease_s
        self._until_s = 0.0
        self._ask_at_s = 0.0
        self._is_preferred = True
        self._yields_until_s = 0.0
        self._stays_until_s = 0.0
        self._news = asyncio.Event()
        self.term = 0  # rises whenever another worker may have held the lease in between
        self._leaves = False

    @property
    def is_held(self) -> bool:
        """Whether this worker holds the lease, as far as it knows without asking."""
        return _now_s() < self._until_s

    @property
    def leaves(self) -> bool:
        """Whether the closer should hand the stream to another worker once no bin is due."""
        return self._leaves and self.is_held

    @property
    def is_wanted(self) -> bool:
        """Whether to ask the store for the lease, or for more of it."""
        return _now_s() >= self._yields_until_s

    async def held(self) -> bool:
        """Return whether this worker holds the lease; take or renew it where needed. Raises: OSError."""
        if self.is_wanted and _now_s() >= self._ask_at_s:
            await renew([self])
        return self.is_held

    def prefer(self, is_preferred: bool) -> None:
        """Note whether this worker should close the stream, rather than another live worker."""
        was_preferred, self._is_preferred = self._is_preferred, is_preferred
        if is_preferred:
            self._yields_until_s, self._leaves = 0.0, False
        elif self.is_held:
            self._leaves = _now_s() >= self._stays_until_s
        elif was_preferred:
            self._yields_until_s = _now_s() + YIELD_S
        if self.leaves:
            self._notify()

    async def hand_over(self) -> None:
        """Release the lease to the preferred worker. Raises: OSError."""
        self._yields_until_s, self._leaves = _now_s() + YIELD_S, False
        await self.give_up()

    async def until_news(self, term: int) -> None:
        """Return when a later term than this one has begun, or when the stream is to be handed over."""
        while self.term == term and not self.leaves:
            await self._news.wait()

    def note(self, asked_s: float, is_held: bool) -> None:
        """Note the store's answer. Args: asked_s, when the question was put, on the loop's clock."""
        if not is_held or asked_s < self._yields_until_s:  # it may have been handed over meanwhile
            self.drop()
            if not self._is_preferred:
                self._yields_until_s = max(self._yields_until_s, asked_s + YIELD_S)
            return
        is_new = asked_s >= self._until_s
        # The term is counted from before the question, so it ends here before it ends in the store.
        self._until_s, self._ask_at_s = asked_s + self.lease_s, asked_s + self.lease_s / 3
        if is_new:
            self.term += 1
            self._stays_until_s = 0.0 if self._is_preferred else asked_s + STAY_S
            self._notify()

    def drop(self) -> None:
        """Forget that the lease is held: the next call of ``held`` asks the store and begins a new term."""
        self._until_s = self._ask_at_s = 0.0
        self._leaves = False

    def _notify(self) -> None:
        self._news.set()
        self._news.clear()

    async def give_up(self) -> None:
        """Release the lease, so that another worker can take it at once."""
        await give_up([self])

    async def is_anothers(self) -> bool:
        """Give up this worker's lease; return whether another worker holds one. Raises: OSError."""
        self.drop()
        [is_free] = await self.ask([self.stream], give_up=True)
        return not is_free

    async def ask(self, streams: Sequence[str], *, give_up: bool = False) -> list[bool]:
        """Ask the store for leases like this one, for several streams. Raises: OSError."""
        return await self._store.hold(streams, self.owner, 0 if give_up else int(self.lease_s * 1000))


async def renew(leases: Sequence[Lease]) -> None:
    """Take or keep a worker's leases, in one round trip. Raises: OSError."""
    if not leases:
        return
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
    kept: Callable[[], None] = lambda: None,
    division: Spreading | None = None,
) -> None:
    """Keep renewing a worker's leases, so that a long release or a slow witness does not lose them.

    Args: kept, called after each renewal; division, of streams among workers; None: the first one closes all.
    Raises: OSError; ClockDoubt, and the leases are given up while the clocks disagree.
    """
    while True:
        try:
            await wall.now_us()
        except ClockDoubt:
            await give_up(leases)
            if division is not None:
                await division.leave()
            raise
        if division is not None:
            await division.divide()
        await renew([lease for lease in leases if lease.is_wanted])
        kept()
        await asyncio.sleep(LEASE_S / 4)


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
        self._term = 0  # of the lease at the last question who leads

    async def leads(self) -> bool:
        """Return whether this worker closes the stream; claim the witness if it has just become the closer.

        The claim comes before the witness is read: otherwise a paused predecessor could still add a row.
        """
        if self._lease is not None and not await self._held(self._lease):
            self._term = self._lease.term
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

    async def _held(self, lease: Lease) -> bool:
        """Return whether this worker holds the lease; give the lease up while the clocks disagree."""
        try:
            await self._wall.now_us()
        except ClockDoubt:
            await lease.give_up()
            raise
        return await lease.held()


def preferred(stream: str, workers: Sequence[str]) -> str:
    """Return the worker that should close a stream.

    >>> [preferred(stream, ["a", "b"]) for stream in ("s0", "s1", "s2", "s3")]
    ['a', 'a', 'a', 'b']
    """
    return max(workers, key=lambda worker: hashlib.sha256(f"{worker} {stream}".encode()).digest())


class Spreading:
    """One worker's part in dividing the streams of a source.

    Only workers that run the same streams over the source divide them. While two configurations are in use,
    no worker hands a stream to a worker that does not run it.

    Args: leases, of all streams that the worker runs over the source; at least one. More may join them.
    """

    def __init__(self, store: Store, source: str, leases: Sequence[Lease]) -> None:
        self._store = store
        self._source = source
        self._leases = leases
        self._owner, self._lease_s = leases[0].owner, leases[0].lease_s

    async def divide(self) -> None:
        """Note that this worker lives, and note in each lease whether it is preferred. Raises: OSError."""
        workers = await self._attend(int(self._lease_s * 1000))
        for lease in self._leases:
            lease.prefer(not workers or preferred(lease.stream, workers) == self._owner)

    async def leave(self) -> None:
        """Note that this worker closes nothing from now on. Raises: OSError."""
        await self._attend(0)

    async def _attend(self, for_ms: int) -> list[str]:
        names = "\n".join(sorted(lease.stream for lease in self._leases))
        alike = hashlib.sha256(names.encode()).hexdigest()[:16]
        return await self._store.attend(self._source, alike, self._owner, for_ms)
