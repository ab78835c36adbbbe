"""Numbers of keys that no list names: the reader asks the store for them before it counts records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from stream_app.core.counting.unlisted import place_by_hash
from stream_app.core.records import Reply
from stream_app.core.user_keys import mark_of_users
from stream_app.loops.loaded_streams import LoadedStream
from stream_app.ports import NoiseKeys, Store
from stream_app.ports.exact_counts import MOST_NAMES
from stream_app.vault.key_names import KeyNames

_MOST_KNOWN = 1_000_000  # in memory, for each stream

Unlisted = tuple[int, str]  # a cap window and the name of a key


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
        key = keys.user_key(stream.name, stream.user_keys.of(window))
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
