"""The state of one stream in the memory store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dphist.users import BUCKETS
from stream_app.core.answers.visible import invisible_slices
from stream_app.core.counting.bounding import (
    HASH_BYTES,
    ID_BYTES,
    STEPS,
    Bounds,
    UserShard,
    rank_of,
    shard_numbers,
    user_fields,
)
from stream_app.core.counting.unlisted import BROUGHT, Slots
from stream_app.core.epochs import SealedKey, stays
from stream_app.core.incoming import Reason
from stream_app.core.records import Cut, EpochRecord, History, LateEvents, Origin, Trimmed
from stream_app.core.releases.restored import Restored
from stream_app.core.releases.tiles import TileSlice
from stream_app.core.segments.retention import anchor
from stream_app.core.segments.strategies import read_strategies
from stream_app.core.store_writes import Ahead, Apply, Release, TileKey, Users
from stream_app.core.user_keys import UserKeys
from stream_app.state.checks import LARGEST_TALLY_FIELDS, LARGEST_TALLY_SHARDS
from tests.models.choosing import by_key, cells_added, chosen

MOST_PLACES = 1_000  # per partition: positions of records from the future that are kept


@dataclass
class MemoryPartition:
    """A stream's state in one partition, with the facts that identify a repeated call."""

    position: int
    start: int
    base_bin: int
    cuts: list[Cut] = field(default_factory=list)
    last_call: tuple[int, tuple[Cut, ...]] | None = None
    ahead: list[Ahead] = field(default_factory=list)
    refused_ahead: list[int] = field(default_factory=list)
    late_before: LateEvents | None = None
    origins: tuple[Origin, ...] = ()

    @property
    def last_cut_bin(self) -> int:
        """Return the last bin that has a cut."""
        return self.cuts[-1].bin if self.cuts else self.base_bin

    def move(self, position: int) -> None:
        """Move the position and drop the cuts that it has reached.

        The base bin becomes the bin of the last dropped cut.
        """
        self.position = position
        while self.cuts and self.cuts[0].position <= position:
            self.base_bin = self.cuts.pop(0).bin

    def apply(self, change: Apply) -> None:
        """Move the position, and note what rows of an engine say and close."""
        self.move(change.new)
        self.origins = change.origins
        if change.closes_bin is not None:
            self.base_bin = change.closes_bin


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
    stopped: bool = False
    halted: bool = False
    until_bin: int | None = None
    late_from: dict[str, int] | None = None  # the first cut of the last bin, by partition
    partitions: dict[str, MemoryPartition] = field(default_factory=dict)
    cells: dict[int, dict[int, int]] = field(default_factory=dict)
    chain: dict[int, bytes] = field(default_factory=dict)
    visible_seq: int = 0
    tiles: dict[TileKey, bytearray] = field(default_factory=dict)
    operator_counts: dict[str, int] = field(default_factory=dict)
    untallied: dict[UserShard, dict[bytes, int]] = field(default_factory=dict)  # users' records, by cell
    # Of each user of a window of the cap, the counted records by key.
    users: dict[int, dict[bytes, dict[int, int]]] = field(default_factory=dict)
    user_keys: dict[int, bytes] = field(default_factory=dict)
    unlisted: dict[int, list[SealedKey]] = field(default_factory=dict)  # by window: keys in order of numbers
    thinned: dict[int, int] = field(default_factory=dict)  # by window: how often hidden keys were halved
    slots: dict[int, dict[bytes, list[int]]] = field(default_factory=dict)  # by window and user
    trimmed: Trimmed = field(default_factory=Trimmed)  # what retention removed
    noted_keys: UserKeys = field(default_factory=UserKeys)  # as a rotation has noted them
    history: History | None = None  # set by tests: nobody counts the stream any more

    @property
    def epoch(self) -> EpochRecord:
        """Return the last epoch."""
        return self.epochs[-1]

    @property
    def strategy_hash(self) -> str:
        """Return the hash that every write must carry."""
        return self.epoch.strategy_hash

    def add(self, change: Apply | Ahead) -> None:
        """Add numbers of records to cells; in a stream with a cap per user, to users' cells."""
        for bin in change.bins.tolist():
            self.cells.setdefault(bin, {})
        if change.users is None:
            for bin, cell, delta in zip(
                change.bins.tolist(), change.cells.tolist(), change.deltas.tolist(), strict=True
            ):
                self.cells[bin][cell] = self.cells[bin].get(cell, 0) + delta
            return
        numbers = shard_numbers(change.users.ids).tolist()
        shards = map(UserShard, change.bins.tolist(), change.users.windows.tolist(), numbers)
        fields = user_fields(change.users.ids, change.cells)
        for shard, name, delta in zip(shards, fields, change.deltas.tolist(), strict=True):
            records = self.untallied.setdefault(shard, {})
            records[name] = records.get(name, 0) + delta
        for window in change.users.windows.tolist():
            self.users.setdefault(window, {})
            self.user_keys.setdefault(window, change.users.key_marks[window])

    def hand_over(self, partition: str, cuts: Sequence[Cut]) -> None:
        """Keep where the last bin is cut in a partition."""
        if self.late_from is not None and self.until_bin is not None:
            for cut in cuts:
                if cut.bin >= self.until_bin - 1:
                    self.late_from.setdefault(partition, cut.position)

    def decide_ahead(self, partition: MemoryPartition, newest_bin: int) -> None:
        """Decide about the records that are set aside.

        A record counts if its bin is at most ``newest_bin`` and not sealed. All others are refused.
        """
        places = [place for ahead in partition.ahead for place in ahead.places][:MOST_PLACES]
        refused = [position for bin, position in places if bin > newest_bin]
        partition.refused_ahead = [*partition.refused_ahead, *refused][:MOST_PLACES]
        for ahead in partition.ahead:
            before = ahead.bins <= self.sealed_bin
            future = ahead.bins > newest_bin
            if ahead.users is not None:
                own = ahead.users.key_marks
                keys = [(own[window], self.user_key_of(window)) for window in ahead.users.windows.tolist()]
                future |= np.array([key not in (mark, b"") for mark, key in keys], np.bool_) & ~before
            self.count_for_operator(Reason.FUTURE, int(ahead.deltas[future].sum()) // ahead.weight)
            earlier = int(ahead.deltas[before & ~future].sum()) // ahead.weight
            self.count_for_operator(Reason.BEFORE_FIRST_BIN, earlier)
            self.add(_rows(ahead, ~(before | future)))
        partition.ahead = []

    def count_for_operator(self, name: str, records: int) -> None:
        """Add to one of the operator's counters."""
        if records:
            self.operator_counts[name] = self.operator_counts.get(name, 0) + records

    def same_key(self, users: Users) -> bool:
        """Return whether all users of these windows were hashed with this key."""
        windows = set(users.windows.tolist())
        return all(self.user_key_of(window) in (users.key_marks[window], b"") for window in windows)

    def same_key_ahead(self, partition: MemoryPartition, ahead: Ahead) -> bool:
        """Return whether users that are set aside have the keys that are noted, or else all the same key."""
        given = [one.users for one in (*partition.ahead, ahead) if one.users and len(one.users.windows)]
        first = given[0].key_marks[min(given[0].windows.tolist())] if given else b""
        return ahead.users is None or all(
            ahead.users.key_marks[window] == (self.noted_keys.of(window) or first)
            for window in ahead.users.windows.tolist()
        )

    def user_key_of(self, window: int) -> bytes:
        """Return the mark of a window's key: as its users have counted, else as noted; empty: any key may."""
        return self.user_keys.get(window) or self.noted_keys.of(window)

    def name_keys(self, window: int, mark: bytes, names: Sequence[SealedKey]) -> list[int]:
        """Return the number of each key in a window; a new key gets the next one."""
        self.users.setdefault(window, {})
        self.user_keys.setdefault(window, mark)
        held = self.unlisted.setdefault(window, [])
        numbers = {one.hash: number for number, one in enumerate(held) if one.name}
        for name in names:
            if name.hash not in numbers and stays(name.hash, self.thinned.get(window, 0)):
                numbers[name.hash] = len(held)
                held.append(name)
        return [numbers.get(name.hash, -1) for name in names]

    def thin_keys(self, window: int, thinned: int, gone: Mapping[int, Sequence[int]]) -> None:
        """Delete the names and the released counts of keys that do not stay."""
        self.users.setdefault(window, {})
        self.thinned[window] = thinned
        for number, cells in gone.items():
            self.unlisted[window][number] = SealedKey(self.unlisted[window][number].hash, b"")
            for bin in range(self.epoch.first_bin, self.released_bin + 1):
                for cell in cells:
                    self.cells.get(bin, {}).pop(cell, None)

    def tally(self, bounds: Bounds, up_to_bin: int, slots: Slots | None = None) -> bool:
        """Choose which users' records count, in a bounded number of shards; return whether there were any.

        Shards come in the order of bins.
        """
        shards = sorted(self.untallied_shards(up_to_bin), key=lambda shard: (shard.bin, shard.name))
        numbers = {
            window: {one.hash: number for number, one in enumerate(self.unlisted.get(window, []))}
            for window in {shard.window for shard in shards}
        }
        fields = 0
        for number, shard in enumerate(shards[:LARGEST_TALLY_SHARDS]):
            fields += len(self.untallied[shard])
            if number and fields > LARGEST_TALLY_FIELDS:
                break
            self._tally_shard(shard, bounds, numbers[shard.window], slots)
        return bool(shards)

    def untallied_shards(self, up_to_bin: int) -> list[UserShard]:
        """Return the shards that are not tallied yet, of bins up to this bin."""
        return [shard for shard in self.untallied if shard.bin <= up_to_bin]

    def _tally_shard(
        self, shard: UserShard, bounds: Bounds, numbers: Mapping[bytes, int], slots: Slots | None = None
    ) -> None:
        by_user: dict[bytes, dict[bytes, int]] = {}
        for name, number in self.untallied.pop(shard).items():
            by_user.setdefault(name[:ID_BYTES], {})[name] = number
        cells, users = self.cells.setdefault(shard.bin, {}), self.users.setdefault(shard.window, {})
        over = 0
        for user, records in by_user.items():
            before = users.get(user, {})
            taken = chosen(records, bounds, before)
            if bounds.users_at is not None:
                held, now = sum(before.values()), sum(before.values()) + sum(records.values())
                for number, step in ((held, -1), (now, 1)):
                    if number:
                        cell = bounds.users_at + min(number.bit_length() - 1, BUCKETS - 1)
                        cells[cell] = cells.get(cell, 0) + step
                users[user] = {0: now}
            elif taken:
                users[user] = by_key(taken.items(), bounds, before)
            over += sum(records.values()) - sum(taken.values())
            if slots is not None:
                place_of = {place: _place_in_list(place, slots, numbers) for place in taken}
                used = self.slots.setdefault(shard.window, {}).setdefault(user, [])
                used += (new := _brought(user, place_of, slots, used))
                for key in new:
                    cells[BROUGHT + key] = cells.get(BROUGHT + key, 0) + 1
                steps, keyed, taken = (bounds.weight or 0) + 1, taken, {}
                for place, number in keyed.items():
                    place = place_of[place] * steps + place % STEPS
                    taken[place] = taken.get(place, 0) + number
            for cell, number in cells_added(taken, bounds.weight).items():
                cells[cell] = cells.get(cell, 0) + number
        self.count_for_operator(Reason.OVER_CAP, over)

    def forget_released(self, release: Release) -> None:
        """Delete the counts of released bins, or those of public keys; note found keys."""
        for bin in range(release.first_bin, release.last_bin + 1):
            if release.shown_cells is None:
                self.cells.pop(bin, None)
            for cell in release.shown_cells or ():
                self.cells.get(bin, {}).pop(cell, None)
        for bin, cell in product(release.past_bins, release.past_cells):
            self.cells.get(bin, {}).pop(cell, None)
        if release.found is not None:
            self.epochs[-1] = replace(self.epoch, found=(*self.epoch.found, release.found))

    def forget_users(self, first_bin: int, last_bin: int) -> None:
        """Delete the users of the windows of the cap that end with one of these bins."""
        for window in range(first_bin, last_bin + 1):
            self.users.pop(window, None)
            self.user_keys.pop(window, None)
            self.unlisted.pop(window, None)
            self.slots.pop(window, None)
            self.thinned.pop(window, None)

    def part_of_tile(self, piece: TileSlice) -> bytes:
        """Return the bytes of a part of a tile."""
        return bytes(self.tiles[piece.key][piece.offset_bytes : piece.offset_bytes + piece.length_bytes])

    def follows(self, record: EpochRecord, head: str) -> bool:
        """Return whether the record continues the chain at this head."""
        return record.first_seq == self.seq + 1 and head == self.head

    def end_epoch(self, reason: str) -> None:
        """End the last epoch at its released bin."""
        self.epochs[-1] = replace(self.epoch, last_bin=self.released_bin, end_reason=reason)

    def stop(self) -> None:
        """Count no more records, and delete what was counted for bins that no epoch releases."""
        self.stopped, self.counter = True, b""
        for counts in (self.cells, self.users, self.user_keys, self.untallied, self.unlisted, self.slots):
            counts.clear()
        self.thinned.clear()
        for partition in self.partitions.values():
            partition.ahead = []

    def put_back(self, lost: Restored) -> None:
        """Put lost rows back, with their tiles and the end of their epoch."""
        self.chain.update(lost.rows)
        for append in lost.tiles:
            self.tiles.setdefault(append.key, bytearray()).extend(append.data)
        known = next((e for e in self.epochs if e.epoch == lost.epoch.epoch), lost.epoch)
        ended = replace(known, last_bin=lost.epoch.last_bin, end_reason=lost.epoch.end_reason)
        ended = replace(ended, found=lost.epoch.found or known.found)
        others = [epoch for epoch in self.epochs if epoch.epoch != ended.epoch]
        self.epochs[:] = sorted([*others, ended], key=lambda epoch: epoch.epoch)

    def remove(self, oldest: EpochRecord) -> None:
        """Remove the oldest epoch: its rows, its tiles and its record."""
        leaving = [seq for seq in self.chain if seq <= oldest.final_seq]
        if leaving:
            self.trimmed = anchor(oldest, leaving[-1], self.chain[leaving[-1]])
        for seq in leaving:
            del self.chain[seq]
        for key in [key for key in self.tiles if key.epoch == oldest.epoch]:
            del self.tiles[key]
        self.epochs.remove(oldest)

    def discard_invisible(self, reason: str) -> None:
        """Delete rows that were released but never visible. The witness has other rows in their place."""
        texts = read_strategies(self.strategy)
        for piece in invisible_slices(texts, self.epochs, self.released_bin, self.visible_seq):
            if piece.offset_bytes:
                del self.tiles[piece.key][piece.offset_bytes :]
            else:
                self.tiles.pop(piece.key, None)
        for seq in [seq for seq in self.chain if seq > self.visible_seq]:
            del self.chain[seq]
        for i, epoch in enumerate(self.epochs):
            last_visible_bin = epoch.first_bin + max(self.visible_seq - epoch.first_seq, -1)
            found = tuple(one for one in epoch.found if one.bin <= last_visible_bin)
            if last_visible_bin < epoch.final_bin:
                ended = replace(epoch, last_bin=last_visible_bin, end_reason=reason)
                self.epochs[i] = replace(ended, found=found)


def _place_in_list(place: int, slots: Slots, numbers: Mapping[bytes, int]) -> int:
    """Return the place in the list of a keyed place's key; that of ``other`` if the key does not stay."""
    if (key := place // STEPS) < STEPS:
        return key
    number = numbers.get(own := key.to_bytes(HASH_BYTES))
    if number is None or (number not in slots.shown and not stays(own, slots.thinned)):
        return slots.first_unlisted - 1
    return slots.first_unlisted + number


def _brought(user: bytes, place_of: Mapping[int, int], slots: Slots, before: Sequence[int]) -> list[int]:
    """Return the keys that a user brings in a bin. Args: place_of, in the list, of the places that count."""
    new = {
        key: rank_of(user + (place - place % STEPS).to_bytes(HASH_BYTES + 4))
        for place, key in place_of.items()
        if key >= slots.first_unlisted and key - slots.first_unlisted not in slots.shown and key not in before
    }
    return sorted(new, key=new.__getitem__)[: slots.per_user - len(before)]


def _rows(ahead: Ahead, chosen: NDArray[np.bool_]) -> Ahead:
    """Return the chosen rows of the records that are set aside."""
    users = ahead.users
    if users is not None:
        users = Users(users.ids[chosen], users.windows[chosen], users.key_marks)
    return Ahead(ahead.bins[chosen], ahead.cells[chosen], ahead.deltas[chosen], users)
