"""What a store in memory keeps secret: exact counts, stored noise, the users of cap windows."""

from __future__ import annotations

from tests.models.memory import MemoryStore


class Secrets:
    """Looks into a store, as only the service's own processes can. The one place that knows its fields."""

    store: MemoryStore
    stream: str

    def __init__(self, store: MemoryStore, stream: str) -> None:
        self.store, self.stream = store, stream

    @property
    def exact_counts(self) -> dict[int, dict[int, int]]:
        """The exact counts that are kept, by bin and cell."""
        return {bin: dict(cells) for bin, cells in self.store.streams[self.stream].cells.items()}

    @property
    def of_users(self) -> list[object]:
        """All that is kept of users and of records set aside."""
        held = self.store.streams[self.stream]
        ahead = [record for part in held.partitions.values() for record in part.ahead]
        return [*held.users, *held.untallied, *ahead]

    @property
    def windows_of_users(self) -> set[int]:
        """The cap windows of which users are kept."""
        return set(self.store.streams[self.stream].users)

    @property
    def noise(self) -> dict[tuple[str, int], bytes]:
        """The stored pages of noise, by nonce and page; a test may damage them."""
        return self.store.noise.setdefault(self.stream, {})

    @property
    def letters_to_write(self) -> list[int]:
        """The positions of records whose letters of a cut are not written yet."""
        partitions = self.store.streams[self.stream].partitions.values()
        return [position for one in partitions for position in one.refused_ahead]

    @property
    def text(self) -> bytes:
        """The text with which the stream began."""
        return self.store.streams[self.stream].strategy

    def begin_anew(self, text: bytes | None) -> None:
        """Replace the text with which the stream began; None: forget all streams, but not the ledger."""
        if text is None:
            self.store.streams.clear()
        else:
            self.store.streams[self.stream].strategy = text
