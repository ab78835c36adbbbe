"""The witness, the dead letters, the ledger and the noise keys in memory. They behave like the files."""

from __future__ import annotations

from collections.abc import Sequence

from stream_app.core.incoming import Refusal
from stream_app.core.records import LedgerEntry, WitnessRow
from stream_app.vault.cipher import later_chain_key, new_chain_key


class MemoryWitness:
    """A witness that never loses a row."""

    def __init__(self) -> None:
        self.kept: dict[str, list[WitnessRow]] = {}

    async def claim(self, stream: str) -> None:
        """Do nothing: the store's scripts decide which worker may write."""

    async def resign(self, stream: str) -> None:
        """Do nothing: the store's scripts decide which worker may write."""

    async def append(self, stream: str, rows: Sequence[WitnessRow]) -> None:
        """Keep the rows that follow the last kept row. A row that is kept already must be equal."""
        kept = self.kept.setdefault(stream, [])
        known = {row.seq: row.row for row in kept}
        for row in rows:
            if known.get(row.seq, row.row) != row.row:
                raise ValueError(f"witness: row {row.seq} of {stream} differs from the one that is kept")
            if not kept or row.seq > kept[-1].seq:
                kept.append(row)

    async def head(self, stream: str) -> tuple[int, bytes] | None:
        """Return the last row."""
        kept = self.kept.get(stream)
        return kept[-1][:2] if kept else None

    async def rows(self, stream: str, after_seq: int) -> list[WitnessRow]:
        """Return rows with seq > after_seq, in order."""
        return [row for row in self.kept.get(stream, []) if row.seq > after_seq]


class MemoryDeadLetters:
    """Refused records by stream, partition and position: a repeated write changes nothing."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str | None, str, int], str] = {}

    async def write(
        self, refusals: Sequence[Refusal], streams: tuple[str | None, ...] = (None,)
    ) -> Sequence[int]:
        """Keep the refusals in memory."""
        written = list[int]()
        for stream in streams:
            before = len(self.kept)
            for refusal in refusals:
                self.kept[stream, refusal.partition, refusal.position] = refusal.reason
            written.append(len(self.kept) - before)
        return written


class MemoryLedger:
    """The ledger outside the store, which never loses an entry."""

    name = "the ledger in memory"

    def __init__(self) -> None:
        self.kept: dict[LedgerEntry, None] = {}

    async def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all entries, oldest first."""
        return tuple(self.kept)

    async def append(self, entries: Sequence[LedgerEntry]) -> None:
        """Keep the entries, each once."""
        self.kept.update(dict.fromkeys(entries))


class MemoryKeys:
    """The keys of stored noise, kept apart from the store. Spent keys are destroyed."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int, str], tuple[int, bytes]] = {}

    def user_key(self, stream: str, mark: bytes = b"") -> bytes:
        """Return the key with which users are hashed."""
        return bytes(32)

    async def mark(self, stream: str, stored: bytes) -> bytes:
        """Return nothing: nobody shares these keys."""
        return b""

    async def create(self, stream: str, epoch: int, nonce: str, mark: bytes = b"") -> bytes:
        """Draw the first key of an epoch's noise pages, unless it has been drawn before."""
        return self.kept.setdefault((stream, epoch, nonce), (0, new_chain_key()))[1]

    async def chains(self, stream: str, epoch: int, nonce: str) -> list[tuple[int, bytes]]:
        """Return the number of the first noise page that can still be read, and its key."""
        chain = self.kept.get((stream, epoch, nonce))
        return [] if chain is None else [chain]

    async def spend(self, stream: str, epoch: int, nonce: str, pages: int) -> None:
        """Replace the key by the key of the first page that is not spent."""
        place = stream, epoch, nonce
        if place in self.kept and self.kept[place][0] < pages:
            page, key = self.kept[place]
            self.kept[place] = pages, later_chain_key(key, pages - page)

    async def discard(self, stream: str, epoch: int, nonce: str) -> None:
        """Forget the keys of the stream's drawings up to an epoch, except those of the drawing ``nonce``."""
        for place in [p for p in self.kept if p[0] == stream and p[1] <= epoch and p[2] != nonce]:
            del self.kept[place]

    async def forget(self, stream: str) -> None:
        """Forget all keys of the stream's drawings."""
        for place in [p for p in self.kept if p[0] == stream]:
            del self.kept[place]
