"""Packs changes into the keys and arguments of scripts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import is_not

import msgspec
import numpy as np

from dphist.arrays import Int64Array
from stream_app.core.counting.bounding import UserShard, shard_numbers, user_entries, user_fields
from stream_app.core.records import Ahead, Apply, PartitionCuts, TileAppend, Users
from stream_app.state import checks
from stream_app.state.keys import StreamKeys
from stream_app.state.round_trips import Argument

_pack = msgspec.msgpack.Encoder().encode


class PackedCells:
    """The cells of the last apply, packed: streams that count alike apply the same arrays after each other.

    No array may change after it was given here.
    """

    def __init__(self) -> None:
        self._arrays: tuple[Int64Array, ...] = ()
        self._bins: list[int] = []
        self._packed = b""

    def of(self, keys: StreamKeys, change: Apply) -> tuple[list[str], list[bytes]]:
        """Return the keys of the hashes that an apply adds to, and the script's packed arguments."""
        arrays = change.bins, change.cells, change.deltas
        if len(self._arrays) != len(arrays) or any(map(is_not, arrays, self._arrays)):
            self._bins, self._packed = _in_order_of_bins(*arrays)
            self._arrays = arrays
        return [keys.cells(bin) for bin in self._bins], [self._packed]


def _in_order_of_bins(bins: Int64Array, cells: Int64Array, deltas: Int64Array) -> tuple[list[int], bytes]:
    order = np.argsort(bins, kind="stable")
    distinct, sizes = np.unique(bins, return_counts=True)
    columns = (distinct, sizes, cells[order], deltas[order])
    return distinct.tolist(), _pack([column.tolist() for column in columns])


def packed_ahead(ahead: Ahead | None) -> bytes:
    """Return the packed records to set aside."""
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


def packed_counts(counts: Mapping[str, int]) -> bytes:
    """Return the packed names and numbers of the operator's counters to add to."""
    return _pack([list(counts), list(counts.values())])


def packed_users(keys: StreamKeys, change: Apply) -> tuple[list[str], list[bytes | int]]:
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
    limits = checks.LEAST_MERGED, change.most_places
    return targets, [_pack(counts), entries, _pack(places), *limits]


def _digits(users: Users) -> dict[int, str]:
    """Return the mark of each window's key in hexadecimal digits, in the order of the windows."""
    return {window: users.key_marks[window].hex() for window in np.unique(users.windows).tolist()}


def packed_cuts(taken: PartitionCuts) -> tuple[Argument, ...]:
    """Return what the script needs of the cuts of a partition, with a digest that identifies them."""
    cuts, expected = taken.cuts, taken.expected_last_cut_bin
    packed = _pack([[getattr(cut, name) for cut in cuts] for name in ("bin", "position", "overdue")])
    digest = hashlib.sha256(_pack(expected) + packed).hexdigest()
    return taken.partition, expected, digest, packed, taken.open_bin, taken.max_ahead_bins


def targets_ahead(keys: StreamKeys, names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the script's two keys for each target of these records: a bin, or a shard of users.

    Args: names of the records set aside (``packed_ahead``).
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


def tile_arguments(tiles: Sequence[TileAppend]) -> Iterator[Argument]:
    """Yield for each tile its length before, the bytes to append, and whether it is then full."""
    for append in tiles:
        yield from (append.offset_bytes, append.data, int(append.fills))
