"""Keys that no list names: before the reader counts their records, the store gives the keys numbers.

Under the user unit it asks only for keys that may count (``core.counting.unlisted``), and all records wait
under their keys' hashes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from stream_app.core.coded import Coded
from stream_app.core.counting.bounding import CELL_BYTES
from stream_app.core.counting.unlisted import KeysOfBin, may_count
from stream_app.core.records import PartitionState, Reply
from stream_app.core.user_keys import mark_of_users
from stream_app.loops.cell_rows import CellRows
from stream_app.loops.loaded_streams import LoadedStream
from stream_app.ports import NoiseKeys, Store
from stream_app.vault.cipher import KeyNames

_MOST_KNOWN = 1_000_000  # in memory, for each stream
_MOST_SEALED = 1_000  # in one turn of the event loop: cuts need turns, too

Unlisted = tuple[int, str]  # a cap window and the name of a key


@dataclass(frozen=True)
class HiddenKeys:
    """The keys of a slice's counted records that no list names. SECRET.

    Args: rows, where ``CellRows`` has these records; names, the window and name of each row's key; hashes,
        one for each of ``names.values``, empty under the unit event.
    """

    rows: Int64Array
    names: Coded
    hashes: Sequence[bytes]

    @classmethod
    def of(cls, stream: LoadedStream, rows: Int64Array, names: Coded, keys: NoiseKeys) -> HiddenKeys:
        """Return keys by their names. Raises: OperatorError if this worker lacks the key that hashes."""
        if stream.declared.capped is None:
            return cls(rows, names, ())
        windows = {window for window, _ in names.values}
        hashing = {one: KeyNames(user_key(stream, keys, one), stream.name, one) for one in windows}
        return cls(rows, names, [hashing[window].hashed(name) for window, name in names.values])


def unknown_keys(
    stream: LoadedStream,
    hidden: HiddenKeys,
    rows: CellRows,
    ahead: NDArray[np.bool_],
    partition: str,
    state: PartitionState,
) -> set[Unlisted]:
    """Return the keys of a slice that may count and have no known number.

    They are noted with the stream: the caller forgets all if one of the records does not count.
    Args: ahead, the rows that the next cut decides about; state, of the partition.
    """
    names = hidden.names.values
    is_new = np.fromiter((name not in stream.numbers for name in names), np.bool_, len(names))
    if rows.users is None:
        return {*compress(names, is_new.tolist())}
    steps = rows.places % rows.cells.key_places * (stream.declared.privacy.caps.max_keys is None)
    known, most, wanted = stream.first_keys, _most_keys(stream), set[Unlisted]()
    for group in [one for one in known if one.partition == partition]:
        is_decided = group.after_cut is not None and group.after_cut < state.last_cut_bin
        if is_decided or group.bin <= state.base_bin:
            del known[group]
    new = is_new[hidden.names.codes]
    for row, code in zip(hidden.rows[new].tolist(), hidden.names.codes[new].tolist(), strict=True):
        place = hidden.hashes[code] + int(steps[row]).to_bytes(CELL_BYTES)
        group = KeysOfBin(partition, int(rows.bins[row]), state.last_cut_bin if ahead[row] else None)
        if may_count(known, group, rows.users.ids[rows.users.rows[row]].tobytes(), place, most):
            wanted.add(names[code])
    return wanted


def _most_keys(stream: LoadedStream) -> int:
    caps = stream.declared.privacy.caps
    return caps.l1 if caps.max_keys is None else min(caps.l1, caps.max_keys)


def user_key(stream: LoadedStream, keys: NoiseKeys, window: int) -> bytes:
    """Return the key of users' hashes in a window. SECRET. Raises: OperatorError if this worker lacks it."""
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
        key = user_key(stream, keys, window)
        sealing, given = KeyNames(key, stream.name, window), (stream.name, stream.strategy.hash, window)
        for start in range(0, len(of_window), _MOST_SEALED):
            some = of_window[start : start + _MOST_SEALED]
            numbers = await store.name_keys(*given, mark_of_users(key), [*map(sealing.sealed, some)])
            if isinstance(numbers, Reply):
                return numbers
            stream.numbers |= {(window, name): number for name, number in zip(some, numbers, strict=True)}
    return None
