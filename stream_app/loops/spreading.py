"""Divides the streams of a source among the live workers, so that each closes about its share of them.

Each worker notes in the store, with an expiry, that it lives. From the same names, all workers compute which
of them is preferred for a stream: the worker with the highest hash of its name and the stream's (rendezvous
hashing). So if a worker comes or goes, only the streams that it gains or loses move. Names of workers are
random, and no record decides anything here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from stream_app.loops.lease import Lease
from stream_app.ports import Store


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
