"""Keys that no list names: before the reader counts their records, the store gives the keys numbers.

Under the user unit it asks only for keys that may count (``core.counting.unlisted``), and all records wait
under their keys' hashes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from stream_app.core.counting.bounding import CELL_BYTES, user_ids
from stream_app.core.counting.unlisted import KeysOfBin, may_count
from stream_app.core.records import PartitionState, Reply
from stream_app.core.user_keys import mark_of_users
from stream_app.loops.loaded_streams import LoadedStream
from stream_app.ports import NoiseKeys, Store
from stream_app.vault.cipher import KeyNames

_MOST_KNOWN = 1_000_000  # in memory, for each stream
_MOST_SEALED = 1_000  # in one turn of the event loop: cuts need turns, too

Unlisted = tuple[int, str]  # a cap window and the name of a key


@dataclass(frozen=True)
class HiddenKeys:
    """The keys of a slice's counted records that no list names. SECRET.

    Args: names, by row; wanted, the keys whose numbers the slice needs; under the user unit hashes, of keys,
        by row.
    """

    names: Mapping[int, Unlisted]
    wanted: Collection[Unlisted] = ()
    hashes: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class CountedRows:
    """The counted records of a slice, in arrays of shape (n,).

    Args: steps, of places within their keys; users, their names; None: the unit event.
    """

    bins: Int64Array
    ahead: NDArray[np.bool_]
    steps: Int64Array
    users: NDArray[Any] | None


def hidden_keys(
    stream: LoadedStream,
    names: Mapping[int, Unlisted],
    rows: CountedRows,
    partition: str,
    state: PartitionState,
    keys: NoiseKeys,
) -> HiddenKeys:
    """Decide which keys of a slice may count, and note them: the caller forgets all if one does not count.

    Args: names, by row; state, of the partition.
    Raises: OperatorError if this worker does not have the key that hashes.
    """
    if rows.users is None:
        return HiddenKeys(names, set(names.values()))
    key_of, caps = partial(_key_of, stream, keys), stream.declared.privacy.caps
    hashing = {
        one: KeyNames(key_of(one), stream.name, one) for one in {window for window, _ in names.values()}
    }
    hash_of = {(window, name): hashing[window].hashed(name) for window, name in set(names.values())}
    of_new = [row for row, name in names.items() if name not in stream.numbers]
    windows = np.array([names[row][0] for row in of_new], np.int64)
    ids, of_row = user_ids(rows.users[of_new].tolist(), windows, key_of)
    known, most, wanted = stream.first_keys, _most_keys(stream), set[Unlisted]()
    for group in [one for one in known if one.partition == partition]:
        is_decided = group.after_cut is not None and group.after_cut < state.last_cut_bin
        if is_decided or group.bin <= state.base_bin:
            del known[group]
    for row, at in zip(of_new, of_row.tolist(), strict=True):
        step = int(rows.steps[row]) if caps.max_keys is None else 0
        place = hash_of[names[row]] + step.to_bytes(CELL_BYTES)
        group = KeysOfBin(partition, int(rows.bins[row]), state.last_cut_bin if rows.ahead[row] else None)
        if may_count(known, group, ids[at].tobytes(), place, most):
            wanted.add(names[row])
    return HiddenKeys(names, wanted, {row: hash_of[name] for row, name in names.items()})


def _most_keys(stream: LoadedStream) -> int:
    caps = stream.declared.privacy.caps
    return caps.l1 if caps.max_keys is None else min(caps.l1, caps.max_keys)


def _key_of(stream: LoadedStream, keys: NoiseKeys, window: int) -> bytes:
    return keys.user_key(stream.name, stream.user_keys.of(window))


async def learn(
    stream: LoadedStream, names: Iterable[Unlisted], store: Store, keys: NoiseKeys
) -> Reply | None:
    """Give names numbers, and note these with the stream: -1 of a key that does not stay.

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
        sealing, given = KeyNames(key, stream.name, window), (stream.name, stream.strategy.hash, window)
        for start in range(0, len(of_window), _MOST_SEALED):
            some = of_window[start : start + _MOST_SEALED]
            numbers = await store.name_keys(*given, mark_of_users(key), [*map(sealing.sealed, some)])
            if isinstance(numbers, Reply):
                return numbers
            stream.numbers |= {(window, name): number for name, number in zip(some, numbers, strict=True)}
    return None
