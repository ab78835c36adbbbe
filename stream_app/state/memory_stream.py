"""What the memory store keeps of one stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from stream_app.core.records import Cut, EpochRecord, Reason, TileKey, UserCap
from stream_app.core.strategy import Strategy
from stream_app.core.visible import invisible_slices, last_bin_of


@dataclass
class MemoryPartition:
    """Where a stream stands in one partition, and what tells a repeated call from a new one."""

    position: int
    start: int
    base_bin: int
    cuts: list[Cut] = field(default_factory=list)
    last_call: tuple[int, tuple[Cut, ...]] | None = None

    @property
    def last_cut_bin(self) -> int:
        """Return the last bin that is cut."""
        return self.cuts[-1].bin if self.cuts else self.base_bin

    def move(self, position: int) -> None:
        """Move on; cuts at or below the position say nothing more than the base bin does."""
        self.position = position
        while self.cuts and self.cuts[0].position <= position:
            self.base_bin = self.cuts.pop(0).bin


@dataclass
class MemoryStream:
    """Everything about one stream, secrets included."""

    strategy: bytes
    epochs: list[EpochRecord]
    opening_head: str
    seq: int
    head: str
    released_bin: int
    sealed_bin: int
    counter: bytes = b""
    noise: str = ""
    partitions: dict[str, MemoryPartition] = field(default_factory=dict)
    cells: dict[int, dict[int, int]] = field(default_factory=dict)
    chain: dict[int, bytes] = field(default_factory=dict)
    visible_seq: int = 0
    tiles: dict[TileKey, bytearray] = field(default_factory=dict)
    operator_counts: dict[str, int] = field(default_factory=dict)
    users: dict[int, dict[bytes, int]] = field(default_factory=dict)  # by window, named by its last bin
    user_keys: dict[int, bytes] = field(default_factory=dict)

    @property
    def epoch(self) -> EpochRecord:
        """Return the last epoch."""
        return self.epochs[-1]

    @property
    def strategy_hash(self) -> str:
        """Return the hash that every write must carry."""
        return self.epoch.strategy_hash

    def same_key(self, cap: UserCap) -> bool:
        """Whether the users of these windows were counted under this key, if any were."""
        windows = set(cap.windows.tolist())
        same = all(self.user_keys.get(window, cap.key_mark) == cap.key_mark for window in windows)
        if same:
            self.user_keys |= dict.fromkeys(windows, cap.key_mark)
        return same

    def forget_users(self, window: int) -> None:
        """Delete what was seen of the users of a window."""
        self.users.pop(window, None)
        self.user_keys.pop(window, None)

    def within_cap(self, cap: UserCap) -> Iterator[bool]:
        """Say of each record whether it is among the first that count of its user."""
        over = 0
        for user, window in zip(cap.users, cap.windows.tolist(), strict=True):
            events = self.users.setdefault(window, {})
            events[user] = events.get(user, 0) + 1
            over += events[user] > cap.max_events
            yield events[user] <= cap.max_events
        if over:
            self.operator_counts[Reason.OVER_CAP] = self.operator_counts.get(Reason.OVER_CAP, 0) + over

    def follows(self, record: EpochRecord, head: str) -> bool:
        """Whether the record goes on from this chain's own head."""
        return record.first_seq == self.seq + 1 and head == self.head

    def end_epoch(self, reason: str) -> None:
        """End the last epoch at its released bin."""
        self.epochs[-1] = replace(self.epoch, last_bin=self.released_bin, end_reason=reason)

    def discard_invisible(self, reason: str) -> None:
        """Forget what was released but never visible: somebody else knows another continuation."""
        strategy = Strategy.from_json(self.strategy)
        for piece in invisible_slices(strategy, self.epochs, self.released_bin, self.visible_seq):
            if piece.offset_bytes:
                del self.tiles[piece.key][piece.offset_bytes :]
            else:
                self.tiles.pop(piece.key, None)
        for seq in [seq for seq in self.chain if seq > self.visible_seq]:
            del self.chain[seq]
        for i, epoch in enumerate(self.epochs):
            last_visible_bin = epoch.first_bin + max(self.visible_seq - epoch.first_seq, -1)
            if last_visible_bin < last_bin_of(epoch):
                self.epochs[i] = replace(epoch, last_bin=last_visible_bin, end_reason=reason)
