"""Numbers of keys that no list names: the reader asks the store for them before it counts records.

Under the user unit it asks only for keys that may count (``core.counting.first_keys``). The records of the
others wait under places by hash, which the tally takes in the same order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from stream_app.core.counting.bounding import user_ids
from stream_app.core.counting.first_keys import FirstKeys, KeysOfBin
from stream_app.core.counting.read_values import users_in
from stream_app.core.counting.unlisted import place_by_hash
from stream_app.core.records import Apply, PartitionState, Reply
from stream_app.core.user_keys import mark_of_users
from stream_app.loops.loaded_streams import LoadedStream
from stream_app.ports import NoiseKeys, Store
from stream_app.ports.exact_counts import MOST_NAMES
from stream_app.vault.key_names import KeyNames

_MOST_KNOWN = 1_000_000  # in memory, for each stream

Unlisted = tuple[int, str]  # a cap window and the name of a key


@dataclass(frozen=True)
class HiddenKeys:
    """The keys of a slice's counted records that no list names. SECRET.

    Args: names, by row; needless, the places of the rows whose keys cannot count; new, of each row whose key
        had no number: its position, bin, the user's id and the place of the key by its hash.
    """

    names: Mapping[int, Unlisted]
    needless: dict[int, int] = field(default_factory=dict)
    new: list[tuple[int, KeysOfBin, bytes, int]] = field(default_factory=list)

    def wanted(self) -> set[Unlisted]:
        """Return the keys whose numbers the slice needs."""
        return {name for row, name in self.names.items() if row not in self.needless}

    def places(self, numbers: Mapping[Unlisted, int]) -> Int64Array:
        """Return the number of each row's key, or the place of the row. Args: numbers, of wanted keys."""
        found = (self.needless.get(row) or numbers[name] for row, name in self.names.items())
        return np.fromiter(found, np.int64, len(self.names))


@dataclass(frozen=True)
class CountedRows:
    """The counted records of a slice, in arrays of shape (n,). Args: users, as read; None: the unit event."""

    positions: Int64Array
    bins: Int64Array
    ahead: NDArray[np.bool_]
    users: NDArray[Any] | None


def hidden_keys(
    stream: LoadedStream,
    names: Mapping[int, Unlisted],
    rows: CountedRows,
    partition: str,
    state: PartitionState,
    keys: NoiseKeys,
) -> HiddenKeys:
    """Decide which keys of a slice may count. Args: names, by row; state, of the partition.

    Raises: OperatorError if this worker does not have the key that hashes.
    """
    hidden = HiddenKeys(names)
    new = [row for row, name in names.items() if name not in stream.numbers]
    if rows.users is None or not new:
        return hidden
    windows = np.array([names[row][0] for row in new])
    key_of = partial(_key_of, stream, keys)
    ids, of_row = user_ids(users_in(rows.users[new].tolist()), windows, key_of)
    hashing = {one: KeyNames(key_of(one), stream.name, one) for one in set(windows.tolist())}
    first = FirstKeys(_most_keys(stream), stream.first_keys)
    for row, at in zip(new, of_row.tolist(), strict=True):
        window, name = names[row]
        place, user = place_by_hash(hashing[window].hashed(name)), ids[at].tobytes()
        after_cut = state.last_cut_bin if rows.ahead[row] else None
        group = KeysOfBin(partition, int(rows.bins[row]), after_cut)
        hidden.new.append((int(rows.positions[row]), group, user, place))
        if (spare := first.take(group, user, place)) is not None:
            hidden.needless[row] = spare
    return hidden


def note_counted(stream: LoadedStream, hidden: HiddenKeys, change: Apply) -> None:
    """Note new keys of records that the store has counted; forget those of bins that get no more."""
    known = stream.first_keys
    first = FirstKeys(_most_keys(stream), known)
    for position, group, user, place in hidden.new:
        if change.expected <= position < change.new:
            first.take(group, user, place)
    for group, users in first.seen.items():
        known.setdefault(group, {}).update(users)
    base_bin = stream.partitions[change.partition].base_bin
    for group in [one for one in known if one.partition == change.partition]:
        is_decided = group.after_cut is not None and group.after_cut < change.last_cut_bin
        if is_decided or group.bin <= base_bin:
            del known[group]


def _most_keys(stream: LoadedStream) -> int:
    per_user = stream.declared.privacy.per_user
    assert per_user is not None  # the unit is the user
    caps = per_user.caps
    return caps.l1 if caps.max_keys is None else min(caps.l1, caps.max_keys)


def _key_of(stream: LoadedStream, keys: NoiseKeys, window: int) -> bytes:
    return keys.user_key(stream.name, stream.user_keys.of(window))


async def learn(
    stream: LoadedStream, names: Iterable[Unlisted], store: Store, keys: NoiseKeys
) -> Reply | None:
    """Give names numbers, and note these with the stream; a key without a cell has its place by hash.

    Returns: a reply that refuses it, or None.

    Raises: OperatorError if this worker does not have the key that hashes.
    """
    wanted = defaultdict[int, list[str]](list)
    for window, name in names:
        wanted[window].append(name)
    if len(stream.numbers) > _MOST_KNOWN:  # those that the caller still needs are asked for again
        stream.numbers.clear()
    for window, of_window in wanted.items():
        key = _key_of(stream, keys, window)
        sealing = KeyNames(key, stream.name, window)
        for start in range(0, len(of_window), MOST_NAMES):
            some = of_window[start : start + MOST_NAMES]
            sealed = list(map(sealing.sealed, some))
            given = stream.name, stream.strategy.hash, window, mark_of_users(key), sealed
            numbers = await store.name_keys(*given)
            if isinstance(numbers, Reply):
                return numbers
            for name, one, number in zip(some, sealed, numbers, strict=True):
                stream.numbers[window, name] = number if number >= 0 else place_by_hash(one.hash)
    return None
