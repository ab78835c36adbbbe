"""Packs changes into the keys and arguments of scripts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from operator import attrgetter, is_

import msgspec
import numpy as np

from dphist.arrays import Int64Array
from stream_app.core.counting.bounding import UserShard, shard_numbers, user_entries, user_fields
from stream_app.core.counting.unlisted import Slots
from stream_app.core.store_writes import Ahead, Apply, PartitionCuts, Release, TileAppend, Users
from stream_app.core.strategy import canonical_json
from stream_app.state import checks
from stream_app.state.codec import encode_found
from stream_app.state.keys import StreamKeys
from stream_app.state.round_trips import Argument

_pack = msgspec.msgpack.Encoder().encode
_OF_STREAM = ("strategy_hash", "epoch")  # not packed
_PACKED = attrgetter(*(field.name for field in fields(Apply) if field.name not in _OF_STREAM))


class PackedChanges:
    """The last changes, packed: streams that count alike apply the same changes after each other.

    No array may change after it was given here.
    """

    def __init__(self) -> None:
        self._changes: tuple[Apply, ...] = ()
        self._targets: list[str] = []
        self._arguments: list[Argument] = []

    def of(self, keys: StreamKeys, changes: Sequence[Apply]) -> tuple[list[str], list[Argument]]:
        """Return the keys and arguments of changes for the script, without those that all changes share.

        Raises: ValueError for changes that the store cannot apply.
        """
        if len(self._changes) != len(changes) or not all(map(_packed_alike, changes, self._changes)):
            checks.check_changes(changes)
            packed = [_packed(keys, change) for change in changes]
            self._targets = [target.removeprefix(keys.prefix) for targets, _ in packed for target in targets]
            self._arguments = [argument for _, arguments in packed for argument in arguments]
            self._changes = tuple(changes)
        prefix = keys.prefix
        return [prefix + target for target in self._targets], self._arguments


def _packed_alike(one: Apply, other: Apply) -> bool:
    """Return whether two changes are equal, apart from what each stream has itself."""
    return one is other or all(map(is_, _PACKED(one), _PACKED(other)))


def _packed(keys: StreamKeys, change: Apply) -> tuple[list[str], list[Argument]]:
    due_us, below = "" if change.due_us is None else change.due_us, change.below
    cuts = change.last_cut_bin if below is None else f"{below.bin} {below.position}"
    pack = _packed_users if change.users else _packed_cells
    targets, packed = pack(keys, change)
    return [keys.cuts(change.partition), *keys.ahead(change.partition)[:2], *targets], [
        *(change.partition, change.expected, change.new, cuts, due_us, _packed_ahead(change.ahead)),
        *(_packed_counts(change), *packed),
    ]


def _packed_cells(keys: StreamKeys, change: Apply) -> tuple[list[str], list[Argument]]:
    """Return the keys and packed arguments for the hashes that a change adds to."""
    bins, packed = _in_order_of_bins(change.bins, change.cells, change.deltas)
    return [keys.cells(bin) for bin in bins], [packed, b"", b""]


def _in_order_of_bins(bins: Int64Array, cells: Int64Array, deltas: Int64Array) -> tuple[list[int], bytes]:
    order = np.argsort(bins, kind="stable")
    distinct, sizes = np.unique(bins, return_counts=True)
    columns = (distinct, sizes, cells[order], deltas[order])
    return distinct.tolist(), _pack([column.tolist() for column in columns])


def _packed_ahead(ahead: Ahead | None) -> bytes:
    if ahead is None:
        return b""
    bins, marks = ahead.bins.tolist(), {}
    if ahead.users is None:
        names = [f"{bin} {cell}" for bin, cell in zip(bins, ahead.cells.tolist(), strict=True)]
    else:
        fields = user_fields(ahead.users.ids, ahead.cells)
        shards = map(UserShard, bins, ahead.users.windows.tolist(), shard_numbers(ahead.users.ids).tolist())
        rows = zip(shards, fields, strict=True)
        names = [f"{shard.name} {field.hex()}" for shard, field in rows]
        marks = _digits(ahead.users)
    return _pack(
        [names, ahead.deltas.tolist(), ahead.places, ahead.weight, list(marks), list(marks.values())]
    )


def _packed_counts(change: Apply) -> bytes:
    """Return the packed names and numbers of the operator's counters to add to, and the closed bin."""
    counts = change.operator_counts
    closing = [canonical_json(change.origins).decode(), str(change.closes_bin)] if change.origins else []
    return _pack([list(counts), list(counts.values()), *closing])


def _packed_users(keys: StreamKeys, change: Apply) -> tuple[list[str], list[Argument]]:
    """Return the keys and packed arguments for users' records: shards of users, and users of windows."""
    users = change.users
    assert users is not None
    numbers = shard_numbers(users.ids)
    order = np.lexsort((numbers, users.windows, change.bins))
    in_order = np.stack([change.bins, users.windows, numbers])[:, order]
    firsts = np.flatnonzero(np.append(True, (np.diff(in_order) != 0).any(axis=0))[: len(order)])
    sizes = np.diff(np.append(firsts, len(order)))
    shards = in_order[:, firsts]
    named = [UserShard(*shard) for shard in shards.T.tolist()]
    windows = np.unique(users.windows).tolist()
    entries = user_entries(users.ids[order], change.cells[order], change.deltas[order])
    counts = [np.unique(change.bins).tolist(), sizes.tolist()]
    places = [[shard.name for shard in named], shards[0].tolist(), windows, list(_digits(users).values())]
    targets = [*map(keys.entries, named), *map(keys.users, windows)]
    limits = checks.LEAST_MERGED, *change.waiting
    return targets, [_pack(counts), entries, _pack([*places, *limits])]


def _digits(users: Users) -> dict[int, str]:
    """Return the mark of each window's key in hexadecimal digits, in the order of the windows."""
    return {window: users.key_marks[window].hex() for window in np.unique(users.windows).tolist()}


def packed_cuts(taken: PartitionCuts) -> tuple[Argument, ...]:
    """Return the script's arguments for the cuts of a partition, with a digest that identifies them."""
    cuts, expected = taken.cuts, taken.expected_last_cut_bin
    packed = _pack([[getattr(cut, name) for cut in cuts] for name in ("bin", "position", "overdue")])
    digest = hashlib.sha256(_pack(expected) + packed).hexdigest()
    return taken.partition, expected, digest, packed, taken.open_bin, taken.max_ahead_bins


def targets_ahead(keys: StreamKeys, names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the script's two keys for each target of these records: a bin, or a shard of users.

    Args: names of the records set aside (``_packed_ahead``).
    """
    targets = {}
    for target in {name.split(" ")[0] for name in names}:
        bin, *shard = map(int, target.split(":"))
        if shard:
            users = UserShard(bin, *shard)
            targets[target] = (keys.entries(users), keys.users(users.window))
        else:
            targets[target] = (keys.cells(bin), keys.cells(bin))
    return targets


def of_slots(slots: Slots | None) -> Iterator[Argument]:
    """Yield the arguments that decide which keys users bring; without slots nobody brings a key."""
    if slots is None:
        yield from (0, 0, "", "", 0, _pack([]))
    else:
        yield from (slots.per_user, slots.first_unlisted, slots.epoch, slots.seq, slots.thinned)
        yield _pack(list(slots.shown))


def of_found(release: Release) -> Iterator[Argument]:
    """Yield the keys that a release finds, the cells that are public, and the past of these keys.

    All of it is empty for other streams.
    """
    yield encode_found([] if release.found is None else [release.found]).removesuffix(b"\n")
    yield b"" if release.shown_cells is None else _pack(list(release.shown_cells))
    yield from (len(release.past_bins), _pack(list(release.past_cells)))


def tile_arguments(tiles: Sequence[TileAppend]) -> Iterator[Argument]:
    """Yield for each tile its length before, the bytes to append, and whether it is then full."""
    for append in tiles:
        yield from (append.offset_bytes, append.data, int(append.fills))
