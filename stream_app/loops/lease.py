"""Who closes a stream: one worker at a time, by a lease in the store that it asks for again and again.

The lease saves work and noise that nobody would see; it protects nothing. A worker that closes after its
lease has expired is stopped by the store's scripts, and by a witness that no longer listens to it.
"""

from __future__ import annotations

import asyncio

from stream_app.ports import Store

LEASE_S = 5.0


class Lease:
    """One worker's claim to close one stream.

    Args: owner, a name of this process alone.
    """

    def __init__(self, store: Store, stream: str, owner: str, lease_s: float = LEASE_S) -> None:
        self._store = store
        self._stream = stream
        self._owner = owner
        self._lease_s = lease_s
        self._until_s = 0.0
        self._ask_at_s = 0.0
        self.keep_every_s = lease_s / 10  # how often who wants to hold it without a gap must ask
        self.term = 0  # rises whenever somebody else may have held the lease in between

    async def held(self) -> bool:
        """Say whether this worker holds the lease, and keep it. Raises: OSError."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._ask_at_s:
            return True
        lapsed = now_s >= self._until_s
        if not await self._store.hold(self._stream, self._owner, int(self._lease_s * 1000)):
            self.drop()
            return False
        # From before the question: the store's own count began later.
        self._until_s, self._ask_at_s = now_s + self._lease_s, now_s + self._lease_s / 3
        self.term += lapsed
        return True

    def drop(self) -> None:
        """Forget that it is held: the next question decides, and begins a new term."""
        self._until_s = self._ask_at_s = 0.0

    async def give_up(self) -> None:
        """Let another worker take it at once."""
        self.drop()
        await self._store.hold(self._stream, self._owner, 0)
