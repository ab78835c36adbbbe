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

from stream_app.core.records import Reply
from stream_app.ports import Clock, ClockDoubt, Store

LEASE_S = 5.0
# For how long a worker that is not preferred leaves the lease to others: it asks again in case none can.
YIELD_S = 2 * LEASE_S
# How long a worker with its own witness closes nothing after a start, and after another server process has
# answered: the store may have been set back. A worker whose witness has more rows takes the lease meanwhile.
SETTLE_S = LEASE_S
STAY_S = 60.0  # for how long it then keeps the lease, which no preferred worker took


class Lease:
    """One worker's lease to close one stream.

    ``lost_seq`` is the last row of this worker's witness if the store lacks it, else 0. ``cannot_write`` says
    that this worker failed to write its witness.
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
        self.lost_seq = 0
        self.cannot_write = False
        self._settled_s = 0.0

    @property
    def is_held(self) -> bool:
        """Whether this worker holds the lease, as far as it knows without asking."""
        return _now_s() < self._until_s

    @property
    def leaves(self) -> bool:
        """Whether the closer should hand the stream to another worker once no bin is due."""
        return self._leaves and self.is_held

    @property
    def settles_s(self) -> float:
        """For how long this worker closes nothing yet, because the store may have been set back."""
        return max(self._settled_s - _now_s(), 0.0)

    def settle(self) -> None:
        """Close nothing for a while. Meanwhile a worker with a lost row takes the lease."""
        self._settled_s = _now_s() + SETTLE_S

    @property
    def is_wanted(self) -> bool:
        """Whether to ask the store for the lease, or for more of it."""
        return self.lost_seq > 0 or self.settles_s > 0 or _now_s() >= self._yields_until_s

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

    async def step_down(self) -> None:
        """Let another worker close the stream until this one can write its witness. Raises: OSError."""
        self.cannot_write = True
        await self.hand_over()

    def insist(self, lost_seq: int) -> None:
        """Claim the lease ahead of workers whose witness has fewer rows.

        Args: lost_seq, the last row of this worker's witness if the store lacks it; 0: no priority.
        """
        if lost_seq != self.lost_seq:
            self.lost_seq, self._ask_at_s = lost_seq, 0.0

    async def until_news(self, term: int) -> None:
        """Return when a later term than this one has begun, or when the stream is to be handed over."""
        while self.term == term and not self.leaves:
            await self._news.wait()

    def note(self, asked_s: float, answer: Reply) -> None:
        """Note the store's answer. Args: asked_s, when the question was put, on the loop's clock."""
        if answer is Reply.BEHIND:  # if its holder has just ended, it may start again
            self.settle()
        handed_over = asked_s < self._yields_until_s and not (self.lost_seq or self.settles_s)  # meanwhile
        if answer is not Reply.DONE or handed_over:
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
        return await self.ask([self], give_up=True) != [Reply.DONE]

    async def ask(self, leases: Sequence[Lease], *, give_up: bool = False) -> list[Reply]:
        """Ask the store for this worker's leases of several streams. Raises: OSError."""
        for_ms = 0 if give_up else int(self.lease_s * 1000)
        lost = () if give_up else [lease.lost_seq for lease in leases]
        return await self._store.hold([lease.stream for lease in leases], self.owner, for_ms, lost)


async def renew(leases: Sequence[Lease]) -> None:
    """Take or keep a worker's leases, in one round trip. Raises: OSError."""
    if not leases:
        return
    asked_s = _now_s()
    answers = await leases[0].ask(leases)
    for lease, answer in zip(leases, answers, strict=True):
        lease.note(asked_s, answer)


async def give_up(leases: Sequence[Lease]) -> None:
    """Release a worker's leases, so that other workers can take them at once. Raises: OSError."""
    for lease in leases:
        lease.drop()
    if leases:
        await leases[0].ask(leases, give_up=True)


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
        """Note that this worker lives, and note in each lease whether it is preferred. Raises: OSError.

        A worker that cannot write its witness is preferred only if it is alone.
        """
        is_able = not any(lease.cannot_write for lease in self._leases)
        workers = await self._attend(int(self._lease_s * 1000) if is_able else 0)
        for lease in self._leases:
            lease.prefer(not workers or preferred(lease.stream, workers) == self._owner)

    async def leave(self) -> None:
        """Note that this worker closes nothing from now on. Raises: OSError."""
        await self._attend(0)

    async def _attend(self, for_ms: int) -> list[str]:
        names = "\n".join(sorted(lease.stream for lease in self._leases))
        alike = hashlib.sha256(names.encode()).hexdigest()[:16]
        return await self._store.attend(self._source, alike, self._owner, for_ms)
